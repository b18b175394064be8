//! The partitions that a member has, and where it is in each.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::log::local::cursor::Cursor;
use crate::log::local::ear::{self, Ear, Spot};
use crate::log::local::group::{key_of, State};
use crate::log::local::place::Place;
use crate::log::local::{failure, head};
use crate::log::{Limits, LogError, Partition, Position, Result};
use crate::record::Chunk;

/// With more partitions than this, files are closed between two fetches.
const OPEN_MAX: usize = 64;

struct Holding {
    cursor: Option<Cursor>,
    /// Where the cursor begins when it can be opened.
    from: Position,
    spot: Option<Spot>,
    /// Of the partition's folder: another one is another topic.
    inode: Option<u64>,
    revoking: bool,
    at_end: bool,
}

/// See above.
pub(super) struct Holdings {
    place: Arc<Place>,
    all: HashMap<Partition, Holding>,
}

impl Holdings {
    /// None yet.
    pub fn new(place: &Arc<Place>) -> Self {
        Self { place: place.clone(), all: HashMap::new() }
    }

    /// Whether a place is one where records are written.
    pub fn is_of_records(&self, spot: Spot) -> bool {
        self.all.values().any(|holding| holding.spot == Some(spot))
    }

    /// Whether this one is read.
    pub fn has(&self, partition: &Partition) -> bool {
        self.all.contains_key(partition)
    }

    /// Partitions that belong to others by now.
    pub fn lost(&self, state: &State, id: &str) -> Vec<Partition> {
        let owned = |one: &&Partition| {
            state.owners.get(&key_of(&one.topic, one.number)).is_some_and(|owner| owner == id)
        };
        self.all.keys().filter(|one| !owned(one)).cloned().collect()
    }

    /// Partitions that shall be others', told once.
    pub fn revoke(&mut self, state: &State, id: &str) -> Vec<Partition> {
        let mut revoked = Vec::new();
        for (partition, holding) in &mut self.all {
            let target = state.target.get(&key_of(&partition.topic, partition.number));
            if !holding.revoking && target.is_none_or(|target| target != id) {
                holding.revoking = true;
                revoked.push(partition.clone());
            }
        }
        revoked.sort();
        revoked
    }

    /// Begins to read one; what stands in the way is tried again by fetches.
    pub fn add(&mut self, partition: &Partition, from: Position, ear: &Ear) -> Option<LogError> {
        let holding =
            Holding { cursor: None, from, spot: None, inode: None, revoking: false, at_end: false };
        self.all.insert(partition.clone(), holding);
        self.open(partition, ear).err()
    }

    fn open(&mut self, partition: &Partition, ear: &Ear) -> Result<&mut Holding> {
        let Some(holding) = self.all.get_mut(partition) else {
            let Partition { topic, number } = partition;
            return Err(failure::invalid(format!("{topic}/{number} is not this member's")));
        };
        if holding.cursor.is_none() {
            let folder = self.place.partition(&partition.topic, partition.number);
            let cursor = Cursor::open(&self.place, partition, holding.from)?;
            holding.spot = Some(ear.listen(&head::path(&folder), ear::WRITTEN)?);
            holding.inode = std::fs::metadata(&folder).ok().map(|found| found.ino());
            holding.cursor = Some(cursor);
        }
        Ok(holding)
    }

    /// The next records of one.
    pub fn fetch(
        &mut self,
        partition: &Partition,
        limits: Limits,
        ear: &Ear,
    ) -> Result<Option<Chunk>> {
        let many = self.all.len() > OPEN_MAX;
        if self.all.get(partition).is_none_or(|holding| holding.revoking) {
            return Ok(None);
        }
        let holding = self.open(partition, ear)?;
        let Some(cursor) = &mut holding.cursor else { return Ok(None) };
        let fetched = cursor.fetch(limits);
        if many {
            cursor.rest();
        }
        if let Ok(Some(_)) = fetched {
            holding.at_end = false;
        }
        fetched
    }

    /// Damage that a fetch has come over.
    pub fn damage(&mut self, partition: &Partition) -> impl Iterator<Item = LogError> {
        let cursor = self.all.get_mut(partition).and_then(|holding| holding.cursor.as_mut());
        cursor.map(|cursor| std::mem::take(&mut cursor.damage)).unwrap_or_default().into_iter()
    }

    /// Whether it has come to the end since it was asked last.
    pub fn is_newly_at_end(&mut self, partition: &Partition) -> bool {
        let holding = self.all.get_mut(partition).filter(|holding| !holding.revoking);
        holding.is_some_and(|holding| !std::mem::replace(&mut holding.at_end, true))
    }

    /// Goes on elsewhere.
    pub fn seek(&mut self, partition: &Partition, position: Position, ear: &Ear) -> Result<()> {
        let holding = self.open(partition, ear)?;
        holding.at_end = false;
        match &mut holding.cursor {
            Some(cursor) => cursor.seek(position),
            None => Ok(()),
        }
    }

    /// As last heard.
    pub fn end_offset(&self, partition: &Partition) -> Option<i64> {
        self.all.get(partition)?.cursor.as_ref().map(Cursor::end)
    }

    /// A topic that was deleted and made again is read from its start.
    pub fn renew(&mut self, ear: &Ear) {
        for (partition, holding) in &mut self.all {
            let folder = self.place.partition(&partition.topic, partition.number);
            let inode = std::fs::metadata(folder).ok().map(|found| found.ino());
            if holding.inode.is_some() && inode.is_some() && holding.inode != inode {
                holding.cursor = None;
                holding.from = Position::Earliest;
                holding.spot.take().into_iter().for_each(|spot| ear.forget(spot));
            }
        }
    }

    /// Reads these no longer.
    pub fn drop_all(&mut self, partitions: &[Partition], ear: &Ear) {
        for partition in partitions {
            let spot = self.all.remove(partition).and_then(|holding| holding.spot);
            spot.into_iter().for_each(|spot| ear.forget(spot));
        }
    }

    /// Reads nothing any longer.
    pub fn clear(&mut self, ear: &Ear) {
        let all: Vec<_> = self.all.keys().cloned().collect();
        self.drop_all(&all, ear);
    }
}
