//! The partitions that a group's member has.

use std::sync::Arc;

use parking_lot::Mutex;

use super::assigned_partition::AssignedPartition;
use super::group::ConsumerGroup;
use super::partition_state::Now;
use super::stats::GroupStats;

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
        let partitions: Vec<_> = self.all().iter().map(|one| one.stats(now)).collect();
        let stats = self.group.stats();
        let stopped = partitions.iter().find_map(|one| {
            let (from, until) = one.missing?;
            let (topic, number, last) = (&one.topic, one.partition, until - 1);
            Some(format!("{topic}/{number} has stopped: offsets {from} to {last} were removed"))
        });
        GroupStats { trouble: stats.trouble.or(stopped), partitions, ..stats }
    }
}
