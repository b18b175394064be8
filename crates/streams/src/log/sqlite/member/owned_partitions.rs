//! The partitions that a member owns, and its position in each.

use std::collections::HashMap;
use std::sync::Arc;

use chaton_embedded::Reader;

use crate::log::sqlite::cursor::PartitionCursor;
use crate::log::sqlite::errors;
use crate::log::sqlite::group_state::GroupState;
use crate::log::sqlite::log_dir::{partition_key, LogDir};
use crate::log::{Limits, LogError, LostRecords, Partition, Position, Result};
use crate::record::Chunk;

struct OwnedPartition {
    cursor: Option<PartitionCursor>,
    /// Where the cursor begins when it is opened.
    from: Position,
    revoking: bool,
    at_end: bool,
}

pub(super) struct OwnedPartitions {
    dir: Arc<LogDir>,
    reader: Arc<Reader>,
    all: HashMap<Partition, OwnedPartition>,
}

impl OwnedPartitions {
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self { dir: dir.clone(), reader: dir.reader(), all: HashMap::new() }
    }

    pub fn contains(&self, partition: &Partition) -> bool {
        self.all.contains_key(partition)
    }

    /// Partitions that other members own by now.
    pub fn lost(&self, state: &GroupState, id: &str) -> Vec<Partition> {
        let is_owned = |one: &&Partition| {
            let owner = state.owners.get(&partition_key(&one.topic, one.number));
            owner.is_some_and(|owner| owner.member == id)
        };
        self.all.keys().filter(|one| !is_owned(one)).cloned().collect()
    }

    /// Partitions whose target is another member; each is returned once.
    pub fn revoke(&mut self, state: &GroupState, id: &str) -> Vec<Partition> {
        let mut revoked = Vec::new();
        for (partition, owned) in &mut self.all {
            let target = state.target.get(&partition_key(&partition.topic, partition.number));
            if !owned.revoking && target.is_none_or(|target| target != id) {
                owned.revoking = true;
                revoked.push(partition.clone());
            }
        }
        revoked.sort();
        revoked
    }

    /// Begins to read a partition. After an error the fetches try again.
    pub fn add(&mut self, partition: &Partition, from: Position) -> Option<LogError> {
        let owned = OwnedPartition { cursor: None, from, revoking: false, at_end: false };
        self.all.insert(partition.clone(), owned);
        self.open(partition).err()
    }

    fn open(&mut self, partition: &Partition) -> Result<(&mut PartitionCursor, &mut bool)> {
        let Some(owned) = self.all.get_mut(partition) else {
            return Err(errors::invalid(format!("{partition} is not this member's")));
        };
        let cursor = match owned.cursor.take() {
            Some(cursor) => cursor,
            None => PartitionCursor::open(&self.dir, &self.reader, partition, owned.from)?,
        };
        Ok((owned.cursor.insert(cursor), &mut owned.at_end))
    }

    pub fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        if self.all.get(partition).is_none_or(|owned| owned.revoking) {
            return Ok(None);
        }
        let (cursor, at_end) = self.open(partition)?;
        let fetched = cursor.fetch(limits);
        *at_end &= !matches!(fetched, Ok(Some(_)));
        fetched
    }

    /// The lost records that the last fetch has passed over.
    pub fn take_lost(&mut self, partition: &Partition) -> Option<LostRecords> {
        self.all.get_mut(partition)?.cursor.as_mut()?.take_lost()
    }

    /// Whether the partition has reached its end since the last call.
    pub fn is_newly_at_end(&mut self, partition: &Partition) -> bool {
        let owned = self.all.get_mut(partition).filter(|owned| !owned.revoking);
        owned.is_some_and(|owned| !std::mem::replace(&mut owned.at_end, true))
    }

    pub fn seek(&mut self, partition: &Partition, position: Position) -> Result<()> {
        let (cursor, at_end) = self.open(partition)?;
        *at_end = false;
        cursor.seek(position)
    }

    /// The log start offset, as last seen.
    pub fn start_offset(&self, partition: &Partition) -> Option<i64> {
        self.all.get(partition)?.cursor.as_ref().map(PartitionCursor::start)
    }

    /// The log end offset, as last seen.
    pub fn end_offset(&self, partition: &Partition) -> Option<i64> {
        self.all.get(partition)?.cursor.as_ref().map(PartitionCursor::end)
    }

    /// Ends reading these partitions.
    pub fn remove_all(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.all.remove(partition);
        }
    }

    pub fn clear(&mut self) {
        self.all.clear();
    }
}
