//! Waits for changes of a database, also by other processes, through inotify.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::{wait_for_any, EventFd};
use chaton_embedded::{inode, ChangeWatch, Database};
use rustix::event::{PollFd, PollFlags};

use super::inspect;
use super::transaction::CHANNEL;
use crate::store::poll::EventInterrupt;
use crate::store::traits::{Interrupt, Result, StoreWatch};
use crate::store::types::{Availability, StoreEvent};
use crate::store::StoreError;

/// A watch of one database.
pub(super) struct SqliteWatch {
    database: Arc<Database>,
    files: Option<ChangeWatch>,
    interrupt: Arc<EventFd>,
}

impl SqliteWatch {
    pub fn new(database: Arc<Database>) -> Self {
        let interrupt = Arc::new(EventFd::new().expect("no event descriptor"));
        Self { database, files: None, interrupt }
    }

    /// Watches the files; creates the database first if there is none.
    fn watch_files(&mut self) -> Result<&ChangeWatch> {
        if self.files.as_ref().is_none_or(|watch| !watch.is_current()) {
            self.files = None;
            let file = self.database.file();
            if inode(&file.path).is_none() {
                self.database.prepare()?;
            }
            let watch = ChangeWatch::open(&file.path, CHANNEL);
            self.files = Some(watch.map_err(|e| file.io("its wake file", &e))?);
        }
        self.files.as_ref().ok_or_else(|| StoreError::unavailable("no file watch"))
    }
}

impl StoreWatch for SqliteWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability> {
        // Drained first, so that a change during the read ends the next wait.
        self.watch_files()?.drain();
        Ok(self.database.read(|conn| inspect::availability(conn, queues))?)
    }

    fn wait(&mut self, timeout: Duration) -> Result<StoreEvent> {
        let anything = StoreEvent::Changed { queues: vec![], other: true };
        // Never armed.
        let Some(files) = &self.files else { return Ok(anything) };
        let mut fds = [files.as_fd(), self.interrupt.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        wait_for_any(&mut fds, timeout)
            .map_err(|error| StoreError::unavailable(format!("waiting for jobs: {error}")))?;
        if !fds[1].revents().is_empty() {
            self.interrupt.clear();
            return Ok(StoreEvent::Interrupted);
        }
        if !fds[0].revents().is_empty() {
            files.drain();
            return Ok(anything);
        }
        Ok(StoreEvent::Timeout)
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        Arc::new(EventInterrupt(Some(self.interrupt.clone())))
    }
}
