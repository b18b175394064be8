//! Batches without an engine, for tests of consumers.

use std::sync::Arc;

use chaton_streams::engine::{Ending, Turn};
use chaton_streams::log::{Partition, Position};
use chaton_streams::record::{ChunkBuilder, OwnedRecord};
use magnus::{prelude::*, Error, IntoValue, RArray, RHash, RString, Ruby, TryConvert, Value};

use super::batch::RbBatch;
use super::given::headers_of;
use super::record::binary;
use crate::convert::{copy, text};
use crate::error;

/// Value, key, headers, timestamp_ms and offset of a record.
type Row = (Option<RString>, Option<RString>, Option<RHash>, Option<i64>, Option<i64>);

/// `Batch.build(topic, partition, rows)`.
///
/// # Errors
/// `TypeError`; `ArgumentError` for offsets that do not rise.
pub fn build(ruby: &Ruby, topic: String, partition: i32, rows: RArray) -> Result<Value, Error> {
    let mut builder = ChunkBuilder::default();
    let mut next = 0;
    for index in 0..rows.len() {
        let row: Value = rows.entry(index as isize)?;
        let (value, key, headers, timestamp_ms, offset) = Row::try_convert(row)?;
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
    Ok(RbBatch::wrap(ruby, Turn::detached(partition, Arc::new(builder.finish()))))
}

/// What happened to a batch that was built.
///
/// # Errors
/// What Ruby raises.
pub fn outcome(ruby: &Ruby, batch: &RbBatch) -> Result<RHash, Error> {
    let outcome = batch.turn().endings();
    let shown = ruby.hash_new();
    let set = |name, value: Value| shown.aset(ruby.to_symbol(name), value);
    set("marked", ruby.ary_from_iter(outcome.marked).as_value())?;
    set("paused_s", ruby.into_value(outcome.pause.map(|pause| pause.as_secs_f64())))?;
    set("seek", outcome.seek.map_or(ruby.qnil().as_value(), |place| shown_place(ruby, place)))?;
    let written = ruby.ary_new_capa(outcome.written.len());
    for record in &outcome.written {
        written.push(shown_record(ruby, record)?)?;
    }
    set("written", written.as_value())?;
    set(
        "ending",
        match outcome.ending {
            None => ruby.qnil().as_value(),
            Some(Ending::Done) => ruby.to_symbol("done").as_value(),
            Some(Ending::Failed { class, message }) => {
                (ruby.to_symbol("failed"), class, message).into_value_with(ruby)
            }
        },
    )?;
    Ok(shown)
}

fn shown_place(ruby: &Ruby, place: Position) -> Value {
    match place {
        Position::Earliest => ruby.into_value("earliest"),
        Position::Latest => ruby.into_value("latest"),
        Position::Offset(offset) => ruby.into_value(offset),
        Position::Time(ms) => ("time", ms).into_value_with(ruby),
    }
}

/// As `produce_many` takes it.
fn shown_record(ruby: &Ruby, record: &OwnedRecord) -> Result<RArray, Error> {
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
