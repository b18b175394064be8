//! The sizes of queues, which only the store of the jobs knows.

use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock::now_ns;
use chaton_core::outbox::OutboxStatus;
use tokio::sync::Mutex;

/// How long a scrape waits for the store. Without an answer it shows that there was none.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How long an answer is shown again, so that many scrapers do not ask more often.
const KEPT_NS: u64 = 1_000_000_000;

/// A queue of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueSize {
    /// Its name.
    pub name: String,
    /// Jobs that wait.
    pub size: u64,
    /// Age of the next one (s).
    pub latency_s: f64,
    /// None of its jobs is taken.
    pub paused: bool,
    /// A living process takes its jobs; `None`: not known.
    pub served: Option<bool>,
}

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreSizes {
    /// Its queues.
    pub queues: Vec<QueueSize>,
    /// The other sets of jobs: `scheduled`, `retries`, `dead`, `in_flight`.
    pub sets: Vec<(&'static str, u64)>,
    /// Records that wait there for the log; `None`: it keeps none.
    pub outbox: Option<OutboxStatus>,
}

/// Reads a store. A call may block for as long as the store's own time limits allow.
pub trait QueueSource: Send {
    /// What it holds.
    ///
    /// # Errors
    /// Why it does not answer, for people.
    fn read(&mut self) -> Result<StoreSizes, String>;
}

/// Asks a store at scrapes, one call at a time and at most once a second.
#[derive(Clone)]
pub(crate) struct QueueReader(Arc<Mutex<ReaderState>>);

struct ReaderState {
    source: Box<dyn QueueSource>,
    /// The last answer, and when it came (ns).
    last: (Result<StoreSizes, String>, u64),
}

impl QueueReader {
    pub fn new(source: Box<dyn QueueSource>) -> Self {
        Self(Arc::new(Mutex::new(ReaderState { source, last: (Err(String::new()), 0) })))
    }

    /// What the store holds. A call that hangs is not joined by more of them: all wait for its answer.
    ///
    /// # Errors
    /// Why it does not answer, or not in time.
    pub async fn read(&self) -> Result<StoreSizes, String> {
        let shared = self.0.clone();
        let call = async move {
            let mut state = shared.lock_owned().await;
            let (sizes, at_ns) = &state.last;
            if *at_ns != 0 && now_ns().saturating_sub(*at_ns) < KEPT_NS {
                return sizes.clone();
            }
            let call = move || {
                state.last = (state.source.read(), now_ns());
                state.last.0.clone()
            };
            let called = tokio::task::spawn_blocking(call).await;
            called.unwrap_or_else(|_| Err("the call to the store has failed".to_owned()))
        };
        let late = || format!("the store has not answered within {} s", ANSWER_MAX.as_secs());
        tokio::time::timeout(ANSWER_MAX, call).await.unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver};

    /// Answers when the test says so, with the number of the call.
    struct Slow(u64, Receiver<()>);

    impl QueueSource for Slow {
        fn read(&mut self) -> Result<StoreSizes, String> {
            self.1.recv().map_err(|error| error.to_string())?;
            self.0 += 1;
            Ok(StoreSizes { queues: vec![], sets: vec![("dead", self.0)], outbox: None })
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn an_answer_is_kept_for_a_second() {
        let (answer, answers) = channel();
        let reader = QueueReader::new(Box::new(Slow(0, answers)));
        answer.send(()).unwrap();
        let first = runtime().block_on(reader.read());
        assert_eq!(first.unwrap().sets, [("dead", 1)]);
        // As if it had been now: a busy machine may have taken a second since.
        reader.0.blocking_lock().last.1 = now_ns() + 60 * KEPT_NS;
        let again = runtime().block_on(reader.read());
        assert_eq!(again.unwrap().sets, [("dead", 1)]);
        reader.0.blocking_lock().last.1 = now_ns() - KEPT_NS;
        answer.send(()).unwrap();
        let next = runtime().block_on(reader.read());
        assert_eq!(next.unwrap().sets, [("dead", 2)]);
    }

    #[test]
    fn a_store_that_hangs_is_asked_once_and_holds_nobody_up() {
        let (answer, answers) = channel();
        let reader = QueueReader::new(Box::new(Slow(0, answers)));
        let runtime = runtime();
        let late = Err("the store has not answered within 1 s".to_owned());
        assert_eq!(runtime.block_on(reader.read()), late);
        assert!(reader.0.try_lock().is_err());
        assert_eq!(runtime.block_on(reader.read()), late);
        answer.send(()).unwrap();
        // The runtime waits for the call.
        drop(runtime);
        assert!(reader.0.try_lock().is_ok());
    }
    #[test]
    fn scrapes_at_the_same_time_all_get_an_answer() {
        // A busy machine may take longer than the time for an answer.
        let answered = (0..30).any(|_| {
            let (answer, answers) = channel();
            let reader = QueueReader::new(Box::new(Slow(0, answers)));
            let second = reader.clone();
            let (one, other) = runtime().block_on(async {
                let other = tokio::spawn(async move { second.read().await });
                // Runs when both have asked; the second one may find that the answer is too old.
                tokio::spawn(async move { (0..2).for_each(|_| answer.send(()).unwrap()) });
                (reader.read().await, other.await.unwrap())
            });
            one.is_ok() && other.is_ok()
        });
        assert!(answered);
    }
}
