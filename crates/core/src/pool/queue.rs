//! The bounded queue: one part per engine, each bounded by count, bytes and age.
//!
//! Requests go before jobs and batches. While both compete, jobs and batches are owed a
//! share of the time with the GVL: when they have had less, they go first. Engines of the
//! same class take turns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::settings::seconds;
use crate::work::{Role, Work};

/// Bounds of one engine's part of the queue.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLimits {
    /// Units of work that may wait.
    #[serde(rename = "limit")]
    pub count_max: usize,
    /// Bytes that waiting work may hold.
    #[serde(rename = "bytes")]
    pub bytes_max: usize,
    /// Age past which waiting work is released; zero for no bound.
    #[serde(rename = "age", deserialize_with = "seconds")]
    pub age_max: Duration,
}

/// Jobs and batches are never owed more than the first (ns) and never owe more than the
/// second, so that old times do not count: requests that begin to wait all the time keep
/// them out for no longer than one second.
const OWED_NS_MAX: i64 = 10_000_000;
const OWING_NS_MAX: i64 = 100_000_000;

struct Waiting {
    since_ns: u64,
    bytes: usize,
    work: Arc<dyn Work>,
}

/// No room until the engine is registered.
#[derive(Default)]
struct EngineQueue {
    limits: QueueLimits,
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

impl EngineQueue {
    fn remove_first(&mut self) -> Option<Arc<dyn Work>> {
        let first = self.waiting.pop_front()?;
        self.bytes -= first.bytes;
        Some(first.work)
    }
}

/// The queue of one pool. Not synchronised: the pool holds it under its lock.
#[derive(Default)]
pub struct WorkQueue {
    engines: [EngineQueue; Role::ALL.len()],
    last_served: usize,
    /// The share of jobs and batches in percent.
    background_share: i64,
    /// The time (ns) that they are still owed; below 0 they have had more than their share.
    owed_ns: i64,
}

impl WorkQueue {
    /// An empty queue. Jobs and batches get `background_share` percent of the time with
    /// the GVL while requests wait too.
    pub fn new(background_share: u8) -> Self {
        Self { background_share: i64::from(background_share), ..Self::default() }
    }

    /// Opens an engine's part of the queue.
    pub fn register(&mut self, role: Role, limits: QueueLimits) {
        self.engines[role as usize].limits = limits;
    }

    /// Units of work that wait.
    pub fn len(&self) -> usize {
        self.engines.iter().map(|engine| engine.waiting.len()).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.engines.iter().all(|engine| engine.waiting.is_empty())
    }

    /// Interactive units of work that wait.
    pub fn interactive_len(&self) -> usize {
        self.engines[Role::Web as usize].waiting.len()
    }

    /// Charges time with the GVL (ns) to the class of work that had it while the other one
    /// waited.
    pub fn charge(&mut self, ran: Role, ns: u64) {
        let background = self.background_share;
        let percent = if ran.is_interactive() { background } else { background - 100 };
        let owed_ns = self.owed_ns + ns as i64 * percent / 100;
        self.owed_ns = owed_ns.clamp(-OWING_NS_MAX, OWED_NS_MAX);
    }

    /// Whether jobs and batches have had less than their share.
    pub fn background_is_due(&self) -> bool {
        self.owed_ns > 0
    }

    /// Appends work to its engine's part.
    ///
    /// # Errors
    /// Gives the work back when that part is full.
    pub fn push(&mut self, work: Arc<dyn Work>, now_ns: u64) -> Result<(), Arc<dyn Work>> {
        let engine = &mut self.engines[work.role() as usize];
        let bytes = work.bytes();
        // One unit larger than the bound still passes, alone.
        let over_bytes =
            !engine.waiting.is_empty() && engine.bytes + bytes > engine.limits.bytes_max;
        if engine.waiting.len() >= engine.limits.count_max || over_bytes {
            return Err(work);
        }
        engine.bytes += bytes;
        engine.waiting.push_back(Waiting { since_ns: now_ns, bytes, work });
        Ok(())
    }

    /// The next unit of work. Work past its age goes to `expired` instead.
    pub fn pop(&mut self, now_ns: u64, expired: &mut Vec<Arc<dyn Work>>) -> Option<Arc<dyn Work>> {
        self.expire(now_ns, expired);
        let requests_first = !self.background_is_due();
        let is_second = |engine: &usize| Role::ALL[*engine].is_interactive() != requests_first;
        let count = self.engines.len();
        let turns = (1..=count).map(|turn| (self.last_served + turn) % count);
        let waiting = turns.filter(|engine| !self.engines[*engine].waiting.is_empty());
        self.last_served = waiting.min_by_key(is_second)?;
        self.engines[self.last_served].remove_first()
    }

    /// Moves all work past its age to `expired`.
    pub fn expire(&mut self, now_ns: u64, expired: &mut Vec<Arc<dyn Work>>) {
        for engine in self.engines.iter_mut().filter(|engine| !engine.limits.age_max.is_zero()) {
            let age_max_ns = engine.limits.age_max.as_nanos() as u64;
            let is_old = |first: &Waiting| now_ns.saturating_sub(first.since_ns) > age_max_ns;
            while engine.waiting.front().is_some_and(is_old) {
                expired.extend(engine.remove_first());
            }
        }
    }

