//! Receipts: whether produced records are durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::LogError;

/// Where a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// Partition.
    pub partition: i32,
    /// Offset; -1 where the log did not report it.
    pub offset: i64,
}

/// Failures that are kept; more are only counted.
const FAILURES_KEPT_MAX: usize = 100;

#[derive(Default)]
struct State {
    left: usize,
    failed: usize,
    failures: Vec<(usize, LogError)>,
    last: Option<RecordMetadata>,
    interrupts: u64,
    /// Failures that somebody has asked for.
    read: usize,
    waiting: usize,
}

/// Hears of each record that has failed.
pub trait FailureSink: Send + Sync {
    /// A record of this receipt has failed, the receipt's `failed`th.
    fn add(&self, receipt: &Arc<Receipt>, failed: usize, topic: &str, error: LogError);
}

type OnDone = Box<dyn FnOnce(&Receipt) + Send>;

/// Follows one record, or several sent together, until each is durable or has failed.
pub struct Receipt {
    state: Mutex<State>,
    changed: Condvar,
    on_done: Mutex<Option<OnDone>>,
    /// Is told of failures that nobody reads here.
    unread: Option<Arc<dyn FailureSink>>,
}

impl Receipt {
    /// For this many records, numbered from 0.
    pub fn new(records: usize) -> Self {
        let state = State { left: records, ..State::default() };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            on_done: Mutex::new(None),
            unread: None,
        }
    }

    /// Like [`Receipt::new`]; `errors` is told of failures that nobody reads.
    pub fn watched(records: usize, errors: Arc<dyn FailureSink>) -> Self {
        Self { unread: Some(errors), ..Self::new(records) }
    }

    /// Like [`Receipt::new`]; calls `on_done` once, on the log's thread, when the last record has
    /// ended.
    pub fn with_callback(records: usize, on_done: impl FnOnce(&Receipt) + Send + 'static) -> Self {
        let receipt = Self::new(records);
        *receipt.on_done.lock() = Some(Box::new(on_done));
        receipt
    }

    /// Settles one record: it is durable, or has failed. Logs call this once for each record.
    pub fn complete(&self, index: usize, end: Result<RecordMetadata, LogError>) {
        self.settle(index, end);
    }

    /// Settles a record for this topic that has failed.
    pub fn fail(self: &Arc<Self>, index: usize, topic: &str, error: LogError) {
        let told = self.unread.as_ref().map(|errors| (errors, error.clone()));
        let failed = self.settle(index, Err(error));
        if let Some((errors, error)) = told {
            errors.add(self, failed, topic, error);
        }
    }

    /// Returns how many records have failed so far.
    fn settle(&self, index: usize, end: Result<RecordMetadata, LogError>) -> usize {
        let mut state = self.state.lock();
        state.left = state.left.saturating_sub(1);
        match end {
            Ok(placed) => state.last = Some(placed),
            Err(error) => {
                state.failed += 1;
                if state.failures.len() < FAILURES_KEPT_MAX {
                    state.failures.push((index, error));
                }
            }
        }
        let (done, failed) = (state.left == 0, state.failed);
        drop(state);
        if done {
            self.changed.notify_all();
            let on_done = self.on_done.lock().take();
            if let Some(on_done) = on_done {
                on_done(self);
            }
        }
        failed
    }

    /// Whether every record is completed.
    pub fn is_done(&self) -> bool {
        self.state.lock().left == 0
    }

    /// Waits until every record is completed; false when time is up or [`Receipt::interrupt`] was
    /// called meanwhile.
    pub fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        let interrupts = state.interrupts;
        state.waiting += 1;
        while state.left > 0 && state.interrupts == interrupts {
            if self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.waiting -= 1;
        state.left == 0
    }

    /// Ends the waits of other threads.
    pub fn interrupt(&self) {
        self.state.lock().interrupts += 1;
        self.changed.notify_all();
    }

    /// Whether somebody waits for it now.
    pub(crate) fn is_awaited(&self) -> bool {
        self.state.lock().waiting > 0
    }

    /// Whether somebody has asked for so many failures.
    pub(crate) fn has_read(&self, failed: usize) -> bool {
        self.state.lock().read >= failed
    }

    /// How many records have failed.
    pub fn failed(&self) -> usize {
        let mut state = self.state.lock();
        state.read = state.failed;
        state.failed
    }

    /// The first failures, each with its record's number.
    pub fn failures(&self) -> Vec<(usize, LogError)> {
        let mut state = self.state.lock();
        state.read = state.failed;
        state.failures.clone()
    }

    /// Where the last record was written.
    pub fn metadata(&self) -> Option<RecordMetadata> {
        self.state.lock().last
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_receipt_is_done_when_each_record_is_completed() {
        let (sender, receiver) = mpsc::channel();
        let receipt = Receipt::with_callback(2, move |end| sender.send(end.failed()).unwrap());
        receipt.complete(0, Ok(RecordMetadata { partition: 1, offset: 4 }));
        assert!(!receipt.is_done());
        assert!(!receipt.wait(Duration::ZERO));
        receipt.complete(1, Err(LogError::new(ErrorKind::Unreachable, "gone")));
        assert!(receipt.wait(Duration::ZERO));
        assert_eq!(receiver.try_recv(), Ok(1));
        assert_eq!(receipt.metadata(), Some(RecordMetadata { partition: 1, offset: 4 }));
        assert_eq!(receipt.failures()[0].0, 1);
    }

    #[test]
    fn a_wait_can_be_interrupted() {
        let receipt = std::sync::Arc::new(Receipt::new(1));
        let waiting = receipt.clone();
        let thread = std::thread::spawn(move || waiting.wait(Duration::from_secs(60)));
        while !thread.is_finished() {
            receipt.interrupt();
            std::thread::yield_now();
        }
        assert!(!thread.join().unwrap());
    }
}
