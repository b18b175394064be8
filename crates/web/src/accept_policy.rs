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
    /// A unit of work has kept Ruby busy for so long that others wait.
    pub hogged: bool,
    /// Units of work waiting and running.
    pub busy: u32,
    /// Open connections.
    pub connections: u32,
}

impl WorkerLoad {
    fn of(slot: &WorkerGauges, now_ms: u64, hogged_after_ms: u64) -> Self {
        Self {
            hogged: slot.hogged.load(Relaxed) != 0 || slot.is_hogged(now_ms, hogged_after_ms),
            busy: slot.queued.load(Relaxed).saturating_add(slot.running.load(Relaxed)),
            connections: slot.connections.load(Relaxed),
        }
    }
}

/// Whether a worker should leave a new connection to a sibling.
pub(crate) fn should_defer(own: WorkerLoad, siblings: impl Iterator<Item = WorkerLoad>) -> bool {
    siblings.into_iter().any(|sibling| is_freer(sibling, own))
}

/// Whether `sibling` is clearly freer than `own`.
fn is_freer(sibling: WorkerLoad, own: WorkerLoad) -> bool {
    if sibling.hogged != own.hogged {
        return own.hogged;
    }
    if own.busy > sibling.busy.saturating_add(BUSY_SLACK) {
        return true;
    }
    own.busy + BUSY_SLACK >= sibling.busy
        && own.connections > sibling.connections.saturating_add(CONNECTION_SLACK)
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

    const FREE: WorkerLoad = WorkerLoad { hogged: false, busy: 0, connections: 10 };

    #[test]
    fn a_connection_goes_to_a_clearly_freer_sibling() {
        let hogged = WorkerLoad { hogged: true, busy: 1, ..FREE };
        let busy = WorkerLoad { busy: 2, ..FREE };
        let crowded = WorkerLoad { connections: 15, ..FREE };
        let table = [
            ("alone", FREE, vec![], false),
            ("equal", FREE, vec![FREE], false),
            ("hogged, sibling free", hogged, vec![FREE], true),
            ("hogged, sibling too", hogged, vec![hogged], false),
            ("free, sibling hogged", FREE, vec![hogged], false),
            ("hogged, sibling busy", hogged, vec![WorkerLoad { busy: 50, ..FREE }], true),
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
}
