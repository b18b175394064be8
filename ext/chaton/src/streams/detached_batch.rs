//! Batches without an engine, for tests of consumers.

use std::sync::Arc;

use chaton_streams::batch::{Batch, BatchOutcome};
use chaton_streams::log::{Partition, Position};
use chaton_streams::record::{ChunkBuilder, OwnedRecord};
use magnus::{
    function, method, prelude::*, Error, IntoValue, RArray, RHash, RModule, RString, Ruby,
    TryConvert, Value,
};

use super::batch::RbBatch;
use super::new_record::headers_of;
use super::record::binary;
use crate::convert::{copy, text};
use crate::error;

/// Value, key, headers, timestamp_ms and offset of a record.
type RecordRow = (Option<RString>, Option<RString>, Option<RHash>, Option<i64>, Option<i64>);

/// `Batch.build(topic, partition, rows)`.
///
/// # Errors
/// `TypeError`; `ArgumentError` for offsets that do not rise.
fn build(ruby: &Ruby, topic: String, partition: i32, rows: RArray) -> Result<Value, Error> {
    let mut builder = ChunkBuilder::default();
    let mut next = 0;
    for index in 0..rows.len() {
        let row: Value = rows.entry(index as isize)?;
        let (value, key, headers, timestamp_ms, offset) = RecordRow::try_convert(row)?;
        let headers = headers.map_or(Ok(Vec::new()), headers_of)?;
        let headers: Vec<_> = headers.iter().map(|(n, v)| (&n[..], v.as_deref())).collect();
        let (value, key) = (value.map(copy), key.map(copy));
        let offset = offset.unwrap_or(next);
        if offset < next {
            return Err(error::argument(format!("offset {offset} comes after {}", next - 1)));
        }
        next = offset + 1;
        let timestamp_ms = timestamp_ms.unwrap_or(-1);
        builder.push(offset, timestamp_ms, key.as_deref(), value.as_deref(), headers);
    }
    let partition = Partition { topic: Arc::from(topic), number: partition };
    let batch = Batch::detached(partition, Arc::new(builder.finish()));
    Ok(RbBatch::wrap(ruby, batch, "chaton"))
}

/// What the consumer did with a batch that was built.
fn calls(ruby: &Ruby, batch: &RbBatch) -> Result<RHash, Error> {
    let calls = batch.batch().calls();
    let hash = ruby.hash_new();
    let set = |name, value: Value| hash.aset(ruby.to_symbol(name), value);
    set("marked", ruby.ary_from_iter(calls.marked).as_value())?;
    set("paused_s", ruby.into_value(calls.requests.pause.map(|pause| pause.as_secs_f64())))?;
    set(
        "seek",
        calls.requests.seek.map_or(ruby.qnil().as_value(), |to| position_to_ruby(ruby, to)),
    )?;
    let written = ruby.ary_new_capa(calls.written.len());
    for record in &calls.written {
        written.push(record_to_ruby(ruby, record)?)?;
    }
    set("written", written.as_value())?;
    let outcome = match calls.outcome {
        None => ruby.qnil().as_value(),
        Some(BatchOutcome::Done) => ruby.to_symbol("done").as_value(),
        Some(BatchOutcome::Abandoned) => ruby.to_symbol("abandoned").as_value(),
        Some(BatchOutcome::Failed { class, message }) => {
            (ruby.to_symbol("failed"), class, message).into_value_with(ruby)
        }
    };
    set("outcome", outcome)?;
    // Its former name.
    set("ending", outcome)?;
    Ok(hash)
}

fn position_to_ruby(ruby: &Ruby, position: Position) -> Value {
    match position {
        Position::Earliest => ruby.into_value("earliest"),
        Position::Latest => ruby.into_value("latest"),
        Position::Offset(offset) => ruby.into_value(offset),
        Position::Time(ms) => ("time", ms).into_value_with(ruby),
    }
}

/// A row as `produce_many` takes it.
fn record_to_ruby(ruby: &Ruby, record: &OwnedRecord) -> Result<RArray, Error> {
    let headers = ruby.hash_new();
    for (name, value) in &record.headers {
        headers.aset(text(name), value.as_deref().map(binary))?;
    }
    let row = ruby.ary_new_capa(6);
    row.push(record.topic.as_str())?;
    row.push(record.value.as_deref().map(binary))?;
    row.push(record.key.as_deref().map(binary))?;
    row.push(headers)?;
    row.push(record.partition)?;
    row.push(record.timestamp_ms)?;
    Ok(row)
}

/// Adds the methods to the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Batch", ruby.class_object())?;
    class.define_singleton_method("build", function!(build, 3))?;
    class.define_method("calls", method!(calls, 0))?;
    // The former names of two methods.
    class.define_alias("outcome", "calls")
}
