//! Removes whole segments that exceed the retention limits, the oldest first, never the active one.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::topic_config::TopicConfig;
use super::{files, segment};

struct SegmentInfo {
    base: i64,
    bytes: u64,
    age: Duration,
}

/// Whether the last write of a segment is older than the retention time.
pub(super) fn has_expired(written: SystemTime, config: &TopicConfig) -> bool {
    let age = SystemTime::now().duration_since(written).unwrap_or_default();
    config.retention_ms.is_some_and(|limit| age > Duration::from_millis(limit))
}

/// Removes expired segments of a partition but the active one.
pub(super) fn apply(folder: &Path, config: &TopicConfig, active: i64) -> io::Result<()> {
    if config.retention_bytes.is_none() && config.retention_ms.is_none() {
        return Ok(());
    }
    let mut kept = Vec::new();
    for base in segment::list(folder)? {
        let found = fs::metadata(segment::path(folder, base))?;
        let age = SystemTime::now().duration_since(found.modified()?).unwrap_or_default();
        kept.push(SegmentInfo { base, bytes: found.len(), age });
    }
    for base in expired(&kept, config, active) {
        remove(folder, base)?;
    }
    Ok(())
}

fn expired(kept: &[SegmentInfo], config: &TopicConfig, active: i64) -> Vec<i64> {
    let mut total: u64 = kept.iter().map(|segment| segment.bytes).sum();
    let over = |segment: &SegmentInfo, total: u64| {
        config.retention_bytes.is_some_and(|limit| total > limit)
            || config.retention_ms.is_some_and(|limit| segment.age > Duration::from_millis(limit))
    };
    let mut bases = Vec::new();
    for segment in kept {
        if segment.base == active || !over(segment, total) {
            break;
        }
        total -= segment.bytes;
        bases.push(segment.base);
    }
    bases
}

fn remove(folder: &Path, base: i64) -> io::Result<()> {
    let path = segment::path(folder, base);
    if segment::created_ms(&fs::File::open(&path)?, base)?.is_some() {
        fs::remove_file(&path)?;
    } else {
        // A foreign file is not deleted, because it may be needed.
        fs::rename(&path, files::with_suffix(&path, ".damaged"))?;
    }
    match fs::remove_file(segment::index_path(folder, base)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LogSettings;

    fn config(bytes: Option<u64>, ms: Option<u64>) -> TopicConfig {
        let mut log = LogSettings::for_tests("log:///tmp/x");
        (log.retention_bytes, log.retention_ms) = (bytes, ms);
        TopicConfig::of(&log, &Default::default()).unwrap()
    }

    fn kept(ages_s: &[u64]) -> Vec<SegmentInfo> {
        let one = |(at, age): (usize, &u64)| SegmentInfo {
            base: at as i64 * 10,
            bytes: 100,
            age: Duration::from_secs(*age),
        };
        ages_s.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_oldest_segments_expire_and_the_active_one_stays() {
        let four = kept(&[40, 30, 20, 10]);
        assert!(expired(&four, &config(Some(400), None), 30).is_empty());
        assert_eq!(expired(&four, &config(Some(399), None), 30), [0]);
        assert_eq!(expired(&four, &config(Some(200), None), 30), [0, 10]);
        assert_eq!(expired(&four, &config(Some(0), None), 30), [0, 10, 20]);
        assert_eq!(expired(&four, &config(None, Some(25_000)), 30), [0, 10]);
        assert_eq!(expired(&four, &config(None, Some(0)), 30), [0, 10, 20]);
    }

    #[test]
    fn a_foreign_segment_is_moved_aside() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        segment::create(at, 10, false).unwrap();
        segment::create(at, 20, false).unwrap();
        fs::write(segment::path(at, 0), "not of this log").unwrap();
        apply(at, &config(Some(0), None), 20).unwrap();
        assert_eq!(segment::list(at).unwrap(), [20]);
        let aside = files::with_suffix(&segment::path(at, 0), ".damaged");
        assert_eq!(fs::read(aside).unwrap(), b"not of this log");
    }
}
