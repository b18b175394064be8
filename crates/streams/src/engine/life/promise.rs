//! What is said to the log about how far the group has come.

use super::Life;
use crate::log::{ErrorKind, LogError};

/// A commit, without the partition's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Promise {
    /// The first offset that is not done.
    pub offset: i64,
    /// What is done beyond it.
    pub metadata: String,
}

impl Life {
    /// Whether there is something to commit.
    pub fn is_dirty(&self) -> bool {
        self.dirty && self.owned
    }

    /// What to commit, if anything has changed. It counts as said.
    pub fn promise(&mut self) -> Option<Promise> {
        if !self.is_dirty() {
            return None;
        }
        self.dirty = false;
        let offset = self.tracker.head()?;
        self.said = offset;
        Some(Promise { offset, metadata: self.tracker.metadata() })
    }

    /// What was said was not taken: it is said again.
    pub fn unsaid(&mut self) {
        self.dirty |= self.owned && self.tracker.version() > 0;
    }

    /// The last commit of this assignment: from here on nothing counts.
    pub fn last_promise(&mut self) -> Option<Promise> {
        let promise = self.promise();
        self.lose();
        promise
    }

    /// What a transaction of a turn that is out commits, if it works out.
    ///
    /// # Errors
    /// `Fenced` when the turn does not count any more.
    pub fn pledge(
        &mut self,
        strand: usize,
        id: u64,
        through: Option<i64>,
    ) -> Result<(Promise, u64), LogError> {
        let refused = |why: &str| LogError::new(ErrorKind::Fenced, why);
        if self.is_gone() || !self.strands[strand].has_out(id) {
            return Err(refused("the partition was taken away, or the turn has ended"));
        }
        let version = self.tracker.version();
        let before = self.tracker.clone();
        let dirty = self.dirty;
        if let Some(offset) = through {
            self.mark(strand, id, offset, false);
        }
        let offset = self.tracker.head();
        let metadata = self.tracker.metadata();
        self.tracker = before;
        self.dirty = dirty;
        let offset = offset.ok_or_else(|| refused("nothing was fetched yet"))?;
        Ok((Promise { offset, metadata }, version))
    }

    /// It worked out.
    pub fn redeem(
        &mut self,
        strand: usize,
        id: u64,
        through: Option<i64>,
        (promise, version): (&Promise, u64),
    ) {
        let others = self.tracker.version() != version;
        if let Some(offset) = through {
            self.mark(strand, id, offset, false);
        }
        self.said = promise.offset;
        self.dirty = others && self.owned;
    }
}
