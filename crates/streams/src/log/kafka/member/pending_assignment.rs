//! Partitions that the group gave and that are not read yet: where to begin is
//! being asked.

use std::time::{Duration, Instant};

use rdkafka_sys as sys;

use super::super::super::{Assignment, Partition};
use super::super::raw::{ClientHandle, KafkaError, TopicPartition, TopicPartitionList};
use crate::settings::Start;

/// How long one question may hold the group's thread up.
const ASK_MAX: Duration = Duration::from_millis(500);

/// How long it rests after one that was not answered.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// What was given and when to ask next.
pub struct PendingAssignment {
    list: TopicPartitionList,
    next: Instant,
}

impl PendingAssignment {
    /// To be asked for at once.
    pub fn new(list: TopicPartitionList) -> Self {
        Self { list, next: Instant::now() }
    }

    /// Whether it is about this partition.
    pub fn holds(&self, partition: &Partition) -> bool {
        let same = |one: TopicPartition<'_>| {
            one.topic() == &*partition.topic && one.partition() == partition.number
        };
        self.list.partitions().iter().any(same)
    }

    /// How long to wait at most, if one would wait for so long.
    pub fn wait(&self, timeout: Duration) -> Duration {
        timeout.min(self.next.saturating_duration_since(Instant::now()))
    }

    /// Asks, if it is time: where the group has come to in each.
    pub fn ask(&mut self, handle: &ClientHandle) -> Option<Result<Vec<Assignment>, KafkaError>> {
        if Instant::now() < self.next {
            return None;
        }
        let end = handle.committed(&mut self.list, ASK_MAX);
        let end = end.and_then(|()| self.list.partitions().failure().map_or(Ok(()), Err));
        self.next = Instant::now() + ASK_AGAIN;
        Some(end.map(|()| {
            let assigned = |partition: TopicPartition<'_>| Assignment {
                partition: partition_of(&partition),
                committed: partition.offset(),
                metadata: partition.note(),
            };
            self.list.partitions().iter().map(assigned).collect()
        }))
    }

    /// The partitions with the offsets to begin at.
    pub fn starting(mut self, start: Start) -> TopicPartitionList {
        let otherwise = i64::from(match start {
            Start::Earliest => sys::RD_KAFKA_OFFSET_BEGINNING,
            Start::Latest => sys::RD_KAFKA_OFFSET_END,
        });
        self.list.set_offsets(|partition| partition.offset().unwrap_or(otherwise));
        self.list
    }
}

/// The partition of a place.
pub fn partition_of(partition: &TopicPartition<'_>) -> Partition {
    Partition { topic: partition.topic().into(), number: partition.partition() }
}
