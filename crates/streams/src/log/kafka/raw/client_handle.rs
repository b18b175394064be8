use std::ffi::{c_char, c_void};
use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;

use rdkafka_sys as sys;

use super::{copied, ms, text, written, Conf, ErrorCode, KafkaError, TopicPartitionList};

/// What a handle is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// Reads.
    Consumer,
    /// Writes, or looks after topics.
    Producer,
}

/// How long the end of a handle is waited for: its threads may be looking up a
/// name, which nothing can cut short. They end by themselves then.
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// librdkafka's client: threads and connections of its own.
pub struct ClientHandle(*mut sys::rd_kafka_t);

// SAFETY: librdkafka's handles may be used by all threads at once.
unsafe impl Send for ClientHandle {}
// SAFETY: as above.
unsafe impl Sync for ClientHandle {}

/// Gives a handle to the thread that ends it.
struct OwnedHandle(*mut sys::rd_kafka_t);

// SAFETY: the handle has no other owner any more.
unsafe impl Send for OwnedHandle {}

impl ClientHandle {
    /// Starts its threads. Not in a process that forks.
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
        conf.given();
        Ok(Arc::new(Self(raw)))
    }

    /// For calls of this folder.
    pub(in super::super) fn raw(&self) -> *mut sys::rd_kafka_t {
        self.0
    }

    /// Has the handle's own events come by the consumer's queue.
    pub fn join_queues(&self) {
        // SAFETY: our handle.
        unsafe { sys::rd_kafka_poll_set_consumer(self.0) };
    }

    /// Joins the group for these topics.
    pub fn subscribe(&self, topics: &TopicPartitionList) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        KafkaError::check(unsafe { sys::rd_kafka_subscribe(self.0, topics.raw()) })
    }

    /// Whether assignments are whole, each replacing the one before.
    pub fn is_eager(&self) -> bool {
        // SAFETY: answers a static text.
        unsafe { copied(sys::rd_kafka_rebalance_protocol(self.0)) == "EAGER" }
    }

    /// Whether others have the partitions already that are being revoked.
    pub fn is_assignment_lost(&self) -> bool {
        // SAFETY: our handle.
        unsafe { sys::rd_kafka_assignment_lost(self.0) != 0 }
    }

    /// Begins to read these.
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

    /// Reads these no more.
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

    /// Fills in how far the group has come in each.
    pub fn committed(
        &self,
        list: &mut TopicPartitionList,
        timeout: Duration,
    ) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        KafkaError::check(unsafe { sys::rd_kafka_committed(self.0, list.raw(), ms(timeout)) })
    }

    /// Fills in the first offset at the times that the list has as offsets.
    pub fn offsets_for_times(
        &self,
        list: &mut TopicPartitionList,
        wait: Duration,
    ) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        KafkaError::check(unsafe { sys::rd_kafka_offsets_for_times(self.0, list.raw(), ms(wait)) })
    }

    /// Goes on at the offsets of the list; each place has its own failure.
    pub fn seek(&self, list: &mut TopicPartitionList, timeout: Duration) -> Result<(), KafkaError> {
        // SAFETY: our handle, our list.
        unsafe { KafkaError::take(sys::rd_kafka_seek_partitions(self.0, list.raw(), ms(timeout))) }
    }

    /// The first offset that is not written yet, as last heard.
    pub fn end_offset(&self, topic: &str, partition: i32) -> Option<i64> {
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
        (ErrorCode::from(code) == ErrorCode::NoError && end >= 0).then_some(end)
    }

    /// Names the member of the group and its generation.
    pub fn group_metadata(&self) -> Vec<u8> {
        // SAFETY: both answers are ours and given back; the bytes are copied.
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

    /// What makes this handle useless, if something did.
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

    /// Records that were not delivered yet.
    pub fn left(&self) -> usize {
        // SAFETY: our handle.
        usize::try_from(unsafe { sys::rd_kafka_outq_len(self.0) }).unwrap_or(0)
    }

    /// Sends what is there without waiting for more; true when all is gone.
    pub fn flush(&self, timeout: Duration) -> bool {
        // SAFETY: our handle.
        let code = unsafe { sys::rd_kafka_flush(self.0, ms(timeout)) };
        ErrorCode::from(code) == ErrorCode::NoError
    }

    /// Gives up what is not delivered; each record is told.
    pub fn purge(&self, under_way: bool) {
        let also = if under_way { sys::RD_KAFKA_PURGE_F_INFLIGHT } else { 0 };
        // SAFETY: our handle.
        unsafe { sys::rd_kafka_purge(self.0, sys::RD_KAFKA_PURGE_F_QUEUE | also) };
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        let (told, ended) = mpsc::channel();
        let ending = OwnedHandle(self.0);
        let end = move || {
            let ending = ending;
            // SAFETY: the last owner; queues, topics and messages keep the
            // handle alive, so there are none any more. Leaving the group was
            // done before, bounded.
            unsafe {
                sys::rd_kafka_destroy_flags(ending.0, sys::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
            }
            let _ = told.send(());
        };
        if chaton_core::thread::spawn("chaton-kafka-end", end).is_ok() {
            let _ = ended.recv_timeout(END_WAIT_MAX);
        }
    }
}
