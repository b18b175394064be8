//! Waits for changes of a database, also by other processes, through inotify.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use chaton_embedded::change_file::{path_of, ChangeFile};
use chaton_embedded::{inode, Database};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::inspect;
use super::transaction::CHANNEL;
use crate::store::error::StoreError;
use crate::store::poll::{wait_for_any, EventInterrupt};
use crate::store::traits::{Interrupt, Result, StoreWatch};
use crate::store::types::{Availability, StoreEvent};

/// A watch of one database.
pub(super) struct SqliteWatch {
    database: Arc<Database>,
    inotify: Option<InotifyWatch>,
    interrupt: Arc<EventFd>,
}

/// An inotify descriptor.
struct InotifyWatch {
    fd: OwnedFd,
    /// The watched change file and database.
    inodes: [Option<(u64, u64)>; 2],
}

impl InotifyWatch {
    fn open(database: &Path) -> io::Result<Self> {
        let change_file = path_of(database, CHANNEL);
        ChangeFile::open(database, CHANNEL)?;
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // Removing a file changes its link count: the only change of the database
        // file itself that matters.
        let flags = WatchFlags::ATTRIB | WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        for path in [&*change_file, database] {
            inotify::add_watch(&fd, path, flags)?;
        }
        Ok(Self { fd, inodes: [inode(&change_file), inode(database)] })
    }

    /// Reads and drops all events.
    fn drain(&self) {
        let mut buffer = [0u8; 4096];
        while rustix::io::read(&self.fd, &mut buffer).is_ok_and(|count| count > 0) {}
    }
}

impl SqliteWatch {
    pub fn new(database: Arc<Database>) -> Self {
        let interrupt = Arc::new(EventFd::new().expect("no event descriptor"));
        Self { database, inotify: None, interrupt }
    }

    /// Watches the files; creates the database first if there is none.
    fn watch_files(&mut self) -> Result<&InotifyWatch> {
        let path = self.database.file().path.clone();
        let inodes = [inode(&path_of(&path, CHANNEL)), inode(&path)];
        if self.inotify.as_ref().is_none_or(|watch| watch.inodes != inodes) {
            self.inotify = None;
            if inodes[1].is_none() {
                self.database.prepare()?;
            }
        }
        if self.inotify.is_none() {
            let watch = InotifyWatch::open(&path);
            self.inotify = Some(watch.map_err(|e| self.database.file().io("its wake file", &e))?);
        }
        self.inotify.as_ref().ok_or_else(|| StoreError::unavailable("no file watch"))
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
        let Some(files) = &self.inotify else { return Ok(anything) };
        let mut fds = [files.fd.as_fd(), self.interrupt.as_fd()]
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
