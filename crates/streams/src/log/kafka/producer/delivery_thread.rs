//! Receives delivery reports, completes the receipts and wakes threads that
//! wait for room in the buffer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::message_opaque::MessageOpaque;
use crate::delivery_errors::DeliveryErrors;
use crate::log::kafka::broker_statistics::BrokerStatistics;
use crate::log::kafka::config::Config;
use crate::log::kafka::error_reporter::ErrorReporter;
use crate::log::kafka::errors::explain;
use crate::log::kafka::raw::{
    ClientHandle, DeliveryReport, ErrorCode, EventKind, EventQueue, KafkaError, QueueEvent,
};
use crate::log::kafka::refusal_check::{is_refusal, RefusalCheck};
use crate::log::{ErrorKind, LogError, MemberEvent};
use crate::receipt::RecordMetadata;

/// The longest wait for records in flight when the producer is dropped.
const END_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
struct BufferState {
    /// Deliveries so far.
    deliveries: u64,
    /// `deliveries` when the buffer was last full.
    full_at: u64,
    /// The number of records in the buffer then.
    full_with: usize,
    waiting: usize,
    interrupts: u64,
    ended: bool,
}

/// The state that a producer shares with its thread.
pub struct DeliveryThread {
    state: Mutex<BufferState>,
    changed: Condvar,
    errors: Mutex<ErrorReporter>,
    refusals: Mutex<RefusalCheck>,
    delivery_timeout: Duration,
    queue: EventQueue,
    handle: Arc<ClientHandle>,
    /// librdkafka has reported a fatal error: it accepts no record any more.
    failed: AtomicBool,
    statistics: Mutex<Option<BrokerStatistics>>,
    /// Is told what the log complains about.
    complaints: Arc<DeliveryErrors>,
}

impl DeliveryThread {
    pub fn new(
        handle: &Arc<ClientHandle>,
        config: &Config,
        statistics: Option<BrokerStatistics>,
        complaints: &Arc<DeliveryErrors>,
    ) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            errors: Mutex::new(ErrorReporter::new(&config.address)),
            refusals: Mutex::new(RefusalCheck::new(handle, config)),
            delivery_timeout: config.settings.delivery_timeout,
            queue: EventQueue::of_handle(handle),
            handle: handle.clone(),
            failed: AtomicBool::new(false),
            statistics: Mutex::new(statistics),
            complaints: complaints.clone(),
        }
    }

    pub fn handle(&self) -> &Arc<ClientHandle> {
        &self.handle
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Runs until [`DeliveryThread::end`] was called and every record has a report.
    pub fn run(&self) {
        let mut end_by = None;
        loop {
            let timeout = end_by.map(|by: Instant| by.saturating_duration_since(Instant::now()));
            let event = self.queue.poll(timeout);
            let nothing = event.is_none();
            if let Some(event) = event {
                self.handle_event(&event);
                // Dropping the event frees room in the buffer.
                drop(event);
                self.count_delivery();
            }
            self.check_refusal();
            if self.state.lock().ended {
                let by = *end_by.get_or_insert_with(|| Instant::now() + END_MAX);
                let late = nothing && Instant::now() >= by;
                if self.handle.undelivered() == 0 || late {
                    return;
                }
            }
        }
    }

    /// Gives up undelivered records and ends the thread.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
        self.handle.purge(true);
        self.queue.interrupt();
    }

    /// The buffer was full for a record; the next delivery makes room.
    pub fn buffer_full(&self) {
        let mut state = self.state.lock();
        state.full_at = state.deliveries;
        state.full_with = self.handle.undelivered();
    }

    /// Whether half of a full buffer is free, so that waking a thread pays.
    fn has_room(&self, state: &BufferState) -> bool {
        state.deliveries != state.full_at && self.handle.undelivered() <= state.full_with / 2
    }

    /// Waits for room; false if there may still be none.
    pub fn wait_room(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        let interrupts = state.interrupts;
        state.waiting += 1;
        // An empty buffer has room even if the delivery came before the record was refused.
        while !self.has_room(&state) && self.handle.undelivered() > 0 {
            let over = state.interrupts != interrupts || state.ended;
            if over || self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.waiting -= 1;
        state.interrupts == interrupts
            && !state.ended
            && (state.deliveries != state.full_at || self.handle.undelivered() == 0)
    }

    /// Ends all waits that are under way.
    pub fn interrupt(&self) {
        self.state.lock().interrupts += 1;
        self.changed.notify_all();
    }

    fn count_delivery(&self) {
        let mut state = self.state.lock();
        state.deliveries += 1;
        if state.waiting > 0 && self.has_room(&state) {
            self.changed.notify_all();
        }
    }

    fn handle_event(&self, event: &QueueEvent) {
        match event.kind() {
            EventKind::Delivery => {
                let mut any = false;
                event.each_delivered(|record| any |= self.complete(&record));
                if any {
                    self.errors.lock().reset();
                }
            }
            EventKind::Error => {
                let error = event.error();
                if is_refusal(&error) {
                    return self.refused(&error);
                }
                let complaint = self.errors.lock().report(&error);
                self.complain(complaint);
                self.failed.fetch_or(error.fatal, Ordering::Relaxed);
                if error.fatal {
                    self.give_up_queued();
                }
            }
            EventKind::Statistics => {
                self.statistics.lock().iter_mut().for_each(|statistics| statistics.take(event));
            }
            _ => {}
        }
        let overdue = self.errors.lock().report_overdue();
        self.complain(overdue);
    }

    /// Each cause is reported once, as groups do.
    fn complain(&self, event: Option<MemberEvent>) {
        if let Some(MemberEvent::Error(error) | MemberEvent::Fatal(error)) = event {
            self.complaints.complain(error);
        }
    }

    /// Queued records would wait until they time out, although the cause is known and lasts. Those
    /// in flight are left alone: they may have been written.
    fn give_up_queued(&self) {
        self.handle.purge(false);
    }

    /// A broker refuses this client. Records wait until it is known whether another one accepts it.
    fn refused(&self, error: &KafkaError) {
        self.errors.lock().refuse(error);
        let queue = EventQueue::of_handle(&self.handle);
        self.refusals.lock().start(error, move || queue.interrupt());
    }

    fn check_refusal(&self) {
        let Some((refusal, accepted)) = self.refusals.lock().answer() else { return };
        let mut errors = self.errors.lock();
        self.complain(errors.report_refusal(&refusal, accepted));
        if errors.refused().is_none() || self.state.lock().ended {
            return;
        }
        drop(errors);
        self.give_up_queued();
        // Until a broker accepts this client, records that follow wait no longer than these.
        self.refused(&refusal);
    }

    /// Returns whether the record is written.
    fn complete(&self, record: &DeliveryReport<'_>) -> bool {
        let is_written = record.code() == ErrorCode::NoError;
        // SAFETY: an opaque that `send` has handed over; each record has one report.
        let Some((receipt, index)) = (unsafe { MessageOpaque::take_back(record.opaque()) }) else {
            return is_written;
        };
        if is_written {
            let (partition, offset) = record.location();
            receipt.complete(index, Ok(RecordMetadata { partition, offset }));
        } else {
            receipt.fail(index, &record.topic(), self.explain(record, record.code()));
        }
        is_written
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
                let ms = self.delivery_timeout.as_millis();
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
            code => explain(&what, &KafkaError::of(code)).of_record(),
        }
    }
}
