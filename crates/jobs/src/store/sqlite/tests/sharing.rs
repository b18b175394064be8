//! One file with many users: threads, processes, forks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Barrier;
use std::time::Instant;

use chaton_core::file_lock::FileLock;
use chaton_embedded::{Database, Settings, FORK_WAIT_MAX_MS};

use super::*;
use crate::store::conformance::processes::report;

/// Longest wait of these tests for anything.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A child of this process, killed when dropped.
struct ForkedChild(libc::pid_t);

/// Runs in a forked child, which ends without the parent's handlers.
fn in_child(run: impl FnOnce() -> bool) -> ForkedChild {
    // Other tests may be in a transaction meanwhile.
    let _ = FORK_WAIT_MAX_MS.compare_exchange(1_000, 30_000, Ordering::Relaxed, Ordering::Relaxed);
    // SAFETY: the child runs only what is given and leaves by _exit.
    match unsafe { libc::fork() } {
        0 => {
            let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            // SAFETY: ends this process, nothing else.
            unsafe { libc::_exit(i32::from(!worked.unwrap_or(false))) }
        }
        pid => ForkedChild(pid),
    }
}

impl ForkedChild {
    fn kill(&self) {
        // SAFETY: our own child, which was not waited for yet.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    fn waited(&self, flags: i32) -> Option<i32> {
        let mut status = 0;
        // SAFETY: our own child.
        (unsafe { libc::waitpid(self.0, &mut status, flags) } == self.0).then_some(status)
    }

    /// Waits for its end and returns its status; kills it if it does not end.
    fn ended(self) -> i32 {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.waited(libc::WNOHANG) {
                break status;
            }
            if began.elapsed() > TIMEOUT {
                self.kill();
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        std::mem::forget(self);
        status
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        self.kill();
        self.waited(0);
    }
}

/// Databases that this process has open.
fn inherited() -> Vec<PathBuf> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let ends = ["jobs.db", "jobs.db-wal", "jobs.db-shm"];
    targets.filter(|path| ends.iter().any(|end| path.ends_with(end))).collect()
}

#[test]
fn threads_share_commits() {
    let place = TemporaryStore::new(|_| {});
    push(&mut *place.store(), "first").unwrap();
    let settings = Settings { lock_timeout: TIMEOUT, follows: false };
    let database = Database::shared(&place.path(), &schema::FORMAT, settings);
    let before = database.commits.load(Ordering::Relaxed);
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (place, start) = (&place, &start);
            scope.spawn(move || {
                let mut store = place.store();
                start.wait();
                for number in 0..100 {
                    push(&mut *store, &format!("{thread}-{number}")).unwrap();
                }
            });
        }
    });
    let commits = database.commits.load(Ordering::Relaxed) - before;
    assert_eq!(place.store().stats().unwrap().enqueued, 801);
    assert!(commits < 400, "800 pushes of 8 threads in {commits} commits");
}

#[test]
fn one_failure_does_not_undo_the_others() {
    let place = TemporaryStore::new(|_| {});
    push(&mut *place.store(), "first").unwrap();
    assert_eq!(claim(&mut *place.store(), "o", 1, 1).len(), 1);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (place, start) = (&place, &start);
            scope.spawn(move || {
                let mut store = place.store();
                start.wait();
                for number in 0..50 {
                    if thread > 0 {
                        push(&mut *store, &format!("{thread}-{number}")).unwrap();
                        continue;
                    }
                    // The ticket is in use: the claim fails and takes nothing.
                    let queues = ["q".into()];
                    let want = ClaimRequest { queues: &queues, count: 1, first_ticket: 1 };
                    let turn = store.claim("o", &want);
                    assert!(turn.is_err() || turn.unwrap().jobs.is_empty());
                }
            });
        }
    });
    let stats = place.store().stats().unwrap();
    assert_eq!((stats.enqueued, stats.in_flight), (150, 1));
}

