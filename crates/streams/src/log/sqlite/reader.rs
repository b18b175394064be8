//! Reads one partition outside of any group.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use chaton_embedded::Reader;

use super::cursor::{PartitionCursor, Source};
use super::errors;
use super::file_watch::FileWatch;
use super::log_dir::{channel_of, LogDir};
use crate::log::{
    ErrorKind, Limits, LogError, LostRecords, Partition, PartitionReader, Position, Result,
};
use crate::poll::wait_readable;
use crate::record::Chunk;

pub(super) struct LocalReader {
    cursor: PartitionCursor,
    dir: Arc<LogDir>,
    reader: Arc<Reader>,
    /// See [`LogDir::id`].
    dir_id: Option<(u64, u64)>,
    partition: Partition,
    /// Records behind lost ones that are reported first.
    held: Option<Chunk>,
    /// Created by the first wait, because the kernel limits inotify instances
    /// per user, and reading without waiting needs none.
    watch: Option<FileWatch>,
    interrupter: Arc<EventFd>,
}

impl LocalReader {
    pub fn open(dir: &Arc<LogDir>, partition: &Partition, from: Position) -> Result<Self> {
        let reader = dir.reader();
        let cursor = PartitionCursor::open(Source { dir, reader: &reader, partition }, from)?;
        let interrupter = EventFd::new().map_err(|error| {
            LogError::new(ErrorKind::Unreachable, format!("no event descriptor: {error}"))
        })?;
        Ok(Self {
            cursor,
            dir: dir.clone(),
            reader,
            dir_id: dir.id()?,
            partition: partition.clone(),
            held: None,
            watch: None,
            interrupter: Arc::new(interrupter),
        })
    }
}

impl PartitionReader for LocalReader {
    fn next(&mut self, limits: Limits, timeout: Duration) -> Result<Option<Chunk>> {
        let until = Instant::now() + timeout;
        loop {
            // Before the fetch, so that a change during the fetch ends the wait.
            self.watch.iter().for_each(|watch| watch.read_events(|_| {}));
            if self.dir.id()? != self.dir_id {
                return Err(errors::replaced(self.dir.path()));
            }
            if self.held.is_none() {
                let (dir, reader, partition) = (&self.dir, &self.reader, &self.partition);
                self.held = self.cursor.fetch(Source { dir, reader, partition }, limits)?;
            }
            if let Some(LostRecords { from, until, why }) = self.cursor.take_lost() {
                let what =
                    format!("{}: records {from} to {} are gone: {why}", self.partition, until - 1);
                return Err(errors::corrupt(&what));
            }
            if self.held.is_some() {
                return Ok(self.held.take());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Ok(None);
            }
            let Some(watch) = &self.watch else {
                // Fetches once more: earlier changes are not reported.
                let watch = FileWatch::new();
                watch.add(self.dir.path(), channel_of(&self.partition.topic))?;
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
