//! Values that end by themselves.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Named values, each with its end. `None`: later than the clock can count.
pub(super) struct Fading<V>(HashMap<String, (V, Option<Instant>)>);

impl<V> Default for Fading<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

fn is_alive(until: Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}

impl<V> Fading<V> {
    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.get(key).filter(|(_, until)| is_alive(*until)).map(|(value, _)| value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.0.get_mut(key).filter(|(_, until)| is_alive(*until)).map(|(value, _)| value)
    }

    pub fn put(&mut self, key: &str, value: V, ttl: Duration) {
        self.0.insert(key.to_string(), (value, Instant::now().checked_add(ttl)));
    }

    pub fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Frees what has ended.
    pub fn prune(&mut self) {
        self.0.retain(|_, (_, until)| is_alive(*until));
    }
}
