//! Limiters.

use std::collections::{HashMap, VecDeque};

use crate::limit::{Limit, LimitRule};
use crate::store::types::{Grant, LimitRequest};

/// Part of a token that may be missing because of rounding.
const BUCKET_SLACK: f64 = 1e-9;

/// The state of all limiters. Each kind has its own keys.
#[derive(Default)]
pub(super) struct Limits {
    /// Key → (owner, ticket) → end of the longest hold (s).
    slots: HashMap<String, HashMap<(String, u64), f64>>,
    /// Key → starts, the earliest first, and how long the last one counts (s).
    windows: HashMap<String, SlidingWindow>,
    buckets: HashMap<String, BucketLevel>,
}

#[derive(Default)]
struct SlidingWindow {
    starts: VecDeque<f64>,
    until_s: f64,
}

struct BucketLevel {
    level: f64,
    at_s: f64,
    full_s: f64,
}

/// The job that requests, and the time.
struct LimitedJob<'a> {
    owner: &'a str,
    ticket: u64,
    now_s: f64,
}

impl Limits {
    pub fn acquire(
        &mut self,
        owner: &str,
        requests: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Vec<Grant> {
        let grant = |request: &LimitRequest<'_>| {
            self.ask(&LimitedJob { owner, ticket: request.ticket, now_s }, request)
        };
        requests.iter().map(grant).collect()
    }

    pub fn release(&mut self, key: &str, owner: &str, ticket: u64) {
        let Some(slots) = self.slots.get_mut(key) else { return };
        slots.remove(&(owner.to_string(), ticket));
        if slots.is_empty() {
            self.slots.remove(key);
        }
    }

    /// Drops limiters that limit nothing any more.
    pub fn prune(&mut self, now_s: f64) {
        self.slots.retain(|_, slots| slots.values().any(|until| *until > now_s));
        self.windows.retain(|_, window| window.until_s > now_s);
        self.buckets.retain(|_, bucket| bucket.full_s > now_s);
    }

    fn ask(&mut self, job: &LimitedJob<'_>, request: &LimitRequest<'_>) -> Grant {
        let refusals: Vec<Option<f64>> =
            request.limits.iter().filter_map(|limit| self.refusal(job, limit)).collect();
        if refusals.is_empty() {
            request.limits.iter().for_each(|limit| self.take(job, limit));
            return Grant::Now;
        }
        // Before the latest of the known times it would be refused again.
        Grant::At(refusals.into_iter().flatten().max_by(f64::total_cmp))
    }

    /// `None` when granted, else when to ask again, if that is known.
    fn refusal(&mut self, job: &LimitedJob<'_>, limit: &Limit) -> Option<Option<f64>> {
        let now_s = job.now_s;
        match limit.rule {
            LimitRule::Concurrent { max, .. } => {
                let slots = self.slots.get_mut(&limit.key);
                let held = slots.map_or(0, |slots| {
                    slots.retain(|_, until| *until > now_s);
                    let own = slots.contains_key(&(job.owner.to_string(), job.ticket));
                    slots.len() - usize::from(own)
                });
                (held >= max as usize).then_some(None)
            }
            LimitRule::Window { max, per_s } => {
                let Some(max) = (max as usize).checked_sub(1) else {
                    return Some(Some(now_s + per_s));
                };
                let window = self.windows.get_mut(&limit.key)?;
                window.starts.retain(|start| *start > now_s - per_s);
                // The start that has to leave the window to make room.
                let over = window.starts.len().checked_sub(max + 1)?;
                Some(window.starts.get(over).map(|start| start + per_s))
            }
            LimitRule::Bucket { max, per_s } => {
                if max == 0 {
                    return Some(Some(now_s + per_s));
                }
                let missing = 1.0 - self.level(&limit.key, max, per_s, now_s);
                (missing > BUCKET_SLACK).then(|| Some(now_s + missing * per_s / f64::from(max)))
            }
        }
    }

    fn take(&mut self, job: &LimitedJob<'_>, limit: &Limit) {
        let now_s = job.now_s;
        match limit.rule {
            LimitRule::Concurrent { hold_s, .. } => {
                let slots = self.slots.entry(limit.key.clone()).or_default();
                slots.insert((job.owner.to_string(), job.ticket), now_s + hold_s);
            }
            LimitRule::Window { per_s, .. } => {
                let window = self.windows.entry(limit.key.clone()).or_default();
                window.starts.push_back(now_s);
                window.until_s = window.until_s.max(now_s + per_s);
            }
            LimitRule::Bucket { max, per_s } => {
                let level = (self.level(&limit.key, max, per_s, now_s) - 1.0).max(0.0);
                let bucket = BucketLevel { level, at_s: now_s, full_s: now_s + per_s };
                self.buckets.insert(limit.key.clone(), bucket);
            }
        }
    }

    /// The level of a bucket; an unused one is full.
    fn level(&self, key: &str, max: u32, per_s: f64, now_s: f64) -> f64 {
        let max = f64::from(max);
        let Some(bucket) = self.buckets.get(key) else { return max };
        let poured = (now_s - bucket.at_s).max(0.0) * max / per_s;
        (bucket.level + poured).min(max)
    }
}
