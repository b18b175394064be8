//! Counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub(super) struct JobCounters { $(pub $name: AtomicU64,)* }

        /// The engine's gauges and counters at one moment.
        #[derive(Clone, Copy, Debug, Default, Serialize)]
        pub struct Stats {
            /// Claimed and not started.
            pub unstarted: usize,
            /// Being run.
            pub running: usize,
            /// Ended and not yet written to the store.
            pub unwritten: usize,
            /// Mean time of a run in µs.
            pub service_us: u64,
            /// It claims no more jobs.
            pub quiet: bool,
            /// Its last heartbeat is younger than the lease.
            pub holds_lease: bool,
            $($(#[$doc])* pub $name: u64,)*
        }

        impl JobCounters {
            pub fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* ..Stats::default() }
            }
        }
    };
}

counters! {
    /// Jobs that ended, failures included.
    processed,
    /// Failed jobs among them.
    failed,
    /// Jobs claimed.
    claimed,
    /// Round trips that acknowledged or claimed.
    round_trips,
    /// Claims that returned no job.
    empty_claims,
    /// Acknowledgements of jobs that another owner had reclaimed.
    fenced,
    /// Malformed jobs, sent to the dead set.
    malformed,
    /// Expired jobs that were dropped.
    expired,
    /// Denials by a limit.
    limited,
    /// Jobs that this release does not know, put back for another one.
    put_back,
    /// Jobs requeued unstarted.
    given_back,
    /// Jobs moved from the schedule or the retry set.
    due_moved,
    /// Largest delay of the jobs moved last (µs).
    schedule_lag_us,
    /// Jobs enqueued by the clock.
    cron_pushed,
    /// Heartbeats that succeeded.
    heartbeats,
    /// Round trip of the last heartbeat (µs).
    rtt_us,
    /// Jobs requeued from dead owners.
    recovered,
    /// Jobs sent to the dead set because workers died while running them.
    poisoned,
    /// Calls to the store that failed.
    failures,
    /// Wake-ups of the fetcher.
    fetcher_wakeups,
    /// Wake-ups of the watcher.
    watcher_wakeups,
}
