//! The curves of the last day: the endpoint samples the server, and keeps points in memory and in a file.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chaton_core::clock::wall_s;
use chaton_core::process::counters::TimeTotals;
use serde::Serialize;

/// What a point has, each absent where it is not known: what happened per second, the bucket of a percentile of
/// the times since the point before, or a size.
const NAMES: [&str; 11] = [
    "requests",
    "errors",
    "p50",
    "p99",
    "queue_p99",
    "jobs",
    "failed",
    "waiting",
    "records",
    "lag",
    "memory",
];
/// Seconds between two points, and how many are kept: an hour, and a day.
pub(super) const RINGS: [(u32, usize); 2] = [(10, 360), (60, 1440)];
/// Seconds between two writes of the file; so much is lost when the machine fails.
pub(super) const SAVED_EVERY: u32 = 60;
/// The first bytes of the file. What a point has belongs to the version.
const MAGIC: &[u8] = b"chaton history 1\n";
/// Bytes of the file at most: all points, with room for a few more numbers in each.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Seconds since 1970, and the values; one that is not known is not a number.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    at: u32,
    values: [f32; NAMES.len()],
}

/// What is known of the server at one moment. Counters begin with the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub at: u32,
    pub requests: u64,
    pub errors: u64,
    pub duration: TimeTotals,
    pub queue_time: TimeTotals,
    pub jobs: u64,
    pub failed: u64,
    pub records: u64,
    pub waiting: Option<u64>,
    pub lag: u64,
    pub memory: u64,
}

impl Reading {
    /// What has happened since another reading of the same server.
    fn since(&self, before: &Self) -> Point {
        let seconds = f64::from(self.at.saturating_sub(before.at).max(1));
        let rate = |read: fn(&Self) -> u64| {
            let per_s = read(self).saturating_sub(read(before)) as f64 / seconds;
            (per_s * 1e3).round() / 1e3
        };
        let bucket = |read: fn(&Self) -> &TimeTotals, share: f64| {
            quantile(read(self), read(before), share).map_or(f64::NAN, |bucket| bucket as f64)
        };
        let values = [
            rate(|one| one.requests),
            rate(|one| one.errors),
            bucket(|one| &one.duration, 0.5),
            bucket(|one| &one.duration, 0.99),
            bucket(|one| &one.queue_time, 0.99),
            rate(|one| one.jobs),
            rate(|one| one.failed),
            self.waiting.map_or(f64::NAN, |jobs| jobs as f64),
            rate(|one| one.records),
            self.lag as f64,
            self.memory as f64,
        ];
        Point { at: self.at, values: values.map(|value| value as f32) }
    }
}

/// The bucket that has a quantile of what was counted since `before`.
fn quantile(now: &TimeTotals, before: &TimeTotals, share: f64) -> Option<usize> {
    let counts = now.buckets.iter().zip(before.buckets).map(|(a, b)| a.saturating_sub(b));
    let wanted = counts.clone().sum::<u64>() as f64 * share;
    let mut below = 0;
    counts.enumerate().find_map(|(bucket, count)| {
        below += count;
        (count > 0 && below as f64 >= wanted).then_some(bucket)
    })
}

/// Points at equal distances; the oldest one makes room.
struct Ring {
    every: u32,
    max: usize,
    points: VecDeque<Point>,
    last: Option<Reading>,
}

impl Ring {
    fn take(&mut self, reading: &Reading) {
        let Some(last) = &self.last else {
            self.last = Some(reading.clone());
            return;
        };
        // A tick may come a little early; a clock that was put back starts anew.
        if reading.at >= last.at && reading.at + 1 < last.at + self.every {
            return;
        }
        if reading.at > last.at {
            self.push(reading.since(last));
        }
        self.last = Some(reading.clone());
    }

