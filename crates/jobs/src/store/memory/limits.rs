//! Limiters.

use std::collections::HashMap;

use crate::limit::{Limit, LimitRule};
use crate::store::line::{Taken, CALL_MAX, SKEW_S};

/// The state of all limiters. Each kind has its own keys.
#[derive(Default)]
pub(super) struct Limits {
    /// Key → holder → end of the longest hold (s).
    slots: HashMap<String, HashMap<String, f64>>,
    /// Key → starts, the earliest first.
    windows: HashMap<String, Vec<f64>>,
    buckets: HashMap<String, BucketLevel>,
}

struct BucketLevel {
    level: f64,
    at_s: f64,
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

    /// What was taken from a rate later than now counts as taken now: the clock was set back.
    pub fn set_back(&mut self, limit: &Limit, now_s: f64) {
        let starts = self.windows.get_mut(&limit.key).into_iter().flatten();
        let bucket = self.buckets.get_mut(&limit.key).map(|bucket| &mut bucket.at_s);
        let is_bucket = matches!(limit.rule, LimitRule::Bucket { .. });
        let times = starts.filter(|_| !is_bucket).chain(bucket.filter(|_| is_bucket));
        times.filter(|at| **at > now_s + SKEW_S).for_each(|at| *at = now_s);
    }

    /// What was taken from a rate.
    pub fn taken(&mut self, limit: &Limit, now_s: f64) -> Taken {
        let (max, span_s) = limit.rule.size();
        if let LimitRule::Bucket { .. } = limit.rule {
            return Taken::Bucket(self.level(&limit.key, max, span_s, now_s).0);
        }
        let starts = self.windows.entry(limit.key.clone()).or_default();
        starts.retain(|start| *start > now_s - span_s);
        let used = starts.len();
        let leaving = starts.iter().skip(used.saturating_sub(max as usize));
        Taken::Window(used, leaving.take(CALL_MAX).copied().collect())
    }

    /// Takes one from a limit that the job was granted.
    pub fn take(&mut self, limit: &Limit, holder: &str, now_s: f64) {
        match limit.rule {
            LimitRule::Concurrent { hold_s, .. } => {
                self.hold(&limit.key, holder.into(), now_s + hold_s);
            }
            LimitRule::Window { .. } => {
                let starts = self.windows.entry(limit.key.clone()).or_default();
                starts.push(now_s);
                starts.sort_by(f64::total_cmp);
            }
            LimitRule::Bucket { max, per_s } => {
                let (level, at_s) = self.level(&limit.key, max, per_s, now_s);
                let level = (level - 1.0).max(0.0);
                self.buckets.insert(limit.key.clone(), BucketLevel { level, at_s });
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
