//! The engine with its threads, and threads that run jobs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::stepped_engine::{config, factory, jids, push, queue};
use crate::cron::Cron;
use crate::engine::job::Job;
use crate::engine::{Config, Engine};
use crate::outcome::Outcome;
use crate::store::{
    Availability, Interrupt, JobLocation, Store, StoreError, StoreEvent, StoreFactory, StoreWatch,
};
use chaton_core::engine::{Engine as _, Feed};

/// Longest wait for a condition.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Threads that run jobs; `body` returns the outcome of each.
struct TestPool {
    jobs: Mutex<Vec<Arc<Job>>>,
    submitted: Condvar,
    over: AtomicBool,
    threads: usize,
    running: Mutex<usize>,
    /// Time between the end of a job and that of its turn, in which the thread is not idle yet.
    rest: Duration,
    idle_told: OnceLock<Box<dyn Fn() + Send + Sync>>,
    done: Mutex<Vec<String>>,
    lines: Mutex<Vec<String>>,
}

impl TestPool {
    fn start(
        threads: usize,
        body: impl Fn(&Job) -> Outcome + Send + Sync + 'static,
    ) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        Self::start_with_rest(threads, Duration::ZERO, body)
    }

    fn start_with_rest(
        threads: usize,
        rest: Duration,
        body: impl Fn(&Job) -> Outcome + Send + Sync + 'static,
    ) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let pool = Arc::new(Self {
            jobs: Mutex::default(),
            submitted: Condvar::new(),
            over: AtomicBool::new(false),
            threads,
            running: Mutex::new(0),
            rest,
            idle_told: OnceLock::new(),
            done: Mutex::default(),
            lines: Mutex::default(),
        });
        let body = Arc::new(body);
        let spawn = |index| {
            let (pool, body) = (pool.clone(), body.clone());
            std::thread::spawn(move || pool.serve(index, &*body))
        };
        let handles = (0..threads).map(spawn).collect();
        (pool, handles)
    }

    fn serve(&self, index: usize, body: &(impl Fn(&Job) -> Outcome + ?Sized)) {
        loop {
            let mut jobs = self.jobs.lock();
            while jobs.is_empty() {
                if self.over.load(Ordering::Relaxed) {
                    return;
                }
                self.submitted.wait(&mut jobs);
            }
            let job = jobs.remove(0);
            drop(jobs);
            if !job.may_start() {
                job.give_back();
                continue;
            }
            *self.running.lock() += 1;
            job.start(index);
            let ending = body(&job);
            self.done.lock().push(job.document().jid().to_string());
            job.finish(ending);
            std::thread::sleep(self.rest);
            *self.running.lock() -= 1;
            self.idle_told.get().into_iter().for_each(|told| told());
        }
    }

    fn end(&self, handles: Vec<JoinHandle<()>>) {
        self.over.store(true, Ordering::Relaxed);
        {
            let _held = self.jobs.lock();
            self.submitted.notify_all();
        }
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    }
}

