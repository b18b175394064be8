//! One partition that is being read.

use std::collections::VecDeque;

use rdkafka_sys as sys;

use super::raw::{EventQueue, FetchedMessage, KafkaError};
use crate::log::Limits;
use crate::record::{Chunk, ChunkBuilder};

/// Records taken from the queue in one call.
const TAKEN_MAX: usize = 1024;

/// A partition's queue, and what was taken from it but not handed on.
pub struct PartitionQueue {
    held: VecDeque<FetchedMessage>,
    room: Vec<*mut sys::rd_kafka_message_t>,
    /// What came that is no record.
    pub failures: Vec<KafkaError>,
    queue: EventQueue,
}

// SAFETY: `room` is scratch space whose pointers were all handed on.
unsafe impl Send for PartitionQueue {}

impl PartitionQueue {
    /// Of this queue.
    pub fn new(queue: EventQueue) -> Self {
        Self { held: VecDeque::new(), room: Vec::new(), failures: Vec::new(), queue }
    }

    /// The next records, as many as there are and the limits allow.
    pub fn fetch(&mut self, limits: Limits) -> Option<Chunk> {
        let mut chunk: Option<ChunkBuilder> = None;
        loop {
            let have = chunk.as_ref().map_or(0, ChunkBuilder::len);
            if have >= limits.records || !self.refill(limits.records - have) {
                break;
            }
            let builder = chunk.get_or_insert_with(|| self.builder(limits));
            if !fill(&mut self.held, &mut self.failures, builder, limits) {
                break;
            }
        }
        chunk.filter(|builder| !builder.is_empty()).map(ChunkBuilder::finish)
    }

    /// Throws away what has come so far.
    pub fn forget(&mut self) {
        self.held.clear();
        // Those of before were outdated by the seek, and are not handed out;
        // those of after it are.
        self.refill(TAKEN_MAX);
    }

    /// Whether there is something to hand on.
    fn refill(&mut self, wanted: usize) -> bool {
        if self.held.is_empty() {
            let held = &mut self.held;
            self.queue.take(&mut self.room, wanted.min(TAKEN_MAX), |one| held.push_back(one));
        }
        !self.held.is_empty()
    }

    /// With room for what is held, and for as much again as fits.
    fn builder(&self, limits: Limits) -> ChunkBuilder {
        let bytes: usize = self.held.iter().map(FetchedMessage::size).sum();
        let records = self.held.len();
        let times = limits.records.div_ceil(records.max(1));
        let full = records == TAKEN_MAX;
        let guess = if full { bytes.saturating_mul(times) } else { bytes };
        ChunkBuilder::with_capacity(
            if full { limits.records.min(records * times) } else { records },
            guess.min(limits.bytes.max(bytes)),
        )
    }
}

impl Drop for PartitionQueue {
    fn drop(&mut self) {
        // The bell may be gone before librdkafka's partition is.
        self.queue.silence();
    }
}

/// Copies records; false when the chunk is full.
fn fill(
    held: &mut VecDeque<FetchedMessage>,
    failures: &mut Vec<KafkaError>,
    builder: &mut ChunkBuilder,
    limits: Limits,
) -> bool {
    while let Some(message) = held.front() {
        if let Some(failure) = message.failure() {
            failures.push(failure);
            held.pop_front();
            continue;
        }
        let bytes = builder.bytes() + message.size();
        let full = builder.len() >= limits.records || bytes > limits.bytes;
        if !builder.is_empty() && (full || !builder.has_room(message.size())) {
            return false;
        }
        builder.push(
            message.offset(),
            message.timestamp_ms(),
            message.key(),
            message.value(),
            message.headers(),
        );
        held.pop_front();
    }
    true
}
