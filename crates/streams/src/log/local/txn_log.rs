//! Prepared transactions. A transaction is decided by one durable file, which is removed after all
//! of it has been applied. A process that takes one of the transaction's locks finds the file only
//! if its writer has died, and completes the transaction first.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::log_dir::{escaped, LogDir};
use super::partition_writer::{PartitionWriter, SealedFrames};
use super::path_lock::{Held, PathLock};
use super::{committed_offsets, errors, files, record_frame, topics};
use crate::log::{Commit, ErrorKind, LogError, Result};

/// The records of one partition in a transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TxnPartition {
    pub topic: String,
    pub partition: i32,
    /// The offset of the first record.
    pub first: i64,
    pub bytes: usize,
}

#[derive(Serialize, Deserialize)]
struct TxnHeader {
    group: String,
    commits: Vec<Commit>,
    #[serde(rename = "parts")]
    partitions: Vec<TxnPartition>,
}

/// One prepared transaction.
pub(super) struct TxnEntry {
    pub group: String,
    pub commits: Vec<Commit>,
    pub partitions: Vec<TxnPartition>,
    /// The sealed records of all partitions.
    pub frames: Vec<u8>,
}

/// The records of a transaction by topic and partition, in locking order.
pub(super) type FramesByPartition = BTreeMap<(String, i32), Vec<u8>>;

/// Names the lock of a partition.
pub(super) fn partition_lock_key(topic: &str, partition: i32) -> String {
    format!("topics/{topic}/{partition}")
}

/// Names the lock of a group.
pub(super) fn group_lock_key(group: &str) -> String {
    format!("groups/{}", escaped(group))
}

impl TxnEntry {
    /// The locks it needs, in locking order.
    fn lock_keys(&self) -> Vec<String> {
        let key = |one: &TxnPartition| partition_lock_key(&one.topic, one.partition);
        let mut keys: Vec<_> = self.partitions.iter().map(key).collect();
        keys.sort();
        keys.push(group_lock_key(&self.group));
        keys
    }

