//! Records that could not be written and whose receipt nobody has read.
//!
//! `produce` returns before a record is written, and most callers drop the receipt. So producers
//! note failures here, and one thread of the process waits in [`DeliveryErrors::next`] to tell of
//! them: once a second, by topic and kind of error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::LogError;
use crate::receipt::{FailureSink, Receipt};

/// How long a failure waits for somebody to read its receipt, and the shortest time between two
/// reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// Failed receipts that are kept until then. When a producer gives up its whole buffer, the others
/// count at once.
const UNREAD_MAX: usize = 1_000;

/// Topics and kinds of errors in one report; with more, the last one stands for the others.
const REPORTED_MAX: usize = 1_000;

/// What happened since the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryError {
    /// The topic; empty when the producer itself complains.
    pub topic: String,
    /// How many of its records are lost; 0 when the producer itself complains.
    pub records: usize,
    /// The error of the first one.
    pub error: LogError,
}

struct UnseenFailure {
    receipt: Arc<Receipt>,
    /// The number of failures of this receipt that must be read.
    failed: usize,
    since: Instant,
    lost: DeliveryError,
}

#[derive(Default)]
struct State {
    unread: Vec<UnseenFailure>,
    reports: Vec<DeliveryError>,
    told_at: Option<Instant>,
    interrupts: u64,
}

/// The failures of a log's producers in this process.
#[derive(Default)]
pub struct DeliveryErrors {
    state: Mutex<State>,
    changed: Condvar,
}

impl FailureSink for DeliveryErrors {
    fn add(&self, receipt: &Arc<Receipt>, failed: usize, topic: &str, error: LogError) {
        let lost = DeliveryError { topic: topic.into(), records: 1, error };
        let mut state = self.state.lock();
        if let Some(last) = state.unread.last_mut() {
            if Arc::ptr_eq(&last.receipt, receipt) && last.lost.is_like(&lost) {
                last.lost.records += 1;
                last.failed = failed;
                return;
            }
        }
        if state.unread.len() < UNREAD_MAX {
            let since = Instant::now();
            state.unread.push(UnseenFailure { receipt: receipt.clone(), failed, since, lost });
        } else if !receipt.is_awaited() {
            state.report(lost);
        }
        self.changed_now(state);
    }
}

impl DeliveryErrors {
    /// A producer complains, and tries again.
    pub(crate) fn complain(&self, error: LogError) {
        let mut state = self.state.lock();
        state.report(DeliveryError { topic: String::new(), records: 0, error });
        self.changed_now(state);
    }

    /// Wakes the thread that waits, unless it knows already when something is due.
    fn changed_now(&self, state: MutexGuard<'_, State>) {
        if state.unread.len() <= 1 && state.reports.len() <= 1 {
            self.changed.notify_one();
        }
    }

    /// Waits until there is something to report; empty when the time is up or
    /// [`DeliveryErrors::interrupt`] was called meanwhile.
    pub fn next(&self, timeout: Duration) -> Vec<DeliveryError> {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        let interrupts = state.interrupts;
        loop {
            let now = Instant::now();
            let due = state.due(now);
            if due.is_some_and(|due| due <= now) {
                state.judge(|one| one.since + INTERVAL <= now);
                if !state.reports.is_empty() {
                    state.told_at = Some(now);
                    return std::mem::take(&mut state.reports);
                }
            } else if now >= until || state.interrupts != interrupts {
                return Vec::new();
            } else {
                let wake = due.map_or(until, |due| due.min(until));
                self.changed.wait_until(&mut state, wake);
            }
        }
    }

    /// Everything at once, for a process that ends.
    pub fn rest(&self) -> Vec<DeliveryError> {
        let mut state = self.state.lock();
        state.judge(|_| true);
        std::mem::take(&mut state.reports)
    }

    /// Ends the waits of other threads.
    pub fn interrupt(&self) {
        self.state.lock().interrupts += 1;
        self.changed.notify_all();
    }
}

impl DeliveryError {
    fn is_like(&self, other: &Self) -> bool {
        self.topic == other.topic && self.error.kind == other.error.kind
    }
}

impl State {
    /// When there may be something to report.
    fn due(&self, now: Instant) -> Option<Instant> {
        let first = self.unread.iter().map(|one| one.since + INTERVAL).min();
        let due = if self.reports.is_empty() { first? } else { now };
        Some(self.told_at.map_or(due, |told| due.max(told + INTERVAL)))
    }