impl Feed<Job> for TestPool {
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>> {
        self.jobs.lock().push(job);
        Ok(())
    }
    fn flush(&self) {
        self.submitted.notify_all();
    }
    fn take_waiting(&self) -> Vec<Arc<Job>> {
        std::mem::take(&mut *self.jobs.lock())
    }
    fn idle_threads(&self) -> usize {
        self.threads - *self.running.lock()
    }
    fn on_idle_thread(&self, told: Box<dyn Fn() + Send + Sync>) {
        let _ = self.idle_told.set(told);
    }
    fn warn(&self, line: &str) {
        self.lines.lock().push(line.to_string());
    }
    fn signal(&self, _: &str) {}
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < WAIT_MAX, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn started(config: Config, name: &str, pool: &Arc<TestPool>) -> Engine {
    Engine::start(config, &factory(name), pool.clone()).unwrap()
}

#[test]
fn runs_ten_thousand_jobs_each_once() {
    let mut store = factory("threads-many").store();
    for n in 0..10_000 {
        push(&mut *store, ["high", "low"][n % 2], &format!("j{n}"), "", None);
    }
    let (pool, handles) = TestPool::start(4, |_| Outcome::Ack);
    let engine = started(config(), "threads-many", &pool);
    until("all jobs done", || pool.done.lock().len() >= 10_000);
    assert!(engine.wait_idle(WAIT_MAX));
    assert_eq!(pool.done.lock().iter().collect::<HashSet<_>>().len(), 10_000);
    assert_eq!(pool.done.lock().len(), 10_000);
    let stats = engine.stats();
    assert!(stats.round_trips < 2_000, "batches, not single jobs: {stats:?}");
    engine.stop();
    let left = store.stats().unwrap();
    assert_eq!((left.processed, left.in_flight, left.enqueued), (10_000, 0, 0));
    assert!(store.owners().unwrap().is_empty(), "the owner is removed");
    pool.end(handles);
}

/// The only thread takes its time before it is idle again, and the jobs are too long for any to be claimed ahead.
#[test]
fn a_thread_that_is_idle_late_gets_the_next_job() {
    let mut store = factory("threads-late").store();
    (0..4).for_each(|n| push(&mut *store, "low", &format!("j{n}"), "", None));
    let rest = Duration::from_millis(60);
    let (pool, handles) = TestPool::start_with_rest(1, rest, |_| {
        std::thread::sleep(Duration::from_millis(60));
        Outcome::Ack
    });
    let engine = started(config(), "threads-late", &pool);
    until("all jobs done", || pool.done.lock().len() == 4);
    engine.stop();
    pool.end(handles);
}

#[test]
fn an_idle_engine_wakes_for_a_push_and_for_the_schedule() {
    let mut store = factory("threads-idle").store();
    let (pool, handles) = TestPool::start(2, |_| Outcome::Ack);
    let engine = started(config(), "threads-idle", &pool);
    until("the queues were seen empty", || engine.stats().empty_claims > 0);
    push(&mut *store, "low", "a", "", None);
    until("the pushed job ran", || pool.done.lock().len() == 1);
    let soon = chaton_core::clock::wall_s() + 0.05;
    push(&mut *store, "low", "b", "", Some(soon));
    until("the scheduled job ran", || pool.done.lock().len() == 2);
    assert!(chaton_core::clock::wall_s() >= soon);
    engine.stop();
    pool.end(handles);
}

/// A store whose watch cannot be made, or misses every change.
struct UnwatchedStore {
    inner: Arc<dyn StoreFactory>,
    fails: bool,
}

impl StoreFactory for UnwatchedStore {
    fn store(&self) -> Box<dyn Store> {
        self.inner.store()
    }
    fn watch(&self) -> Box<dyn StoreWatch> {
        Box::new(DeafWatch(self.fails))
    }
    fn address(&self) -> &str {
        self.inner.address()
    }
}

struct DeafWatch(bool);

impl StoreWatch for DeafWatch {
    fn arm(&mut self, _: &[Arc<str>]) -> crate::store::Result<Availability> {
        if self.0 {
            return Err(StoreError::unavailable("no inotify instance is left"));
        }
        Ok(Availability { ready: false, next_at: None })
    }
    fn wait(&mut self, timeout: Duration) -> crate::store::Result<StoreEvent> {
        assert!(timeout <= Duration::from_secs(30), "{timeout:?}");
        // The time flies.
        std::thread::sleep(Duration::from_millis(5));
        Ok(StoreEvent::Timeout)
    }
    fn interrupter(&self) -> Arc<dyn Interrupt> {
        struct Ignored;
        impl Interrupt for Ignored {
            fn interrupt(&self) {}
        }
        Arc::new(Ignored)
    }
}

#[test]
fn an_idle_engine_asks_for_jobs_when_the_watch_fails_or_misses_them() {
    for fails in [true, false] {
        let inner = factory(&format!("threads-unwatched-{fails}"));
        let mut store = inner.store();
        let (pool, handles) = TestPool::start(2, |_| Outcome::Ack);
        let factory: Arc<dyn StoreFactory> = Arc::new(UnwatchedStore { inner, fails });
        let settings = Config { retry_max: Duration::from_millis(20), ..config() };
        let engine = Engine::start(settings, &factory, pool.clone()).unwrap();
        until("the queues were seen empty", || engine.stats().empty_claims > 0);
        for n in 0..3 {
            push(&mut *store, "low", "a", "", None);
            until("the pushed job ran", || pool.done.lock().len() == 2 * n + 1);
            let soon = chaton_core::clock::wall_s() + 0.05;
            push(&mut *store, "low", "b", "", Some(soon));
            until("the scheduled job ran", || pool.done.lock().len() == 2 * n + 2);
        }
        engine.stop();
        pool.end(handles);
        let lines = pool.lines.lock();
        assert_eq!(lines.len(), usize::from(fails), "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("inotify")), "{lines:?}");
    }
}

#[test]
fn stopping_requeues_claimed_jobs_in_their_order() {
    let mut store = factory("threads-stop").store();
    for jid in ["a", "b", "c"] {
        push(&mut *store, "low", jid, "", None);
    }
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let wait = gate.clone();
    let (pool, handles) = TestPool::start(1, move |_| {
        let mut open = wait.0.lock();
        while !*open {
            wait.1.wait(&mut open);
        }
        Outcome::Ack
    });
    let engine = started(config(), "threads-stop", &pool);
    until("one job runs", || engine.stats().running == 1);
    engine.quiet();
    assert!(!engine.wait_idle(Duration::from_millis(20)), "one job still runs");
    assert_eq!(engine.give_up().running.len(), 1);
    assert!(engine.wait_idle(WAIT_MAX));
    engine.stop();
    assert_eq!(jids(&mut *store, &queue("low")), ["a", "b", "c"]);
    *gate.0.lock() = true;
    gate.1.notify_all();
    pool.end(handles);
    assert_eq!(store.stats().unwrap().processed, 0, "the late outcome is ignored");
}

#[test]
fn two_engines_enqueue_each_tick_once() {
    let mut store = factory("threads-cron").store();
    let every = |name| {
        Cron::new(name, "* * * * * *", "UTC", "low", r#"{"class":"A","args":[],"queue":"low""#)
    };
    let settings = || Config { crons: vec![every("tick").unwrap()], ..config() };
    let (pool, handles) = TestPool::start(2, |_| Outcome::Ack);
    let engines =
        [started(settings(), "threads-cron", &pool), started(settings(), "threads-cron", &pool)];
    let began = chaton_core::clock::wall_s();
    until("three ticks", || pool.done.lock().len() >= 3);
    let seconds = (chaton_core::clock::wall_s() - began).ceil() as usize;
    assert!(pool.done.lock().len() <= seconds + 1, "more ticks than seconds");
    engines.iter().for_each(Engine::stop);
    pool.end(handles);
    assert_eq!(store.list(&JobLocation::Dead, 0, 1).unwrap().len(), 0);
}

#[test]
fn a_cancel_reaches_a_running_job() {
    let mut store = factory("threads-cancel").store();
    push(&mut *store, "low", "a", "", None);
    let (pool, handles) = TestPool::start(1, |job| {
        until("cancelled", || job.is_cancelled());
        Outcome::Ack
    });
    let engine = started(config(), "threads-cancel", &pool);
    until("it runs", || engine.stats().running == 1);
    store.cancel("a").unwrap();
    until("it ended", || pool.done.lock().len() == 1);
    engine.stop();
    pool.end(handles);
}
