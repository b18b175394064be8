//! Positions as librdkafka's offsets.

use std::time::Duration;

use rdkafka_sys as sys;

use super::errors::explain;
use super::raw::{ClientHandle, TopicPartitionList};
use crate::log::{Partition, Position, Result};

/// The offset of a position. The broker is asked for that of a time and for the end: left to librdkafka, which asks when
/// it next fetches, the end would lie behind records that came after this call.
pub fn resolve(
    handle: &ClientHandle,
    partition: &Partition,
    position: Position,
    timeout: Duration,
) -> Result<i64> {
    let end = i64::from(sys::RD_KAFKA_OFFSET_END);
    let asks_for = match position {
        Position::Earliest => return Ok(i64::from(sys::RD_KAFKA_OFFSET_BEGINNING)),
        Position::Offset(offset) => return Ok(offset.max(0)),
        // One of the times of the protocol's ListOffsets.
        Position::Latest => end,
        Position::Time(ms) => ms.max(0),
    };
    let mut list = TopicPartitionList::new();
    list.add(&partition.topic, partition.number, asks_for, "")?;
    handle
        .offsets_for_times(&mut list, timeout)
        .and_then(|()| list.partitions().check())
        .map_err(|error| explain(&partition.to_string(), &error))?;
    // A time after the last record means the end.
    let found = list.partitions().iter().next().and_then(|found| found.offset());
    Ok(found.unwrap_or(end))
}
