//! Assigned partitions that are not read yet, because their committed offsets are not known.

use std::time::{Duration, Instant};

use rdkafka_sys as sys;

use crate::log::kafka::raw::{ClientHandle, KafkaError, TopicPartition, TopicPartitionList};
use crate::log::{Assignment, Partition};
use crate::settings::Start;

/// How long one request may block the group's thread.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The pause after a request without an answer.
const RETRY_AFTER: Duration = Duration::from_millis(200);

pub struct PendingAssignment {
    list: TopicPartitionList,
    next: Instant,
}

impl PendingAssignment {
    pub fn new(list: TopicPartitionList) -> Self {
        Self { list, next: Instant::now() }
    }

    pub fn contains(&self, partition: &Partition) -> bool {
        let same = |one: TopicPartition<'_>| {
            one.topic() == &*partition.topic && one.partition() == partition.number
        };
        self.list.partitions().iter().any(same)
    }

    /// The timeout, cut to the time of the next request.
    pub fn wait_at_most(&self, timeout: Duration) -> Duration {
        timeout.min(self.next.saturating_duration_since(Instant::now()))
    }

    /// Requests the committed offsets if the request is due.
    pub fn fetch_committed(
        &mut self,
        handle: &ClientHandle,
    ) -> Option<Result<Vec<Assignment>, KafkaError>> {
        if Instant::now() < self.next {
            return None;
        }
        let end = handle.committed(&mut self.list, REQUEST_TIMEOUT);
        let end = end.and_then(|()| self.list.partitions().check());
        self.next = Instant::now() + RETRY_AFTER;
        Some(end.map(|()| {
            let assigned = |partition: TopicPartition<'_>| Assignment {
                partition: partition_of(&partition),
                committed: partition.offset(),
                metadata: partition.metadata(),
            };
            self.list.partitions().iter().map(assigned).collect()
        }))
    }

    /// The partitions with their start offsets.
    pub fn into_offsets(mut self, start: Start) -> TopicPartitionList {
        let otherwise = i64::from(match start {
            Start::Earliest => sys::RD_KAFKA_OFFSET_BEGINNING,
            Start::Latest => sys::RD_KAFKA_OFFSET_END,
        });
        self.list.set_offsets(|partition| partition.offset().unwrap_or(otherwise));
        self.list
    }
}

/// The partition of an element of a list.
pub fn partition_of(partition: &TopicPartition<'_>) -> Partition {
    Partition { topic: partition.topic().into(), number: partition.partition() }
}