    /// Reports those whose time is over, unless their receipt was read, or somebody waits for it.
    fn judge(&mut self, is_over: impl Fn(&UnseenFailure) -> bool) {
        for mut one in std::mem::take(&mut self.unread) {
            if one.receipt.has_read(one.failed) {
                continue;
            }
            if !is_over(&one) {
                self.unread.push(one);
            } else if one.receipt.is_awaited() {
                // The wait may end before the receipt is done.
                one.since = Instant::now();
                self.unread.push(one);
            } else {
                self.report(one.lost);
            }
        }
    }

    fn report(&mut self, new: DeliveryError) {
        let full = self.reports.len() >= REPORTED_MAX;
        let like = self.reports.iter().position(|one| one.is_like(&new));
        match like.or(full.then_some(REPORTED_MAX - 1)) {
            Some(at) => self.reports[at].records += new.records,
            None => self.reports.push(new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn fail(errors: &Arc<DeliveryErrors>, topic: &str) -> Arc<Receipt> {
        let receipt = Arc::new(Receipt::watched(1, errors.clone()));
        receipt.fail(0, topic, LogError::new(ErrorKind::Unreachable, "gone"));
        receipt
    }

    #[test]
    fn failures_that_nobody_has_read_are_told_together() {
        let errors = Arc::new(DeliveryErrors::default());
        let began = Instant::now();
        for _ in 0..2 * UNREAD_MAX {
            fail(&errors, "a");
        }
        fail(&errors, "b");
        let mut told = errors.next(Duration::from_secs(60));
        while told.iter().map(|one| one.records).sum::<usize>() <= 2 * UNREAD_MAX {
            told.extend(errors.next(Duration::from_secs(60)));
        }
        let of = |topic| -> usize {
            told.iter().filter(|one| one.topic == topic).map(|one| one.records).sum()
        };
        assert_eq!([of("a"), of("b")], [2 * UNREAD_MAX, 1]);
        assert!(began.elapsed() >= INTERVAL && told.len() <= 4, "{told:?}");
        assert_eq!(errors.next(Duration::ZERO), []);
    }

    #[test]
    fn a_receipt_that_was_read_tells_its_failures_itself() {
        let errors = Arc::new(DeliveryErrors::default());
        let read = fail(&errors, "a");
        assert_eq!(read.failures().len(), 1);
        assert_eq!(errors.rest(), []);
        // Two records; only the first failure was read.
        let partly = Arc::new(Receipt::watched(2, errors.clone()));
        partly.fail(0, "a", LogError::new(ErrorKind::Unreachable, "gone"));
        assert_eq!(partly.failed(), 1);
        partly.fail(1, "b", LogError::new(ErrorKind::Full, "full"));
        let rest = errors.rest();
        assert_eq!((rest.len(), rest[0].topic.as_str(), rest[0].records), (1, "b", 1));
    }

    #[test]
    fn a_failure_during_a_wait_is_told_when_the_wait_ends_without_it() {
        let errors = Arc::new(DeliveryErrors::default());
        let receipt = Arc::new(Receipt::watched(2, errors.clone()));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| receipt.wait(Duration::from_secs(60)));
            while !receipt.is_awaited() {
                std::thread::yield_now();
            }
            receipt.fail(0, "a", LogError::new(ErrorKind::Unreachable, "gone"));
            assert_eq!(errors.rest(), []);
            receipt.interrupt();
            assert!(!waits.join().unwrap());
        });
        assert_eq!(errors.rest().len(), 1);
    }

    #[test]
    fn complaints_and_interrupts_end_a_wait() {
        let errors = Arc::new(DeliveryErrors::default());
        let waiting = errors.clone();
        let thread = std::thread::spawn(move || waiting.next(Duration::from_secs(60)));
        errors.complain(LogError::new(ErrorKind::Unreachable, "no broker answers"));
        assert_eq!(thread.join().unwrap()[0].records, 0);
        let waiting = errors.clone();
        let thread = std::thread::spawn(move || waiting.next(Duration::from_secs(60)));
        while !thread.is_finished() {
            errors.interrupt();
            std::thread::yield_now();
        }
        assert_eq!(thread.join().unwrap(), []);
    }
}
