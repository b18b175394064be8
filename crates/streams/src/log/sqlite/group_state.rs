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

use super::assignor::{self, MemberNumber};
use super::by_partition::ByPartition;
use super::liveness::ProcessIdentity;
use crate::log::{Commit, Partition, Result};

/// What a member tells the others about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberInfo {
    /// Names it in the lists of partitions; 0 before it has joined.
    number: MemberNumber,
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
            number: 0,
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

/// Members and partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupState {
    /// Increases with each change of the targets.
    pub generation: u64,
    pub members: BTreeMap<String, MemberInfo>,
    pub target: ByPartition<MemberNumber>,
    pub owners: ByPartition<Claim>,
    /// Increases when partitions are claimed.
    pub epoch: u64,
}

/// The member that owns a partition, and the epoch in which it has claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim(pub MemberNumber, u64);

/// A member, and the last epoch of its group that it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    member: String,
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
}

impl GroupState {
    /// The number of a member.
    pub fn number_of(&self, id: &str) -> Option<MemberNumber> {
        self.members.get(id).map(|info| info.number)
    }

    /// Adds a member, unless it is there.
    pub fn add(&mut self, id: &str, info: MemberInfo) {
        if !self.members.contains_key(id) {
            let last = self.members.values().map(|info| info.number).max();
            let number = last.unwrap_or(0) + 1;
            self.members.insert(id.to_owned(), MemberInfo { number, ..info });
        }
    }

    /// Removes a member and frees its partitions.
    pub fn remove(&mut self, id: &str) {
        if let Some(MemberInfo { number, .. }) = self.members.remove(id) {
            self.owners.retain(|_, _, owner| owner.0 != number);
        }
    }

    /// Assigns the partitions of these topics to the members.
    pub fn rebalance(&mut self, partitions: &BTreeMap<String, i32>) {
        let members = self.members.values().map(|info| (info.number, info.topics.as_slice()));
        let target = assignor::assign(&members.collect(), partitions, &self.target);
        if target != self.target {
            self.target = target;
            self.generation += 1;
        }
    }

    /// Frees partitions of this member that it does not read. They are left over when storing a release has failed.
    pub fn free_unread(&mut self, id: &str, reads: impl Fn(&str, i32) -> bool) {
        let member = self.number_of(id);
        self.owners.retain(|topic, number, owner| Some(owner.0) != member || reads(topic, number));
    }

    /// Makes this member, which has seen this epoch, the owner of its targets that have no owner, and returns them.
    pub fn claim(&mut self, id: &str, epoch: u64) -> Vec<Partition> {
        let Some(member) = self.number_of(id) else { return Vec::new() };
        let wanted = self.target.iter().filter(|(_, target)| **target == member);
        let is_free = |one: &Partition| self.owners.get(&one.topic, one.number).is_none();
        let free: Vec<_> = wanted.map(|(one, _)| one).filter(is_free).collect();
        // A damaged state begins anew, but no epoch is used again.
        self.epoch = self.epoch.max(epoch) + u64::from(!free.is_empty());
        free.iter().for_each(|one| self.owners.insert(one, Claim(member, self.epoch)));
        free
    }

    /// Whether a member owns the partition of a commit: one that has claimed a partition since, which it had lost, does
    /// not write what it began before.
    pub fn may_commit(&self, Owner { member, epoch }: &Owner, commit: &Commit) -> bool {
        let number = self.number_of(member);
        let owner = self.owners.get(&commit.topic, commit.partition);
        owner.is_some_and(|Claim(owner, since)| Some(*owner) == number && epoch >= since)
    }
}
