//! The state of a consumer group that all its members share.
//!
//! Each partition has a *target*, the member that should read it, and an
//! *owner*, the member that reads it now. They differ while the owner finishes
//! what it has begun; only a partition without an owner can be claimed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::assignor::{self, Subscriptions};
use super::liveness::ProcessIdentity;
use super::log_dir::parse_partition_key;
use crate::log::Partition;

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberInfo {
    pub process: ProcessIdentity,
    pub host: String,
    pub topics: Vec<String>,
}

/// Who reads what; partitions as `topic/number`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupState {
    /// Rises with each change of the targets.
    pub generation: u64,
    pub members: BTreeMap<String, MemberInfo>,
    pub target: BTreeMap<String, String>,
    pub owners: BTreeMap<String, String>,
}

impl GroupState {
    /// A member is gone, and what it owned is free.
    pub fn remove(&mut self, id: &str) {
        self.members.remove(id);
        self.owners.retain(|_, owner| owner != id);
    }

    /// Decides anew who shall read what of these topics.
    pub fn balance(&mut self, partitions: &BTreeMap<String, i32>) {
        let members: Subscriptions =
            self.members.iter().map(|(id, info)| (id.clone(), info.topics.clone())).collect();
        let target = assignor::assign(&members, partitions, &self.target);
        if target != self.target {
            self.target = target;
            self.generation += 1;
        }
    }

    /// What this member is said to read and does not, because it could not say
    /// so when it gave it up, is nobody's.
    pub fn give_up(&mut self, id: &str, reads: impl Fn(&Partition) -> bool) {
        self.owners.retain(|key, owner| {
            owner != id || parse_partition_key(key).is_some_and(|one| reads(&one))
        });
    }

    /// Takes what shall be this member's and is nobody's; answers it.
    pub fn take(&mut self, id: &str) -> Vec<String> {
        let wanted = self.target.iter().filter(|(_, target)| *target == id);
        let free: Vec<_> = wanted
            .map(|(key, _)| key)
            .filter(|key| !self.owners.contains_key(*key))
            .cloned()
            .collect();
        self.owners.extend(free.iter().map(|key| (key.clone(), id.to_owned())));
        free
    }
}
