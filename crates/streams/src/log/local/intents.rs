//! Transactions that are decided: a file each, durable before anything of it
//! is done and removed when all of it is. Whoever takes a lock that such a file
//! names finds it there only if its writer has died, and does what is left of
//! it first.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lock::{FileLock, Held};
use super::place::{escaped, Place};
use super::writer::{Piece, Writer};
use super::{failure, files, frame, offsets, topics};
use crate::log::{Commit, ErrorKind, LogError, Result};

/// What is to be written to one partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub topic: String,
    pub partition: i32,
    /// The offset of the first record.
    pub first: i64,
    pub bytes: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Noted {
    topic: String,
    partition: i32,
    offset: i64,
    metadata: String,
}

#[derive(Serialize, Deserialize)]
struct Head {
    group: String,
    commits: Vec<Noted>,
    parts: Vec<Part>,
}

/// One transaction.
pub(super) struct Intent {
    pub group: String,
    pub commits: Vec<Commit>,
    pub parts: Vec<Part>,
    /// Sealed records of all parts.
    pub frames: Vec<u8>,
}

/// How a partition's lock is called in such a file.
pub(super) fn partition_key(topic: &str, partition: i32) -> String {
    format!("topics/{topic}/{partition}")
}

/// How a group's lock is called.
pub(super) fn group_key(group: &str) -> String {
    format!("groups/{}", escaped(group))
}

impl Intent {
    /// The locks it needs, in the order in which they are taken.
    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> =
            self.parts.iter().map(|part| partition_key(&part.topic, part.partition)).collect();
        keys.sort();
        keys.push(group_key(&self.group));
        keys
    }

    /// Decides it; the file.
    pub fn write(&self, place: &Place) -> Result<PathBuf> {
        let path = place.transactions().join(format!("{}.intent", files::unique()));
        let noted = |commit: &Commit| Noted {
            topic: commit.topic.clone(),
            partition: commit.partition,
            offset: commit.offset,
            metadata: commit.metadata.clone(),
        };
        let head = Head {
            group: self.group.clone(),
            commits: self.commits.iter().map(noted).collect(),
            parts: self.parts.clone(),
        };
        let json = serde_json::to_vec(&head).unwrap_or_else(|_| unreachable!("plain data"));
        let mut bytes = vec![0; 8];
        bytes[4..].copy_from_slice(&(json.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&json);
        bytes.extend_from_slice(&self.frames);
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        files::replace(&path, &bytes, place.settings.durable)
            .map_err(|error| failure::of(&path, "writing", &error))?;
        Ok(path)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let four = |at: usize| bytes.get(at..at + 4)?.try_into().map(u32::from_le_bytes).ok();
        let (crc, len) = (four(0)?, four(4)? as usize);
        let json = bytes.get(8..8usize.checked_add(len)?)?;
        if crc32c::crc32c(&bytes[4..]) != crc {
            return None;
        }
        let head: Head = serde_json::from_slice(json).ok()?;
        let commit = |noted: Noted| Commit {
            topic: noted.topic,
            partition: noted.partition,
            offset: noted.offset,
            metadata: noted.metadata,
        };
        Some(Self {
            group: head.group,
            commits: head.commits.into_iter().map(commit).collect(),
            parts: head.parts,
            frames: bytes[8 + len..].to_vec(),
        })
    }
}

/// Takes a lock; what one who died has decided about what it guards is done
/// first.
pub(super) fn hold(
    place: &Place,
    lock: &Arc<FileLock>,
    key: &str,
    timeout: Duration,
) -> Result<Held> {
    hold_within(place, lock, key, timeout)?.ok_or_else(|| lock.busy(timeout))
}

/// As [`hold`]; `None` when the lock is not to be had in time.
pub(super) fn hold_within(
    place: &Place,
    lock: &Arc<FileLock>,
    key: &str,
    timeout: Duration,
) -> Result<Option<Held>> {
    loop {
        let Some(held) = lock.acquire_within(timeout)? else { return Ok(None) };
        let Some(path) = orphan(place, &[key])? else { return Ok(Some(held)) };
        drop(held);
        redo(place, &path, timeout)?;
    }
}

/// Takes the locks of an intent that is to be written: of its partitions,
/// then of its group.
pub(super) fn hold_all(place: &Place, parts: &[String], group: &str) -> Result<Vec<Held>> {
    let mut keys = parts.to_vec();
    keys.sort();
    keys.push(group_key(group));
    loop {
        let held = acquire(place, &keys, place.patience())?;
        let names: Vec<_> = keys.iter().map(String::as_str).collect();
        let Some(path) = orphan(place, &names)? else { return Ok(held) };
        drop(held);
        redo(place, &path, place.patience())?;
    }
}

