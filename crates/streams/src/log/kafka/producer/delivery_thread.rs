//! Hears what became of records, settles their receipts, and tells those who
//! wait for room.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::super::super::{ErrorKind, LogError};
use super::super::config::Config;
use super::super::error_reporter::{explain, ErrorReporter};
use super::super::raw::{
    ClientHandle, DeliveryReport, ErrorCode, EventKind, EventQueue, KafkaError, QueueEvent,
};
use super::message_opaque::MessageOpaque;
use crate::receipt::RecordMetadata;

/// How long the end waits for records that are under way in librdkafka.
const END_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
struct BufferState {
    /// DeliveryThread heard of so far.
    heard: u64,
    /// That many were, when the buffer was full last.
    full_at: u64,
    /// And it held so many records.
    full_with: usize,
    waiting: usize,
    interrupts: u64,
    ended: bool,
}

/// What happens behind a producer.
pub struct DeliveryThread {
    room: Mutex<BufferState>,
    changed: Condvar,
    errors: Mutex<ErrorReporter>,
    delivery_timeout_ms: u64,
    queue: EventQueue,
    handle: Arc<ClientHandle>,
}

impl DeliveryThread {
    /// Of this handle.
    pub fn new(handle: &Arc<ClientHandle>, config: &Config) -> Self {
        Self {
            room: Mutex::default(),
            changed: Condvar::new(),
            errors: Mutex::new(ErrorReporter::new(&config.address)),
            delivery_timeout_ms: config.settings.delivery_timeout_ms,
            queue: EventQueue::of_handle(handle),
            handle: handle.clone(),
        }
    }

    /// The producer's.
    pub fn handle(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    /// Until [`DeliveryThread::end`] was called and all records were told of.
    pub fn run(&self) {
        let mut end_by = None;
        loop {
            let timeout = end_by.map(|by: Instant| by.saturating_duration_since(Instant::now()));
            let event = self.queue.poll(timeout);
            let nothing = event.is_none();
            if let Some(event) = event {
                self.hear(&event);
                // The room is there when the event is gone.
                drop(event);
                self.heard();
            }
            if self.room.lock().ended {
                let by = *end_by.get_or_insert_with(|| Instant::now() + END_MAX);
                let late = nothing && Instant::now() >= by;
                if self.handle.left() == 0 || late {
                    return;
                }
            }
        }
    }

    /// Gives up what is left and ends the thread.
    pub fn end(&self) {
        self.room.lock().ended = true;
        self.changed.notify_all();
        self.handle.purge(true);
        self.queue.interrupt();
    }

    /// A record found no room: the next delivery makes some.
    pub fn full(&self) {
        let mut room = self.room.lock();
        room.full_at = room.heard;
        room.full_with = self.handle.left();
    }

    /// Whether half of a full buffer is free: who is woken shall have something
    /// to do.
    fn has_room(&self, room: &BufferState) -> bool {
        room.heard != room.full_at && self.handle.left() <= room.full_with / 2
    }

    /// Waits for room; false when there may still be none.
    pub fn wait_room(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut room = self.room.lock();
        let interrupts = room.interrupts;
        room.waiting += 1;
        // An empty buffer has room even when the delivery was heard of before
        // the record was refused.
        while !self.has_room(&room) && self.handle.left() > 0 {
            let over = room.interrupts != interrupts || room.ended;
            if over || self.changed.wait_until(&mut room, until).timed_out() {
                break;
            }
        }
        room.waiting -= 1;
        room.interrupts == interrupts
            && !room.ended
            && (room.heard != room.full_at || self.handle.left() == 0)
    }

    /// Makes waits return.
    pub fn interrupt(&self) {
        self.room.lock().interrupts += 1;
        self.changed.notify_all();
    }

    fn heard(&self) {
        let mut room = self.room.lock();
        room.heard += 1;
        if room.waiting > 0 && self.has_room(&room) {
            self.changed.notify_all();
        }
    }

    fn hear(&self, event: &QueueEvent) {
        match event.kind() {
            EventKind::Delivery => {
                event.each_delivered(|record| self.settle(&record));
                self.errors.lock().forget();
            }
            EventKind::Error => {
                let failure = event.failure();
                self.errors.lock().hear(&failure);
                // Records would wait for their time to be up, for a reason that
                // is known and does not go away. What is under way is left to
                // itself: it may have been written.
                if matches!(failure.code, ErrorCode::Authentication | ErrorCode::SSL)
                    || failure.fatal
                {
                    self.handle.purge(false);
                }
            }
            _ => {}
        }
    }

    fn settle(&self, record: &DeliveryReport<'_>) {
        // SAFETY: a ticket that `send` gave; a record is delivered once.
        let Some((receipt, index)) = (unsafe { MessageOpaque::back(record.opaque()) }) else {
            return;
        };
        let end = match record.code() {
            ErrorCode::NoError => {
                let (partition, offset) = record.partition();
                Ok(RecordMetadata { partition, offset })
            }
            code => Err(self.explain(record, code)),
        };
        receipt.complete(index, end);
    }

    fn explain(&self, record: &DeliveryReport<'_>, code: ErrorCode) -> LogError {
        let what = format!("a record of {} bytes for topic {:?}", record.size(), record.topic());
        let errors = self.errors.lock();
        let cause = errors.cause().unwrap_or("no broker has confirmed it");
        match code {
            ErrorCode::PurgeQueue | ErrorCode::PurgeInflight => {
                let code = errors.refused().unwrap_or(ErrorCode::AllBrokersDown);
                explain(&what, &KafkaError::new(code, format!("it was given up: {cause}")))
            }
            ErrorCode::MessageTimedOut | ErrorCode::TimedOutQueue => {
                let ms = self.delivery_timeout_ms;
                let text = format!("it was not written within {ms} ms: {cause}");
                explain(&what, &KafkaError::new(ErrorCode::MessageTimedOut, text))
            }
            ErrorCode::UnknownTopic | ErrorCode::UnknownTopicOrPartition => LogError::new(
                ErrorKind::UnknownTopic,
                format!(
                    "topic {:?} is not there; create it (chaton streams apply) or correct the name",
                    record.topic()
                ),
            ),
            code => explain(&what, &KafkaError::of(code)),
        }
    }
}
