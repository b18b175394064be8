//! The bounded queue: one class per engine, each bounded by count, bytes and
//! age, taken from in turn so that no engine starves another.

use std::collections::VecDeque;

use crate::work::Work;

/// Bounds of one class.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
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

struct ClassQueue<W> {
    limits: QueueLimits,
    waiting: VecDeque<Waiting<W>>,
    bytes: usize,
}

/// The queue of one pool. Not synchronised: the pool holds it under its lock.
pub struct WorkQueue<W> {
    queue: Vec<ClassQueue<W>>,
    turn: usize,
    len: usize,
}

impl<W: Work> WorkQueue<W> {
    /// WorkQueue with these bounds, in the order of their indexes.
    pub fn new(limits: &[QueueLimits]) -> Self {
        let queue = limits
            .iter()
            .map(|limits| ClassQueue { limits: *limits, waiting: VecDeque::new(), bytes: 0 })
            .collect();
        Self { queue, turn: 0, len: 0 }
    }

    /// Units waiting in all queue.
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
    /// Gives the unit back when the class is full.
    pub fn push(&mut self, class: usize, work: W, now_ns: u64) -> Result<(), W> {
        let class = &mut self.queue[class];
        let bytes = work.bytes();
        let over_bytes = !class.waiting.is_empty() && class.bytes + bytes > class.limits.bytes_max;
        if class.waiting.len() >= class.limits.count_max || over_bytes {
            return Err(work);
        }
        class.bytes += bytes;
        class.waiting.push_back(Waiting { since_ns: now_ns, bytes, work });
        self.len += 1;
        Ok(())
    }

    /// The next unit, queue in turn. Units past their age go to `old` instead.
    pub fn pop(&mut self, now_ns: u64, old: &mut Vec<W>) -> Option<W> {
        for _ in 0..self.queue.len() {
            self.turn = if self.turn + 1 >= self.queue.len() { 0 } else { self.turn + 1 };
            self.expire(self.turn, now_ns, old);
            if let Some(waiting) = self.remove_first(self.turn) {
                return Some(waiting.work);
            }
        }
        None
    }

    /// Moves every unit past its age to `old`.
    pub fn expire_all(&mut self, now_ns: u64, old: &mut Vec<W>) {
        for class in 0..self.queue.len() {
            self.expire(class, now_ns, old);
        }
    }

    /// Takes everything out.
    pub fn drain(&mut self) -> Vec<W> {
        let mut all = Vec::with_capacity(self.len);
        for class in 0..self.queue.len() {
            all.extend(self.drain_class(class));
        }
        all
    }

    /// Takes everything out of one class, first in first.
    pub fn drain_class(&mut self, class: usize) -> Vec<W> {
        std::iter::from_fn(|| self.remove_first(class)).map(|waiting| waiting.work).collect()
    }

    /// Units waiting in one class.
    pub fn len_of(&self, class: usize) -> usize {
        self.queue[class].waiting.len()
    }

    /// Age of the oldest waiting unit in ns; 0 when nothing waits.
    pub fn oldest_age_ns(&self, now_ns: u64) -> u64 {
        let oldest =
            self.queue.iter().filter_map(|class| class.waiting.front()).map(|w| w.since_ns);
        oldest.min().map_or(0, |since| now_ns.saturating_sub(since))
    }

    /// When the first waiting unit reaches its age bound, in ns of the clock.
    pub fn next_expiry_ns(&self) -> Option<u64> {
        let bounded = self.queue.iter().filter(|class| class.limits.age_max_ms > 0);
        bounded
            .filter_map(|class| {
                class.waiting.front().map(|w| w.since_ns + class.limits.age_max_ms * 1_000_000)
            })
            .min()
    }

    fn expire(&mut self, class: usize, now_ns: u64, old: &mut Vec<W>) {
        let age_max_ns = self.queue[class].limits.age_max_ms * 1_000_000;
        if age_max_ns == 0 {
            return;
        }
        while let Some(first) = self.queue[class].waiting.front() {
            if now_ns.saturating_sub(first.since_ns) <= age_max_ns {
                return;
            }
            old.extend(self.remove_first(class).map(|w| w.work));
        }
    }

    fn remove_first(&mut self, class: usize) -> Option<Waiting<W>> {
        let class = &mut self.queue[class];
        let first = class.waiting.pop_front()?;
        class.bytes -= first.bytes;
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

    fn queue(count_max: usize, bytes_max: usize, age_max_ms: u64, queue: usize) -> WorkQueue<Unit> {
        WorkQueue::new(&vec![QueueLimits { count_max, bytes_max, age_max_ms }; queue])
    }

    #[test]
    fn is_bounded_by_count_and_bytes() {
        let mut q = queue(2, 100, 0, 1);
        assert!(q.push(0, Unit(1, 60), 0).is_ok());
        assert!(q.push(0, Unit(2, 60), 0).is_err(), "over the bytes");
        assert!(q.push(0, Unit(3, 40), 0).is_ok());
        assert!(q.push(0, Unit(4, 0), 0).is_err(), "over the count");
        assert_eq!(q.pop(0, &mut vec![]).unwrap().0, 1);
        assert!(q.push(0, Unit(5, 60), 0).is_ok(), "room again");
    }

    #[test]
    fn one_unit_larger_than_the_bound_still_passes_alone() {
        let mut q = queue(2, 100, 0, 1);
        assert!(q.push(0, Unit(1, 500), 0).is_ok());
        assert!(q.push(0, Unit(2, 1), 0).is_err());
    }

    #[test]
    fn sheds_by_age_and_keeps_order() {
        let mut q = queue(10, 100, 5, 1);
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
        let mut q = queue(10, 100, 0, 2);
        for id in 0..3 {
            q.push(1, Unit(id, 1), 0).ok().unwrap();
        }
        q.push(0, Unit(10, 1), 0).ok().unwrap();
        assert_eq!(q.len_of(1), 3);
        assert_eq!(q.drain_class(1).iter().map(|u| u.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((q.len(), q.len_of(0), q.len_of(1)), (1, 1, 0));
    }

    #[test]
    fn lanes_take_turns() {
        let mut q = queue(10, 100, 0, 2);
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
