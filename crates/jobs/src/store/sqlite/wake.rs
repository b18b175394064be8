//! A bell between processes: a file beside the database whose time is set by
//! every commit that others may wait for, watched through inotify.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::beside::{self, with_suffix};
use super::db::{self, Db};
use super::{failure, inspect};
use crate::store::{Availability, Interrupt, Result, StoreError, StoreWatch, WatchEvent};

/// Of the bell's file.
const SUFFIX: &str = "-wake";

fn path_of(database: &Path) -> PathBuf {
    with_suffix(database, SUFFIX)
}

/// The ringing end.
pub(super) struct Wake {
    file: File,
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl Wake {
    /// The bell of a database, made on first use.
    pub fn open(database: &Path) -> io::Result<Self> {
        let path = path_of(database);
        let file = beside::open(database, SUFFIX)?;
        let inode = db::inode(&path);
        Ok(Self { file, path, inode })
    }

    /// Rings; `false` when the bell is not the one that others listen to.
    pub fn notify(&self) -> bool {
        // SAFETY: a descriptor of ours; no times given: now.
        unsafe { libc::futimens(self.file.as_raw_fd(), std::ptr::null()) };
        db::inode(&self.path) == self.inode
    }
}

/// Ends a wait from another thread.
struct Bell(OwnedFd);

impl Interrupt for Bell {
    fn interrupt(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of ours into an eventfd, which keeps them.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// The listening end.
pub(super) struct SqliteWatch {
    db: Arc<Db>,
    inotify: Option<Ear>,
    bell: Arc<Bell>,
}

struct Ear {
    fd: OwnedFd,
    /// The bell and the database that it listens to.
    inodes: [Option<(u64, u64)>; 2],
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

    /// Listens; makes the database first where there is none.
    fn listen(&mut self) -> Result<i32> {
        let path = self.db.path().to_path_buf();
        let inodes = [db::inode(&path_of(&path)), db::inode(&path)];
        if let Some(ear) = self.inotify.as_ref().filter(|ear| ear.inodes == inodes) {
            return Ok(ear.fd.as_raw_fd());
        }
        self.inotify = None;
        if inodes[1].is_none() {
            self.db.prepare()?;
        }
        let ear = hear(&path).map_err(|error| failure::of_io(&path, "its wake file", &error))?;
        Ok(self.inotify.insert(ear).fd.as_raw_fd())
    }
}

fn hear(database: &Path) -> io::Result<Ear> {
    let path = path_of(database);
    Wake::open(database)?;
    // SAFETY: makes a descriptor; owned below.
    let raw = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    // Removing a file changes its count of names: the one change of the
    // database itself that is of interest.
    let gone = libc::IN_ATTRIB | libc::IN_MOVE_SELF | libc::IN_DELETE_SELF;
    for path in [path.as_path(), database] {
        let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a descriptor of ours and a name with its NUL.
        if unsafe { libc::inotify_add_watch(fd.as_raw_fd(), name.as_ptr(), gone) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Ear { fd, inodes: [db::inode(&path), db::inode(database)] })
}

/// Reads everything that is there.
fn drain(fd: i32) {
    let mut buffer = [0u8; 4096];
    // SAFETY: reads into our buffer; the descriptor does not block.
    while unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
}

impl StoreWatch for SqliteWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability> {
        let fd = self.listen()?;
        // Emptied first: what comes during the look ends the next wait.
        drain(fd);
        self.db.read(|conn| inspect::armed(conn, queues))
    }

    fn wait(&mut self, timeout: Duration) -> Result<WatchEvent> {
        let Some(ear) = &self.inotify else {
            // Never armed: there is something to look at.
            return Ok(WatchEvent::Changed { queues: vec![], other: true });
        };
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [entry(ear.fd.as_raw_fd()), entry(self.bell.0.as_raw_fd())];
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let time = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos() as libc::c_long,
            };
            // SAFETY: two entries and a time of ours; no signal mask.
            let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, &time, std::ptr::null()) };
            if ready < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(StoreError::unavailable(format!("waiting for jobs: {error}")));
            }
            if fds[1].revents != 0 {
                drain(fds[1].fd);
                return Ok(WatchEvent::Interrupted);
            }
            if fds[0].revents != 0 {
                drain(fds[0].fd);
                return Ok(WatchEvent::Changed { queues: vec![], other: true });
            }
            return Ok(WatchEvent::Timeout);
        }
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.bell.clone()
    }
}
