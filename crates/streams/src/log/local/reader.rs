//! Reads one partition outside of any group.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;

use super::file_watch::{self, wait_for, FileWatch};
use super::log_dir::LogDir;
use super::partition_cursor::PartitionCursor;
use super::{errors, high_watermark, topics};
use crate::log::{self, ErrorKind, Limits, LogError, Partition, Position, Result};
use crate::record::Chunk;

/// See above.
pub(super) struct LocalReader {
    cursor: PartitionCursor,
    watermark: PathBuf,
    /// Made by the first wait: the kernel has few of them for a user, and who
    /// reads what is there needs none.
    watch: Option<FileWatch>,
    event_fd: Arc<EventFd>,
}

impl LocalReader {
    /// From a place on.
    pub fn open(dir: &Arc<LogDir>, partition: &Partition, from: Position) -> Result<Self> {
        let Partition { topic, number } = partition;
        let found = topics::get(dir, topic)?;
        if !(0..found.partitions).contains(number) {
            return Err(errors::unknown_partition(topic, *number, found.partitions));
        }
        let mut cursor = PartitionCursor::open(dir, partition, from)?;
        if cursor.settle()? {
            cursor.seek(from)?;
        }
        let watermark = high_watermark::path(&dir.partition(topic, *number));
        let event_fd = EventFd::new().map_err(|error| {
            LogError::new(ErrorKind::Unreachable, format!("no event descriptor: {error}"))
        })?;
        Ok(Self { cursor, watermark, watch: None, event_fd: Arc::new(event_fd) })
    }

    fn listen(&mut self) -> Result<()> {
        let watch = FileWatch::new()?;
        watch.add(&self.watermark, file_watch::MODIFIED)?;
        self.watch = Some(watch);
        Ok(())
    }
}

impl log::PartitionReader for LocalReader {
    fn next(&mut self, limits: Limits, timeout: Duration) -> Result<Option<Chunk>> {
        let until = Instant::now() + timeout;
        loop {
            // Forgotten before the look: what comes during it ends the wait.
            self.watch.iter().for_each(|watch| watch.read_events(|_| {}));
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
            let Some(watch) = &self.watch else {
                // And looks again: what was written before this is not heard.
                self.listen()?;
                continue;
            };
            let ready = wait_for(&[watch.fd(), self.event_fd.fd()], left);
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
