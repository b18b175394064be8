//! The folder of a consumer group: its shared state, which is changed under
//! the group's lock and replaced as a whole, which wakes the other members.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::group_state::GroupState;
use super::log_dir::LogDir;
use super::path_lock::{Held, PathLock};
use super::{errors, files, liveness, topics, txn_log};
use crate::log::{LogError, Result};

pub(super) struct GroupFiles {
    pub dir: Arc<LogDir>,
    pub name: String,
    pub folder: PathBuf,
    lock: Arc<PathLock>,
}

impl GroupFiles {
    /// Opens the group's folder and creates it if needed.
    pub fn open(dir: &Arc<LogDir>, name: &str) -> Result<Self> {
        dir.create()?;
        let folder = dir.group(name);
        let members = folder.join("members");
        fs::create_dir_all(&members)
            .map_err(|error| errors::io(&members, "creating the folder", &error))?;
        let lock = PathLock::open(&folder.join("lock"))?;
        Ok(Self { dir: dir.clone(), name: name.into(), folder, lock })
    }

    /// Takes the group's lock.
    pub fn lock(&self) -> Result<Held> {
        let timeout = self.dir.answer_timeout();
        self.lock_within(timeout)?.ok_or_else(|| self.lock_timed_out(timeout))
    }

    /// The same; `None` when the time is up.
    pub fn lock_within(&self, timeout: Duration) -> Result<Option<Held>> {
        let key = txn_log::group_lock_key(&self.name);
        txn_log::acquire_within(&self.dir, &self.lock, &key, timeout)
    }

    /// The error after waiting this long for the lock.
    pub fn lock_timed_out(&self, waited: Duration) -> LogError {
        self.lock.timed_out(waited)
    }

    /// The shared state. A damaged file counts as empty: the members that are alive register again.
    pub fn load(&self) -> Result<GroupState> {
        let path = self.folder.join("state.json");
        match fs::read(&path) {
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(GroupState::default()),
            Err(error) => Err(errors::io(&path, "reading", &error)),
        }
    }

    pub fn store(&self, state: &GroupState) -> Result<()> {
        let path = self.folder.join("state.json");
        let text =
            serde_json::to_vec(state).unwrap_or_else(|_| unreachable!("plain maps and strings"));
        // Not synced: after a reboot none of its members is alive.
        files::replace(&path, &text, false).map_err(|error| errors::io(&path, "writing", &error))
    }

    /// Removes dead members from the state.
    ///
    /// # Errors
    /// If it cannot be found out whether a member is alive; the state is unchanged then.
    pub fn remove_dead(&self, state: &mut GroupState) -> Result<()> {
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

    /// The partition counts of all topics that members read.
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
