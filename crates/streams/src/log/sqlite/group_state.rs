//! The state of a consumer group that all its members share.
//!
//! Each partition has a *target*, the member that should read it, and an
//! *owner*, the member that reads it now. They differ while the owner finishes
//! what it has begun; only a partition without an owner can be claimed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use chaton_embedded::{is_free, LockPlace, OwnerLock};
use serde::{Deserialize, Serialize};

use super::assignor::{self, Subscriptions};
use super::liveness::ProcessIdentity;
use super::log_dir::parse_partition_key;
use crate::log::{Partition, Result};

/// What a member tells the others about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberInfo {
    pub process: ProcessIdentity,
    pub host: String,
    pub topics: Vec<String>,
    /// The lock that it holds: the file and the byte.
    lock: (String, i64),
}

impl MemberInfo {
    /// This member reads these topics, and its life is shown by a lock.
    pub fn new(topics: &[String], lock: &OwnerLock) -> Result<Self> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let LockPlace { file, byte } = lock.place();
        Ok(Self {
            process: ProcessIdentity::own()?,
            host: host.trim().to_owned(),
            topics: topics.to_vec(),
            lock: (file, byte),
        })
    }

    /// Whether it is alive: the kernel frees its lock when its process dies. A stopped process (SIGSTOP) is alive.
    ///
    /// # Errors
    /// When that cannot be found out, for example without free descriptors. The
    /// member counts as alive then.
    pub fn is_alive(&self, database: &Path) -> Result<bool> {
        // A forked child may still hold the lock after the member's death.
        if self.process.is_gone()? {
            return Ok(false);
        }
        let (file, byte) = self.lock.clone();
        Ok(!is_free(database, &LockPlace { file, byte }))
    }
}

/// Members and partitions; a partition is named `topic/number`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupState {
    /// Increases with each change of the targets.
    pub generation: u64,
    pub members: BTreeMap<String, MemberInfo>,
    pub target: BTreeMap<String, String>,
    pub owners: BTreeMap<String, Owner>,
    /// Increases when partitions are claimed.
    pub epoch: u64,
}

/// A member, and the epoch in which it has claimed a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub member: String,
    epoch: u64,
}

impl Owner {
    /// A member as of an epoch.
    pub fn new(member: &str, epoch: u64) -> Self {
        Self { member: member.to_owned(), epoch }
    }

    /// The name under which this member writes transactions in this epoch.
    pub fn identity(&self) -> Vec<u8> {
        format!("{} {}", self.epoch, self.member).into_bytes()
    }

    /// The member that has this name; one that does not exist if it is none.
    pub fn of_identity(identity: &[u8]) -> Self {
        let text = String::from_utf8_lossy(identity);
        let (epoch, member) = text.split_once(' ').unwrap_or_default();
        Self::new(member, epoch.parse().unwrap_or(0))
    }

    /// Whether it owns what this owner has claimed: a member that has claimed a partition since, which it had lost, does not
    /// write what it began before.
    pub fn may_write_for(&self, owner: &Self) -> bool {
        self.member == owner.member && self.epoch >= owner.epoch
    }
}

impl GroupState {
    /// Removes a member and frees its partitions.
    pub fn remove(&mut self, id: &str) {
        self.members.remove(id);
        self.owners.retain(|_, owner| owner.member != id);
    }

    /// Assigns the partitions of these topics to the members.
    pub fn rebalance(&mut self, partitions: &BTreeMap<String, i32>) {
        let members: Subscriptions =
            self.members.iter().map(|(id, info)| (id.clone(), info.topics.clone())).collect();
        let target = assignor::assign(&members, partitions, &self.target);
        if target != self.target {
            self.target = target;
            self.generation += 1;
        }
    }

    /// Frees partitions that this member owns and does not read. They are left
    /// over when storing a release has failed.
    pub fn free_unread(&mut self, id: &str, reads: impl Fn(&Partition) -> bool) {
        self.owners.retain(|key, owner| {
            owner.member != id || parse_partition_key(key).is_some_and(|one| reads(&one))
        });
    }

    /// Makes this member, which has seen this epoch, the owner of its targets that have no owner, and returns them.
    pub fn claim(&mut self, id: &str, epoch: u64) -> Vec<String> {
        let wanted = self.target.iter().filter(|(_, target)| *target == id);
        let free: Vec<_> = wanted
            .map(|(key, _)| key)
            .filter(|key| !self.owners.contains_key(*key))
            .cloned()
            .collect();
        // A damaged state begins anew, but no epoch is used again.
        self.epoch = self.epoch.max(epoch) + u64::from(!free.is_empty());
        self.owners.extend(free.iter().map(|key| (key.clone(), Owner::new(id, self.epoch))));
        free
    }
}
