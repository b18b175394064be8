//! Partitions that the group gave and that are not read yet: where to begin is
//! being asked.

use std::time::{Duration, Instant};

use rdkafka_sys as sys;

use super::super::super::{Assignment, Partition};
use super::super::raw::{Failure, Handle, Place, TopicList};
use crate::settings::Start;

/// How long one question may hold the group's thread up.
const ASK_MAX: Duration = Duration::from_millis(500);

/// How long it rests after one that was not answered.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// What was given and when to ask next.
pub struct Joining {
    list: TopicList,
    next: Instant,
}

impl Joining {
    /// To be asked for at once.
    pub fn new(list: TopicList) -> Self {
        Self { list, next: Instant::now() }
    }

    /// Whether it is about this partition.
    pub fn holds(&self, partition: &Partition) -> bool {
        let same = |place: Place<'_>| {
            place.topic() == &*partition.topic && place.partition() == partition.number
        };
        self.list.places().iter().any(same)
    }

    /// How long to wait at most, if one would wait for so long.
    pub fn wait(&self, timeout: Duration) -> Duration {
        timeout.min(self.next.saturating_duration_since(Instant::now()))
    }

    /// Asks, if it is time: where the group has come to in each.
    pub fn ask(&mut self, handle: &Handle) -> Option<Result<Vec<Assignment>, Failure>> {
        if Instant::now() < self.next {
            return None;
        }
        let end = handle.committed(&mut self.list, ASK_MAX);
        let end = end.and_then(|()| self.list.places().failure().map_or(Ok(()), Err));
        self.next = Instant::now() + ASK_AGAIN;
        Some(end.map(|()| {
            let assigned = |place: Place<'_>| Assignment {
                partition: partition_of(&place),
                committed: place.offset(),
                metadata: place.note(),
            };
            self.list.places().iter().map(assigned).collect()
        }))
    }

    /// The partitions with the offsets to begin at.
    pub fn starting(mut self, start: Start) -> TopicList {
        let otherwise = i64::from(match start {
            Start::Earliest => sys::RD_KAFKA_OFFSET_BEGINNING,
            Start::Latest => sys::RD_KAFKA_OFFSET_END,
        });
        self.list.set_offsets(|place| place.offset().unwrap_or(otherwise));
        self.list
    }
}

/// The partition of a place.
pub fn partition_of(place: &Place<'_>) -> Partition {
    Partition { topic: place.topic().into(), number: place.partition() }
}
