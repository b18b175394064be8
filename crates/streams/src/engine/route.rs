//! A route: one topic of a consumer group, and what its partitions share.

use std::sync::atomic::AtomicU64;
use std::sync::Arc;

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
    /// The next number of a batch.
    pub batch_ids: Arc<AtomicU64>,
    /// Its transactional producer, made when it is first used. Held during a transaction, so that
    /// an older commit never overtakes a newer one.
    pub transactor: Mutex<Option<Box<dyn TransactionalProducer>>>,
}
