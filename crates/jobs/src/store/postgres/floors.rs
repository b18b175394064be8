//! Where claims begin to read a queue.
//!
//! Jobs that were claimed leave dead entries at the front of their queue's index until the next vacuum, which comes once
//! a minute at best, and not at all while some transaction keeps its snapshot. A claim that begins at the front steps over
//! all of them (measured: 10 of 21 ms for 160,000). So a process remembers up to where it has claimed, and begins
//! there. A job whose push has committed much later than its neighbours' is below that: the watch looks for those.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::connection::{args, Call};
use super::errors::Result;

/// A floor stays behind the claims for so long at least: pushes that commit within that time are above it.
const LAG: Duration = Duration::from_millis(250);
/// Time between two looks below the floors, at least and at most, and by how much longer than a look: it steps over
/// the dead entries.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(5);
const LOOK_SHARE: u32 = 50;

/// Where the next claim of a queue begins, and where those after it will.
struct Floor {
    id: i64,
    next: i64,
    last: i64,
    turned: Instant,
}

/// The floors of the queues that a process claims from.
#[derive(Default)]
pub(super) struct Floors {
    queues: HashMap<Arc<str>, Floor>,
    next_look: Option<Instant>,
}

/// The jobs `j` that wait in queues `q`: `$1` their names, `$2` their floors. First those whose priority
/// comes before 0, then of 0 those that went back to the front, which have ids below 0, then those from the floor on and
/// those with priorities after 0. The limit, and a lock, follow each part. The comparison of rows
/// keeps the planner from the index of the primary key, which has the jobs of all queues and sets.
macro_rules! waiting {
    ($limit:literal) => {
        concat!(
            "FROM (SELECT * FROM unnest($1, $2) WITH ORDINALITY AS u(name, floor, number)
            WHERE NOT coalesce((SELECT paused FROM chaton.queues k WHERE k.name=u.name), false)) q
            CROSS JOIN LATERAL (SELECT tid, id, priority FROM (SELECT ctid AS tid, id, priority FROM chaton.jobs
                WHERE place=0 AND queue=q.name AND priority<0 ORDER BY priority, id LIMIT ",
            $limit,
            ") high UNION ALL SELECT tid, id, priority FROM (SELECT ctid AS tid, id, priority FROM chaton.jobs
                WHERE place=0 AND queue=q.name AND priority=0 AND id<0 ORDER BY id LIMIT ",
            $limit,
            ") front UNION ALL SELECT tid, id, priority FROM (SELECT ctid AS tid, id, priority FROM chaton.jobs
                WHERE place=0 AND queue=q.name
                AND (priority, id)>=(0::int2, q.floor) ORDER BY priority, id LIMIT ",
            $limit,
            ") back) j"
        )
    };
}
pub(super) use waiting;

impl Floors {
    /// Those of these queues.
    pub fn of(&self, queues: &[&str]) -> Vec<i64> {
        queues.iter().map(|name| self.queues.get(*name).map_or(0, |floor| floor.id)).collect()
    }

    /// Jobs of a queue were claimed, this one last.
    pub fn note(&mut self, queue: &Arc<str>, id: i64) {
        let now = Instant::now();
        let new = || Floor { id: 0, next: 0, last: 0, turned: now };
        let floor = self.queues.entry(queue.clone()).or_insert_with(new);
        if now - floor.turned >= LAG {
            (floor.id, floor.next, floor.turned) = (floor.next, floor.last, now);
        }
        floor.last = floor.last.max(id);
    }

    /// Forgets them: the server may have lost claims.
    pub fn clear(&mut self) {
        self.queues.clear();
    }

    /// When [`look`] is due; `None`: there is no floor to look below.
    pub fn next_look(&self) -> Option<Instant> {
        let any = self.queues.values().any(|floor| floor.id > 0);
        any.then(|| self.next_look.unwrap_or_else(Instant::now))
    }
}

/// Lowers the floors below which jobs wait.
pub(super) fn look(call: &mut Call<'_>, floors: &Mutex<Floors>) -> Result<()> {
    let locked = floors.lock();
    let lowered: Vec<_> =
        locked.queues.iter().map(|(name, floor)| (name.clone(), floor.id)).collect();
    drop(locked);
    let (names, ids): (Vec<&str>, Vec<i64>) =
        lowered.iter().map(|(name, id)| (&**name, *id)).unzip();
    let began = Instant::now();
    let rows = call.rows(
        "SELECT q.name, j.id FROM unnest($1, $2) AS q(name, floor) CROSS JOIN LATERAL (SELECT id, priority FROM chaton.jobs w
         WHERE w.place=0 AND w.queue=q.name AND (w.priority, w.id)>=(0::int2, 0)
         ORDER BY priority, id LIMIT 1) j WHERE j.priority=0 AND j.id<q.floor",
        args![names, ids],
    )?;
    let mut locked = floors.lock();
    let gap = (began.elapsed() * LOOK_SHARE).clamp(LOOK_MIN, LOOK_MAX);
    locked.next_look = Some(Instant::now() + gap);
    for row in rows {
        if let Some(floor) = locked.queues.get_mut(row.get::<_, &str>(0)) {
            (floor.id, floor.next) = (row.get(1), row.get(1));
        }
    }
    Ok(())
}
