//! Reads one partition outside of any group.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;

use super::file_watch::{self, FileWatch};
use super::log_dir::LogDir;
use super::partition_cursor::PartitionCursor;
use super::{errors, high_watermark, topics};
use crate::log::{
    ErrorKind, Limits, LogError, LostRecords, Partition, PartitionReader, Position, Result,
};
use crate::poll::wait_readable;
use crate::record::Chunk;

pub(super) struct LocalReader {
    cursor: PartitionCursor,
    dir: Arc<LogDir>,
    /// See [`LogDir::id`].
    dir_id: (u64, u64),
    partition: Partition,
    /// Records behind damage or lost ones that are reported first.
    held: Option<Chunk>,
    watermark_path: PathBuf,
    /// Created by the first wait, because the kernel limits inotify instances
    /// per user, and reading without waiting needs none.
    watch: Option<FileWatch>,
    interrupter: Arc<EventFd>,
}

impl LocalReader {
    pub fn open(dir: &Arc<LogDir>, partition: &Partition, from: Position) -> Result<Self> {
        topics::get_with(dir, partition)?;
        let mut cursor = PartitionCursor::open(dir, partition, from)?;
        if cursor.recover_tail()? {
            cursor.seek(from)?;
        }
        let folder = dir.partition(&partition.topic, partition.number);
        let interrupter = EventFd::new().map_err(|error| {
            LogError::new(ErrorKind::Unreachable, format!("no event descriptor: {error}"))
        })?;
        Ok(Self {
            cursor,
            dir: dir.clone(),
            dir_id: dir.id()?,
            partition: partition.clone(),
            held: None,
            watermark_path: high_watermark::path(&folder),
            watch: None,
            interrupter: Arc::new(interrupter),
        })
    }
}

impl LocalReader {
    /// What the last fetch has passed over, one at a time.
    fn damage(&mut self) -> Option<LogError> {
        if let Some(LostRecords { from, until, why }) = self.cursor.take_lost() {
            let what =
                format!("{}: records {from} to {} are gone: {why}", self.partition, until - 1);
            return Some(LogError::new(ErrorKind::Corrupt, what));
        }
        (!self.cursor.damage.is_empty()).then(|| self.cursor.damage.remove(0))
    }
}

impl PartitionReader for LocalReader {
    fn next(&mut self, limits: Limits, timeout: Duration) -> Result<Option<Chunk>> {
        let until = Instant::now() + timeout;
        loop {
            // Before the fetch, so that a change during the fetch ends the wait.
            self.watch.iter().for_each(|watch| watch.read_events(|_| {}));
            if self.held.is_none() {
                self.held = self.cursor.fetch(limits)?;
            }
            if let Some(error) = self.damage() {
                return Err(error);
            }
            if self.held.is_some() {
                return Ok(self.held.take());
            }
            if self.dir.id()? != self.dir_id {
                return Err(errors::replaced(&self.dir.root));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Ok(None);
            }
            let Some(watch) = &self.watch else {
                // Fetches once more: earlier changes are not reported.
                let watch = FileWatch::new();
                watch.add(&self.watermark_path, file_watch::MODIFIED)?;
                self.watch = Some(watch);
                continue;
            };
            let mut fds = vec![self.interrupter.as_fd()];
            fds.extend(watch.descriptor());
            if wait_readable(&fds, left.min(watch.poll_interval()))[0] {
                self.interrupter.clear();
                return Ok(None);
            }
        }
    }

    fn interrupter(&self) -> Arc<EventFd> {
        self.interrupter.clone()
    }
}