    fn push(&mut self, point: Point) {
        while self.points.len() >= self.max {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }
}

/// The points, and where they are kept.
pub(crate) struct History {
    /// `None`: there is no control socket beside which it could be.
    path: Option<PathBuf>,
    rings: [Ring; RINGS.len()],
}

impl History {
    /// Reads nothing yet.
    pub fn new(control_socket: Option<&str>) -> Self {
        let path = control_socket.map(|socket| Path::new(socket).with_extension("history"));
        let ring = |(every, max)| Ring { every, max, points: VecDeque::new(), last: None };
        Self { path, rings: RINGS.map(ring) }
    }

    /// Takes the points of the file, which an earlier process wrote.
    ///
    /// # Errors
    /// Why the file is ignored.
    pub fn load(&mut self) -> Result<(), String> {
        let Some(path) = &self.path else { return Ok(()) };
        let ignored = |why: &str| Err(format!("{} is ignored: {why}", path.display()));
        let bytes = match read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return ignored(&error.to_string()),
        };
        let Some(rings) = decode(&bytes) else {
            return ignored("it is damaged, or no history of this version");
        };
        let now = wall_s() as u32;
        for (ring, points) in self.rings.iter_mut().zip(rings) {
            ring.points.clear();
            // What lies in the future was written while the clock was wrong.
            points.into_iter().filter(|point| point.at <= now).for_each(|point| ring.push(point));
        }
        Ok(())
    }

    /// The points after `since`, of the hour or of the day.
    pub fn shown(&self, day: bool, since: u32) -> impl Serialize + '_ {
        let ring = &self.rings[usize::from(day)];
        let new = ring.points.iter().filter(|point| point.at > since);
        let points = new.map(|point| (point.at, point.values)).collect();
        ShownHistory { names: NAMES, every_s: ring.every, points }
    }

    /// Takes a reading; returns what is to be written if it is time for that.
    pub(super) fn take(&mut self, reading: &Reading, save: bool) -> Option<(PathBuf, Vec<u8>)> {
        self.rings.iter_mut().for_each(|ring| ring.take(reading));
        let path = self.path.clone().filter(|_| save)?;
        Some((path, self.encode()))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for ring in &self.rings {
            bytes.extend((ring.points.len() as u32).to_le_bytes());
            for point in &ring.points {
                bytes.extend(point.at.to_le_bytes());
                point.values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            }
        }
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }
}

/// As the page gets it; a number that is none becomes null.
#[derive(Serialize)]
struct ShownHistory {
    names: [&'static str; NAMES.len()],
    every_s: u32,
    points: Vec<(u32, [f32; NAMES.len()])>,
}

/// Of a regular file that is not too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let facts = fs::symlink_metadata(path)?;
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is too large, or no file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes it under another name first, so that a reader sees the old one or the new one.
pub(super) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("history.new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    fs::rename(&new, path)
}

fn decode(bytes: &[u8]) -> Option<[Vec<Point>; RINGS.len()]> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return None;
    }
    let mut rest = body.strip_prefix(MAGIC)?;
    let mut word = || -> Option<[u8; 4]> {
        let (first, others) = rest.split_first_chunk::<4>()?;
        rest = others;
        Some(*first)
    };
    let mut rings = [const { Vec::new() }; RINGS.len()];
    for (ring, (_, max)) in rings.iter_mut().zip(RINGS) {
        let count = u32::from_le_bytes(word()?) as usize;
        for _ in 0..count.min(max) {
            let mut point = Point { at: u32::from_le_bytes(word()?), values: [0.0; NAMES.len()] };
            for value in &mut point.values {
                *value = f32::from_le_bytes(word()?);
            }
            ring.push(point);
        }
    }
    rest.is_empty().then_some(rings)
}

