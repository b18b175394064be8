//! A route: one topic of a consumer group, and what its partitions share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use chaton_core::process::counters::TopicCounters;
use chaton_core::process::scoreboard::OwnGauges;
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
    /// Where it is counted for the metrics: this process's counters, and the place of the topic in
    /// them.
    pub metrics: Option<(OwnGauges, usize)>,
    /// The next number of a batch.
    pub batch_ids: Arc<AtomicU64>,
    /// Its transactional producer, made when it is first used. Held during a transaction, so that
    /// an older commit never overtakes a newer one.
    pub transactor: Mutex<Option<Box<dyn TransactionalProducer>>>,
}

impl Route {
    /// The counters for the metrics.
    pub fn metrics(&self) -> Option<&TopicCounters> {
        self.metrics.as_ref().map(|(gauges, index)| &gauges.counters().topics[*index])
    }

    /// Counts records that are done.
    pub fn count_records(&self, count: usize) {
        self.counters.records.fetch_add(count as u64, Ordering::Relaxed);
        if let Some(metrics) = self.metrics() {
            metrics.records.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Counts a batch that failed and is retried.
    pub fn count_retry(&self) {
        self.counters.retries.fetch_add(1, Ordering::Relaxed);
        if let Some(metrics) = self.metrics() {
            metrics.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a record that was written to a dead-letter topic.
    pub fn count_dead_letter(&self) {
        self.counters.dead_letters.fetch_add(1, Ordering::Relaxed);
        if let Some(metrics) = self.metrics() {
            metrics.dead_letters.fetch_add(1, Ordering::Relaxed);
        }
    }
}
