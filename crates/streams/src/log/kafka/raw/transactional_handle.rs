use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka_sys as sys;

use super::{ms, ClientHandle, Conf, DeliveryReport, ErrorCode, KafkaError, TopicPartitionList};

/// A producer's handle with transactions.
pub struct TransactionalHandle {
    handle: Arc<ClientHandle>,
    /// Why the first record was not written; librdkafka's thread of the caller
    /// notes it while it waits. Freed after the handle.
    cause: Arc<Mutex<Option<KafkaError>>>,
}

impl TransactionalHandle {
    /// With a handle made by `open`.
    pub fn new<E>(
        mut conf: Conf,
        open: impl FnOnce(Conf) -> Result<Arc<ClientHandle>, E>,
    ) -> Result<Self, E> {
        let cause = Arc::new(Mutex::new(None));
        conf.delivered(note, Arc::as_ptr(&cause).cast_mut().cast());
        Ok(Self { handle: open(conf)?, cause })
    }

    /// The handle, to produce with.
    pub fn handle(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    /// Why the first record of this transaction was not written.
    pub fn cause(&self) -> Option<KafkaError> {
        self.cause.lock().clone()
    }

    /// Takes the place of any other with this id.
    pub fn init(&self, timeout: Duration) -> Result<(), KafkaError> {
        // SAFETY: our handle; the error is ours.
        unsafe { KafkaError::take(sys::rd_kafka_init_transactions(self.handle.raw(), ms(timeout))) }
    }

    /// Begins one.
    pub fn begin(&self) -> Result<(), KafkaError> {
        *self.cause.lock() = None;
        // SAFETY: our handle; the error is ours.
        unsafe { KafkaError::take(sys::rd_kafka_begin_transaction(self.handle.raw())) }
    }

    /// Adds commits of the member that these bytes name.
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

    /// All of it is seen from now on.
    pub fn commit(&self, timeout: Duration) -> Result<(), KafkaError> {
        // SAFETY: our handle; the error is ours.
        unsafe {
            KafkaError::take(sys::rd_kafka_commit_transaction(self.handle.raw(), ms(timeout)))
        }
    }

    /// Nothing of it is ever seen.
    pub fn abort(&self, timeout: Duration) -> Result<(), KafkaError> {
        // SAFETY: our handle; the error is ours.
        unsafe { KafkaError::take(sys::rd_kafka_abort_transaction(self.handle.raw(), ms(timeout))) }
    }
}

/// Called by librdkafka on the thread that waits in one of the calls above.
unsafe extern "C" fn note(
    _: *mut sys::rd_kafka_t,
    message: *const sys::rd_kafka_message_t,
    cause: *mut c_void,
) {
    // SAFETY: a message of librdkafka's; the place that `new` gave, which
    // outlives the handle.
    let (record, cause) =
        unsafe { (DeliveryReport::of(message), &*cause.cast::<Mutex<Option<KafkaError>>>()) };
    let code = record.code();
    // Records of a transaction that is aborted are purged: no cause of it.
    if !matches!(code, ErrorCode::NoError | ErrorCode::PurgeQueue | ErrorCode::PurgeInflight) {
        let mut failure = KafkaError::of(code);
        failure.text = format!("a record for topic {:?}: {}", record.topic(), failure.text);
        cause.lock().get_or_insert(failure);
    }
}