    /// Takes out everything of one engine, oldest first.
    pub fn drain(&mut self, role: Role) -> Vec<Arc<dyn Work>> {
        std::iter::from_fn(|| self.engines[role as usize].remove_first()).collect()
    }

    /// Age of the oldest waiting work in ns; 0 when nothing waits.
    pub fn oldest_age_ns(&self, now_ns: u64) -> u64 {
        let firsts = self.engines.iter().filter_map(|engine| engine.waiting.front());
        firsts.map(|first| now_ns.saturating_sub(first.since_ns)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::testing::work;

    const MS: u64 = 1_000_000;

    fn queue(count_max: usize, bytes_max: usize, age_max_ms: u64) -> WorkQueue {
        let mut queue = WorkQueue::new(10);
        let limits =
            QueueLimits { count_max, bytes_max, age_max: Duration::from_millis(age_max_ms) };
        queue.register(Role::Web, limits);
        queue.register(Role::Jobs, limits);
        queue
    }

    fn push(queue: &mut WorkQueue, role: Role, id: u64, bytes: usize, at_ns: u64) -> bool {
        queue.push(work(role, id, bytes), at_ns).is_ok()
    }

    fn ids(works: &[Arc<dyn Work>]) -> Vec<u64> {
        works.iter().map(|work| work.id()).collect()
    }

    #[test]
    fn the_queue_is_bounded_by_count_and_bytes() {
        let mut q = queue(2, 100, 0);
        assert!(push(&mut q, Role::Web, 1, 60, 0));
        assert!(!push(&mut q, Role::Web, 2, 60, 0), "over the bytes");
        assert!(push(&mut q, Role::Web, 3, 40, 0));
        assert!(!push(&mut q, Role::Web, 4, 0, 0), "over the count");
        assert_eq!(q.pop(0, &mut vec![]).unwrap().id(), 1);
        assert!(push(&mut q, Role::Web, 5, 60, 0), "room again");
    }

    #[test]
    fn an_engine_that_is_not_registered_has_no_room() {
        assert!(!push(&mut queue(2, 100, 0), Role::Streams, 1, 0, 0));
    }

    #[test]
    fn work_larger_than_the_bound_still_passes_alone() {
        let mut q = queue(2, 100, 0);
        assert!(push(&mut q, Role::Web, 1, 500, 0));
        assert!(!push(&mut q, Role::Web, 2, 1, 0));
    }

    #[test]
    fn work_past_its_age_is_released_and_the_order_is_kept() {
        let mut q = queue(10, 100, 5);
        for (id, at) in [(1, 0), (2, 3), (3, 8)] {
            assert!(push(&mut q, Role::Web, id, 1, at * MS));
        }
        assert_eq!(q.oldest_age_ns(8 * MS), 8 * MS);
        let mut expired = vec![];
        assert_eq!(q.pop(8 * MS + 1, &mut expired).unwrap().id(), 3);
        assert_eq!(ids(&expired), [1, 2]);
        assert!(q.is_empty());
    }

    #[test]
    fn draining_one_engine_leaves_the_work_of_the_other() {
        let mut q = queue(10, 100, 0);
        (0..3).for_each(|id| assert!(push(&mut q, Role::Jobs, id, 1, 0)));
        assert!(push(&mut q, Role::Web, 10, 1, 0));
        assert_eq!((q.len(), q.interactive_len()), (4, 1));
        assert_eq!(ids(&q.drain(Role::Jobs)), [0, 1, 2]);
        assert_eq!((q.len(), q.interactive_len()), (1, 1));
    }

    fn order(queue: &mut WorkQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop(0, &mut vec![])).map(|work| work.id()).collect()
    }

    #[test]
    fn engines_of_one_class_take_turns() {
        let mut q = queue(10, 100, 0);
        let limits = QueueLimits { count_max: 9, bytes_max: 9, age_max: Duration::ZERO };
        q.register(Role::Streams, limits);
        (0..3).for_each(|id| assert!(push(&mut q, Role::Jobs, id, 1, 0)));
        (10..13).for_each(|id| assert!(push(&mut q, Role::Streams, id, 1, 0)));
        assert_eq!(order(&mut q), [0, 10, 1, 11, 2, 12]);
    }

    #[test]
    fn requests_go_first_unless_jobs_are_owed_time() {
        for (name, charges, expected) in [
            ("nothing is known", vec![], [1, 2, 8, 9]),
            ("requests had the GVL", vec![(Role::Web, 10)], [8, 9, 1, 2]),
            ("jobs had more than a tenth", vec![(Role::Web, 10), (Role::Jobs, 2)], [1, 2, 8, 9]),
            ("jobs had less than a tenth", vec![(Role::Jobs, 2), (Role::Web, 20)], [8, 9, 1, 2]),
            (
                "old times do not count",
                vec![(Role::Jobs, 1_000_000), (Role::Web, 1_010)],
                [8, 9, 1, 2],
            ),
        ] {
            let mut q = queue(10, 100, 0);
            for (class, ms) in charges {
                q.charge(class, ms * MS);
            }
            [1, 2].iter().for_each(|id| assert!(push(&mut q, Role::Web, *id, 1, 0)));
            [8, 9].iter().for_each(|id| assert!(push(&mut q, Role::Jobs, *id, 1, 0)));
            assert_eq!(order(&mut q), expected, "{name}");
        }
    }
}