#[test]
fn a_child_of_a_fork_opens_anew() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|_| {});
    let mut store = place.store();
    push(&mut *store, "parent").unwrap();
    assert_eq!(store.stats().unwrap().enqueued, 1);
    // While other threads use it, and with a store made before the fork.
    std::thread::scope(|scope| {
        let place = &place;
        let other = scope.spawn(move || {
            let mut store = place.store();
            (0..200).for_each(|number| push(&mut *store, &number.to_string()).unwrap());
        });
        let children: Vec<_> = (0..5)
            .map(|number| in_child(|| push(&mut *store, &format!("child {number}")).is_ok()))
            .collect();
        for child in children {
            assert_eq!(child.ended(), 0);
        }
        other.join().unwrap();
    });
    push(&mut *store, "again").unwrap();
    assert_eq!(store.stats().unwrap().enqueued, 207);
}

/// SQLite's own locks, which a thread holds while it opens or closes a file, would stay held for
/// ever in a child that is forked at that moment, and the child would take open files for its own.
#[test]
fn forks_while_others_open_and_close() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|options| options.durable = false);
    let over = AtomicBool::new(false);
    let ends: Vec<i32> = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let place = TemporaryStore::new(|options| options.durable = false);
                    push(&mut *place.store(), "a").unwrap();
                }
            });
        }
        let fork = || {
            in_child(|| inherited().is_empty() && push(&mut *place.store(), "a").is_ok()).ended()
        };
        // Stops after the first that hung: each takes the whole timeout.
        let mut ends = Vec::new();
        while ends.len() < 50 && ends.last().is_none_or(|end| *end == 0) {
            ends.push(fork());
        }
        over.store(true, Ordering::Relaxed);
        ends
    });
    assert_eq!(ends, [0; 50]);
}

#[test]
fn a_fork_does_not_wait_for_the_lock_between_processes() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|options| options.lock_timeout = Duration::from_secs(20));
    push(&mut *place.store(), "a").unwrap();
    let path = place.path().with_extension("db-lock");
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let lock = FileLock::open(&file).unwrap();
    let held = lock.acquire(TIMEOUT).unwrap().unwrap();
    std::thread::scope(|scope| {
        let pushed = scope.spawn(|| push(&mut *place.store(), "b"));
        // Time to begin its wait for the lock.
        std::thread::sleep(Duration::from_millis(200));
        let child = in_child(|| place.store().stats().is_ok_and(|stats| stats.enqueued == 1));
        assert_eq!(child.ended(), 0);
        drop(held);
        pushed.join().unwrap().unwrap();
    });
}

#[test]
fn a_child_forked_during_a_long_transaction_refuses_to_use_sqlite() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|_| {});
    let mut store = place.store();
    push(&mut *store, "a").unwrap();
    let database = Database::shared(
        &place.path(),
        &schema::FORMAT,
        Settings { lock_timeout: TIMEOUT, follows: false },
    );
    let (begun, end) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            database.write(true, |_| {
                begun.wait();
                end.wait();
                Ok(())
            })
        });
        begun.wait();
        let wait = FORK_WAIT_MAX_MS.swap(10, Ordering::Relaxed);
        let child = in_child(|| {
            let refused = |result: Result<()>| {
                result.is_err_and(|error| error.message.contains("was forked while"))
            };
            refused(push(&mut *store, "b")) && refused(push(&mut *place.store(), "c"))
        });
        FORK_WAIT_MAX_MS.store(wait, Ordering::Relaxed);
        end.wait();
        assert_eq!(child.ended(), 0);
    });
    assert_eq!(in_child(|| push(&mut *store, "d").is_ok()).ended(), 0);
    assert_eq!(store.stats().unwrap().enqueued, 2);
}

