use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use rdkafka_sys as sys;

use super::client_handle::ClientHandle;
use super::kafka_error::{ErrorCode, KafkaError};
use super::message::{DeliveryReport, FetchedMessage};
use super::text::{copied, ms, text};
use super::topic_partitions::{TopicPartitionList, TopicPartitions};
use crate::log::Result as LogResult;

/// The value that is written to an eventfd.
static ONE: u64 = 1;

/// A queue of librdkafka's events or messages.
pub struct EventQueue {
    raw: *mut sys::rd_kafka_queue_t,
    handle: Arc<ClientHandle>,
}

// SAFETY: librdkafka's queues may be used by all threads at once.
unsafe impl Send for EventQueue {}
// SAFETY: as above.
unsafe impl Sync for EventQueue {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Rebalance,
    /// The result of a commit.
    Commit,
    Error,
    /// Delivery reports.
    Delivery,
    Statistics,
    /// Another event, for example the answer to an admin request.
    Other(i32),
}

pub struct QueueEvent {
    raw: *mut sys::rd_kafka_event_t,
    _handle: Arc<ClientHandle>,
}

impl EventQueue {
    /// A new queue, to which nothing is sent by default.
    pub fn new(handle: &Arc<ClientHandle>) -> Self {
        // SAFETY: our handle.
        Self { raw: unsafe { sys::rd_kafka_queue_new(handle.raw()) }, handle: handle.clone() }
    }

    /// The queue of the group's events.
    pub fn of_consumer(handle: &Arc<ClientHandle>) -> Self {
        // SAFETY: our handle, which is a consumer's.
        let raw = unsafe { sys::rd_kafka_queue_get_consumer(handle.raw()) };
        Self { raw, handle: handle.clone() }
    }

    /// The queue of the handle's own events.
    pub fn of_handle(handle: &Arc<ClientHandle>) -> Self {
        // SAFETY: our handle.
        let raw = unsafe { sys::rd_kafka_queue_get_main(handle.raw()) };
        Self { raw, handle: handle.clone() }
    }

    /// The queue of one partition's records, which no longer go to the
    /// consumer's queue; `None` if the partition does not exist.
    pub fn of_partition(
        handle: &Arc<ClientHandle>,
        topic: &str,
        partition: i32,
    ) -> LogResult<Option<Self>> {
        let topic = text(topic)?;
        // SAFETY: our handle, a zero-ended text; null means to stay here.
        unsafe {
            let raw = sys::rd_kafka_queue_get_partition(handle.raw(), topic.as_ptr(), partition);
            if raw.is_null() {
                return Ok(None);
            }
            sys::rd_kafka_queue_forward(raw, std::ptr::null_mut());
            Ok(Some(Self { raw, handle: handle.clone() }))
        }
    }

    /// Forwards all events of this queue to another one.
    pub fn forward_to(&self, other: &Self) {
        // SAFETY: our queues.
        unsafe { sys::rd_kafka_queue_forward(self.raw, other.raw) };
    }

    /// Notifies this eventfd when the empty queue gets an event; once, until the
    /// queue is read again.
    pub fn notify(&self, notifier: RawFd) {
        let payload = (&raw const ONE).cast::<c_void>();
        // SAFETY: our queue; the payload is copied.
        unsafe {
            sys::rd_kafka_queue_io_event_enable(self.raw, notifier, payload, size_of::<u64>())
        };
    }

    /// Rings no more: whoever had the notifier may go.
    pub fn silence(&self) {
        // SAFETY: our queue; -1 takes the descriptor out.
        unsafe { sys::rd_kafka_queue_io_event_enable(self.raw, -1, std::ptr::null(), 0) };
    }

    /// Ends a poll that waits.
    pub fn interrupt(&self) {
        // SAFETY: our queue.
        unsafe { sys::rd_kafka_queue_yield(self.raw) };
    }

    /// Waits for the next event; without a timeout for ever.
    pub fn poll(&self, timeout: Option<Duration>) -> Option<QueueEvent> {
        // SAFETY: our queue.
        let raw = unsafe { sys::rd_kafka_queue_poll(self.raw, timeout.map_or(-1, ms)) };
        (!raw.is_null()).then(|| QueueEvent { raw, _handle: self.handle.clone() })
    }

