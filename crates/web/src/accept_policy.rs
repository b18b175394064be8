//! Decides which worker accepts a new connection: this one or a freer sibling.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use chaton_core::clock;
use chaton_core::process::scoreboard::{Scoreboard, WorkerGauges};

/// A worker still accepts with this many requests more than the freest one:
/// gauges are read without a lock, and deferring costs more than it gains.
const BUSY_SLACK: u32 = 1;

/// As above, for connections.
const CONNECTION_SLACK: u32 = 4;

/// How loaded a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerLoad {
    /// For how many times `hogged_after` its work has kept others waiting; 0: it does not.
    pub hogged: u64,
    /// Units of work waiting and running, or about to come: the connections that were
    /// accepted and have no response yet, where they are more.
    pub busy: u32,
    /// Open connections.
    pub connections: u32,
    /// Those of them that have had no response yet.
    pub unserved: u32,
}

impl WorkerLoad {
    fn of(slot: &WorkerGauges, now_ms: u64, hogged_after_ms: u64) -> Self {
        let hogged = slot.hogged_ms(now_ms) / hogged_after_ms.max(1);
        let working = slot.queued.load(Relaxed).saturating_add(slot.running.load(Relaxed));
        let unserved = slot.unserved.load(Relaxed);
        Self {
            hogged: hogged.max(u64::from(slot.hogged.load(Relaxed))),
            busy: working.max(unserved),
            connections: slot.connections.load(Relaxed),
            unserved,
        }
    }
}

/// Whether a worker should leave a new connection to a sibling.
pub(crate) fn should_defer(own: WorkerLoad, siblings: impl Iterator<Item = WorkerLoad>) -> bool {
    siblings.into_iter().any(|sibling| is_freer(sibling, own))
}

/// Whether `sibling` is clearly freer than `own`.
fn is_freer(sibling: WorkerLoad, own: WorkerLoad) -> bool {
    if own.hogged > 0 && sibling.hogged == 0 && is_preferred(sibling, own) {
        return true;
    }
    if sibling.hogged > 0 && own.hogged == 0 && is_preferred(own, sibling) {
        return false;
    }
    if own.busy > sibling.busy.saturating_add(BUSY_SLACK) {
        return true;
    }
    own.busy + BUSY_SLACK >= sibling.busy
        && own.connections > sibling.connections.saturating_add(CONNECTION_SLACK)
}

/// Whether a free worker goes before a hogged one whatever their other load. The longer
/// the other is hogged, the more connections without a response it may have meanwhile:
/// clients that stay connected would otherwise all be on the one that was free for a
/// moment when they came.
fn is_preferred(free: WorkerLoad, hogged: WorkerLoad) -> bool {
    u64::from(free.unserved) <= hogged.hogged
}

/// Reads the scoreboard: whether worker `index` should leave a new connection to a sibling.
pub(crate) fn defer_by_scoreboard(
    scoreboard: &Scoreboard,
    index: usize,
    hogged_after: Duration,
) -> bool {
    let now_ms = clock::now_ns() / 1_000_000;
    let hogged_after_ms = u64::try_from(hogged_after.as_millis()).unwrap_or(u64::MAX);
    let load = |slot: &WorkerGauges| WorkerLoad::of(slot, now_ms, hogged_after_ms);
    let own = load(scoreboard.slot(index));
    let accepting = scoreboard.siblings(index).filter(|slot| slot.accepting.load(Relaxed) != 0);
    should_defer(own, accepting.map(load))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: WorkerLoad = WorkerLoad { hogged: 0, busy: 0, connections: 10, unserved: 0 };

    #[test]
    fn a_connection_goes_to_a_clearly_freer_sibling() {
        let hogged = WorkerLoad { hogged: 2, busy: 1, ..FREE };
        let busy = WorkerLoad { busy: 2, ..FREE };
        let flooded = WorkerLoad { busy: 3, unserved: 3, ..FREE };
        let crowded = WorkerLoad { connections: 15, ..FREE };
        let table = [
            ("alone", FREE, vec![], false),
            ("equal", FREE, vec![FREE], false),
            ("hogged, sibling free", hogged, vec![FREE], true),
            ("hogged, sibling too", hogged, vec![hogged], false),
            ("free, sibling hogged", FREE, vec![hogged], false),
            ("hogged, sibling busy", hogged, vec![WorkerLoad { busy: 50, ..FREE }], true),
            ("hogged, sibling took too many meanwhile", hogged, vec![flooded], false),
            ("took too many, sibling hogged", flooded, vec![hogged], true),
            ("within the slack of work", WorkerLoad { busy: 1, ..FREE }, vec![FREE], false),
            ("beyond the slack of work", busy, vec![FREE], true),
            ("free, sibling busy", FREE, vec![busy], false),
            (
                "within the slack of connections",
                WorkerLoad { connections: 14, ..FREE },
                vec![FREE],
                false,
            ),
            ("beyond the slack of connections", crowded, vec![FREE], true),
            ("one of two is freer", crowded, vec![crowded, FREE], true),
            ("crowded, but the sibling is busier", crowded, vec![busy], false),
        ];
        for (name, own, siblings, expected) in table {
            assert_eq!(should_defer(own, siblings.into_iter()), expected, "{name}");
        }
    }

    /// Clients that left gave a worker 5 requests that still run; 10 clients arrive at
    /// once. Its sibling must not take all of them before their requests are read.
    #[test]
    fn connections_that_have_brought_no_request_yet_count_as_work() {
        let scoreboard = Scoreboard::new(2).expect("shared memory");
        for slot in [scoreboard.slot(0), scoreboard.slot(1)] {
            slot.pid.store(1, Relaxed);
            slot.accepting.store(1, Relaxed);
        }
        let now_ms = clock::now_ns() / 1_000_000;
        scoreboard.slot(1).running.store(5, Relaxed);
        scoreboard.slot(1).taken_at_ms.store(now_ms - 2_500, Relaxed);
        let own = scoreboard.slot(0);
        let accepted = (0..10)
            .take_while(|count| {
                own.connections.store(*count, Relaxed);
                own.unserved.store(*count, Relaxed);
                !defer_by_scoreboard(&scoreboard, 0, Duration::from_secs(1))
            })
            .count();
        assert_eq!(accepted, 5);
    }
}
