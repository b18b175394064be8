//! Batches: their pending jobs, and callbacks that are pushed once.

use super::data::{Batch, MemoryData};
use crate::outcome::{BatchEvent, BatchUpdate};
use crate::store::clock::unix_s;
use crate::store::payload::jid_of;
use crate::store::types::{
    BatchStatus, NewBatch, BATCH_OPEN_MAX, FAILED_JIDS_MAX, OPEN_BATCHES_MAX,
};

impl MemoryData {
    pub fn batch_open(&mut self, new: &NewBatch<'_>) {
        if let Some(known) = self.batches.get_mut(new.bid) {
            if !known.closed {
                known.replace(new);
            }
            return;
        }
        let mut batch =
            Batch { parent: new.parent.map(Into::into), created_at: new.now_s, ..Batch::default() };
        batch.owner = new.owner.into();
        batch.replace(new);
        self.batches.put(new.bid, batch, new.ttl);
    }

    pub fn batch_close(&mut self, bid: &str) -> bool {
        let Some(batch) = self.batches.get_mut(bid) else { return false };
        let parent = batch.parent.clone().filter(|_| !batch.closed);
        batch.closed = true;
        if let Some(parent) = parent.and_then(|bid| self.batches.get_mut(&bid)) {
            parent.children += 1;
            parent.incomplete += 1;
        }
        self.batch_review(bid);
        true
    }

    pub fn remove_open(&mut self, bid: Option<&str>) -> Vec<BatchStatus> {
        let now_s = unix_s();
        let is_left = |batch: &Batch| {
            let is_gone = !batch.owner.is_empty() && !self.owners.contains_key(&batch.owner);
            is_gone || now_s - batch.created_at > BATCH_OPEN_MAX.as_secs_f64()
        };
        let open = self.batches.iter().filter(|(_, batch)| !batch.closed);
        let chosen =
            open.filter(|(key, batch)| bid.map_or_else(|| is_left(batch), |bid| bid == *key));
        let bids: Vec<String> = chosen.take(OPEN_BATCHES_MAX).map(|(key, _)| key.clone()).collect();
        let gone = bids.iter().filter_map(|bid| self.batch_status(bid)).collect();
        bids.iter().for_each(|bid| self.batches.remove(bid));
        gone
    }

    pub fn batch_add(&mut self, bid: &str, payload: &[u8]) {
        if let Some(batch) = self.batches.get_mut(bid) {
            batch.total += u64::from(batch.pending.insert(jid_of(payload)));
        }
    }

    pub fn batch_step(&mut self, step: &BatchUpdate) {
        let Some(batch) = self.batches.get_mut(&step.bid) else { return };
        if !batch.pending.contains(&step.jid) {
            return;
        }
        if step.event == BatchEvent::Done {
            batch.failed.remove(&step.jid);
            batch.pending.remove(&step.jid);
        } else {
            batch.failed.insert(step.jid.clone());
        }
        if step.event == BatchEvent::Died && !batch.dead {
            batch.dead = true;
            self.call_back(&step.bid, "death");
        }
        self.batch_review(&step.bid);
    }

    pub fn batch_status(&self, bid: &str) -> Option<BatchStatus> {
        let batch = self.batches.get(bid)?;
        Some(BatchStatus {
            bid: bid.to_string(),
            description: batch.description.clone(),
            parent: batch.parent.clone(),
            created_at: batch.created_at,
            total: batch.total,
            pending: batch.pending.len() as u64,
            failures: batch.failed.len() as u64,
            failed_jids: batch.failed.iter().take(FAILED_JIDS_MAX).cloned().collect(),
            children_pending: batch.children,
            complete: batch.complete,
            success: batch.success,
            dead: batch.dead,
        })
    }

    /// Fires what has become true, each event once, then looks at the parent.
    fn batch_review(&mut self, bid: &str) {
        let mut next = Some(bid.to_string());
        while let Some(bid) = next.take() {
            let Some(batch) = self.batches.get_mut(&bid).filter(|batch| batch.closed) else {
                return;
            };
            let all_ran = batch.incomplete == 0 && batch.failed.len() >= batch.pending.len();
            let completes = !batch.complete && all_ran;
            let succeeds = !batch.success && batch.pending.is_empty() && batch.children == 0;
            batch.complete |= completes;
            batch.success |= succeeds;
            let parent = batch.parent.clone();
            if completes {
                self.call_back(&bid, "complete");
            }
            if succeeds {
                self.call_back(&bid, "success");
            }
            if !completes && !succeeds {
                return;
            }
            if let Some(parent) = parent.as_ref().and_then(|bid| self.batches.get_mut(bid)) {
                parent.incomplete = parent.incomplete.saturating_sub(u64::from(completes));
                parent.children = parent.children.saturating_sub(u64::from(succeeds));
            }
            next = parent;
        }
    }

    fn call_back(&mut self, bid: &str, event: &str) {
        let callbacks = self.batches.get(bid).map(|batch| batch.callbacks.clone());
        for (_, queue, payload) in
            callbacks.into_iter().flatten().filter(|callback| callback.0 == event)
        {
            self.enqueue(&queue, payload);
        }
    }
}
