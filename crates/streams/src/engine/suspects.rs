//! Records that were being consumed when workers died.
//!
//! A thread notes the batch it runs in shared memory, the in-flight table of batches, which outlives
//! its worker. The supervisor notes there which batches a worker was running when it died of them.
//! After a death within 72 hours these records are handed out one by one, so that the next one hits
//! only what it concerns; a record with two deaths is a suspect, which also runs while no other
//! suspect of the process does. If a worker dies of that, the record is poison. Someone who kills
//! workers at random hits no record three times, twice of them by itself.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use chaton_core::process::deaths::{Death, DeathTable};
use chaton_core::process::in_flight::InFlightTable;
use parking_lot::Mutex;

use crate::batch::{Batch, BatchKind};
use crate::log::Partition;

/// After so many deaths a record is a suspect.
pub(super) const SUSPECT_DEATHS: usize = 2;
/// After so many deaths, one of them as a suspect, it is poison.
pub(super) const POISON_DEATHS: usize = 3;
/// How long a death counts (ms).
const DEATHS_WITHIN_MS: i64 = 72 * 3_600_000;

/// This worker's slot in the in-flight table of batches, and the deaths of all workers.
#[derive(Clone)]
pub struct BatchSlot {
    /// The table, shared with the supervisor.
    pub table: Arc<InFlightTable>,
    /// Number of the slot.
    pub slot: usize,
    /// The deaths, which the supervisor notes.
    pub deaths: Arc<DeathTable>,
}

impl fmt::Debug for BatchSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchSlot({})", self.slot)
    }
}

/// A worker's death while it consumed some records of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BatchDeath {
    source: u32,
    partition: i32,
    first: i64,
    last: i64,
    /// It ran as a suspect.
    alone: bool,
    at_ms: i64,
    cause: String,
}

/// The deaths that concern one partition.
pub(super) struct PartitionDeaths(Vec<BatchDeath>);

/// What the partitions of an engine know of deaths.
#[derive(Default)]
pub(super) struct Suspects {
    slot: Option<BatchSlot>,
    /// The deaths as they were last read, and how many had been noted by then.
    seen: Mutex<(u64, Vec<BatchDeath>)>,
    /// Who runs a suspect now; 0: nobody.
    alone: AtomicU64,
}

impl Suspects {
    pub fn new(slot: Option<BatchSlot>) -> Self {
        Self { slot, ..Self::default() }
    }

    /// A thread begins to run a batch.
    pub fn started(&self, source: u32, batch: &Batch, thread: usize) {
        let mut offsets = batch.records().offsets();
        let (Some(slot), Some(first)) = (&self.slot, offsets.next()) else { return };
        if batch.kind() != BatchKind::Records {
            return;
        }
        let last = offsets.next_back().unwrap_or(first);
        let alone = self.alone.load(Ordering::SeqCst) == lane_id(batch.generation(), batch.lane());
        let work = note(source, batch.partition().number, (first, last), alone);
        let now_ms = (chaton_core::clock::wall_s() * 1e3) as u64;
        slot.table.start(slot.slot, thread, batch.id(), &work, now_ms);
    }

    /// The batch of this thread has ended.
    pub fn ended(&self, batch: &Batch, thread: usize) {
        if let Some(slot) = &self.slot {
            slot.table.end(slot.slot, thread, batch.id());
        }
    }

    /// The deaths that concern a partition and still count; `None` when there are none.
    pub fn of(&self, source: u32, partition: &Partition, now_ms: i64) -> Option<PartitionDeaths> {
        let slot = self.slot.as_ref()?;
        let noted = slot.deaths.noted();
        if noted == 0 {
            return None;
        }
        let mut seen = self.seen.lock();
        if seen.0 != noted {
            *seen = (noted, slot.deaths.all().iter().filter_map(BatchDeath::parse).collect());
        }
        let concerns = |death: &&BatchDeath| {
            (death.source, death.partition) == (source, partition.number)
                && now_ms - death.at_ms < DEATHS_WITHIN_MS
        };
        let deaths: Vec<_> = seen.1.iter().filter(concerns).cloned().collect();
        (!deaths.is_empty()).then_some(PartitionDeaths(deaths))
    }