    /// Writes the file that decides the transaction, and returns its path.
    pub fn prepare(&self, dir: &LogDir) -> Result<PathBuf> {
        let path = dir.transactions().join(format!("{}.intent", files::unique_name()));
        let header = TxnHeader {
            group: self.group.clone(),
            commits: self.commits.clone(),
            partitions: self.partitions.clone(),
        };
        let json = serde_json::to_vec(&header).unwrap_or_else(|_| unreachable!("plain data"));
        let mut bytes = vec![0; 8];
        bytes[4..].copy_from_slice(&(json.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&json);
        bytes.extend_from_slice(&self.frames);
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        files::replace(&path, &bytes, dir.settings.durable)
            .map_err(|error| errors::io(&path, "writing", &error))?;
        Ok(path)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let four = |at: usize| bytes.get(at..at + 4)?.try_into().map(u32::from_le_bytes).ok();
        let (crc, len) = (four(0)?, four(4)? as usize);
        let json = bytes.get(8..8usize.checked_add(len)?)?;
        if crc32c::crc32c(&bytes[4..]) != crc {
            return None;
        }
        let TxnHeader { group, commits, partitions } = serde_json::from_slice(json).ok()?;
        Some(Self { group, commits, partitions, frames: bytes[8 + len..].to_vec() })
    }
}

/// Takes a lock and completes a prepared transaction that it guards.
pub(super) fn acquire(
    dir: &LogDir,
    lock: &Arc<PathLock>,
    key: &str,
    timeout: Duration,
) -> Result<Held> {
    acquire_within(dir, lock, key, timeout)?.ok_or_else(|| lock.timed_out(timeout))
}

/// As [`acquire`]; `None` when the time is up.
pub(super) fn acquire_within(
    dir: &LogDir,
    lock: &Arc<PathLock>,
    key: &str,
    timeout: Duration,
) -> Result<Option<Held>> {
    loop {
        let Some(held) = lock.acquire_within(timeout)? else { return Ok(None) };
        let Some(path) = find_orphan(dir, &[key])? else { return Ok(Some(held)) };
        drop(held);
        if !complete(dir, &path, timeout)? {
            return Ok(None);
        }
    }
}

/// Takes the locks for a new transaction: of its partitions, then of its group.
pub(super) fn acquire_all(dir: &LogDir, partitions: &[String], group: &str) -> Result<Vec<Held>> {
    let mut keys = partitions.to_vec();
    keys.sort();
    keys.push(group_lock_key(group));
    loop {
        let held = lock_all(dir, &keys, dir.answer_timeout())?;
        let names: Vec<_> = keys.iter().map(String::as_str).collect();
        let Some(path) = find_orphan(dir, &names)? else { return Ok(held) };
        drop(held);
        // Where that takes too long, the next round names the lock.
        complete(dir, &path, dir.answer_timeout())?;
    }
}

fn lock_all(dir: &LogDir, keys: &[String], timeout: Duration) -> Result<Vec<Held>> {
    keys.iter().map(|key| lock_of(dir, key)?.acquire(timeout)).collect()
}

fn lock_of(dir: &LogDir, key: &str) -> Result<Arc<PathLock>> {
    let name = if key.starts_with("topics/") { "writer.lock" } else { "lock" };
    PathLock::open(&dir.root.join(key).join(name))
}

/// A prepared transaction that needs one of these locks, which the caller holds.
fn find_orphan(dir: &LogDir, keys: &[&str]) -> Result<Option<PathBuf>> {
    for path in list(dir)? {
        let is_named = read(&path)?
            .is_some_and(|txn| txn.lock_keys().iter().any(|key| keys.contains(&key.as_str())));
        if is_named {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn list(dir: &LogDir) -> Result<Vec<PathBuf>> {
    let folder = dir.transactions();
    let failed = |error| errors::io(&folder, "listing", &error);
    let mut paths = Vec::new();
    let entries = match fs::read_dir(&folder) {
        // The folder was removed, and with it all prepared transactions.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            dir.create()?;
            return Ok(paths);
        }
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "intent") {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// `None` if the transaction is completed already, or if its file is damaged:
/// then the file is moved aside.
fn read(path: &Path) -> Result<Option<TxnEntry>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(errors::io(path, "reading", &error)),
    };
    let txn = TxnEntry::decode(&bytes);
    if txn.is_none() {
        let _ = fs::rename(path, files::with_suffix(path, ".damaged"));
    }
    Ok(txn)
}

/// Completes a transaction whose writer died; false if one of its locks could not be taken in time.
fn complete(dir: &LogDir, path: &Path, timeout: Duration) -> Result<bool> {
    let Some(txn) = read(path)? else { return Ok(true) };
    let mut held = Vec::new();
    // A topic may have been deleted since.
    for key in txn.lock_keys().iter().filter(|key| dir.root.join(key).is_dir()) {
        match lock_of(dir, key)?.acquire_within(timeout)? {
            Some(lock) => held.push(lock),
            None => return Ok(false),
        }
    }
    if path.exists() && apply(dir, &txn)? {
        finish_txn(dir, path)?;
    }
    Ok(true)
}

/// Removes the file of a transaction that has been applied.
pub(super) fn finish_txn(dir: &LogDir, path: &Path) -> Result<()> {
    fs::remove_file(path)
        .and_then(|()| match dir.settings.durable {
            true => files::sync_folder(&dir.transactions()),
            false => Ok(()),
        })
        .map_err(|error| errors::io(path, "removing", &error))
}

/// Removes the file of a transaction that could not be applied, and returns
/// the error for its caller.
pub(super) fn abort(dir: &LogDir, path: &Path, why: LogError) -> LogError {
    let Err(left) = finish_txn(dir, path) else { return why };
    LogError::new(
        ErrorKind::Unreachable,
        format!(
            "{why}; and the transaction could not be aborted ({left}): its outcome is unknown, \
             because the next writer may still complete it; see to {} before trying it again",
            path.display()
        ),
    )
}

struct StagedPartition {
    writer: PartitionWriter,
    sealed: Option<SealedFrames>,
}

/// Applies a transaction, whatever of it is applied already. The caller holds all its locks. After
/// an error nothing of it is visible. False means that it holds and the next process completes it.
pub(super) fn apply(dir: &LogDir, txn: &TxnEntry) -> Result<bool> {
    let mut staged = Vec::new();
    let done = stage(dir, txn, &mut staged).and_then(|()| {
        if txn.commits.is_empty() {
            return Ok(());
        }
        committed_offsets::append(&dir.group(&txn.group), &txn.commits, dir.settings.durable)
    });
    if let Err(error) = done {
        staged.iter_mut().for_each(|one| one.writer.unstage());
        return Err(error);
    }
    let publish = |one: &mut StagedPartition| match &one.sealed {
        Some(sealed) => one.writer.publish(sealed).is_ok(),
        None => true,
    };
    Ok(staged.iter_mut().all(publish))
}

fn stage(dir: &LogDir, txn: &TxnEntry, staged: &mut Vec<StagedPartition>) -> Result<()> {
    let mut frames = txn.frames.clone();
    let mut rest = frames.as_mut_slice();
    for partition in &txn.partitions {
        let (own, more) = rest.split_at_mut(partition.bytes.min(rest.len()));
        rest = more;
        let Some(topic) = topics::find(dir, &partition.topic)? else { continue };
        let folder = dir.partition(&partition.topic, partition.partition);
        let mut writer = PartitionWriter::open(&folder)?;
        writer.refresh(&topic.config)?;
        let left = unwritten(own, writer.end());
        let mut one = StagedPartition { writer, sealed: None };
        if !left.is_empty() {
            one.writer.roll_if_full(left.len(), &topic.config)?;
            let sealed = one.writer.seal(left, u64::MAX);
            one.writer.stage(left, &topic.config)?;
            one.sealed = Some(sealed);
        }
        staged.push(one);
    }
    Ok(())
}

/// The records that are not written yet.
fn unwritten(frames: &mut [u8], end: i64) -> &mut [u8] {
    let mut at = 0;
    while at < frames.len() && record_frame::offset_of(&frames[at..]) < end {
        at += record_frame::len_of(&frames[at..]);
    }
    &mut frames[at..]
}
