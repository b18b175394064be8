//! Records that were sent and are not written yet, by partition.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::delivery_errors::DeliveryErrors;
use crate::log::sqlite::batches::NewBatch;
use crate::log::sqlite::log_dir::LogDir;
use crate::log::sqlite::topics::LocalTopic;
use crate::log::Result;
use crate::receipt::{Receipt, RecordMetadata};
use crate::record::NewRecord;

/// Bytes of a batch, but for its last record: a fetch reads it whole, and 500 records of 100 bytes fit.
/// Records without a key go to one partition until its batch has so many or is written.
const BATCH_BYTES: usize = 64 << 10;
/// Bytes that are written in one transaction, but for the last batch, because other writers wait meanwhile.
const TRANSACTION_BYTES: usize = 4 << 20;

/// The buffer between the threads that send and the thread that writes.
pub(super) struct SharedBuffer {
    pub dir: Arc<LogDir>,
    pub errors: Arc<DeliveryErrors>,
    pub buffer: Mutex<ProducerBuffer>,
    /// Notified when a record is added to an empty buffer, and at the end.
    pub added: Condvar,
    /// Notified when records are completed and when waits are interrupted.
    pub completed: Condvar,
}

impl SharedBuffer {
    pub fn new(dir: &Arc<LogDir>, errors: &Arc<DeliveryErrors>) -> Self {
        Self {
            dir: dir.clone(),
            errors: errors.clone(),
            buffer: Mutex::default(),
            added: Condvar::new(),
            completed: Condvar::new(),
        }
    }
}

/// A batch of one partition, in the order the records were sent.
pub(super) struct PendingBatch {
    pub slot: usize,
    pub partition: i32,
    pub batch: NewBatch,
    /// When the first of them was sent.
    since: Instant,
    /// The receipt and index of each record.
    receipts: Vec<Option<(Arc<Receipt>, usize)>>,
}

impl PendingBatch {
    /// The time since the first record was sent.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Completes the receipts: the records are written from this offset on, or have failed.
    pub fn complete(self, topic: &str, result: &Result<i64>) {
        for (receipt, at) in self.receipts.into_iter().zip(0..) {
            let Some((receipt, index)) = receipt else { continue };
            match result {
                Ok(first) => {
                    let (partition, offset) = (self.partition, first + at);
                    receipt.complete(index, Ok(RecordMetadata { partition, offset }));
                }
                Err(error) => receipt.fail(index, topic, error.clone()),
            }
        }
    }
}

struct TopicBuffer {
    topic: LocalTopic,
    /// The batches of each partition.
    partitions: Vec<VecDeque<PendingBatch>>,
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
        self.slots_by_name.get(topic).copied()
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
        known.partitions.resize_with(count, VecDeque::new);
        known.topic = topic;
        slot
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
        let last = partitions[*sticky as usize].back();
        let is_full = last.is_some_and(|last| last.batch.frames.len() >= BATCH_BYTES);
        if is_full || *sticky >= topic.partitions {
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
        let was_empty = self.pending.is_empty();
        let batches = &mut self.slots[slot].partitions[partition as usize];
        if batches.is_empty() {
            self.pending.push_back((slot, partition));
        }
        if batches.back().is_none_or(|last| last.batch.frames.len() >= BATCH_BYTES) {
            let (batch, receipts, since) = (NewBatch::default(), Vec::new(), Instant::now());
            batches.push_back(PendingBatch { slot, partition, batch, since, receipts });
        }
        if let Some(last) = batches.back_mut() {
            last.batch.add(record, size, now_ms);
            last.receipts.push(receipt.map(|(receipt, index)| (receipt.clone(), index)));
        }
        self.records += 1;
        self.bytes += size;
        was_empty
    }

    /// Takes batches for one transaction, of all partitions in turn; none if there are none.
    pub fn take(&mut self) -> Vec<PendingBatch> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < TRANSACTION_BYTES {
            let Some((slot, partition)) = self.pending.pop_front() else { break };
            let known = &mut self.slots[slot];
            if known.sticky == partition {
                known.sticky = (partition + 1) % known.topic.partitions;
            }
            let batches = &mut known.partitions[partition as usize];
            if let Some(batch) = batches.pop_front() {
                bytes += batch.batch.frames.len();
                taken.push(batch);
            }
            if !batches.is_empty() {
                self.pending.push_back((slot, partition));
            }
        }
        taken
    }
}
