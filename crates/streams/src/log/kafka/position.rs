//! Positions as librdkafka's offsets.

use std::time::Duration;

use rdkafka_sys as sys;

use super::errors::explain;
use super::raw::{ClientHandle, TopicPartitionList};
use crate::log::{Partition, Position, Result};

/// The offset of a position; the broker is asked for that of a time.
pub fn resolve(
    handle: &ClientHandle,
    partition: &Partition,
    position: Position,
    timeout: Duration,
) -> Result<i64> {
    let end = i64::from(sys::RD_KAFKA_OFFSET_END);
    Ok(match position {
        Position::Earliest => i64::from(sys::RD_KAFKA_OFFSET_BEGINNING),
        Position::Latest => end,
        Position::Offset(offset) => offset.max(0),
        Position::Time(ms) => {
            let mut list = TopicPartitionList::new();
            list.add(&partition.topic, partition.number, ms.max(0), "")?;
            handle
                .offsets_for_times(&mut list, timeout)
                .and_then(|()| list.partitions().check())
                .map_err(|error| explain(&partition.to_string(), &error))?;
            // A time after the last record means the end.
            let found = list.partitions().iter().next().and_then(|found| found.offset());
            found.unwrap_or(end)
        }
    })
}
