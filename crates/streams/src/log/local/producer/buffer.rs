//! Records that were sent and are not written yet, by partition.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::log::local::log_dir::LogDir;
use crate::log::local::record_frame;
use crate::log::local::topics::LocalTopic;
use crate::log::{LogError, Partition, Result};
use crate::receipt::{Receipt, RecordMetadata};
use crate::record::NewRecord;

/// Records without a key go to one partition until it has this many bytes or is written.
const STICKY_BYTES: usize = 64 << 10;

/// The buffer between the threads that send and the thread that writes.
pub(super) struct SharedBuffer {
    pub dir: Arc<LogDir>,
    pub buffer: Mutex<ProducerBuffer>,
    /// Notified when a record is added to an empty buffer, and at the end.
    pub added: Condvar,
    /// Notified when records are completed and when waits are interrupted.
    pub completed: Condvar,
}

impl SharedBuffer {
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self {
            dir: dir.clone(),
            buffer: Mutex::default(),
            added: Condvar::new(),
            completed: Condvar::new(),
        }
    }
}

/// Records of one partition in the order they were sent.
#[derive(Default)]
pub(super) struct PartitionBuffer {
    pub frames: Vec<u8>,
    /// When the first of them was sent.
    since: Option<Instant>,
    /// The receipt and index of each record.
    receipts: Vec<Option<(Arc<Receipt>, usize)>>,
}

impl PartitionBuffer {
    pub fn len(&self) -> usize {
        self.receipts.len()
    }

    /// The time since the first of them was sent.
    pub fn age(&self) -> Duration {
        self.since.map(|since| since.elapsed()).unwrap_or_default()
    }

    /// Completes the receipts: the first records are written at these offsets.
    pub fn complete(self, partition: &Partition, written: Range<i64>, error: Option<&LogError>) {
        for (receipt, offset) in self.receipts.into_iter().zip(written.start..) {
            let Some((receipt, index)) = receipt else { continue };
            match error {
                Some(error) if offset >= written.end => {
                    receipt.fail(index, &partition.topic, error.clone());
                }
                _ => {
                    let partition = partition.number;
                    receipt.complete(index, Ok(RecordMetadata { partition, offset }));
                }
            }
        }
    }
}

/// Records that the thread has taken to write them.
pub(super) struct TakenRecords {
    pub slot: usize,
    pub partition: i32,
    pub records: PartitionBuffer,
}

struct TopicBuffer {
    topic: LocalTopic,
    partitions: Vec<PartitionBuffer>,
    /// The partition for records without a key.
    sticky: i32,
}

#[derive(Default)]
pub(super) struct ProducerBuffer {
    /// Records that were sent and are not completed.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
    /// A change of this number ends all waits.
    pub interrupts: u64,
    /// The producer was dropped.
    pub closed: bool,
    /// The thread that writes has been started.
    pub has_thread: bool,
    slots_by_name: HashMap<String, usize>,
    slots: Vec<TopicBuffer>,
    /// The slots and numbers of partitions with records.
    pending: VecDeque<(usize, i32)>,
}

impl ProducerBuffer {
    /// The slot of a known topic.
    pub fn slot(&self, topic: &str) -> Option<usize> {
        let slot = self.slots_by_name.get(topic).copied();
        slot.filter(|slot| !self.slots[*slot].partitions.is_empty())
    }

    /// Adds or updates a topic, and returns its slot.
    pub fn update_topic(&mut self, topic: LocalTopic) -> usize {
        let slots = &mut self.slots;
        let slot = *self.slots_by_name.entry(topic.name.to_string()).or_insert_with(|| {
            slots.push(TopicBuffer { topic: topic.clone(), partitions: Vec::new(), sticky: 0 });
            slots.len() - 1
        });
        let known = &mut self.slots[slot];
        let count = known.partitions.len().max(topic.partitions as usize);
        known.partitions.resize_with(count, PartitionBuffer::default);
        known.topic = topic;
        slot
    }

    /// Makes the next record look for the topic again.
    pub fn forget_topic(&mut self, slot: usize) {
        let known = &mut self.slots[slot];
        if known.partitions.iter().all(|partition| partition.len() == 0) {
            known.partitions.clear();
        }
    }

    pub fn topic(&self, slot: usize) -> &LocalTopic {
        &self.slots[slot].topic
    }

    /// Chooses the partition of a record.
    pub fn choose(&mut self, slot: usize, record: &NewRecord<'_>) -> Result<i32> {
        let TopicBuffer { topic, partitions, sticky } = &mut self.slots[slot];
        if let Some(number) = topic.partition_of(record)? {
            return Ok(number);
        }
        let full = partitions[*sticky as usize].frames.len() >= STICKY_BYTES;
        if full || *sticky >= topic.partitions {
            *sticky = (*sticky + 1) % topic.partitions;
        }
        Ok(*sticky)
    }

    /// Adds a record; true if the buffer was empty.
    pub fn add(
        &mut self,
        slot: usize,
        partition: i32,
        record: &NewRecord<'_>,
        size: usize,
        now_ms: i64,
        receipt: Option<(&Arc<Receipt>, usize)>,
    ) -> bool {
        let buffer = &mut self.slots[slot].partitions[partition as usize];
        let was_empty = self.pending.is_empty();
        if buffer.len() == 0 {
            buffer.since = Some(Instant::now());
            self.pending.push_back((slot, partition));
        }
        record_frame::encode(&mut buffer.frames, record, size, now_ms);
        buffer.receipts.push(receipt.map(|(receipt, index)| (receipt.clone(), index)));
        self.records += 1;
        self.bytes += size;
        was_empty
    }

    /// Whether one of these partitions has records.
    pub fn is_pending(&self, is_one: impl Fn(usize, i32) -> bool) -> bool {
        self.pending.iter().any(|(slot, partition)| is_one(*slot, *partition))
    }

    /// Takes the records of that of these partitions that has waited longest.
    pub fn take(&mut self, is_one: impl Fn(usize, i32) -> bool) -> Option<TakenRecords> {
        let at = self.pending.iter().position(|(slot, partition)| is_one(*slot, *partition))?;
        let (slot, partition) = self.pending.remove(at)?;
        let known = &mut self.slots[slot];
        if known.sticky == partition {
            known.sticky = (partition + 1) % known.topic.partitions;
        }
        let records = std::mem::take(&mut known.partitions[partition as usize]);
        Some(TakenRecords { slot, partition, records })
    }
}
