//! A consumer group as all its members see it: one small file, changed under
//! the group's lock by whoever joins, leaves, gives a partition up or finds
//! that another one has died, and replaced whole, which wakes the others.
//!
//! A partition has a *target*, the member that shall read it, and an *owner*,
//! the one that does. They differ while its owner finishes what it has begun;
//! only a partition without an owner is taken.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::intents;
use super::lock::{FileLock, Held};
use super::place::Place;
use super::presence::{self, Process};
use super::{failure, files, topics};
use crate::log::{LogError, Partition, Result};

pub(super) mod balance;

use balance::Subscriptions;

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberInfo {
    pub process: Process,
    pub host: String,
    pub topics: Vec<String>,
}

/// Who reads what; partitions as `topic/number`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// Rises with each change of the targets.
    pub generation: u64,
    pub members: BTreeMap<String, MemberInfo>,
    pub target: BTreeMap<String, String>,
    pub owners: BTreeMap<String, String>,
}

impl State {
    /// A member is gone, and what it owned is free.
    pub fn remove(&mut self, id: &str) {
        self.members.remove(id);
        self.owners.retain(|_, owner| owner != id);
    }

    /// Decides anew who shall read what of these topics.
    pub fn balance(&mut self, partitions: &BTreeMap<String, i32>) {
        let members: Subscriptions =
            self.members.iter().map(|(id, info)| (id.clone(), info.topics.clone())).collect();
        let target = balance::assign(&members, partitions, &self.target);
        if target != self.target {
            self.target = target;
            self.generation += 1;
        }
    }

    /// What this member is said to read and does not, because it could not say
    /// so when it gave it up, is nobody's.
    pub fn give_up(&mut self, id: &str, reads: impl Fn(&Partition) -> bool) {
        self.owners
            .retain(|key, owner| owner != id || partition_of(key).is_some_and(|one| reads(&one)));
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

/// `topic/number`.
pub(super) fn key_of(topic: &str, number: i32) -> String {
    format!("{topic}/{number}")
}

/// The partition again.
pub(super) fn partition_of(key: &str) -> Option<Partition> {
    let (topic, number) = key.rsplit_once('/')?;
    Some(Partition { topic: topic.into(), number: number.parse().ok()? })
}

/// The files of a group.
pub(super) struct GroupFiles {
    pub place: Arc<Place>,
    pub name: String,
    pub folder: PathBuf,
    lock: Arc<FileLock>,
}

impl GroupFiles {
    /// Of a group, made on first use.
    pub fn open(place: &Arc<Place>, name: &str) -> Result<Self> {
        let folder = place.group(name);
        let members = folder.join("members");
        fs::create_dir_all(&members)
            .map_err(|error| failure::of(&members, "making the folder", &error))?;
        let lock = FileLock::open(&folder.join("lock"))?;
        Ok(Self { place: place.clone(), name: name.into(), folder, lock })
    }

    /// Takes the group's lock.
    pub fn hold(&self) -> Result<Held> {
        let patience = self.place.patience();
        self.hold_within(patience)?.ok_or_else(|| self.busy(patience))
    }

    /// The same; `None` when it is not to be had in time.
    pub fn hold_within(&self, timeout: Duration) -> Result<Option<Held>> {
        let key = intents::group_key(&self.name);
        intents::hold_within(&self.place, &self.lock, &key, timeout)
    }

    /// Says that the lock was not to be had for so long.
    pub fn busy(&self, waited: Duration) -> LogError {
        self.lock.busy(waited)
    }

    /// The group as it was left. What cannot be read counts as nothing: who is
    /// alive will say again what it is.
    pub fn load(&self) -> Result<State> {
        let path = self.folder.join("state.json");
        match fs::read(&path) {
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(State::default()),
            Err(error) => Err(failure::of(&path, "reading", &error)),
        }
    }

    /// Tells everybody.
    pub fn store(&self, state: &State) -> Result<()> {
        let path = self.folder.join("state.json");
        let text =
            serde_json::to_vec(state).unwrap_or_else(|_| unreachable!("plain maps and strings"));
        // After a start of the machine nobody in it is alive: not synced.
        files::replace(&path, &text, false).map_err(|error| failure::of(&path, "writing", &error))
    }

    /// Takes out who is dead.
    ///
    /// # Errors
    /// When that cannot be told of one: nothing is changed then.
    pub fn bury(&self, state: &mut State) -> Result<()> {
        let members = self.folder.join("members");
        let mut dead = Vec::new();
        for (id, info) in &state.members {
            if !presence::is_alive(&members, id, &info.process)? {
                dead.push(id.clone());
            }
        }
        for id in dead {
            state.remove(&id);
            let _ = fs::remove_file(members.join(&id));
        }
        let known = &state.members;
        state.owners.retain(|_, owner| known.contains_key(owner));
        Ok(())
    }

    /// How many partitions the topics have that any member reads.
    pub fn partitions(&self, state: &State) -> Result<BTreeMap<String, i32>> {
        let mut counts = BTreeMap::new();
        for name in state.members.values().flat_map(|info| &info.topics) {
            if !counts.contains_key(name) {
                if let Some(topic) = topics::find(&self.place, name)? {
                    counts.insert(name.clone(), topic.partitions);
                }
            }
        }
        Ok(counts)
    }
}
