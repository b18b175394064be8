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

use super::group_state::GroupState;
use super::liveness;
use super::log_dir::LogDir;
use super::path_lock::{Held, PathLock};
use super::txn_log;
use super::{errors, files, topics};
use crate::log::{LogError, Result};

/// The files of a group.
pub(super) struct GroupFiles {
    pub dir: Arc<LogDir>,
    pub name: String,
    pub folder: PathBuf,
    lock: Arc<PathLock>,
}

impl GroupFiles {
    /// Of a group, made on first use.
    pub fn open(dir: &Arc<LogDir>, name: &str) -> Result<Self> {
        let folder = dir.group(name);
        let members = folder.join("members");
        fs::create_dir_all(&members)
            .map_err(|error| errors::io(&members, "making the folder", &error))?;
        let lock = PathLock::open(&folder.join("lock"))?;
        Ok(Self { dir: dir.clone(), name: name.into(), folder, lock })
    }

    /// Takes the group's lock.
    pub fn hold(&self) -> Result<Held> {
        let patience = self.dir.answer_timeout();
        self.hold_within(patience)?.ok_or_else(|| self.busy(patience))
    }

    /// The same; `None` when it is not to be had in time.
    pub fn hold_within(&self, timeout: Duration) -> Result<Option<Held>> {
        let key = txn_log::group_lock_key(&self.name);
        txn_log::acquire_within(&self.dir, &self.lock, &key, timeout)
    }

    /// Says that the lock was not to be had for so long.
    pub fn busy(&self, waited: Duration) -> LogError {
        self.lock.busy(waited)
    }

    /// The group as it was left. What cannot be read counts as nothing: who is
    /// alive will say again what it is.
    pub fn load(&self) -> Result<GroupState> {
        let path = self.folder.join("state.json");
        match fs::read(&path) {
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(GroupState::default()),
            Err(error) => Err(errors::io(&path, "reading", &error)),
        }
    }

    /// Tells everybody.
    pub fn store(&self, state: &GroupState) -> Result<()> {
        let path = self.folder.join("state.json");
        let text =
            serde_json::to_vec(state).unwrap_or_else(|_| unreachable!("plain maps and strings"));
        // After a start of the machine nobody in it is alive: not synced.
        files::replace(&path, &text, false).map_err(|error| errors::io(&path, "writing", &error))
    }

    /// Takes out who is dead.
    ///
    /// # Errors
    /// When that cannot be told of one: nothing is changed then.
    pub fn bury(&self, state: &mut GroupState) -> Result<()> {
        let members = self.folder.join("members");
        let mut dead = Vec::new();
        for (id, info) in &state.members {
            if !liveness::is_alive(&members, id, &info.process)? {
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
    pub fn partitions(&self, state: &GroupState) -> Result<BTreeMap<String, i32>> {
        let mut counts = BTreeMap::new();
        for name in state.members.values().flat_map(|info| &info.topics) {
            if !counts.contains_key(name) {
                if let Some(topic) = topics::find(&self.dir, name)? {
                    counts.insert(name.clone(), topic.partitions);
                }
            }
        }
        Ok(counts)
    }
}
