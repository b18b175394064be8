//! Decides which worker accepts a new connection: this one or a freer sibling.

use std::sync::atomic::Ordering::Relaxed;

use chaton_core::clock;
use chaton_core::process::scoreboard::{Scoreboard, WorkerGauges};

use crate::config::Config;

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
    /// Every thread that its pool may have has a request, or will have one.
    pub full: bool,
    /// Units of work waiting and running, or about to come: the connections that were
    /// accepted and have no response yet, where they are more.
    pub busy: u32,
    /// Open connections.
    pub connections: u32,
    /// Those of them that have had no response yet.
    pub unserved: u32,
}

impl WorkerLoad {
    fn of(slot: &WorkerGauges, now_ms: u64, config: &Config) -> Self {
        let hogged_after = u64::try_from(config.hogged_after.as_millis()).unwrap_or(u64::MAX);
        let hogged = slot.hogged_ms(now_ms) / hogged_after.max(1);
        let working = slot.queued.load(Relaxed).saturating_add(slot.running.load(Relaxed));
        let unserved = slot.unserved.load(Relaxed);
        let busy = working.max(unserved);
        Self {
            hogged: hogged.max(u64::from(slot.hogged.load(Relaxed))),
            full: busy as usize >= config.threads_max,
            busy,
            connections: slot.connections.load(Relaxed),
            unserved,
        }
    }

    /// How long a new request would wait: not at all (0), perhaps a moment, or longer.
    fn delay(self) -> u8 {
        match self {
            Self { hogged: 1.., .. } => 2,
            Self { full: true, .. } => 1,
            _ => 0,
        }
    }
}

/// Whether a worker should close a connection after the response, so that the client
/// connects to `sibling`: the worker has more work and more connections.
pub(crate) fn has_room(sibling: WorkerLoad, own: WorkerLoad) -> bool {
    sibling.hogged == 0
        && own.busy > sibling.busy.saturating_add(BUSY_SLACK)
        && own.connections > sibling.connections.saturating_add(CONNECTION_SLACK)
}

/// Whether a worker should leave a new connection to `sibling`, which is clearly freer.
pub(crate) fn is_freer(sibling: WorkerLoad, own: WorkerLoad) -> bool {
    if is_preferred(sibling, own) {
        return true;
    }
    if is_preferred(own, sibling) {
        return false;
    }
    if own.busy > sibling.busy.saturating_add(BUSY_SLACK) {
        return true;
    }
    own.busy + BUSY_SLACK >= sibling.busy
        && own.connections > sibling.connections.saturating_add(CONNECTION_SLACK)
}

/// Whether a worker on which a request begins sooner goes before another one, whatever
/// their other load. The longer the other is hogged, the more connections without a
/// response the first one may have meanwhile: clients that stay connected would otherwise
/// all be on the one that was free for a moment when they came.
fn is_preferred(sooner: WorkerLoad, later: WorkerLoad) -> bool {
    sooner.delay() < later.delay() && u64::from(sooner.unserved) <= later.hogged.max(1)
}

/// Reads the scoreboard: whether [`is_freer`] or [`has_room`] holds for one of the
/// accepting siblings of this worker.
pub(crate) fn any_sibling(
    scoreboard: &Scoreboard,
    config: &Config,
    rule: fn(WorkerLoad, WorkerLoad) -> bool,
) -> bool {
    let now_ms = clock::now_ms();
    let load = |slot: &WorkerGauges| WorkerLoad::of(slot, now_ms, config);
    let own = load(scoreboard.slot(config.slot));
    let accepting =
        scoreboard.siblings(config.slot).filter(|slot| slot.accepting.load(Relaxed) != 0);
    accepting.map(load).any(|sibling| rule(sibling, own))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FREE: WorkerLoad =
        WorkerLoad { hogged: 0, full: false, busy: 0, connections: 10, unserved: 0 };

    #[test]
    fn a_connection_goes_to_a_clearly_freer_sibling() {
        let hogged = WorkerLoad { hogged: 2, busy: 1, ..FREE };
        let busy = WorkerLoad { busy: 2, ..FREE };
        let full = WorkerLoad { full: true, busy: 1, ..FREE };
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
            ("full, sibling free", full, vec![FREE], true),
            ("full, sibling too", full, vec![full], false),
            ("hogged, sibling full", WorkerLoad { full: true, ..hogged }, vec![full], true),
            ("full, sibling hogged", full, vec![WorkerLoad { full: true, ..hogged }], false),
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
            assert_eq!(
                siblings.into_iter().any(|sibling| is_freer(sibling, own)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_connection_is_moved_only_to_a_sibling_with_less_work_and_fewer_connections() {
        let own = WorkerLoad { busy: 5, connections: 10, ..FREE };
        let table = [
            ("free and nearly without connections", WorkerLoad { connections: 5, ..FREE }, true),
            ("hogged", WorkerLoad { hogged: 1, connections: 0, ..FREE }, false),
            ("as busy", WorkerLoad { busy: 4, connections: 0, ..FREE }, false),
            ("nearly as many connections", WorkerLoad { connections: 6, ..FREE }, false),
        ];
        for (name, sibling, expected) in table {
            assert_eq!(has_room(sibling, own), expected, "{name}");
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
        let now_ms = clock::now_ms();
        scoreboard.slot(1).running.store(5, Relaxed);
        scoreboard.slot(1).taken_at_ms.store(now_ms - 2_500, Relaxed);
        let own = scoreboard.slot(0);
        let config =
            Config { hogged_after: Duration::from_secs(1), ..Config::for_tests(Vec::new()) };
        let accepted = (0..10)
            .take_while(|count| {
                own.connections.store(*count, Relaxed);
                own.unserved.store(*count, Relaxed);
                !any_sibling(&scoreboard, &config, is_freer)
            })
            .count();
        assert_eq!(accepted, 5);
    }
}
