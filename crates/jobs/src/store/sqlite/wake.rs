//! A bell between processes: a file beside the database whose time is set by
//! every commit that others may wait for, watched through inotify.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::db::Db;
use super::{failure, inspect};
use crate::store::{Armed, Event, Interrupt, Result, Watch};

fn path_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wake");
    name.into()
}

/// The ringing end.
pub(super) struct Wake(File);

impl Wake {
    /// The bell of a database, made on first use.
    pub fn open(database: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(path_of(database)).map(Self)
    }

    /// Rings.
    pub fn ring(&self) {
        // SAFETY: a descriptor of ours; no times given: now.
        unsafe { libc::futimens(self.0.as_raw_fd(), std::ptr::null()) };
    }
}

/// Ends a wait from another thread.
struct Bell(OwnedFd);

impl Interrupt for Bell {
    fn interrupt(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of ours into an eventfd.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// The listening end.
pub(super) struct SqliteWatch {
    db: Arc<Db>,
    inotify: Option<OwnedFd>,
    bell: Arc<Bell>,
}

impl SqliteWatch {
    pub fn new(db: Arc<Db>) -> Self {
        // SAFETY: makes a descriptor; owned below.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        assert!(raw >= 0, "no event descriptor: {}", io::Error::last_os_error());
        // SAFETY: just made, owned by nobody else.
        let bell = Arc::new(Bell(unsafe { OwnedFd::from_raw_fd(raw) }));
        Self { db, inotify: None, bell }
    }

    fn listen(&mut self) -> io::Result<&OwnedFd> {
        if self.inotify.is_none() {
            let path = path_of(self.db.path());
            Wake::open(self.db.path())?;
            // SAFETY: makes a descriptor; owned below.
            let raw = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
            if raw < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: just made, owned by nobody else.
            let fd = unsafe { OwnedFd::from_raw_fd(raw) };
            let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
            let mask = libc::IN_ATTRIB | libc::IN_MODIFY | libc::IN_DELETE_SELF;
            // SAFETY: a descriptor of ours and a name with its NUL.
            if unsafe { libc::inotify_add_watch(fd.as_raw_fd(), name.as_ptr(), mask) } < 0 {
                return Err(io::Error::last_os_error());
            }
            self.inotify = Some(fd);
        }
        self.inotify.as_ref().ok_or_else(io::Error::last_os_error)
    }
}

/// Reads everything that is there.
fn drain(fd: i32) {
    let mut buffer = [0u8; 4096];
    // SAFETY: reads into our buffer; the descriptor does not block.
    while unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
}

impl Watch for SqliteWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Armed> {
        let path = self.db.path().to_path_buf();
        // The file must be there before it can be listened to.
        if !path.exists() {
            self.inotify = None;
            self.db.write(|_| Ok(()))?;
        }
        let fd = self.listen();
        let fd = fd.map_err(|error| failure::of_io(&path, "its wake file", &error))?.as_raw_fd();
        // Emptied first: what comes during the look ends the next wait.
        drain(fd);
        self.db.read(|conn| inspect::armed(conn, queues))
    }

    fn wait(&mut self, timeout: Duration) -> Result<Event> {
        let path = self.db.path().to_path_buf();
        let fd = self.listen();
        let fd = fd.map_err(|error| failure::of_io(&path, "its wake file", &error))?.as_raw_fd();
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [entry(fd), entry(self.bell.0.as_raw_fd())];
        let ms = timeout.as_millis().min(i32::MAX as u128) as i32;
        // SAFETY: two entries of ours.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, ms.max(i32::from(!timeout.is_zero()))) };
        if fds[1].revents != 0 {
            drain(fds[1].fd);
            return Ok(Event::Interrupted);
        }
        if ready > 0 && fds[0].revents != 0 {
            drain(fd);
            if !path.exists() {
                self.inotify = None;
            }
            return Ok(Event::Changed { queues: vec![], other: true });
        }
        Ok(Event::Timeout)
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.bell.clone()
    }
}
