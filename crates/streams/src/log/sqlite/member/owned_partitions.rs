//! The partitions that a member owns, and its position in each.

use std::collections::HashSet;
use std::sync::Arc;

use chaton_embedded::Reader;

use crate::log::sqlite::by_partition::ByPartition;
use crate::log::sqlite::cursor::{PartitionCursor, Source};
use crate::log::sqlite::errors;
use crate::log::sqlite::group_state::GroupState;
use crate::log::sqlite::log_dir::LogDir;
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
    all: ByPartition<OwnedPartition>,
}

impl OwnedPartitions {
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self { dir: dir.clone(), reader: dir.reader(), all: ByPartition::default() }
    }

    pub fn contains(&self, topic: &str, number: i32) -> bool {
        self.all.get(topic, number).is_some()
    }

    fn get(&self, Partition { topic, number }: &Partition) -> Option<&OwnedPartition> {
        self.all.get(topic, *number)
    }

    fn get_mut(&mut self, Partition { topic, number }: &Partition) -> Option<&mut OwnedPartition> {
        self.all.get_mut(topic, *number)
    }

    /// Partitions that other members own by now.
    pub fn lost(&self, state: &GroupState, id: &str) -> Vec<Partition> {
        let member = state.number_of(id);
        let owner = |one: &Partition| state.owners.get(&one.topic, one.number).map(|one| one.0);
        let is_owned = |one: &Partition| member.is_some() && owner(one) == member;
        self.all.iter().map(|(one, _)| one).filter(|one| !is_owned(one)).collect()
    }

    /// Partitions whose target is another member; each is returned once.
    pub fn revoke(&mut self, state: &GroupState, id: &str) -> Vec<Partition> {
        let member = state.number_of(id);
        let mut revoked = Vec::new();
        for (one, owned) in self.all.iter_mut() {
            let target = state.target.get(&one.topic, one.number);
            if !owned.revoking && (target.is_none() || target != member.as_ref()) {
                owned.revoking = true;
                revoked.push(one);
            }
        }
        revoked
    }

    /// Begins to read a partition. After an error the fetches try again.
    pub fn add(&mut self, partition: &Partition, from: Position) -> Option<LogError> {
        let owned = OwnedPartition { cursor: None, from, revoking: false, at_end: false };
        self.all.insert(partition, owned);
        self.open(partition).err()
    }

    fn open<'a>(
        &'a mut self,
        partition: &'a Partition,
    ) -> Result<(Source<'a>, &'a mut PartitionCursor, &'a mut bool)> {
        let source = Source { dir: &self.dir, reader: &self.reader, partition };
        let Some(owned) = self.all.get_mut(&partition.topic, partition.number) else {
            return Err(errors::invalid(format!("{partition} is not this member's")));
        };
        let cursor = match owned.cursor.take() {
            Some(cursor) => cursor,
            None => PartitionCursor::open(source, owned.from)?,
        };
        Ok((source, owned.cursor.insert(cursor), &mut owned.at_end))
    }

    pub fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        if self.get(partition).is_none_or(|owned| owned.revoking) {
            return Ok(None);
        }
        let (source, cursor, at_end) = self.open(partition)?;
        let fetched = cursor.fetch(source, limits);
        *at_end &= !matches!(fetched, Ok(Some(_)));
        fetched
    }

    /// The lost records that the last fetch has passed over.
    pub fn take_lost(&mut self, partition: &Partition) -> Option<LostRecords> {
        self.get_mut(partition)?.cursor.as_mut()?.take_lost()
    }

    /// Whether the partition has reached its end since the last call.
    pub fn is_newly_at_end(&mut self, partition: &Partition) -> bool {
        let owned = self.get_mut(partition).filter(|owned| !owned.revoking);
        owned.is_some_and(|owned| !std::mem::replace(&mut owned.at_end, true))
    }

    pub fn seek(&mut self, partition: &Partition, position: Position) -> Result<()> {
        let (source, cursor, at_end) = self.open(partition)?;
        *at_end = false;
        cursor.seek(source, position)
    }

    /// The log start offset, as last seen.
    pub fn start_offset(&self, partition: &Partition) -> Option<i64> {
        self.get(partition)?.cursor.as_ref().map(PartitionCursor::start)
    }

    /// The log end offset, as last seen.
    pub fn end_offset(&self, partition: &Partition) -> Option<i64> {
        self.get(partition)?.cursor.as_ref().map(PartitionCursor::end)
    }

    /// Ends reading these partitions.
    pub fn remove_all(&mut self, partitions: &[Partition]) {
        let gone: HashSet<_> = partitions.iter().map(|one| (&*one.topic, one.number)).collect();
        self.all.retain(|topic, number, _| !gone.contains(&(topic, number)));
    }

    pub fn clear(&mut self) {
        self.all = ByPartition::default();
    }
}
