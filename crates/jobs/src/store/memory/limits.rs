//! How many at once, how many in a time.

use std::collections::{HashMap, VecDeque};

use crate::store::{Grant, Limit, LimitRequest, LimitRule};

/// Less than this is missing to a whole start only by rounding.
const HAIR: f64 = 1e-9;

/// What all limits remember. Each kind has its own keys.
#[derive(Default)]
pub(super) struct Limits {
    /// Key → (owner, ticket) → end of the longest hold (s).
    slots: HashMap<String, HashMap<(String, u64), f64>>,
    /// Key → starts, the earliest first, and how long the last one counts (s).
    windows: HashMap<String, Window>,
    buckets: HashMap<String, Bucket>,
}

#[derive(Default)]
struct Window {
    starts: VecDeque<f64>,
    until_s: f64,
}

struct Bucket {
    level: f64,
    at_s: f64,
    full_s: f64,
}

/// Who asks, and when.
struct Asker<'a> {
    owner: &'a str,
    ticket: u64,
    now_s: f64,
}

impl Limits {
    pub fn acquire(&mut self, owner: &str, asks: &[LimitRequest<'_>], now_s: f64) -> Vec<Grant> {
        let grant =
            |ask: &LimitRequest<'_>| self.ask(&Asker { owner, ticket: ask.ticket, now_s }, ask);
        asks.iter().map(grant).collect()
    }

    pub fn release(&mut self, key: &str, owner: &str, ticket: u64) {
        let Some(slots) = self.slots.get_mut(key) else { return };
        slots.remove(&(owner.to_string(), ticket));
        if slots.is_empty() {
            self.slots.remove(key);
        }
    }

    /// Forgets what limits nothing any more.
    pub fn prune(&mut self, now_s: f64) {
        self.slots.retain(|_, slots| slots.values().any(|until| *until > now_s));
        self.windows.retain(|_, window| window.until_s > now_s);
        self.buckets.retain(|_, bucket| bucket.full_s > now_s);
    }

    fn ask(&mut self, asker: &Asker<'_>, ask: &LimitRequest<'_>) -> Grant {
        let refusals: Vec<Option<f64>> =
            ask.limits.iter().filter_map(|limit| self.refusal(asker, limit)).collect();
        if refusals.is_empty() {
            ask.limits.iter().for_each(|limit| self.take(asker, limit));
            return Grant::Now;
        }
        // Before the latest of the known times it would be refused again.
        Grant::At(refusals.into_iter().flatten().max_by(f64::total_cmp))
    }

    /// `None`: free. Else when it may be, if that is known.
    fn refusal(&mut self, asker: &Asker<'_>, limit: &Limit) -> Option<Option<f64>> {
        let now_s = asker.now_s;
        match limit.rule {
            LimitRule::Concurrent { max, .. } => {
                let slots = self.slots.get_mut(&limit.key);
                let held = slots.map_or(0, |slots| {
                    slots.retain(|_, until| *until > now_s);
                    let own = slots.contains_key(&(asker.owner.to_string(), asker.ticket));
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
                // The one whose end makes room.
                let over = window.starts.len().checked_sub(max + 1)?;
                Some(window.starts.get(over).map(|start| start + per_s))
            }
            LimitRule::Bucket { max, per_s } => {
                if max == 0 {
                    return Some(Some(now_s + per_s));
                }
                let missing = 1.0 - self.level(&limit.key, max, per_s, now_s);
                (missing > HAIR).then(|| Some(now_s + missing * per_s / f64::from(max)))
            }
        }
    }

    fn take(&mut self, asker: &Asker<'_>, limit: &Limit) {
        let now_s = asker.now_s;
        match limit.rule {
            LimitRule::Concurrent { hold_s, .. } => {
                let slots = self.slots.entry(limit.key.clone()).or_default();
                slots.insert((asker.owner.to_string(), asker.ticket), now_s + hold_s);
            }
            LimitRule::Window { per_s, .. } => {
                let window = self.windows.entry(limit.key.clone()).or_default();
                window.starts.push_back(now_s);
                window.until_s = window.until_s.max(now_s + per_s);
            }
            LimitRule::Bucket { max, per_s } => {
                let level = (self.level(&limit.key, max, per_s, now_s) - 1.0).max(0.0);
                let bucket = Bucket { level, at_s: now_s, full_s: now_s + per_s };
                self.buckets.insert(limit.key.clone(), bucket);
            }
        }
    }

    /// What a bucket holds now. One that nobody used is full.
    fn level(&self, key: &str, max: u32, per_s: f64, now_s: f64) -> f64 {
        let max = f64::from(max);
        let Some(bucket) = self.buckets.get(key) else { return max };
        let poured = (now_s - bucket.at_s).max(0.0) * max / per_s;
        (bucket.level + poured).min(max)
    }
}
