//! The committed offsets of a group: a file of commits in the format of [`super::record_frame`].
//! The last commit of a partition is the valid one. All calls are made under the group's lock.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::scan::ScanWindow;
use super::{errors, files, record_frame};
use crate::log::{Commit, Result};
use crate::record::NewRecord;

/// A file larger than this is compacted,
const COMPACT_BYTES: u64 = 1 << 20;
/// if it is this many times larger than its valid commits.
const COMPACT_FACTOR: u64 = 4;
/// The largest metadata of a commit, as in Kafka.
const METADATA_BYTES_MAX: usize = 4096;

#[derive(Serialize, Deserialize)]
struct OffsetKey {
    topic: String,
    partition: i32,
}

#[derive(Serialize, Deserialize)]
struct OffsetValue {
    offset: i64,
    metadata: String,
}

/// The last commits by topic and partition.
pub(super) type CommittedOffsets = BTreeMap<(String, i32), Commit>;

fn path(group: &Path) -> PathBuf {
    group.join("offsets")
}

pub(super) fn load(group: &Path) -> Result<CommittedOffsets> {
    let path = path(group);
    let loaded = match File::open(&path) {
        Ok(file) => read(&file).map(|(commits, _)| commits),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(CommittedOffsets::new()),
        Err(error) => Err(error),
    };
    loaded.map_err(|error| errors::io(&path, "reading", &error))
}

/// The commits, and the position behind the last complete one.
fn read(file: &File) -> io::Result<(CommittedOffsets, u64)> {
    let size = file.metadata()?.len();
    let mut window = ScanWindow::new(file, size);
    let (mut commits, mut at, mut end) = (CommittedOffsets::new(), 0, 0);
    while at < size {
        let found = match window.frame_at(at)? {
            Some(frame) => Some((at, frame)),
            None => window.next_whole(at + 1, 0)?,
        };
        let Some((pos, frame)) = found else { break };
        let data = files::read_vec(file, frame.len, pos)?;
        if let record_frame::ParsedFrame::Complete(frame) = record_frame::parse(&data, 0) {
            replay(&mut commits, frame.key.of(&data), frame.value.of(&data));
        }
        at = pos + frame.len as u64;
        end = at;
    }
    Ok((commits, end))
}

fn replay(commits: &mut CommittedOffsets, key: Option<&[u8]>, value: Option<&[u8]>) {
    let Some(Ok(OffsetKey { topic, partition })) = key.map(serde_json::from_slice) else { return };
    let point = value.and_then(|value| serde_json::from_slice(value).ok());
    let key = (topic.clone(), partition);
    match point {
        Some(OffsetValue { offset, metadata }) => {
            commits.insert(key, Commit { topic, partition, offset, metadata });
        }
        None => {
            commits.remove(&key);
        }
    }
}

fn encode(out: &mut Vec<u8>, key: &(String, i32), commit: Option<&Commit>) {
    let key = OffsetKey { topic: key.0.clone(), partition: key.1 };
    let key = serde_json::to_vec(&key).unwrap_or_default();
    let value = commit.map(|commit| {
        let point = OffsetValue { offset: commit.offset, metadata: commit.metadata.clone() };
        serde_json::to_vec(&point).unwrap_or_default()
    });
    let record = NewRecord {
        topic: "",
        partition: None,
        key: Some(&key),
        value: value.as_deref(),
        headers: &[],
        timestamp_ms: None,
    };
    let start = out.len();
    record_frame::encode(out, &record, record_frame::size(&record), files::now_ms());
    record_frame::seal(&mut out[start..], 0);
}

/// Checks offsets and metadata before they are committed.
pub(super) fn check(commits: &[Commit]) -> Result<()> {
    for commit in commits {
        if commit.offset < 0 {
            return Err(errors::invalid(format!(
                "{} is no offset of {}/{}: offsets begin with 0",
                commit.offset, commit.topic, commit.partition
            )));
        }
        let bytes = commit.metadata.len();
        if bytes > METADATA_BYTES_MAX {
            return Err(errors::invalid(format!(
                "{bytes} bytes of metadata beside the offset of {}/{}; {METADATA_BYTES_MAX} are \
                 the most",
                commit.topic, commit.partition
            )));
        }
    }
    Ok(())
}

/// Appends commits, all or none; with `durable` they are on the disk on return.
pub(super) fn append(group: &Path, commits: &[Commit], durable: bool) -> Result<()> {
    let mut bytes = Vec::new();
    for commit in commits {
        encode(&mut bytes, &(commit.topic.clone(), commit.partition), Some(commit));
    }
    write(group, &bytes, durable)
}

/// Removes the commits of a topic.
pub(super) fn forget(group: &Path, topic: &str, durable: bool) -> Result<()> {
    let mut bytes = Vec::new();
    for key in load(group)?.keys().filter(|(of, _)| of == topic) {
        encode(&mut bytes, key, None);
    }
    if bytes.is_empty() {
        return Ok(());
    }
    write(group, &bytes, durable)
}

