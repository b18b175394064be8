//! What was sent and is not written yet, by partition.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::log::local::topics::LocalTopic;
use crate::log::local::{errors, partitioner, record_frame};
use crate::log::{LogError, Result};
use crate::receipt::{Receipt, RecordMetadata};
use crate::record::NewRecord;

/// Records without a key stay with one partition until it has gathered so many
/// bytes or is written.
const STICKY_BYTES: usize = 64 << 10;

/// Who wants to know of one record.
type Waiting = Option<(Arc<Receipt>, usize)>;

/// Records of one partition in the order they were sent.
#[derive(Default)]
pub(super) struct PartitionBuffer {
    pub frames: Vec<u8>,
    waiting: Vec<Waiting>,
}

impl PartitionBuffer {
    /// Records.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Tells everybody how their records ended: the first `count` are
    /// written, from offset `first` on.
    pub fn settle(self, partition: i32, first: i64, count: usize, error: Option<&LogError>) {
        for (at, waiting) in self.waiting.into_iter().enumerate() {
            let Some((receipt, index)) = waiting else { continue };
            match error {
                Some(error) if at >= count => receipt.settle(index, Err(error.clone())),
                _ => receipt
                    .settle(index, Ok(RecordMetadata { partition, offset: first + at as i64 })),
            }
        }
    }
}

struct TopicBuffer {
    topic: LocalTopic,
    batches: Vec<PartitionBuffer>,
    sticky: i32,
}

/// See above.
#[derive(Default)]
pub(super) struct ProducerBuffer {
    /// Records that were sent and have not ended.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Waits that began before the last change of this end.
    pub interrupts: u64,
    /// No more comes.
    pub closed: bool,
    /// There is a thread that writes.
    pub thread: bool,
    names: HashMap<String, usize>,
    slots: Vec<TopicBuffer>,
    /// Partitions that have records: slot and number.
    pending: VecDeque<(usize, i32)>,
}

impl ProducerBuffer {
    /// The slot of a topic that was seen before.
    pub fn slot(&self, topic: &str) -> Option<usize> {
        self.names.get(topic).copied().filter(|slot| !self.slots[*slot].batches.is_empty())
    }

    /// Remembers a topic as it is now.
    pub fn learn(&mut self, topic: LocalTopic) -> usize {
        let slots = &mut self.slots;
        let slot = *self.names.entry(topic.name.to_string()).or_insert_with(|| {
            slots.push(TopicBuffer { topic: topic.clone(), batches: Vec::new(), sticky: 0 });
            slots.len() - 1
        });
        let known = &mut self.slots[slot];
        let count = known.batches.len().max(topic.partitions as usize);
        known.batches.resize_with(count, PartitionBuffer::default);
        known.topic = topic;
        slot
    }

    /// The topic is gone: it is looked for again by the next record.
    pub fn unlearn(&mut self, slot: usize) {
        let known = &mut self.slots[slot];
        if known.batches.iter().all(|batch| batch.len() == 0) {
            known.batches.clear();
        }
    }

    /// As it was seen last.
    pub fn topic(&self, slot: usize) -> &LocalTopic {
        &self.slots[slot].topic
    }

    /// The partition that a record goes to.
    pub fn choose(&mut self, slot: usize, record: &NewRecord<'_>) -> Result<i32> {
        let TopicBuffer { topic, batches, sticky } = &mut self.slots[slot];
        if let Some(number) = record.partition {
            if !(0..topic.partitions).contains(&number) {
                return Err(errors::unknown_partition(&topic.name, number, topic.partitions));
            }
            return Ok(number);
        }
        if let Some(key) = record.key {
            return Ok(partitioner::partition_of(key, topic.partitions));
        }
        let full = batches[*sticky as usize].frames.len() >= STICKY_BYTES;
        if full || *sticky >= topic.partitions {
            *sticky = (*sticky + 1) % topic.partitions;
        }
        Ok(*sticky)
    }

    /// Adds a record; true when the buffer was empty.
    pub fn add(
        &mut self,
        slot: usize,
        partition: i32,
        record: &NewRecord<'_>,
        size: usize,
        now_ms: i64,
        receipt: Option<(&Arc<Receipt>, usize)>,
    ) -> bool {
        let batch = &mut self.slots[slot].batches[partition as usize];
        let was_empty = self.pending.is_empty();
        if batch.len() == 0 {
            self.pending.push_back((slot, partition));
        }
        record_frame::encode(&mut batch.frames, record, size, now_ms);
        batch.waiting.push(receipt.map(|(receipt, index)| (receipt.clone(), index)));
        self.records += 1;
        self.bytes += size;
        was_empty
    }

    /// Whether nothing is to be written.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes the partition that has waited longest.
    pub fn take(&mut self) -> Option<(usize, i32, PartitionBuffer)> {
        let (slot, partition) = self.pending.pop_front()?;
        let known = &mut self.slots[slot];
        if known.sticky == partition {
            known.sticky = (partition + 1) % known.topic.partitions;
        }
        let batch = std::mem::take(&mut known.batches[partition as usize]);
        Some((slot, partition, batch))
    }
}
