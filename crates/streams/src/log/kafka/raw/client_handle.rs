use std::ffi::{c_char, c_void};
use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;

use rdkafka_sys as sys;

use super::conf::Conf;
use super::kafka_error::{ErrorCode, KafkaError};
use super::text::{copied, ms, text, written};
use super::topic_partitions::TopicPartitionList;
use crate::log::Partition;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    Consumer,
    /// For producers and admin clients.
    Producer,
}

/// The longest wait for a handle's threads to end. They may be resolving a host
/// name, which cannot be interrupted; then they end on their own later.
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// A client of librdkafka, with its threads and connections.
pub struct ClientHandle(*mut sys::rd_kafka_t);

// SAFETY: librdkafka's handles may be used by all threads at once.
unsafe impl Send for ClientHandle {}
// SAFETY: as above.
unsafe impl Sync for ClientHandle {}

/// Moves a handle to the thread that destroys it.
struct OwnedHandle(*mut sys::rd_kafka_t);

// SAFETY: the handle has no other owner left.
unsafe impl Send for OwnedHandle {}

impl ClientHandle {
    /// Starts the client's threads. Must not be called in a process that forks.
    pub fn new(kind: ClientKind, conf: Conf) -> Result<Arc<Self>, String> {
        let kind = match kind {
            ClientKind::Consumer => sys::rd_kafka_type_t::RD_KAFKA_CONSUMER,
            ClientKind::Producer => sys::rd_kafka_type_t::RD_KAFKA_PRODUCER,
        };
        let mut why = [0u8; 512];
        // SAFETY: a configuration of ours, which the handle takes when it is
        // made, and a buffer with its size.
        let raw = unsafe {
            sys::rd_kafka_new(kind, conf.raw(), why.as_mut_ptr().cast::<c_char>(), why.len())
        };
        if raw.is_null() {
            return Err(written(&why));
        }
        conf.hand_over();
        Ok(Arc::new(Self(raw)))
    }

    pub(in super::super) fn raw(&self) -> *mut sys::rd_kafka_t {
        self.0
    }

    /// Sends the handle's own events to the consumer's queue.
    pub fn join_queues(&self) {
        // SAFETY: our handle.
        unsafe { sys::rd_kafka_poll_set_consumer(self.0) };
    }

