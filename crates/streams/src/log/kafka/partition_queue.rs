//! The queue of one partition that is read.

use std::collections::VecDeque;

use rdkafka_sys as sys;

use super::raw::{EventQueue, FetchedMessage, KafkaError};
use crate::log::Limits;
use crate::record::{Chunk, ChunkBuilder};

/// Records that one call takes from librdkafka's queue.
const TAKE_MAX: usize = 1024;

/// A partition's queue, and the messages taken from it that were not returned yet.
pub struct PartitionQueue {
    taken: VecDeque<FetchedMessage>,
    pointers: Vec<*mut sys::rd_kafka_message_t>,
    /// Messages that are errors.
    pub errors: Vec<KafkaError>,
    /// Ends are reported among the records. librdkafka's call for many records counts such a report as the
    /// record that will come next (`rd_kafka_q_serve_rkmessages`, 2.12), and a partition that goes on after a
    /// rebalance would begin behind that record. Its call for one record does not.
    reports_ends: bool,
    queue: EventQueue,
}

// SAFETY: `pointers` is scratch space whose pointers were all handed on.
unsafe impl Send for PartitionQueue {}

impl PartitionQueue {
    pub fn new(queue: EventQueue, reports_ends: bool) -> Self {
        let (taken, pointers) = (VecDeque::new(), Vec::new());
        Self { taken, pointers, errors: Vec::new(), reports_ends, queue }
    }

    /// All available records within the limits.
    pub fn fetch(&mut self, limits: Limits) -> Option<Chunk> {
        let mut chunk: Option<ChunkBuilder> = None;
        loop {
            let have = chunk.as_ref().map_or(0, ChunkBuilder::len);
            if have >= limits.records || !self.refill(limits.records - have) {
                break;
            }
            let builder = chunk.get_or_insert_with(|| self.builder(limits));
            if !fill(&mut self.taken, &mut self.errors, builder, limits) {
                break;
            }
        }
        chunk.filter(|builder| !builder.is_empty()).map(ChunkBuilder::finish)
    }

    /// Drops all messages that have arrived so far.
    pub fn clear(&mut self) {
        self.taken.clear();
        // librdkafka skips messages from before a seek and returns later ones.
        self.refill(TAKE_MAX);
    }

    /// Whether there is a message.
    fn refill(&mut self, wanted: usize) -> bool {
        if self.taken.is_empty() {
            let taken = &mut self.taken;
            if self.reports_ends {
                taken.extend(
                    std::iter::from_fn(|| self.queue.take_one()).take(wanted.min(TAKE_MAX)),
                );
                return !taken.is_empty();
            }
            self.queue.take(&mut self.pointers, wanted.min(TAKE_MAX), |one| taken.push_back(one));
        }
        !self.taken.is_empty()
    }

    /// With pointers for what is taken, and for as much again as fits.
    fn builder(&self, limits: Limits) -> ChunkBuilder {
        let bytes: usize = self.taken.iter().map(FetchedMessage::size).sum();
        let records = self.taken.len();
        let times = limits.records.div_ceil(records.max(1));
        let full = records == TAKE_MAX;
        let guess = if full { bytes.saturating_mul(times) } else { bytes };
        ChunkBuilder::with_capacity(
            if full { limits.records.min(records * times) } else { records },
            guess.min(limits.bytes.max(bytes)),
        )
    }
}

impl Drop for PartitionQueue {
    fn drop(&mut self) {
        // The notifier may be closed before librdkafka's partition is gone.
        self.queue.silence();
    }
}

/// Copies records; false if the chunk is full.
fn fill(
    taken: &mut VecDeque<FetchedMessage>,
    errors: &mut Vec<KafkaError>,
    builder: &mut ChunkBuilder,
    limits: Limits,
) -> bool {
    while let Some(message) = taken.front() {
        if let Some(error) = message.error() {
            errors.push(error);
            taken.pop_front();
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
        taken.pop_front();
    }
    true
}
