//! Reads one partition outside of any group.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;

use super::cursor::Cursor;
use super::ear::{self, wait_for, Ear};
use super::place::Place;
use super::{failure, head, topics};
use crate::log::{self, ErrorKind, Limits, LogError, Partition, Position, Result};
use crate::record::Chunk;

/// See above.
pub(super) struct LocalReader {
    cursor: Cursor,
    head: PathBuf,
    /// Made by the first wait: the kernel has few of them for a user, and who
    /// reads what is there needs none.
    ear: Option<Ear>,
    event_fd: Arc<EventFd>,
}

impl LocalReader {
    /// From a place on.
    pub fn open(place: &Arc<Place>, partition: &Partition, from: Position) -> Result<Self> {
        let Partition { topic, number } = partition;
        let found = topics::get(place, topic)?;
        if !(0..found.partitions).contains(number) {
            return Err(failure::unknown_partition(topic, *number, found.partitions));
        }
        let mut cursor = Cursor::open(place, partition, from)?;
        if cursor.settle()? {
            cursor.seek(from)?;
        }
        let head = head::path(&place.partition(topic, *number));
        let event_fd = EventFd::new().map_err(|error| {
            LogError::new(ErrorKind::Unreachable, format!("no event descriptor: {error}"))
        })?;
        Ok(Self { cursor, head, ear: None, event_fd: Arc::new(event_fd) })
    }

    fn listen(&mut self) -> Result<()> {
        let ear = Ear::new()?;
        ear.listen(&self.head, ear::WRITTEN)?;
        self.ear = Some(ear);
        Ok(())
    }
}

impl log::PartitionReader for LocalReader {
    fn next(&mut self, limits: Limits, timeout: Duration) -> Result<Option<Chunk>> {
        let until = Instant::now() + timeout;
        loop {
            // Forgotten before the look: what comes during it ends the wait.
            self.ear.iter().for_each(|ear| ear.drain(|_| {}));
            let found = self.cursor.fetch(limits)?;
            if found.is_some() {
                return Ok(found);
            }
            if !self.cursor.damage.is_empty() {
                return Err(self.cursor.damage.remove(0));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Ok(None);
            }
            let Some(ear) = &self.ear else {
                // And looks again: what was written before this is not heard.
                self.listen()?;
                continue;
            };
            let ready = wait_for(&[ear.fd(), self.event_fd.fd()], left);
            if ready[1] {
                self.event_fd.clear();
                return Ok(None);
            }
            if !ready[0] {
                return Ok(None);
            }
        }
    }

    fn interrupter(&self) -> Arc<EventFd> {
        self.event_fd.clone()
    }
}
