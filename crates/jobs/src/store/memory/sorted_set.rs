//! Jobs by a time: the schedule, the retry set, the dead set.

use crate::store::payload::jid_of;
use crate::store::types::JobEntry;

/// Entries, the lowest score first; of equal ones the first that came.
#[derive(Default)]
pub(super) struct SortedSet(Vec<JobEntry>);

impl SortedSet {
    pub fn add(&mut self, score: f64, payload: Vec<u8>) {
        let index = self.0.partition_point(|entry| entry.score.total_cmp(&score).is_le());
        self.0.insert(index, JobEntry { score, row: 0, payload });
    }

    pub fn entries(&self) -> &[JobEntry] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The score of the first one.
    pub fn first(&self) -> Option<f64> {
        self.0.first().map(|entry| entry.score)
    }

    /// Takes the first one out if its time has come.
    pub fn pop_due(&mut self, now_s: f64) -> Option<JobEntry> {
        (self.first()? <= now_s).then(|| self.0.remove(0))
    }

    /// Takes out the entry with this document.
    pub fn take(&mut self, payload: &[u8]) -> Option<JobEntry> {
        let index = self.0.iter().position(|entry| entry.payload == payload)?;
        Some(self.0.remove(index))
    }

    /// Whether the document with this jid is there at this time.
    pub fn has_at(&self, score: f64, jid: &str) -> bool {
        self.position_at(score, jid).is_some()
    }

    /// Takes out the document with this jid and this time.
    pub fn take_at(&mut self, score: f64, jid: &str) -> Option<JobEntry> {
        self.position_at(score, jid).map(|index| self.0.remove(index))
    }

    fn position_at(&self, score: f64, jid: &str) -> Option<usize> {
        self.0.iter().position(|entry| entry.score == score && jid_of(&entry.payload) == jid)
    }

    /// Takes the first ones out.
    pub fn drain(&mut self, count: usize) -> Vec<JobEntry> {
        self.0.drain(..count.min(self.0.len())).collect()
    }

    /// Forgets what is older than `oldest`, then the oldest beyond `max`.
    pub fn trim(&mut self, oldest: f64, max: usize) {
        self.0.retain(|entry| entry.score >= oldest);
        let surplus = self.0.len().saturating_sub(max);
        self.0.drain(..surplus);
    }
}
