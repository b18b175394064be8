use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka_sys as sys;

use super::client_handle::ClientHandle;
use super::conf::Conf;
use super::kafka_error::{ErrorCode, KafkaError};
use super::message::DeliveryReport;
use super::text::ms;
use super::topic_partitions::TopicPartitionList;

/// A handle of a transactional producer.
pub struct TransactionalHandle {
    handle: Arc<ClientHandle>,
    /// The error of the first undelivered record, set by the callback below.
    /// Dropped after the handle.
    cause: Arc<Mutex<Option<KafkaError>>>,
}

impl TransactionalHandle {
    pub fn new<E>(
        mut conf: Conf,
        open: impl FnOnce(Conf) -> Result<Arc<ClientHandle>, E>,
    ) -> Result<Self, E> {
        let cause = Arc::new(Mutex::new(None));
        conf.delivered(record_failed_delivery, Arc::as_ptr(&cause).cast_mut().cast());
        Ok(Self { handle: open(conf)?, cause })
    }

    pub fn handle(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    /// The error of the first undelivered record of this transaction.
    pub fn cause(&self) -> Option<KafkaError> {
        self.cause.lock().clone()
    }

    /// Fences off other producers of this id.
    pub fn init(&self, timeout: Duration) -> Result<(), KafkaError> {
        // SAFETY: our handle; the error is ours.
        unsafe { KafkaError::take(sys::rd_kafka_init_transactions(self.handle.raw(), ms(timeout))) }
    }

    pub fn begin(&self) -> Result<(), KafkaError> {
        *self.cause.lock() = None;
        // SAFETY: our handle; the error is ours.
        unsafe { KafkaError::take(sys::rd_kafka_begin_transaction(self.handle.raw())) }
    }

    /// Adds commits of the member with this identity.
    pub fn send_offsets(
        &self,
        commits: &TopicPartitionList,
        member: &[u8],
        timeout: Duration,
    ) -> Result<(), KafkaError> {
        let mut metadata = std::ptr::null_mut();
        // SAFETY: our handle and list; the metadata is ours and given back.
        unsafe {
            let bytes = member.as_ptr().cast::<c_void>();
            KafkaError::take(sys::rd_kafka_consumer_group_metadata_read(
                &raw mut metadata,
                bytes,
                member.len(),
            ))?;
            let end = KafkaError::take(sys::rd_kafka_send_offsets_to_transaction(
                self.handle.raw(),
                commits.raw(),
                metadata,
                ms(timeout),
            ));
            sys::rd_kafka_consumer_group_metadata_destroy(metadata);
            end
        }
    }

    pub fn commit(&self, timeout: Duration) -> Result<(), KafkaError> {
        // SAFETY: our handle; the error is ours.
        unsafe {
            KafkaError::take(sys::rd_kafka_commit_transaction(self.handle.raw(), ms(timeout)))
        }
    }

    pub fn abort(&self, timeout: Duration) -> Result<(), KafkaError> {
        // SAFETY: our handle; the error is ours.
        unsafe { KafkaError::take(sys::rd_kafka_abort_transaction(self.handle.raw(), ms(timeout))) }
    }
}

/// librdkafka calls this on the thread that waits in one of the calls above.
unsafe extern "C" fn record_failed_delivery(
    _: *mut sys::rd_kafka_t,
    message: *const sys::rd_kafka_message_t,
    cause: *mut c_void,
) {
    // SAFETY: a message of librdkafka's; the place that `new` gave, which outlives the handle.
    let (record, cause) =
        unsafe { (DeliveryReport::of(message), &*cause.cast::<Mutex<Option<KafkaError>>>()) };
    let code = record.code();
    // An aborted transaction purges its records, which is not a cause.
    if !matches!(code, ErrorCode::NoError | ErrorCode::PurgeQueue | ErrorCode::PurgeInflight) {
        let mut error = KafkaError::of(code);
        error.text = format!("a record for topic {:?}: {}", record.topic(), error.text);
        cause.lock().get_or_insert(error);
    }
}