fn write(group: &Path, bytes: &[u8], durable: bool) -> Result<()> {
    let path = path(group);
    try_write(&path, bytes, durable).map_err(|error| errors::io(&path, "writing", &error))
}

fn try_write(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let new = !path.exists();
    let file = files::open_or_create(path)?;
    let size = file.metadata()?.len();
    // A process that died may have left half a commit. The trailer tells where
    // the complete ones end, so that the whole file is rarely read.
    let end = end_of(&file, size)?;
    let mut all = bytes.to_vec();
    all.extend_from_slice(&trailer(end + bytes.len() as u64));
    let mut done = file.write_all_at(&all, end).and_then(|()| file.set_len(end + all.len() as u64));
    if done.is_ok() && durable {
        done = file.sync_data();
        if new {
            done = done.and_then(|()| files::sync_folder(path.parent().unwrap_or(path)));
        }
    }
    if let Err(error) = done {
        let _ = file.set_len(size);
        return Err(error);
    }
    if end > COMPACT_BYTES {
        compact(path, &file)?;
    }
    Ok(())
}

const TRAILER: usize = 16;

/// The trailer behind the last commit: where the commits end.
fn trailer(end: u64) -> [u8; TRAILER] {
    let mut out = [0; TRAILER];
    out[..8].copy_from_slice(&end.to_le_bytes());
    out[8..12].copy_from_slice(b"ends");
    let crc = crc32c::crc32c(&out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn end_of(file: &File, size: u64) -> io::Result<u64> {
    if let Some(at) = size.checked_sub(TRAILER as u64) {
        let mut found = [0; TRAILER];
        files::read_at(file, &mut found, at)?;
        if found == trailer(at) {
            return Ok(at);
        }
    }
    read(file).map(|(_, end)| end)
}

/// Replaces the file by one of the valid commits. It is synced even if no commit waits for the
/// disk: otherwise a power failure may leave an empty file in the place of all commits.
fn compact(path: &Path, file: &File) -> io::Result<()> {
    let (commits, _) = read(file)?;
    let mut bytes = Vec::new();
    for (key, commit) in &commits {
        encode(&mut bytes, key, Some(commit));
    }
    if (bytes.len() as u64) * COMPACT_FACTOR > file.metadata()?.len() {
        return Ok(());
    }
    let end = bytes.len() as u64;
    bytes.extend_from_slice(&trailer(end));
    files::replace(path, &bytes, true)
}

/// Whether the group has committed anything.
pub(super) fn exist(group: &Path) -> bool {
    fs::metadata(path(group)).is_ok_and(|found| found.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(partition: i32, offset: i64) -> Commit {
        Commit { topic: "t".into(), partition, offset, metadata: format!("m{offset}") }
    }

    #[test]
    fn the_last_commit_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        assert!(load(at).unwrap().is_empty() && !exist(at));
        append(at, &[commit(0, 1), commit(1, 5)], true).unwrap();
        append(at, &[commit(0, 2)], false).unwrap();
        let found: Vec<_> = load(at).unwrap().into_values().collect();
        assert_eq!(found, [commit(0, 2), commit(1, 5)]);
        forget(at, "t", true).unwrap();
        assert!(load(at).unwrap().is_empty());
    }

    #[test]
    fn half_a_commit_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        append(at, &[commit(0, 1)], false).unwrap();
        let first = fs::read(path(at)).unwrap().len() - TRAILER;
        append(at, &[commit(0, 2)], false).unwrap();
        let whole = fs::read(path(at)).unwrap();
        for cut in 0..whole.len() {
            fs::write(path(at), &whole[..cut]).unwrap();
            let seen = load(at).unwrap().into_values().next().map(|commit| commit.offset);
            let both = cut >= whole.len() - TRAILER;
            assert_eq!(seen, if both { Some(2) } else { (cut >= first).then_some(1) }, "{cut}");
            append(at, &[commit(0, 3)], false).unwrap();
            assert_eq!(load(at).unwrap().into_values().collect::<Vec<_>>(), [commit(0, 3)]);
        }
    }

    #[test]
    fn old_commits_are_compacted() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let long = |offset| Commit { metadata: "x".repeat(4096), ..commit(0, offset) };
        for offset in 0..400 {
            append(at, &[long(offset)], false).unwrap();
        }
        assert!(fs::metadata(path(at)).unwrap().len() < 2 * COMPACT_BYTES);
        let folder_name = at.file_name().unwrap().to_string_lossy().into_owned();
        let one =
            ["synced temporary".into(), "renamed offsets".into(), format!("synced {folder_name}")];
        let done = files::tests::take_notes();
        assert!(done.len() == 3 && done == one, "{done:?}");
        assert_eq!(load(at).unwrap().into_values().next().unwrap().offset, 399);
    }
}
