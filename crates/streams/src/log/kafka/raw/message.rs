use std::ffi::{c_char, c_void, CStr};

use rdkafka_sys as sys;

use super::kafka_error::{ErrorCode, KafkaError};
use super::text::copied;

/// A fetched record or error. It must be dropped before its handle, so its
/// holder also owns the queue it came from.
pub struct FetchedMessage(*mut sys::rd_kafka_message_t);

// SAFETY: one owner; librdkafka lets any thread read and destroy it.
unsafe impl Send for FetchedMessage {}

/// Bytes of `len` at `start`, `None` where that is null.
///
/// # Safety
/// `start` is null or has so many bytes for `'a`.
unsafe fn bytes<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) })
}

impl FetchedMessage {
    /// Takes one over.
    ///
    /// # Safety
    /// owned by the caller.
    pub(super) unsafe fn own(raw: *mut sys::rd_kafka_message_t) -> Self {
        Self(raw)
    }

    fn raw(&self) -> &sys::rd_kafka_message_t {
        // SAFETY: ours and whole.
        unsafe { &*self.0 }
    }

    /// The error, if the message is not a record.
    pub fn error(&self) -> Option<KafkaError> {
        let code = ErrorCode::from(self.raw().err);
        (code != ErrorCode::NoError).then(|| {
            // SAFETY: errors come with a zero-ended text, or with none.
            let text = unsafe { copied(sys::rd_kafka_message_errstr(self.0)) };
            KafkaError::new(code, text)
        })
    }

    /// Bytes of key and value.
    pub fn size(&self) -> usize {
        self.raw().key_len + self.raw().len
    }

    pub fn offset(&self) -> i64 {
        self.raw().offset
    }

    /// Milliseconds since 1970; -1 if there is none.
    pub fn timestamp_ms(&self) -> i64 {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: our message, a place of ours.
        unsafe { sys::rd_kafka_message_timestamp(self.0, &raw mut kind) }
    }

    pub fn key(&self) -> Option<&[u8]> {
        // SAFETY: librdkafka's bytes, which live as long as the message.
        unsafe { bytes(self.raw().key, self.raw().key_len) }
    }

    pub fn value(&self) -> Option<&[u8]> {
        // SAFETY: as above.
        unsafe { bytes(self.raw().payload, self.raw().len) }
    }

    /// False if there are certainly no headers. librdkafka allocates 500 bytes
    /// per record to find that out, which is a fifth of the cost of reading.
    fn may_have_headers(&self) -> bool {
        let raw = self.raw();
        // No value and an empty one are not in the buffer. (A null has no length either.)
        if !KNOWN || raw.len == 0 {
            return true;
        }
        // SAFETY: our message. Only records of format 2 have an epoch.
        if unsafe { sys::rd_kafka_message_leader_epoch(raw) } < 0 {
            return true;
        }
        // SAFETY: a record of format 2 is parsed in the buffer that it came in,
        // in which the count of its headers follows its value (KIP-98;
        // rd_kafka_msgset_reader_msg_v2 takes both by pointer from one segment).
        let count = unsafe { *raw.payload.cast::<u8>().add(raw.len) };
        count != 0
    }

    /// The headers; they are parsed by this call.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut headers = std::ptr::null_mut();
        let some = self.may_have_headers() && {
            // SAFETY: our message; the list belongs to it and lives as long.
            let code = unsafe { sys::rd_kafka_message_headers(self.0, &raw mut headers) };
            ErrorCode::from(code) == ErrorCode::NoError && !headers.is_null()
        };
        (0..).map_while(move |index| {
            // SAFETY: the message's list, when it has one.
            some.then(|| unsafe { header(headers, index) }).flatten()
        })
    }
}

/// Whether [`FetchedMessage::may_have_headers`] was checked against the source
/// of this version of librdkafka.
const KNOWN: bool = sys::RD_KAFKA_VERSION == 0x020c_01ff;

/// The header with this number, if there are so many.
///
/// # Safety
/// `headers` is valid for `'a`.
unsafe fn header<'a>(
    headers: *const sys::rd_kafka_headers_t,
    index: usize,
) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let mut name: *const c_char = std::ptr::null();
    let mut value: *const c_void = std::ptr::null();
    let mut size = 0;
    // SAFETY: the caller's list, places of ours; name and value live in it.
    unsafe {
        let code = sys::rd_kafka_header_get_all(
            headers,
            index,
            &raw mut name,
            &raw mut value,
            &raw mut size,
        );
        (ErrorCode::from(code) == ErrorCode::NoError)
            .then(|| (CStr::from_ptr(name).to_bytes(), bytes(value, size)))
    }
}

impl Drop for FetchedMessage {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_message_destroy(self.0) };
    }
}

/// The delivery report of a record.
pub struct DeliveryReport<'a>(pub(super) &'a sys::rd_kafka_message_t);

impl DeliveryReport<'_> {
    /// One that librdkafka shows.
    ///
    /// # Safety
    /// `message` is valid while this lives.
    pub(in super::super) unsafe fn of(message: *const sys::rd_kafka_message_t) -> Self {
        // SAFETY: guaranteed by the caller.
        Self(unsafe { &*message })
    }

    /// The pointer that the sender passed.
    pub fn opaque(&self) -> *mut c_void {
        self.0._private
    }

    /// The result.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::from(self.0.err)
    }

    /// The partition and the offset.
    pub fn location(&self) -> (i32, i64) {
        (self.0.partition, self.0.offset)
    }

    pub fn topic(&self) -> String {
        // SAFETY: a message keeps its topic alive.
        unsafe { copied(sys::rd_kafka_topic_name(self.0.rkt)) }
    }

    /// Bytes of key and value.
    pub fn size(&self) -> usize {
        self.0.key_len + self.0.len
    }
}

#[cfg(test)]
mod tests {
    // After an update, check that the count still follows the value.
    const _: () = assert!(super::KNOWN, "see may_have_headers");
}
