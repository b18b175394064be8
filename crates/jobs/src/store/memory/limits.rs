//! Limiters.

use std::collections::{HashMap, VecDeque};

use crate::limit::{Limit, LimitRule};
use crate::store::line::{Taken, CALL_MAX};

/// The state of all limiters. Each kind has its own keys.
#[derive(Default)]
pub(super) struct Limits {
    /// Key → holder → end of the longest hold (s).
    slots: HashMap<String, HashMap<String, f64>>,
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

/// The name of the holder of a slot.
pub(super) fn holder(owner: &str, ticket: u64) -> String {
    format!("{owner}|{ticket}")
}

impl Limits {
    pub fn release(&mut self, key: &str, holder: &str) {
        let Some(slots) = self.slots.get_mut(key) else { return };
        slots.remove(holder);
        if slots.is_empty() {
            self.slots.remove(key);
        }
    }

    /// The slots that are held, with the ends of their holds.
    pub fn held(&mut self, key: &str, now_s: f64) -> HashMap<String, f64> {
        let Some(slots) = self.slots.get_mut(key) else { return HashMap::new() };
        slots.retain(|_, until| *until > now_s);
        slots.clone()
    }

    /// Gives a slot.
    pub fn hold(&mut self, key: &str, holder: String, until_s: f64) {
        self.slots.entry(key.to_string()).or_default().insert(holder, until_s);
    }

    /// Drops limiters that limit nothing any more.
    pub fn prune(&mut self, now_s: f64) {
        self.slots.retain(|_, slots| slots.values().any(|until| *until > now_s));
        self.windows.retain(|_, window| window.until_s > now_s);
        self.buckets.retain(|_, bucket| bucket.full_s > now_s);
    }

    /// What was taken from a rate.
    pub fn taken(&mut self, limit: &Limit, now_s: f64) -> Taken {
        let (max, span_s) = limit.rule.size();
        if let LimitRule::Bucket { .. } = limit.rule {
            return Taken::Bucket(self.level(&limit.key, max, span_s, now_s).0);
        }
        let Some(window) = self.windows.get_mut(&limit.key) else {
            return Taken::Window(0, vec![]);
        };
        window.starts.retain(|start| *start > now_s - span_s);
        let used = window.starts.len();
        let leaving = window.starts.iter().skip(used.saturating_sub(max as usize));
        Taken::Window(used, leaving.take(CALL_MAX).copied().collect())
    }

    /// Takes one from a limit that the job was granted.
    pub fn take(&mut self, limit: &Limit, holder: &str, now_s: f64) {
        match limit.rule {
            LimitRule::Concurrent { hold_s, .. } => {
                self.hold(&limit.key, holder.into(), now_s + hold_s);
            }
            LimitRule::Window { per_s, .. } => {
                let window = self.windows.entry(limit.key.clone()).or_default();
                window.starts.push_back(now_s);
                window.until_s = window.until_s.max(now_s + per_s);
            }
            LimitRule::Bucket { max, per_s } => {
                let (level, at_s) = self.level(&limit.key, max, per_s, now_s);
                let level = (level - 1.0).max(0.0);
                let bucket = BucketLevel { level, at_s, full_s: at_s + per_s };
                self.buckets.insert(limit.key.clone(), bucket);
            }
        }
    }

    /// The level of a bucket, and the latest time it was asked with (clocks differ); an unused one is full.
    fn level(&self, key: &str, max: u32, per_s: f64, now_s: f64) -> (f64, f64) {
        let max = f64::from(max);
        let Some(bucket) = self.buckets.get(key) else { return (max, now_s) };
        let poured = (now_s - bucket.at_s).max(0.0) * max / per_s;
        ((bucket.level + poured).min(max), bucket.at_s.max(now_s))
    }
}
