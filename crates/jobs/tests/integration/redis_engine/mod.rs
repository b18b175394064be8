//! An engine that runs each job at once, and a client that pushes jobs meanwhile.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::engine::Feed;
use chaton_jobs::engine::{Config, Engine, Job, JobLogSettings};
use chaton_jobs::outcome::Outcome;
use chaton_jobs::store::{open, NewJob, Store, StoreErrorKind, StoreOptions};
use parking_lot::Mutex;

/// Longest wait for a condition.
const WAIT: Duration = Duration::from_secs(60);

/// Runs each job at once, on the fetcher's thread.
#[derive(Default)]
pub struct InstantFeed {
    pub ran: Mutex<HashSet<String>>,
    pub lines: Mutex<Vec<String>>,
}

impl InstantFeed {
    pub fn ran(&self) -> usize {
        self.ran.lock().len()
    }

    pub fn lines_with(&self, part: &str) -> usize {
        self.lines.lock().iter().filter(|line| line.contains(part)).count()
    }

    pub fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let began = Instant::now();
        while !condition() {
            let lines = self.lines.lock();
            assert!(began.elapsed() < WAIT, "{what}: waited too long; {lines:#?}");
            drop(lines);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Feed<Job> for InstantFeed {
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>> {
        job.start(0);
        self.ran.lock().insert(job.document().jid().to_string());
        job.finish(Outcome::Ack);
        Ok(())
    }
    fn idle_threads(&self) -> usize {
        4
    }
    fn warn(&self, line: &str) {
        self.lines.lock().push(line.to_string());
    }
}

pub fn config(store: StoreOptions) -> Config {
    Config {
        store,
        queues: vec![("q".into(), 1)],
        concurrency: 4,
        prefetch_max: 100,
        ack_delay: Duration::ZERO,
        heartbeat: Duration::from_secs(2),
        catch_up: Duration::from_secs(600),
        log: JobLogSettings::default(),
        ..chaton_core::default_settings!("jobs")
    }
}

pub fn start(store: StoreOptions) -> (Engine, Arc<InstantFeed>) {
    let config = config(store);
    let feed = Arc::new(InstantFeed::default());
    let factory = open(&config.store).unwrap();
    (Engine::start(config, &factory, feed.clone()).unwrap(), feed)
}

pub fn push_one(store: &mut dyn Store, jid: &str, at: Option<f64>) -> Result<(), StoreErrorKind> {
    let payload = format!(r#"{{"class":"A","args":[],"jid":"{jid}","queue":"q"}}"#);
    let one = NewJob { queue: "q", payload: payload.as_bytes(), at, lock: None, bid: None };
    store.push(&[one]).map(drop).map_err(|error| error.kind)
}

/// Pushes jobs one by one; keeps those that were stored.
#[derive(Default)]
pub struct Pusher {
    stored: Mutex<HashSet<String>>,
    pub failed: AtomicUsize,
    over: AtomicBool,
}

impl Pusher {
    fn run(&self, options: &StoreOptions) {
        let mut store = open(options).unwrap().store();
        for n in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            match push_one(&mut *store, &n.to_string(), None) {
                Ok(()) => {
                    self.stored.lock().insert(n.to_string());
                }
                Err(kind) => {
                    assert_eq!(kind, StoreErrorKind::Unavailable);
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn stored(&self) -> usize {
        self.stored.lock().len()
    }

    /// Pushes from a thread of its own during `body`, whether that panics or not. Then every stored
    /// job must run.
    pub fn during(options: &StoreOptions, feed: &InstantFeed, body: impl FnOnce(&Self)) {
        let stored = Self::beside(options, body);
        feed.wait_for("all jobs", || stored.is_subset(&feed.ran.lock()));
    }

    /// Pushes from a thread of its own during `body`, whether that panics or not. The jids of the
    /// stored jobs.
    pub fn beside(options: &StoreOptions, body: impl FnOnce(&Self)) -> HashSet<String> {
        struct Ending<'a>(&'a Pusher);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                self.0.over.store(true, Ordering::Relaxed);
            }
        }
        let pusher = Self::default();
        std::thread::scope(|scope| {
            let _ending = Ending(&pusher);
            scope.spawn(|| pusher.run(options));
            body(&pusher);
        });
        pusher.stored.into_inner()
    }
}