/// Claims and acknowledges until it is killed or everything is done.
fn work(place: &TemporaryStore, number: usize) -> bool {
    let owner = format!("host:{number}:{}", std::process::id());
    let mut store = place.store();
    let (mut ticket, mut acks) = (1, Vec::new());
    let queues: [Arc<str>; 1] = ["q".into()];
    loop {
        let want = ClaimRequest { queues: &queues, count: 20, first_ticket: ticket };
        let turn = match store.ack_and_claim(&owner, &acks, Some(&want)) {
            Ok(turn) => turn,
            Err(error) => {
                eprintln!("{owner}: {error}");
                return false;
            }
        };
        if turn.jobs.is_empty() && acks.is_empty() {
            return store.forget(&owner).is_ok_and(|forgotten| forgotten);
        }
        ticket += 20;
        acks = turn.jobs.iter().map(|job| done(job.ticket)).collect();
    }
}

#[test]
fn killing_a_claiming_process_loses_nothing() {
    let _alone = ALONE.lock();
    const JOBS: usize = 6000;
    let place = TemporaryStore::new(|options| options.durable = false);
    let mut store = place.store();
    let payloads: Vec<String> = (0..JOBS).map(|number| format!("job {number}")).collect();
    let jobs: Vec<_> = payloads
        .iter()
        .map(|one| NewJob { queue: "q", payload: one.as_bytes(), at: None, lock: None, bid: None })
        .collect();
    store.push(&jobs).unwrap();
    let children: Vec<_> = (0..3).map(|number| in_child(|| work(&place, number))).collect();
    // Kill two of them once they have begun.
    let began = Instant::now();
    while store.stats().unwrap().enqueued as usize > JOBS - 500 {
        assert!(began.elapsed() < TIMEOUT, "nobody works");
        std::thread::sleep(Duration::from_millis(1));
    }
    children[..2].iter().for_each(ForkedChild::kill);
    let ends: Vec<_> = children.into_iter().map(ForkedChild::ended).collect();
    assert_eq!(ends[2], 0, "the survivor works on: {ends:?}");
    let left = store.stats().unwrap();
    assert_eq!(left.enqueued, 0);
    // The killed processes have at most two batches each in flight.
    let held: usize = store
        .owners()
        .unwrap()
        .iter()
        .map(|owner| store.in_flight(&owner.identity).unwrap().len())
        .sum();
    assert_eq!(held as u64, left.in_flight);
    assert!(held <= 2 * 2 * 20, "{held} in flight");
    assert!(work(&place, 9));
}

#[test]
fn the_kernel_tells_that_an_owner_has_ended() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|_| {});
    let ended = |identity: &str| {
        let owners = place.store().owners().unwrap();
        owners.into_iter().find(|owner| owner.identity == identity).map(|owner| owner.ended)
    };
    let mut mine = place.store();
    mine.heartbeat(&report("mine")).unwrap();
    let child = in_child(|| {
        // The connection that it has from its parent, and one of its own.
        mine.heartbeat(&report("heir")).unwrap();
        let mut store = place.store();
        store.heartbeat(&report("child")).unwrap();
        std::thread::sleep(TIMEOUT);
        true
    });
    let began = Instant::now();
    while ended("child").is_none() {
        assert!(began.elapsed() < TIMEOUT, "it sends no heartbeat");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(["mine", "heir", "child"].map(ended), [Some(false); 3]);
    child.kill();
    child.ended();
    assert_eq!(["mine", "heir", "child"].map(ended), [Some(false), Some(true), Some(true)]);
    assert!(mine.forget("child").unwrap());
    drop(mine);
    assert_eq!(["mine", "child"].map(ended), [Some(true), None]);
}

#[test]
fn a_push_of_another_process_ends_the_wait_soon() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|_| {});
    let mut watch = place.watch();
    let queues: [Arc<str>; 1] = ["q".into()];
    assert!(!watch.arm(&queues).unwrap().ready);
    let child = in_child(|| push(&mut *place.store(), "a").is_ok());
    let began = Instant::now();
    while !watch.arm(&queues).unwrap().ready {
        assert_ne!(watch.wait(TIMEOUT).unwrap(), StoreEvent::Timeout);
    }
    assert!(began.elapsed() < TIMEOUT);
    assert_eq!(child.ended(), 0);
}
