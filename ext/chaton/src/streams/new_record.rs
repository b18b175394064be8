//! Records that Ruby writes.

use chaton_streams::record::{NewRecord, OwnedRecord};
use magnus::r_hash::ForEach;
use magnus::{Error, RArray, RHash, RString, TryConvert, Value};

use crate::convert::copy;
use crate::error;
use crate::traces::ProducerSpan;

/// Names and values, copied.
pub type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A record whose key and value are still Ruby Strings. They are copied once, when it is written.
pub struct RubyRecord {
    topic: RString,
    value: Option<RString>,
    key: Option<RString>,
    headers: Headers,
    partition: Option<i32>,
    timestamp_ms: Option<i64>,
}

impl RubyRecord {
    /// Converts the headers; nothing after this runs Ruby code.
    ///
    /// # Errors
    /// `TypeError` or `ArgumentError`.
    pub fn new(
        topic: RString,
        value: Option<RString>,
        key: Option<RString>,
        headers: Option<RHash>,
        partition: Option<i32>,
        timestamp_ms: Option<i64>,
    ) -> Result<Self, Error> {
        let headers = headers.map_or(Ok(Vec::new()), headers_of)?;
        Ok(Self { topic, value, key, headers, partition, timestamp_ms })
    }

    /// From `[topic, value, key, headers, partition, timestamp_ms]`; a shorter Array ends with nil.
    ///
    /// # Errors
    /// As [`RubyRecord::new`].
    pub fn from_array(value: Value) -> Result<Self, Error> {
        let row = RArray::try_convert(value)?;
        fn at<T: TryConvert>(row: RArray, index: isize) -> Result<Option<T>, Error> {
            row.entry(index)
        }
        let topic = at(row, 0)?.ok_or_else(|| error::argument("a record needs a topic"))?;
        Self::new(topic, at(row, 1)?, at(row, 2)?, at(row, 3)?, at(row, 4)?, at(row, 5)?)
    }

    /// Adds the context of the span that writes it.
    pub fn pass_on(&mut self, span: Option<&ProducerSpan>) {
        pass_on(&mut self.headers, span);
    }

    /// Calls `write` with the record. It must not run Ruby code.
    pub fn with<R>(&self, write: impl FnOnce(&NewRecord<'_>) -> R) -> R {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
        // SAFETY: no Ruby code runs while the slices are used, and the Strings are on this thread's
        // stack or in an Array that is.
        let (topic, key, value) = unsafe {
            (
                self.topic.as_slice(),
                self.key.as_ref().map(|key| key.as_slice()),
                self.value.as_ref().map(|value| value.as_slice()),
            )
        };
        write(&NewRecord {
            // No topic has this name, and the log refuses it.
            topic: std::str::from_utf8(topic).unwrap_or("\u{fffd}"),
            partition: self.partition,
            key,
            value,
            headers: &headers,
            timestamp_ms: self.timestamp_ms,
        })
    }

    /// A copy.
    pub fn owned(&self) -> OwnedRecord {
        OwnedRecord {
            topic: String::from_utf8_lossy(&copy(self.topic)).into_owned(),
            partition: self.partition,
            key: self.key.map(copy),
            value: self.value.map(copy),
            headers: self.headers.clone(),
            timestamp_ms: self.timestamp_ms,
        }
    }
}

/// Adds the context of the span that writes a record, unless its headers have one already.
pub fn pass_on(headers: &mut Headers, span: Option<&ProducerSpan>) {
    let Some((traceparent, tracestate)) = span.map(ProducerSpan::headers) else { return };
    if headers.iter().any(|(name, _)| name == b"traceparent") {
        return;
    }
    headers.push((b"traceparent".into(), Some(traceparent.into())));
    if let Some(state) = tracestate {
        headers.push((b"tracestate".into(), Some(state.into())));
    }
}

/// Headers from a Hash. A value is a String, nil, or an Array of these for a name that comes
/// several times.
///
/// # Errors
/// `TypeError`.
pub fn headers_of(hash: RHash) -> Result<Headers, Error> {
    let mut headers = Vec::with_capacity(hash.len());
    hash.foreach(|name: RString, value: Value| {
        match RArray::from_value(value) {
            Some(values) => {
                for value in values {
                    headers.push((copy(name), bytes_of(value)?));
                }
            }
            None => headers.push((copy(name), bytes_of(value)?)),
        }
        Ok(ForEach::Continue)
    })?;
    Ok(headers)
}

fn bytes_of(value: Value) -> Result<Option<Vec<u8>>, Error> {
    Ok(Option::<RString>::try_convert(value)?.map(copy))
}
