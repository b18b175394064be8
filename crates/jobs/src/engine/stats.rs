//! JobCounters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub(super) struct JobCounters { $(pub $name: AtomicU64,)* }

        /// The counters at one moment. Gauges beside totals.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Stats {
            /// Claimed and not started.
            pub unstarted: usize,
            /// Being run.
            pub running: usize,
            /// Ended and not yet written to the store.
            pub unwritten: usize,
            /// Mean time of a run in µs.
            pub service_us: u64,
            /// It takes no more jobs.
            pub quiet: bool,
            /// Its last beat is younger than the lease.
            pub holds_lease: bool,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl JobCounters {
            pub fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* ..Stats::default() }
            }
        }

        impl Stats {
            /// Names and values of the totals.
            pub fn totals(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Jobs that ended, failures included.
    processed,
    /// Of these, failed.
    failed,
    /// Jobs claimed.
    claimed,
    /// Round trips that settled or claimed.
    round_trips,
    /// Round trips that claimed nothing though they asked.
    empty_claims,
    /// Settles that came after the job was taken over.
    fenced,
    /// Jobs that were no job documents: in the dead set.
    malformed,
    /// Jobs not run because they expired.
    expired,
    /// Times a job met a limit.
    limited,
    /// Jobs given back unstarted.
    given_back,
    /// Jobs moved from the schedule or the retry set.
    due_moved,
    /// How late the latest of the last ones was (µs).
    schedule_lag_us,
    /// Jobs enqueued by the clock.
    cron_pushed,
    /// Signs of life that were answered.
    heartbeats,
    /// Round trip of the last one (µs).
    rtt_us,
    /// Jobs returned from owners that died.
    recovered,
    /// Jobs dead because workers died of them.
    poisoned,
    /// Calls to the store that failed.
    failures,
    /// Times the fetcher woke.
    fetcher_wakeups,
    /// Times the watcher woke.
    watcher_wakeups,
}
