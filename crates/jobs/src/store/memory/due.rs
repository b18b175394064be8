//! Due jobs of the retry set and the schedule.

use std::sync::Arc;

use super::data::MemoryData;
use crate::document::stamped;
use crate::store::options::StoreOptions;
use crate::store::types::{ClaimedJob, DueSummary, JobEntry};

impl MemoryData {
    pub fn move_due(&mut self, now_s: f64, max: usize, options: &StoreOptions) -> DueSummary {
        let mut due = DueSummary::default();
        while let Some(entry) = self.pop_due(now_s, max, &mut due) {
            match stamped(&entry.payload, now_s, options.format, false) {
                Some((queue, payload)) => self.enqueue(&queue, payload),
                None => self.add_dead(now_s, entry.payload, options),
            }
        }
        due.next_at = self.next_at();
        due
    }

    pub fn claim_due(
        &mut self,
        owner: &str,
        first_ticket: u64,
        now_s: f64,
        max: usize,
        options: &StoreOptions,
    ) -> (Vec<ClaimedJob>, DueSummary) {
        let mut claimed = Vec::new();
        let mut due = DueSummary::default();
        while let Some(JobEntry { payload, .. }) = self.pop_due(now_s, max, &mut due) {
            if stamped(&payload, now_s, options.format, false).is_none() {
                self.add_dead(now_s, payload, options);
                continue;
            }
            let (ticket, queue) = (first_ticket + claimed.len() as u64, Arc::<str>::from(""));
            self.add_in_flight(owner, ticket, queue.clone(), payload.clone());
            claimed.push(ClaimedJob { ticket, queue, payload });
        }
        due.next_at = self.next_at();
        (claimed, due)
    }

    /// Takes the entry of both sets that is due for longest.
    fn pop_due(&mut self, now_s: f64, max: usize, due: &mut DueSummary) -> Option<JobEntry> {
        if due.moved >= max {
            return None;
        }
        let retry_first = match (self.retry.first(), self.schedule.first()) {
            (Some(retry), Some(scheduled)) => retry <= scheduled,
            (retry, _) => retry.is_some(),
        };
        let set = if retry_first { &mut self.retry } else { &mut self.schedule };
        let entry = set.pop_due(now_s)?;
        due.moved += 1;
        due.lag_max_s = due.lag_max_s.max(now_s - entry.score);
        Some(entry)
    }
}
