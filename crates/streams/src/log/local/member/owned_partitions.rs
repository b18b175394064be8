//! The partitions that a member has, and where it is in each.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::log::local::file_watch::{self, FileWatch, WatchId};
use crate::log::local::group_state::GroupState;
use crate::log::local::log_dir::{partition_key, LogDir};
use crate::log::local::partition_cursor::PartitionCursor;
use crate::log::local::{errors, high_watermark};
use crate::log::{Limits, LogError, Partition, Position, Result};
use crate::record::Chunk;

/// With more partitions than this, files are closed between two fetches.
const OPEN_MAX: usize = 64;

struct OwnedPartition {
    cursor: Option<PartitionCursor>,
    /// Where the cursor begins when it can be opened.
    from: Position,
    watch_id: Option<WatchId>,
    /// Of the partition's folder: another one is another topic.
    inode: Option<u64>,
    revoking: bool,
    at_end: bool,
}

/// See above.
pub(super) struct OwnedPartitions {
    dir: Arc<LogDir>,
    all: HashMap<Partition, OwnedPartition>,
}

impl OwnedPartitions {
    /// None yet.
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self { dir: dir.clone(), all: HashMap::new() }
    }

    /// Whether a place is one where records are written.
    pub fn is_of_records(&self, watch_id: WatchId) -> bool {
        self.all.values().any(|owned| owned.watch_id == Some(watch_id))
    }

    /// Whether this one is read.
    pub fn has(&self, partition: &Partition) -> bool {
        self.all.contains_key(partition)
    }

    /// Partitions that belong to others by now.
    pub fn lost(&self, state: &GroupState, id: &str) -> Vec<Partition> {
        let owned = |one: &&Partition| {
            state
                .owners
                .get(&partition_key(&one.topic, one.number))
                .is_some_and(|owner| owner == id)
        };
        self.all.keys().filter(|one| !owned(one)).cloned().collect()
    }

    /// Partitions that shall be others', told once.
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

    /// Begins to read one; what stands in the way is tried again by fetches.
    pub fn add(
        &mut self,
        partition: &Partition,
        from: Position,
        watch: &FileWatch,
    ) -> Option<LogError> {
        let owned = OwnedPartition {
            cursor: None,
            from,
            watch_id: None,
            inode: None,
            revoking: false,
            at_end: false,
        };
        self.all.insert(partition.clone(), owned);
        self.open(partition, watch).err()
    }

    fn open(&mut self, partition: &Partition, watch: &FileWatch) -> Result<&mut OwnedPartition> {
        let Some(owned) = self.all.get_mut(partition) else {
            let Partition { topic, number } = partition;
            return Err(errors::invalid(format!("{topic}/{number} is not this member's")));
        };
        if owned.cursor.is_none() {
            let folder = self.dir.partition(&partition.topic, partition.number);
            let cursor = PartitionCursor::open(&self.dir, partition, owned.from)?;
            owned.watch_id = Some(watch.add(&high_watermark::path(&folder), file_watch::MODIFIED)?);
            owned.inode = std::fs::metadata(&folder).ok().map(|found| found.ino());
            owned.cursor = Some(cursor);
        }
        Ok(owned)
    }

    /// The next records of one.
    pub fn fetch(
        &mut self,
        partition: &Partition,
        limits: Limits,
        watch: &FileWatch,
    ) -> Result<Option<Chunk>> {
        let many = self.all.len() > OPEN_MAX;
        if self.all.get(partition).is_none_or(|owned| owned.revoking) {
            return Ok(None);
        }
        let owned = self.open(partition, watch)?;
        let Some(cursor) = &mut owned.cursor else { return Ok(None) };
        let fetched = cursor.fetch(limits);
        if many {
            cursor.rest();
        }
        if let Ok(Some(_)) = fetched {
            owned.at_end = false;
        }
        fetched
    }

    /// Damage that a fetch has come over.
    pub fn damage(&mut self, partition: &Partition) -> impl Iterator<Item = LogError> {
        let cursor = self.all.get_mut(partition).and_then(|owned| owned.cursor.as_mut());
        cursor.map(|cursor| std::mem::take(&mut cursor.damage)).unwrap_or_default().into_iter()
    }

    /// Whether it has come to the end since it was asked last.
    pub fn is_newly_at_end(&mut self, partition: &Partition) -> bool {
        let owned = self.all.get_mut(partition).filter(|owned| !owned.revoking);
        owned.is_some_and(|owned| !std::mem::replace(&mut owned.at_end, true))
    }

    /// Goes on elsewhere.
    pub fn seek(
        &mut self,
        partition: &Partition,
        position: Position,
        watch: &FileWatch,
    ) -> Result<()> {
        let owned = self.open(partition, watch)?;
        owned.at_end = false;
        match &mut owned.cursor {
            Some(cursor) => cursor.seek(position),
            None => Ok(()),
        }
    }

    /// As last heard.
    pub fn end_offset(&self, partition: &Partition) -> Option<i64> {
        self.all.get(partition)?.cursor.as_ref().map(PartitionCursor::end)
    }

    /// A topic that was deleted and made again is read from its start.
    pub fn renew(&mut self, watch: &FileWatch) {
        for (partition, owned) in &mut self.all {
            let folder = self.dir.partition(&partition.topic, partition.number);
            let inode = std::fs::metadata(folder).ok().map(|found| found.ino());
            if owned.inode.is_some() && inode.is_some() && owned.inode != inode {
                owned.cursor = None;
                owned.from = Position::Earliest;
                owned.watch_id.take().into_iter().for_each(|watch_id| watch.remove(watch_id));
            }
        }
    }

    /// Reads these no longer.
    pub fn drop_all(&mut self, partitions: &[Partition], watch: &FileWatch) {
        for partition in partitions {
            let watch_id = self.all.remove(partition).and_then(|owned| owned.watch_id);
            watch_id.into_iter().for_each(|watch_id| watch.remove(watch_id));
        }
    }

    /// Reads nothing any longer.
    pub fn clear(&mut self, watch: &FileWatch) {
        let all: Vec<_> = self.all.keys().cloned().collect();
        self.drop_all(&all, watch);
    }
}
