//! A route: one topic of a consumer group, and what its partitions share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use chaton_core::process::counters::{TopicCounters, OTHER};
use chaton_core::process::scoreboard::OwnGauges;
use chaton_core::process::table::Counter;
use parking_lot::Mutex;

use super::settings::RouteSettings;
use super::stats::StreamCounters;
use super::suspects::Suspects;
use crate::log::TransactionalProducer;

/// A topic that a group consumes.
pub(super) struct Route {
    /// Its number, counted through all groups.
    pub number: usize,
    pub settings: RouteSettings,
    /// The topic and its group, as the notes of [`Suspects`] name them.
    pub source: u32,
    pub suspects: Arc<Suspects>,
    /// Batches read ahead per partition or key lane.
    pub ready_batches: usize,
    pub counters: Arc<StreamCounters>,
    /// Where it is counted for the metrics.
    pub metrics: Option<RouteMetrics>,
    /// The next number of a batch.
    pub batch_ids: Arc<AtomicU64>,
    /// Its transactional producer, made when it is first used. Held during a transaction, so that
    /// an older commit never overtakes a newer one.
    pub transactor: Mutex<Option<Box<dyn TransactionalProducer>>>,
}

/// A route's place among the counters of this process.
pub(super) struct RouteMetrics {
    gauges: OwnGauges,
    /// The place of the topic and group.
    index: usize,
    /// Its part of what is shown there; topics without a name of their own share a place.
    shown: Mutex<Progress>,
    /// The same of batches that run for too long.
    overdue: AtomicU64,
}

/// How far the partitions of a topic are that this process has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Records that are not done.
    pub lag: u64,
    pub partitions: u64,
    /// Those that have stopped at lost records.
    pub stopped: u64,
    /// Those that their consumer has paused.
    pub paused: u64,
}

impl RouteMetrics {
    pub fn new(gauges: OwnGauges, topic: &str, group: &str) -> Self {
        let index = gauges.index::<TopicCounters>(topic, group);
        Self { gauges, index, shown: Mutex::default(), overdue: AtomicU64::new(0) }
    }

    fn counters(&self) -> &TopicCounters {
        &self.gauges.counters().topics[self.index]
    }

    /// Shows how many batches run for too long.
    pub fn show_overdue(&self, count: u64) {
        let before = self.overdue.swap(count, Ordering::Relaxed);
        self.counters().overdue.fetch_add(count.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Shows the progress, and the time of the oldest record that is not done (ms since 1970).
    pub fn show(&self, progress: &Progress, oldest_ms: u64) {
        let before = std::mem::replace(&mut *self.shown.lock(), *progress);
        let topic = self.counters();
        for (gauge, now, before) in [
            (&topic.lag, progress.lag, before.lag),
            (&topic.partitions, progress.partitions, before.partitions),
            (&topic.stopped, progress.stopped, before.stopped),
            (&topic.paused, progress.paused, before.paused),
        ] {
            gauge.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
        if self.index != OTHER {
            self.counters().oldest_ms.store(oldest_ms, Ordering::Relaxed);
        }
    }
}

impl Route {
    /// Counts for the metrics of its topic and group.
    pub fn count(&self, count: usize, of: fn(&TopicCounters) -> &Counter) {
        if let Some(metrics) = &self.metrics {
            of(metrics.counters()).fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Counts records that are done.
    pub fn count_records(&self, count: usize) {
        self.counters.records.fetch_add(count as u64, Ordering::Relaxed);
        self.count(count, |topic| &topic.records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chaton_core::process::scoreboard::Scoreboard;

    #[test]
    fn the_lags_of_topics_without_names_of_their_own_are_added_up() {
        let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
        (0..OTHER).for_each(|number| {
            gauges.index::<TopicCounters>(&format!("t{number}"), "app");
        });
        let show = |route: &RouteMetrics, lag, oldest_ms| {
            route.show(&Progress { lag, partitions: 1, ..Progress::default() }, oldest_ms);
        };
        let routes = ["a", "b"].map(|topic| RouteMetrics::new(gauges.clone(), topic, "app"));
        show(&routes[0], 5, 1_000);
        show(&routes[1], 7, 2_000);
        let other = &gauges.counters().topics[OTHER];
        assert_eq!(other.lag.load(Ordering::Relaxed), 12);
        show(&routes[0], 0, 0);
        assert_eq!(other.lag.load(Ordering::Relaxed), 7);
        assert_eq!(other.partitions.load(Ordering::Relaxed), 2);
        assert_eq!(other.oldest_ms.load(Ordering::Relaxed), 0, "unknown: the oldest of many");
    }
}