fn acquire(place: &Place, keys: &[String], timeout: Duration) -> Result<Vec<Held>> {
    keys.iter()
        .map(|key| {
            let name = if key.starts_with("topics/") { "writer.lock" } else { "lock" };
            FileLock::open(&place.root.join(key).join(name))?.acquire(timeout)
        })
        .collect()
}

/// An intent that names one of these locks, which the caller holds.
fn orphan(place: &Place, keys: &[&str]) -> Result<Option<PathBuf>> {
    for path in list(place)? {
        let named = read(&path)?
            .is_some_and(|intent| intent.keys().iter().any(|key| keys.contains(&key.as_str())));
        if named {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn list(place: &Place) -> Result<Vec<PathBuf>> {
    let folder = place.transactions();
    let failed = |error| failure::of(&folder, "listing", &error);
    let mut paths = Vec::new();
    let entries = match fs::read_dir(&folder) {
        // Somebody has removed it: nothing is decided.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            place.make()?;
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

/// `None` when it is done already, or when it is damaged: then it is put aside.
fn read(path: &Path) -> Result<Option<Intent>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failure::of(path, "reading", &error)),
    };
    let intent = Intent::decode(&bytes);
    if intent.is_none() {
        let _ = fs::rename(path, files::beside(path, ".damaged"));
    }
    Ok(intent)
}

/// Does what is left of a transaction whose writer died.
fn redo(place: &Place, path: &Path, timeout: Duration) -> Result<()> {
    let Some(intent) = read(path)? else { return Ok(()) };
    // A topic may have been deleted since.
    let there = |key: &String| place.root.join(key).is_dir();
    let keys: Vec<_> = intent.keys().into_iter().filter(there).collect();
    let _held = acquire(place, &keys, timeout)?;
    if path.exists() && apply(place, &intent)? {
        finish(place, path)?;
    }
    Ok(())
}

/// The transaction is done.
pub(super) fn finish(place: &Place, path: &Path) -> Result<()> {
    fs::remove_file(path)
        .and_then(|()| match place.settings.durable {
            true => files::sync_folder(&place.transactions()),
            false => Ok(()),
        })
        .map_err(|error| failure::of(path, "removing", &error))
}

/// The transaction has failed and nothing of it is there: nobody shall do it
/// again. What is to be said of it.
pub(super) fn take_back(place: &Place, path: &Path, why: LogError) -> LogError {
    let Err(left) = finish(place, path) else { return why };
    LogError::new(
        ErrorKind::Unreachable,
        format!(
            "{why}; and it could not be taken back ({left}): whether this transaction is done is \
             unknown, whoever comes next may still do it; see to {} before it is tried again",
            path.display()
        ),
    )
}

/// A partition's records, staged.
struct Staged {
    writer: Writer,
    piece: Option<Piece>,
}

/// Does a transaction, whatever of it is done already. All locks are held.
/// After an error nothing of it is there; false: it holds, and what is left is
/// done by whoever comes next.
pub(super) fn apply(place: &Place, intent: &Intent) -> Result<bool> {
    let mut staged = Vec::new();
    let done = stage(place, intent, &mut staged).and_then(|()| {
        if intent.commits.is_empty() {
            return Ok(());
        }
        offsets::append(&place.group(&intent.group), &intent.commits, place.settings.durable)
    });
    if let Err(error) = done {
        staged.iter_mut().for_each(|one| one.writer.unstage());
        return Err(error);
    }
    let publish = |one: &mut Staged| match &one.piece {
        Some(piece) => one.writer.publish(piece).is_ok(),
        None => true,
    };
    Ok(staged.iter_mut().all(publish))
}

fn stage(place: &Place, intent: &Intent, staged: &mut Vec<Staged>) -> Result<()> {
    let mut frames = intent.frames.clone();
    let mut rest = frames.as_mut_slice();
    for part in &intent.parts {
        let (own, more) = rest.split_at_mut(part.bytes.min(rest.len()));
        rest = more;
        let Some(topic) = topics::find(place, &part.topic)? else { continue };
        let folder = place.partition(&part.topic, part.partition);
        let mut writer = Writer::open(&folder)?;
        writer.refresh(&topic.rules)?;
        let left = behind(own, writer.end());
        let mut one = Staged { writer, piece: None };
        if !left.is_empty() {
            one.writer.make_room(left.len(), &topic.rules)?;
            let piece = one.writer.seal(left, u64::MAX);
            one.writer.stage(left, &topic.rules)?;
            one.piece = Some(piece);
        }
        staged.push(one);
    }
    Ok(())
}

/// Records that are not written yet.
fn behind(frames: &mut [u8], end: i64) -> &mut [u8] {
    let mut at = 0;
    while at < frames.len() && frame::offset_of(&frames[at..]) < end {
        at += frame::len_of(&frames[at..]);
    }
    &mut frames[at..]
}

/// Records by partition, in the order in which their locks are taken.
pub(super) type Frames = BTreeMap<(String, i32), Vec<u8>>;
