//! The order in which a claim goes through the queues.

use std::sync::Arc;

use super::config::QueueMode;
use fastrand::Rng;

/// The queues and their mode.
pub struct QueueOrder {
    queues: Vec<(Arc<str>, u32)>,
    mode: QueueMode,
    random: Rng,
}

impl QueueOrder {
    pub fn new(queues: &[(String, u32)], mode: QueueMode, random: Rng) -> Self {
        let queues = queues.iter().map(|(name, weight)| (Arc::from(&**name), *weight)).collect();
        Self { queues, mode, random }
    }

    /// The order of one claim. Weighted: each next one is drawn with a chance in proportion to its
    /// weight (Efraimidis and Spirakis 2006: keys `u^(1/w)`, largest first).
    pub fn draw(&mut self) -> Vec<Arc<str>> {
        let mut keyed: Vec<(f64, &Arc<str>)> = match self.mode {
            QueueMode::Strict => return self.all(),
            mode => self
                .queues
                .iter()
                .map(|(name, weight)| {
                    let weight = if mode == QueueMode::Random { 1 } else { (*weight).max(1) };
                    (self.random.f64().powf(1.0 / f64::from(weight)), name)
                })
                .collect(),
        };
        keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
        keyed.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// All queues as they were listed.
    pub fn all(&self) -> Vec<Arc<str>> {
        self.queues.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Under strict order, the queues before the lowest one of `waiting`.
    pub fn above(&self, waiting: &[Arc<str>]) -> Vec<Arc<str>> {
        if self.mode != QueueMode::Strict {
            return vec![];
        }
        let rank = |name: &Arc<str>| self.queues.iter().position(|(queue, _)| queue == name);
        let lowest = waiting.iter().filter_map(rank).max().unwrap_or(0);
        self.all()[..lowest].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(mode: QueueMode) -> QueueOrder {
        let queues = [("a", 6), ("b", 3), ("c", 1)].map(|(name, weight)| (name.into(), weight));
        QueueOrder::new(&queues, mode, Rng::with_seed(7))
    }

    fn firsts(mode: QueueMode) -> [usize; 3] {
        let mut order = order(mode);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            let drawn = order.draw();
            assert_eq!(drawn.len(), 3);
            counts[["a", "b", "c"].iter().position(|name| **name == *drawn[0]).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn draws_by_weight() {
        let near = |count: usize, share: usize| count.abs_diff(share) < 300;
        let weighted = firsts(QueueMode::Weighted);
        assert!(near(weighted[0], 6000) && near(weighted[1], 3000), "{weighted:?}");
        assert!(firsts(QueueMode::Random).iter().all(|count| near(*count, 3333)));
        assert_eq!(firsts(QueueMode::Strict), [10_000, 0, 0]);
    }

    #[test]
    fn above_are_the_queues_before_the_lowest_one() {
        let above = |mode| order(mode).above(&["b".into(), "c".into()]);
        assert_eq!(above(QueueMode::Strict), ["a", "b"].map(Arc::<str>::from));
        assert!(above(QueueMode::Weighted).is_empty());
        assert!(order(QueueMode::Strict).above(&[]).is_empty());
    }
}