    pub fn subscribe(&self, topics: &TopicPartitionList) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        KafkaError::check(unsafe { sys::rd_kafka_subscribe(self.0, topics.raw()) })
    }

    /// Whether each assignment replaces the one before.
    pub fn is_eager(&self) -> bool {
        // SAFETY: returns a static text.
        unsafe { copied(sys::rd_kafka_rebalance_protocol(self.0)) == "EAGER" }
    }

    /// Whether other members already own the partitions that are being revoked.
    pub fn is_assignment_lost(&self) -> bool {
        // SAFETY: our handle.
        unsafe { sys::rd_kafka_assignment_lost(self.0) != 0 }
    }

    /// Starts reading these partitions.
    pub fn assign(&self, list: &TopicPartitionList) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        unsafe {
            if self.is_eager() {
                KafkaError::check(sys::rd_kafka_assign(self.0, list.raw()))
            } else {
                KafkaError::take(sys::rd_kafka_incremental_assign(self.0, list.raw()))
            }
        }
    }

    /// Stops reading these partitions.
    pub fn unassign(&self, list: &TopicPartitionList) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list; null stands for none.
        unsafe {
            if self.is_eager() {
                KafkaError::check(sys::rd_kafka_assign(self.0, std::ptr::null()))
            } else {
                KafkaError::take(sys::rd_kafka_incremental_unassign(self.0, list.raw()))
            }
        }
    }

    /// Fills in the committed offset of each partition.
    pub fn committed(
        &self,
        list: &mut TopicPartitionList,
        timeout: Duration,
    ) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        KafkaError::check(unsafe { sys::rd_kafka_committed(self.0, list.raw(), ms(timeout)) })
    }

    /// Replaces the times that the list has as offsets by the first offsets of these times.
    pub fn offsets_for_times(
        &self,
        list: &mut TopicPartitionList,
        wait: Duration,
    ) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        KafkaError::check(unsafe { sys::rd_kafka_offsets_for_times(self.0, list.raw(), ms(wait)) })
    }

    /// Continues at the offsets of the list; each partition has its own result.
    pub fn seek(&self, list: &mut TopicPartitionList, timeout: Duration) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        unsafe { KafkaError::take(sys::rd_kafka_seek_partitions(self.0, list.raw(), ms(timeout))) }
    }

    /// The log start offset and the log end offset, as last seen; negative while unknown.
    pub fn offsets(&self, topic: &str, partition: i32) -> Option<(i64, i64)> {
        let topic = text(topic).ok()?;
        let (mut start, mut end) = (-1, -1);
        // SAFETY: our handle, a zero-ended text, two numbers of ours.
        let code = unsafe {
            sys::rd_kafka_get_watermark_offsets(
                self.0,
                topic.as_ptr(),
                partition,
                &raw mut start,
                &raw mut end,
            )
        };
        (ErrorCode::from(code) == ErrorCode::NoError).then_some((start, end))
    }

    /// The offset behind the last message that was taken from the partition's queue, be it a record or the marker of a
    /// transaction; `None` before the first, and after a seek.
    pub fn position(&self, partition: &Partition) -> Option<i64> {
        let mut list = TopicPartitionList::new();
        list.add(&partition.topic, partition.number, -1, "").ok()?;
        // SAFETY: our handle, our list.
        KafkaError::check(unsafe { sys::rd_kafka_position(self.0, list.raw()) }).ok()?;
        let position = list.partitions().iter().next().and_then(|one| one.offset());
        position
    }

    /// Identifies the group member and its generation.
    pub fn group_metadata(&self) -> Vec<u8> {
        // SAFETY: both results are ours and given back; the bytes are copied.
        unsafe {
            let metadata = sys::rd_kafka_consumer_group_metadata(self.0);
            if metadata.is_null() {
                return Vec::new();
            }
            let mut buffer: *mut c_void = std::ptr::null_mut();
            let mut size = 0;
            let end = KafkaError::take(sys::rd_kafka_consumer_group_metadata_write(
                metadata,
                &raw mut buffer,
                &raw mut size,
            ));
            sys::rd_kafka_consumer_group_metadata_destroy(metadata);
            if end.is_err() || buffer.is_null() {
                return Vec::new();
            }
            let bytes = std::slice::from_raw_parts(buffer.cast::<u8>(), size).to_vec();
            sys::rd_kafka_mem_free(std::ptr::null_mut(), buffer);
            bytes
        }
    }

    /// The fatal error of this handle, if it has one.
    pub fn fatal(&self) -> Option<KafkaError> {
        let mut why = [0u8; 512];
        // SAFETY: our handle, a buffer and its size.
        let code = unsafe {
            sys::rd_kafka_fatal_error(self.0, why.as_mut_ptr().cast::<c_char>(), why.len())
        };
        match ErrorCode::from(code) {
            ErrorCode::NoError => None,
            code => Some(KafkaError { fatal: true, ..KafkaError::new(code, written(&why)) }),
        }
    }

    /// The number of records that are not delivered yet.
    pub fn undelivered(&self) -> usize {
        // SAFETY: our handle.
        usize::try_from(unsafe { sys::rd_kafka_outq_len(self.0) }).unwrap_or(0)
    }

    /// Sends all queued records at once; true if all are delivered in time.
    pub fn flush(&self, timeout: Duration) -> bool {
        // SAFETY: our handle.
        let code = unsafe { sys::rd_kafka_flush(self.0, ms(timeout)) };
        ErrorCode::from(code) == ErrorCode::NoError
    }

    /// Gives up queued records, and on request those in flight. Each gets a delivery report.
    pub fn purge(&self, in_flight: bool) {
        let also = if in_flight { sys::RD_KAFKA_PURGE_F_INFLIGHT } else { 0 };
        // SAFETY: our handle.
        unsafe { sys::rd_kafka_purge(self.0, sys::RD_KAFKA_PURGE_F_QUEUE | also) };
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        let (sender, ended) = mpsc::channel();
        let ending = OwnedHandle(self.0);
        let end = move || {
            let ending = ending;
            // SAFETY: the last owner; queues, topics and messages keep the handle alive, so there
            // are none any more. Leaving the group was done before, bounded.
            unsafe {
                sys::rd_kafka_destroy_flags(ending.0, sys::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
            }
            let _ = sender.send(());
        };
        if chaton_core::thread::spawn("chaton-kafka-end", end).is_ok() {
            let _ = ended.recv_timeout(END_WAIT_MAX);
        }
    }
}
