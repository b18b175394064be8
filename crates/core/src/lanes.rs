//! The bounded queue: one lane per engine, each bounded by count, bytes and
//! age, taken from in turn so that no engine starves another.

use std::collections::VecDeque;

use crate::work::Work;

/// Bounds of one lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneLimits {
    /// Units that may wait.
    pub count_max: usize,
    /// Bytes that waiting units may hold.
    pub bytes_max: usize,
    /// Age in ms past which a waiting unit is shed; 0 for no bound.
    pub age_max_ms: u64,
}

struct Waiting<W> {
    since_ns: u64,
    bytes: usize,
    work: W,
}

struct Lane<W> {
    limits: LaneLimits,
    waiting: VecDeque<Waiting<W>>,
    bytes: usize,
}

/// The lanes of one hub. Not synchronised: the hub holds it under its lock.
pub struct Lanes<W> {
    lanes: Vec<Lane<W>>,
    turn: usize,
    len: usize,
}

impl<W: Work> Lanes<W> {
    /// Lanes with these bounds, in the order of their indexes.
    pub fn new(limits: &[LaneLimits]) -> Self {
        let lanes = limits
            .iter()
            .map(|limits| Lane { limits: *limits, waiting: VecDeque::new(), bytes: 0 })
            .collect();
        Self { lanes, turn: 0, len: 0 }
    }

    /// Units waiting in all lanes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a unit.
    ///
    /// # Errors
    /// Gives the unit back when the lane is full.
    pub fn push(&mut self, lane: usize, work: W, now_ns: u64) -> Result<(), W> {
        let lane = &mut self.lanes[lane];
        let bytes = work.bytes();
        let over_bytes = !lane.waiting.is_empty() && lane.bytes + bytes > lane.limits.bytes_max;
        if lane.waiting.len() >= lane.limits.count_max || over_bytes {
            return Err(work);
        }
        lane.bytes += bytes;
        lane.waiting.push_back(Waiting { since_ns: now_ns, bytes, work });
        self.len += 1;
        Ok(())
    }

    /// The next unit, lanes in turn. Units past their age go to `old` instead.
    pub fn pop(&mut self, now_ns: u64, old: &mut Vec<W>) -> Option<W> {
        for _ in 0..self.lanes.len() {
            self.turn = if self.turn + 1 >= self.lanes.len() { 0 } else { self.turn + 1 };
            self.expire(self.turn, now_ns, old);
            if let Some(waiting) = self.remove_first(self.turn) {
                return Some(waiting.work);
            }
        }
        None
    }

    /// Moves every unit past its age to `old`.
    pub fn expire_all(&mut self, now_ns: u64, old: &mut Vec<W>) {
        for lane in 0..self.lanes.len() {
            self.expire(lane, now_ns, old);
        }
    }

    /// Takes everything out.
    pub fn drain(&mut self) -> Vec<W> {
        let mut all = Vec::with_capacity(self.len);
        for lane in 0..self.lanes.len() {
            all.extend(self.drain_lane(lane));
        }
        all
    }

    /// Takes everything out of one lane, first in first.
    pub fn drain_lane(&mut self, lane: usize) -> Vec<W> {
        std::iter::from_fn(|| self.remove_first(lane)).map(|waiting| waiting.work).collect()
    }

    /// Units waiting in one lane.
    pub fn len_of(&self, lane: usize) -> usize {
        self.lanes[lane].waiting.len()
    }

    /// Age of the oldest waiting unit in ns; 0 when nothing waits.
    pub fn oldest_age_ns(&self, now_ns: u64) -> u64 {
        let oldest = self.lanes.iter().filter_map(|lane| lane.waiting.front()).map(|w| w.since_ns);
        oldest.min().map_or(0, |since| now_ns.saturating_sub(since))
    }

    /// When the first waiting unit reaches its age bound, in ns of the clock.
    pub fn next_expiry_ns(&self) -> Option<u64> {
        let bounded = self.lanes.iter().filter(|lane| lane.limits.age_max_ms > 0);
        bounded
            .filter_map(|lane| {
                lane.waiting.front().map(|w| w.since_ns + lane.limits.age_max_ms * 1_000_000)
            })
            .min()
    }