/// FNV-1a with 64 bits, against half a file and changed bytes.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u32, requests: u64) -> Reading {
        Reading { at, requests, ..Reading::default() }
    }

    fn points(history: &History) -> Vec<usize> {
        history.rings.iter().map(|ring| ring.points.len()).collect()
    }

    /// In a folder of its own.
    fn history(name: &str) -> History {
        let folder = std::env::temp_dir().join(format!("history-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        History::new(folder.join("chaton.sock").to_str())
    }

    fn fill(history: &mut History, seconds: u32) {
        let begun = wall_s() as u32 - seconds;
        for at in (0..=seconds).step_by(10) {
            assert!(history.take(&reading(begun + at, u64::from(at) * 3), false).is_none());
        }
    }

    #[test]
    fn two_days_are_kept_as_an_hour_and_a_day_in_a_bounded_file() {
        let mut first = history("days");
        fill(&mut first, 2 * 86_400);
        assert_eq!(points(&first), [360, 1440]);
        assert!(first
            .rings
            .iter()
            .flat_map(|ring| &ring.points)
            .all(|point| point.values[0] == 3.0));
        let path = first.path.clone().unwrap();
        let bytes = first.encode();
        assert!(bytes.len() < 100_000, "{}", bytes.len());
        write(&path, &bytes).unwrap();
        let mut next = History::new(path.with_extension("sock").to_str());
        next.load().unwrap();
        assert_eq!(points(&next), [360, 1440]);
        assert_eq!(next.encode(), bytes);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_known_is_null_and_a_percentile_is_a_bucket() {
        let (mut before, mut now) = (reading(100, 5), reading(110, 10));
        before.duration.buckets[3] = 7;
        now.duration.buckets[3] = 8;
        now.duration.buckets[9] = 1;
        let point = now.since(&before);
        let ring =
            |points: Vec<Point>| Ring { every: 10, max: 9, points: points.into(), last: None };
        let history = History { path: None, rings: [ring(vec![point]), ring(vec![])] };
        let shown = serde_json::to_value(history.shown(false, 109)).unwrap();
        let value = |name: &str| {
            let index = NAMES.iter().position(|one| *one == name).unwrap();
            shown["points"][0][1][index].clone()
        };
        assert_eq!(value("requests"), 0.5);
        assert_eq!((value("p50"), value("p99")), (3.0.into(), 9.0.into()));
        assert!(value("waiting").is_null() && value("queue_p99").is_null());
        let later = serde_json::to_value(history.shown(false, 110)).unwrap();
        assert_eq!(later["points"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn a_server_that_counts_anew_and_a_clock_that_was_put_back_make_no_huge_rates() {
        let mut ring = Ring { every: 10, max: 100, points: VecDeque::new(), last: None };
        for (at, requests) in [(100, 1000), (110, 1010), (120, 5), (60, 6), (65, 7), (70, 26)] {
            ring.take(&reading(at, requests));
        }
        let rates: Vec<_> = ring.points.iter().map(|one| (one.at, one.values[0])).collect();
        assert_eq!(rates, [(110, 1.0), (120, 0.0), (70, 2.0)]);
    }

    #[test]
    fn a_damaged_or_foreign_file_is_ignored_and_named() {
        let mut good = history("damage");
        fill(&mut good, 3600);
        let path = good.path.clone().unwrap();
        let bytes = good.encode();
        let mut changed = bytes.clone();
        changed[2000] ^= 1;
        let mut other = b"chaton history 2\n".to_vec();
        other.extend(&bytes[MAGIC.len()..bytes.len() - 8]);
        other.extend(checksum(&other).to_le_bytes());
        let large = vec![0; FILE_BYTES_MAX as usize + 1];
        for bytes in [&bytes[..bytes.len() / 2], &changed, &other, b"", b"{}", &large] {
            fs::write(&path, bytes).unwrap();
            let mut history = History::new(path.with_extension("sock").to_str());
            let why = history.load().unwrap_err();
            assert!(why.contains("chaton.history is ignored"), "{why}");
            assert_eq!(points(&history), [0, 0]);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(good.load(), Ok(()));
    }
}