    /// Up to so many records, without waiting, handed on one by one; returns
    /// how many there were. `pointers` is scratch space.
    pub fn take(
        &self,
        pointers: &mut Vec<*mut sys::rd_kafka_message_t>,
        most: usize,
        mut each: impl FnMut(FetchedMessage),
    ) -> usize {
        pointers.clear();
        pointers.reserve(most);
        // SAFETY: our queue, and pointers for so many pointers; those written are
        // ours from then on.
        unsafe {
            let got = sys::rd_kafka_consume_batch_queue(self.raw, 0, pointers.as_mut_ptr(), most);
            pointers.set_len(usize::try_from(got).unwrap_or(0));
            pointers.iter().for_each(|message| each(FetchedMessage::own(*message)));
        }
        pointers.len()
    }

    /// The next record or error, without waiting.
    pub fn take_one(&self) -> Option<FetchedMessage> {
        // SAFETY: our queue; the message is ours from then on.
        unsafe {
            let message = sys::rd_kafka_consume_queue(self.raw, 0);
            (!message.is_null()).then(|| FetchedMessage::own(message))
        }
    }

    pub fn handle(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    pub(in super::super) fn raw(&self) -> *mut sys::rd_kafka_queue_t {
        self.raw
    }

    /// PendingCommits these; its end comes as an event of this queue.
    pub fn commit(&self, list: &TopicPartitionList) -> Result<(), KafkaError> {
        // SAFETY: our handle, list and queue; no callback, so an event.
        KafkaError::check(unsafe {
            let none = std::ptr::null_mut();
            sys::rd_kafka_commit_queue(self.handle.raw(), list.raw(), self.raw, None, none)
        })
    }

    /// Starts to leave the group; its events arrive in this queue.
    pub fn close_consumer(&self) -> Result<(), KafkaError> {
        // SAFETY: our handle and queue.
        unsafe { KafkaError::take(sys::rd_kafka_consumer_close_queue(self.handle.raw(), self.raw)) }
    }

    /// Whether the group was left.
    pub fn is_consumer_closed(&self) -> bool {
        // SAFETY: our handle.
        unsafe { sys::rd_kafka_consumer_closed(self.handle.raw()) != 0 }
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_queue_destroy(self.raw) };
    }
}

impl QueueEvent {
    pub fn kind(&self) -> EventKind {
        // SAFETY: our event.
        match unsafe { sys::rd_kafka_event_type(self.raw) } {
            sys::RD_KAFKA_EVENT_REBALANCE => EventKind::Rebalance,
            sys::RD_KAFKA_EVENT_OFFSET_COMMIT => EventKind::Commit,
            sys::RD_KAFKA_EVENT_ERROR => EventKind::Error,
            sys::RD_KAFKA_EVENT_DR => EventKind::Delivery,
            sys::RD_KAFKA_EVENT_STATS => EventKind::Statistics,
            other => EventKind::Other(other),
        }
    }

    /// The error code; for a rebalance it tells assignment and revocation apart.
    pub fn code(&self) -> ErrorCode {
        // SAFETY: our event.
        ErrorCode::from(unsafe { sys::rd_kafka_event_error(self.raw) })
    }

    pub fn error(&self) -> KafkaError {
        // SAFETY: our event; its text lives as long.
        unsafe {
            let text = copied(sys::rd_kafka_event_error_string(self.raw));
            let fatal = sys::rd_kafka_event_error_is_fatal(self.raw) != 0;
            KafkaError { fatal, ..KafkaError::reported(self.code(), text) }
        }
    }

    /// A copy of the event's partitions.
    pub fn list(&self) -> TopicPartitionList {
        // SAFETY: our event, whose list is copied.
        unsafe { TopicPartitionList::copy(sys::rd_kafka_event_topic_partition_list(self.raw)) }
    }

    /// The event's partitions.
    pub fn partitions(&self) -> TopicPartitions<'_> {
        // SAFETY: our event, whose list lives as long.
        unsafe { TopicPartitions::of(sys::rd_kafka_event_topic_partition_list(self.raw)) }
    }

    /// The statistics, which are JSON; empty for other events.
    pub fn statistics(&self) -> &[u8] {
        // SAFETY: our event; its text lives as long.
        let text = unsafe { sys::rd_kafka_event_stats(self.raw) };
        if text.is_null() {
            return &[];
        }
        // SAFETY: a text of librdkafka, which ends with a zero.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes()
    }

    /// Passes on each delivery report.
    pub fn each_delivered(&self, mut each: impl FnMut(DeliveryReport<'_>)) {
        loop {
            // SAFETY: our event; its messages live as long, and come once.
            let message = unsafe { sys::rd_kafka_event_message_next(self.raw).as_ref() };
            match message {
                Some(message) => each(DeliveryReport(message)),
                None => return,
            }
        }
    }

    pub(in super::super) fn raw(&self) -> *mut sys::rd_kafka_event_t {
        self.raw
    }
}

impl Drop for QueueEvent {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_event_destroy(self.raw) };
    }
}
