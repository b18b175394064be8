//! The partitions that a member owns, and its position in each.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::log::local::file_watch::{FileWatch, WatchId, MODIFIED};
use crate::log::local::group_state::GroupState;
use crate::log::local::log_dir::{partition_key, LogDir};
use crate::log::local::partition_cursor::PartitionCursor;
use crate::log::local::{errors, high_watermark};
use crate::log::{Limits, LogError, LostRecords, Partition, Position, Result};
use crate::record::Chunk;

/// With more partitions than this, files are closed between two fetches.
const OPEN_MAX: usize = 64;

struct OwnedPartition {
    cursor: Option<PartitionCursor>,
    /// Where the cursor begins when it is opened.
    from: Position,
    watch_id: Option<WatchId>,
    /// The inode of the partition's folder, which changes with its topic.
    inode: Option<u64>,
    revoking: bool,
    at_end: bool,
}

pub(super) struct OwnedPartitions {
    dir: Arc<LogDir>,
    all: HashMap<Partition, OwnedPartition>,
}

impl OwnedPartitions {
    pub fn new(dir: &Arc<LogDir>) -> Self {
        Self { dir: dir.clone(), all: HashMap::new() }
    }

    /// Whether this watch reports written records.
    pub fn watches_records(&self, id: WatchId) -> bool {
        self.all.values().any(|owned| owned.watch_id == Some(id))
    }

    pub fn contains(&self, partition: &Partition) -> bool {
        self.all.contains_key(partition)
    }

    /// Partitions that other members own by now.
    pub fn lost(&self, state: &GroupState, id: &str) -> Vec<Partition> {
        let is_owned = |one: &&Partition| {
            let owner = state.owners.get(&partition_key(&one.topic, one.number));
            owner.is_some_and(|owner| owner == id)
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
            return Err(errors::invalid(format!("{partition} is not this member's")));
        };
        if owned.cursor.is_none() {
            let folder = self.dir.partition(&partition.topic, partition.number);
            let cursor = PartitionCursor::open(&self.dir, partition, owned.from)?;
            owned.watch_id = watch.add(&high_watermark::path(&folder), MODIFIED)?;
            owned.inode = inode(&folder);
            owned.cursor = Some(cursor);
        }
        Ok(owned)
    }

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
            cursor.close_files();
        }
        if let Ok(Some(_)) = fetched {
            owned.at_end = false;
        }
        fetched
    }

    /// The damage that fetches have skipped.
    pub fn take_damage(&mut self, partition: &Partition) -> impl Iterator<Item = LogError> {
        let cursor = self.all.get_mut(partition).and_then(|owned| owned.cursor.as_mut());
        cursor.map(|cursor| std::mem::take(&mut cursor.damage)).unwrap_or_default().into_iter()
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

    pub fn seek(
        &mut self,
        partition: &Partition,
        position: Position,
        watch: &FileWatch,
    ) -> Result<()> {
        let owned = self.open(partition, watch)?;
        owned.at_end = false;
        owned.cursor.as_mut().map_or(Ok(()), |cursor| cursor.seek(position))
    }

    /// The log start offset.
    pub fn start_offset(&self, partition: &Partition) -> Option<i64> {
        self.all.get(partition)?.cursor.as_ref()?.start().ok()
    }

    /// The log end offset, as last seen.
    pub fn end_offset(&self, partition: &Partition) -> Option<i64> {
        self.all.get(partition)?.cursor.as_ref().map(PartitionCursor::end)
    }

    /// Reads a topic that was deleted and created again from its start.
    pub fn reset_recreated(&mut self, watch: &FileWatch) {
        for (partition, owned) in &mut self.all {
            let inode = inode(&self.dir.partition(&partition.topic, partition.number));
            if owned.inode.is_some() && inode.is_some() && owned.inode != inode {
                owned.cursor = None;
                owned.from = Position::Earliest;
                owned.watch_id.take().into_iter().for_each(|id| watch.remove(id));
            }
        }
    }

    /// Watches what is read by this watch instead of the former one.
    pub fn watch_anew(&mut self, watch: &FileWatch) {
        for (partition, owned) in self.all.iter_mut().filter(|(_, owned)| owned.cursor.is_some()) {
            let folder = self.dir.partition(&partition.topic, partition.number);
            owned.watch_id = watch.add(&high_watermark::path(&folder), MODIFIED).ok().flatten();
        }
    }

    /// Ends reading these partitions.
    pub fn remove_all(&mut self, partitions: &[Partition], watch: &FileWatch) {
        for partition in partitions {
            let id = self.all.remove(partition).and_then(|owned| owned.watch_id);
            id.into_iter().for_each(|id| watch.remove(id));
        }
    }

    pub fn clear(&mut self, watch: &FileWatch) {
        let all: Vec<_> = self.all.keys().cloned().collect();
        self.remove_all(&all, watch);
    }
}

fn inode(folder: &Path) -> Option<u64> {
    std::fs::metadata(folder).ok().map(|found| found.ino())
}
