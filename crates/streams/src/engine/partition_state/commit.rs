//! Which offset is committed.

use super::{metadata, PartitionState};
use crate::batch::Batch;
use crate::commit_notes;
use crate::log::{Commit, ErrorKind, LogError};

impl PartitionState {
    /// Whether there is something to commit.
    pub fn is_dirty(&self) -> bool {
        self.dirty && self.owned
    }

    /// The commit to send, if anything has changed; it counts as sent.
    pub fn take_commit(&mut self) -> Option<Commit> {
        if !self.is_dirty() {
            return None;
        }
        self.dirty = false;
        let commit = self.commit()?;
        self.committed = commit.offset;
        Some(commit)
    }

    /// The last commit failed, or may have: it is sent again.
    pub fn uncommitted(&mut self) {
        self.dirty |= self.owned && (self.tracker.version() > 0 || self.stopped.is_some());
    }

    /// The last commit of this assignment; nothing counts after it.
    pub fn take_last_commit(&mut self) -> Option<Commit> {
        let commit = self.take_commit();
        self.lose();
        commit
    }

    /// What a transaction of a batch in flight commits if it succeeds, and the version of the
    /// tracker that it is based on.
    ///
    /// # Errors
    /// `Fenced` when the batch no longer counts.
    pub fn prepare_transaction(
        &mut self,
        batch: &Batch,
        through: Option<i64>,
    ) -> Result<(Commit, u64), LogError> {
        let refused = |why: &str| LogError::new(ErrorKind::Fenced, why);
        if self.is_revoked() || !self.lanes[batch.lane].has_in_flight(batch.id) {
            return Err(refused("the partition was revoked, or the batch has ended"));
        }
        let version = self.tracker.version();
        let (before, dirty) = (self.tracker.clone(), self.dirty);
        if let Some(offset) = through {
            self.mark(batch, offset, false);
        }
        let commit = self.commit();
        (self.tracker, self.dirty) = (before, dirty);
        let commit = commit.ok_or_else(|| refused("nothing was fetched yet"))?;
        Ok((commit, version))
    }

    /// The transaction is committed.
    pub fn finish_transaction(
        &mut self,
        batch: &Batch,
        through: Option<i64>,
        offset: i64,
        version: u64,
    ) {
        let others = self.tracker.version() != version;
        if let Some(offset) = through {
            self.mark(batch, offset, false);
        }
        self.committed = offset;
        self.dirty = others && self.owned;
    }

    /// How far it has come; `None` where that is not known yet.
    fn commit(&self) -> Option<Commit> {
        // Records that were done before this assignment, and were not fetched since, stay done.
        let ahead = (!self.skip.is_empty()).then(|| self.tracker.with_done(&self.skip));
        let tracker = ahead.as_ref().unwrap_or(&self.tracker);
        let offset = tracker.head()?;
        let mut metadata = tracker.metadata();
        if let Some(lost) = &self.stopped {
            metadata::mark_stopped(&mut metadata, (lost.from, lost.until));
        }
        Some(Commit {
            topic: self.partition.topic.to_string(),
            partition: self.partition.number,
            offset,
            metadata: commit_notes::with_beginning(metadata, self.began_with),
        })
    }
}
