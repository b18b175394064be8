//! Values that expire.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Named values, each with the time of its expiry; `None` for never.
pub(super) struct ExpiringMap<V>(HashMap<String, (V, Option<Instant>)>);

impl<V> Default for ExpiringMap<V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

fn is_alive(until: Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}

impl<V> ExpiringMap<V> {
    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.get(key).filter(|(_, until)| is_alive(*until)).map(|(value, _)| value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.0.get_mut(key).filter(|(_, until)| is_alive(*until)).map(|(value, _)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &V)> {
        let alive = self.0.iter().filter(|(_, (_, until))| is_alive(*until));
        alive.map(|(key, (value, _))| (key, value))
    }

    pub fn put(&mut self, key: &str, value: V, ttl: Duration) {
        self.0.insert(key.to_string(), (value, Instant::now().checked_add(ttl)));
    }

    pub fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Drops expired values.
    pub fn prune(&mut self) {
        self.0.retain(|_, (_, until)| is_alive(*until));
    }
}
