//! The partitions that a group's member has.

use std::sync::Arc;

use parking_lot::Mutex;

use super::assigned_partition::AssignedPartition;
use super::group::ConsumerGroup;
use super::partition_state::Now;
use super::stats::GroupStats;
use crate::log::LostRecords;

/// A group and its partitions in this process.
pub(super) struct GroupPartitions {
    pub group: Arc<ConsumerGroup>,
    partitions: Mutex<Vec<Arc<AssignedPartition>>>,
}

impl GroupPartitions {
    pub fn new(group: ConsumerGroup) -> Arc<Self> {
        Arc::new(Self { group: Arc::new(group), partitions: Mutex::default() })
    }

    pub fn all(&self) -> Vec<Arc<AssignedPartition>> {
        self.partitions.lock().clone()
    }

    pub fn add(&self, partition: Arc<AssignedPartition>) {
        self.partitions.lock().push(partition);
    }

    /// Removes partitions whose last batch has ended.
    pub fn remove_over(&self) {
        self.partitions.lock().retain(|partition| !partition.is_over());
    }

    pub fn is_idle(&self) -> bool {
        let partitions = self.all();
        partitions.iter().all(|partition| partition.is_idle()) && !self.group.is_committing()
    }

    pub fn stats(&self, now: Now) -> GroupStats {
        let all = self.all();
        let partitions = all.iter().map(|one| one.stats(now)).collect();
        let stats = self.group.stats();
        let stopped = all.iter().find_map(|one| {
            let LostRecords { from, until, why } = one.stopped()?;
            let name = &one.partition;
            Some(format!("{name} has stopped: offsets {from} to {} {why}", until - 1))
        });
        GroupStats { trouble: stats.trouble.or(stopped), partitions, ..stats }
    }
}