    fn expire(&mut self, lane: usize, now_ns: u64, old: &mut Vec<W>) {
        let age_max_ns = self.lanes[lane].limits.age_max_ms * 1_000_000;
        if age_max_ns == 0 {
            return;
        }
        while let Some(first) = self.lanes[lane].waiting.front() {
            if now_ns.saturating_sub(first.since_ns) <= age_max_ns {
                return;
            }
            old.extend(self.remove_first(lane).map(|w| w.work));
        }
    }

    fn remove_first(&mut self, lane: usize) -> Option<Waiting<W>> {
        let lane = &mut self.lanes[lane];
        let first = lane.waiting.pop_front()?;
        lane.bytes -= first.bytes;
        self.len -= 1;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Label, Shed};

    struct Unit(u64, usize);
    struct Name(u64);
    impl Label for Name {
        fn describe(&self) -> String {
            format!("unit {}", self.0)
        }
        fn id(&self) -> u64 {
            self.0
        }
    }
    impl Work for Unit {
        type Label = Name;
        fn bytes(&self) -> usize {
            self.1
        }
        fn label(&self) -> Name {
            Name(self.0)
        }
        fn shed(self, _: Shed) {}
    }

    const MS: u64 = 1_000_000;

    fn lanes(count_max: usize, bytes_max: usize, age_max_ms: u64, lanes: usize) -> Lanes<Unit> {
        Lanes::new(&vec![LaneLimits { count_max, bytes_max, age_max_ms }; lanes])
    }

    #[test]
    fn is_bounded_by_count_and_bytes() {
        let mut q = lanes(2, 100, 0, 1);
        assert!(q.push(0, Unit(1, 60), 0).is_ok());
        assert!(q.push(0, Unit(2, 60), 0).is_err(), "over the bytes");
        assert!(q.push(0, Unit(3, 40), 0).is_ok());
        assert!(q.push(0, Unit(4, 0), 0).is_err(), "over the count");
        assert_eq!(q.pop(0, &mut vec![]).unwrap().0, 1);
        assert!(q.push(0, Unit(5, 60), 0).is_ok(), "room again");
    }

    #[test]
    fn one_unit_larger_than_the_bound_still_passes_alone() {
        let mut q = lanes(2, 100, 0, 1);
        assert!(q.push(0, Unit(1, 500), 0).is_ok());
        assert!(q.push(0, Unit(2, 1), 0).is_err());
    }

    #[test]
    fn sheds_by_age_and_keeps_order() {
        let mut q = lanes(10, 100, 5, 1);
        for (id, at) in [(1, 0), (2, 3), (3, 8)] {
            q.push(0, Unit(id, 1), at * MS).ok().unwrap();
        }
        assert_eq!(q.next_expiry_ns(), Some(5 * MS));
        assert_eq!(q.oldest_age_ns(8 * MS), 8 * MS);
        let mut old = vec![];
        assert_eq!(q.pop(8 * MS + 1, &mut old).unwrap().0, 3);
        assert_eq!(old.iter().map(|u| u.0).collect::<Vec<_>>(), [1, 2]);
        assert!(q.is_empty());
    }

    #[test]
    fn one_lane_is_emptied_and_the_other_keeps_its_own() {
        let mut q = lanes(10, 100, 0, 2);
        for id in 0..3 {
            q.push(1, Unit(id, 1), 0).ok().unwrap();
        }
        q.push(0, Unit(10, 1), 0).ok().unwrap();
        assert_eq!(q.len_of(1), 3);
        assert_eq!(q.drain_lane(1).iter().map(|u| u.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((q.len(), q.len_of(0), q.len_of(1)), (1, 1, 0));
    }

    #[test]
    fn lanes_take_turns() {
        let mut q = lanes(10, 100, 0, 2);
        for id in 0..3 {
            q.push(0, Unit(id, 1), 0).ok().unwrap();
        }
        q.push(1, Unit(10, 1), 0).ok().unwrap();
        let order: Vec<u64> =
            std::iter::from_fn(|| q.pop(0, &mut vec![])).map(|unit| unit.0).collect();
        assert!(order.iter().position(|id| *id == 10).unwrap() <= 1, "{order:?}");
        assert_eq!(q.len(), 0);
    }
}
