//! How many requests a client may give up.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Requests that a client may still give up on a connection: each answer adds one, up to the number
/// it begins with. A client that only makes requests to give them up has them run for nothing, and
/// no bound of concurrent streams stops it, since they end at once (CVE-2023-44487).
pub(super) struct ResetBudget {
    left: AtomicU32,
    max: u32,
}

impl ResetBudget {
    pub fn new(max: u32) -> Self {
        Self { left: AtomicU32::new(max), max }
    }

    /// The client has given up a request.
    pub fn spend(&self) {
        self.left.store(self.left.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// A request was answered.
    pub fn earn(&self) {
        self.left.store(self.max.min(self.left.load(Relaxed).saturating_add(1)), Relaxed);
    }

    pub fn is_spent(&self) -> bool {
        self.left.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_allow_as_many_resets_again() {
        let budget = ResetBudget::new(2);
        budget.earn();
        budget.spend();
        assert!(!budget.is_spent());
        budget.earn();
        budget.spend();
        budget.spend();
        assert!(budget.is_spent());
    }
}