    /// Lets the owner run a suspect, unless another one runs.
    pub fn begin_alone(&self, owner: u64) -> bool {
        self.alone.compare_exchange(0, owner, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The owner's batch has ended.
    pub fn end_alone(&self, owner: u64) {
        if self.alone.load(Ordering::Relaxed) == owner {
            self.alone.store(0, Ordering::SeqCst);
        }
    }
}

impl PartitionDeaths {
    /// How many workers died while they consumed this record.
    pub fn count(&self, offset: i64) -> usize {
        self.at(offset).count()
    }

    /// How often, when and of what they died.
    pub fn story(&self, offset: i64, iso_8601: impl Fn(i64) -> String) -> String {
        let times =
            self.at(offset).map(|death| format!("{} at {}", death.cause, iso_8601(death.at_ms)));
        let times: Vec<_> = times.collect();
        format!(
            "the worker died while it consumed this record, {} times within 72 hours: {}",
            times.len(),
            times.join(", ")
        )
    }

    /// When the last one died, in ms since 1970.
    pub fn last_at_ms(&self, offset: i64) -> i64 {
        self.at(offset).map(|death| death.at_ms).max().unwrap_or(0)
    }

    /// Whether it ends every worker.
    pub fn is_poison(&self, offset: i64) -> bool {
        self.count(offset) >= POISON_DEATHS && self.at(offset).any(|death| death.alone)
    }

    fn at(&self, offset: i64) -> impl Iterator<Item = &BatchDeath> {
        self.0.iter().filter(move |death| (death.first..=death.last).contains(&offset))
    }
}

impl BatchDeath {
    fn parse(noted: &Death) -> Option<Self> {
        let mut parts = noted.work.split(' ');
        let source = u32::from_str_radix(parts.next()?, 16).ok()?;
        let partition = parts.next()?.parse().ok()?;
        let first: i64 = parts.next()?.parse().ok()?;
        let last = first.saturating_add(parts.next()?.parse().ok()?);
        let alone = parts.next().is_some();
        let (at_ms, cause) = (noted.at_ms as i64, noted.cause.clone());
        Some(Self { source, partition, first, last, alone, at_ms, cause })
    }
}

/// The topic of a group, in short.
pub(super) fn source(group: &str, topic: &str) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(group.as_bytes()), format!("/{topic}").as_bytes())
}

/// A number for a key lane, unique in the engine and not 0.
pub(super) fn lane_id(generation: u64, lane: usize) -> u64 {
    (generation << 20) + lane as u64 + 1
}

/// The records of a batch, from the first to the last, in at most `JID_BYTES_MAX` bytes.
fn note(source: u32, partition: i32, (first, last): (i64, i64), alone: bool) -> String {
    let mark = if alone { " !" } else { "" };
    format!("{source:x} {partition} {first} {}{mark}", last - first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chaton_core::process::in_flight::JID_BYTES_MAX;

    fn partition(number: i32) -> Partition {
        Partition { topic: "events".into(), number }
    }

    fn suspects() -> (Suspects, Arc<DeathTable>) {
        let (table, deaths) =
            (Arc::new(InFlightTable::new(1, 8).unwrap()), Arc::new(DeathTable::new().unwrap()));
        (Suspects::new(Some(BatchSlot { table, slot: 0, deaths: deaths.clone() })), deaths)
    }

    #[test]
    fn deaths_are_counted_by_record_and_for_three_days() {
        let (suspects, noted) = suspects();
        assert!(suspects.of(7, &partition(1), 1000).is_none());
        noted.add(&note(7, 1, (100, 199), false), "SIGSEGV", 1_000);
        noted.add(&note(7, 1, (150, 249), false), "exit 1", 2_000);
        noted.add(&note(8, 1, (150, 249), false), "exit 1", 2_000);
        let deaths = suspects.of(7, &partition(1), 3_000).unwrap();
        let counts = [99, 100, 150, 199, 200, 249, 250].map(|offset| deaths.count(offset));
        assert_eq!(counts, [0, 1, 2, 2, 1, 1, 0]);
        let story = deaths.story(150, |ms| ms.to_string());
        assert!(
            story.ends_with("2 times within 72 hours: SIGSEGV at 1000, exit 1 at 2000"),
            "{story}"
        );
        assert!(suspects.of(7, &partition(2), 3_000).is_none());
        let later = suspects.of(7, &partition(1), DEATHS_WITHIN_MS + 1_500).unwrap();
        assert_eq!(later.count(150), 1);
    }

    #[test]
    fn only_a_record_that_was_alone_is_poison() {
        let (suspects, noted) = suspects();
        let is_poison = |offset| suspects.of(7, &partition(1), 3_000).unwrap().is_poison(offset);
        (0..3).for_each(|_| noted.add(&note(7, 1, (100, 199), false), "SIGSEGV", 1_000));
        assert!(!is_poison(150));
        noted.add(&note(7, 1, (150, 150), true), "SIGSEGV", 2_000);
        assert!(is_poison(150) && !is_poison(151));
    }

    #[test]
    fn one_suspect_runs_at_a_time() {
        let suspects = Suspects::default();
        assert!(suspects.begin_alone(5) && !suspects.begin_alone(6));
        suspects.end_alone(6);
        assert!(!suspects.begin_alone(6));
        suspects.end_alone(5);
        assert!(suspects.begin_alone(6));
    }

    #[test]
    fn a_note_fits_and_names_the_source() {
        let longest = note(u32::MAX, 99_999, (i64::MAX, i64::MAX), true);
        assert!(longest.len() <= JID_BYTES_MAX, "{longest}");
        assert_ne!(source("a", "bc"), source("ab", "c"));
    }
}
