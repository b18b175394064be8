//! Who is alive: each member holds a lock on a file of its own, which the
//! kernel frees when its process dies, and the others hear of that death
//! through a descriptor of the process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{errors, files};
use crate::log::Result;

/// A process on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ProcessIdentity {
    pub pid: i32,
    /// When it began, in ticks since the start of the machine: a number may be
    /// given again.
    started: u64,
    /// The namespace its number is of.
    space: u64,
}

impl ProcessIdentity {
    /// This one.
    pub fn own() -> Result<Self> {
        let pid = std::process::id() as i32;
        let read = || -> io::Result<Self> {
            let started = started(pid)?.ok_or(io::ErrorKind::NotFound)?;
            Ok(Self { pid, started, space: space()? })
        };
        read().map_err(|error| errors::io(&stat(pid), "reading", &error))
    }

    /// Whether its number means the same to us.
    fn is_in_own_namespace(&self) -> io::Result<bool> {
        Ok(self.space == space()?)
    }

    /// Whether it has ended for certain.
    fn has_ended(&self) -> io::Result<bool> {
        Ok(self.is_in_own_namespace()? && started(self.pid)? != Some(self.started))
    }
}

fn space() -> io::Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|found| found.ino())
}

fn stat(pid: i32) -> PathBuf {
    format!("/proc/{pid}/stat").into()
}

/// When a process began; `None` when there is none, or only its remains.
fn started(pid: i32) -> io::Result<Option<u64>> {
    match fs::read_to_string(stat(pid)) {
        Ok(text) => began(&text).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same, of what the kernel says of it; `None` when that is nothing.
fn began(text: &str) -> Option<Option<u64>> {
    // The name is in brackets and may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X" | "x");
    let began = fields.nth(18)?.parse().ok()?;
    Some(Some(began).filter(|_| !dead))
}

/// There is no such process or file. Any other error says nothing of either.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// As long as it lives, its member does.
pub(super) struct MemberLock {
    path: PathBuf,
    _locked: File,
}

impl MemberLock {
    /// A member comes in.
    pub fn enter(members: &Path, id: &str) -> Result<Self> {
        let path = members.join(id);
        let locked = files::open_or_create(&path).and_then(|file| lock(&file).map(|()| file));
        let locked = locked.map_err(|error| errors::io(&path, "locking", &error))?;
        Ok(Self { path, _locked: locked })
    }
}

impl Drop for MemberLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn request() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn lock(file: &File) -> io::Result<()> {
    // SAFETY: a descriptor and a request of ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &request()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a member is alive. One that is stopped is.
///
/// # Errors
/// When that cannot be told, as without free descriptors: it is not taken for
/// dead then.
pub(super) fn is_alive(members: &Path, id: &str, process: &ProcessIdentity) -> Result<bool> {
    // A child that it forked may hold the lock on after its death.
    let over = process.has_ended();
    if over.map_err(|error| errors::io(&stat(process.pid), "reading", &error))? {
        return Ok(false);
    }
    let path = members.join(id);
    is_locked(&path).map_err(|error| errors::io(&path, "looking at the lock", &error))
}

fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if is_absent(&error) => return Ok(false),
        opened => opened?,
    };
    let mut asked = request();
    // SAFETY: a descriptor and a request of ours, which it fills.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut asked) } {
        0 => Ok(asked.l_type != libc::F_UNLCK as libc::c_short),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Listens for the deaths of other processes.
#[derive(Default)]
pub(super) struct ProcessWatch {
    watched: BTreeMap<ProcessIdentity, OwnedFd>,
    /// Deaths of some are not heard: they are in another namespace, or there
    /// is no descriptor for them.
    pub has_unwatched: bool,
}

impl ProcessWatch {
    /// Watches these and no others. False when one of them has ended already.
    pub fn watch<'a>(&mut self, processes: impl Iterator<Item = &'a ProcessIdentity>) -> bool {
        let own = std::process::id() as i32;
        let mut before = std::mem::take(&mut self.watched);
        let mut all = true;
        self.has_unwatched = false;
        for process in processes {
            if self.watched.contains_key(process) {
                continue;
            }
            match process.is_in_own_namespace() {
                Ok(true) if process.pid == own => continue,
                Ok(true) => {}
                _ => {
                    self.has_unwatched = true;
                    continue;
                }
            }
            let fd = before.remove(process).map_or_else(|| open(process.pid), Ok);
            // Another one may have that number by now.
            match fd.and_then(|fd| Ok((fd, process.has_ended()?))) {
                Ok((fd, false)) => {
                    self.watched.insert(process.clone(), fd);
                }
                Ok((_, true)) => all = false,
                Err(error) if is_absent(&error) => all = false,
                Err(_) => self.has_unwatched = true,
            }
        }
        all
    }

    /// To wait on: each can be read when its process has ended.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.watched.values().map(AsRawFd::as_raw_fd)
    }
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::log::local::file_watch::wait_for;

    #[test]
    fn a_member_is_alive_as_long_as_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let own = ProcessIdentity::own().unwrap();
        assert!(!is_alive(folder.path(), "a", &own).unwrap());
        let member_lock = MemberLock::enter(folder.path(), "a").unwrap();
        assert!(is_alive(folder.path(), "a", &own).unwrap());
        let earlier = ProcessIdentity { started: own.started + 1, ..own.clone() };
        assert!(!is_alive(folder.path(), "a", &earlier).unwrap());
        assert!(MemberLock::enter(folder.path(), "a").is_err());
        drop(member_lock);
        assert!(!is_alive(folder.path(), "a", &own).unwrap());
    }

    #[test]
    fn who_cannot_be_looked_at_is_not_dead() {
        let folder = tempfile::tempdir().unwrap();
        let own = ProcessIdentity::own().unwrap();
        // A name that leads to itself: it cannot be opened, and is there.
        std::os::unix::fs::symlink("a", folder.path().join("a")).unwrap();
        let error = is_alive(folder.path(), "a", &own).unwrap_err();
        assert!(error.message.contains("looking at the lock"), "{error}");
        assert!(began("").is_none() && began("1 (a) S 2").is_none());
        let zeros = " 0".repeat(18);
        assert_eq!(began(&format!("1 (a) b) S{zeros} 77 0")), Some(Some(77)));
        assert_eq!(began(&format!("1 (a) Z{zeros} 77 0")), Some(None));
        for (code, nobody) in [(libc::ENOENT, true), (libc::ESRCH, true), (libc::EMFILE, false)] {
            assert_eq!(is_absent(&io::Error::from_raw_os_error(code)), nobody, "{code}");
        }
    }

    #[test]
    fn a_death_is_heard() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as i32;
        let process = ProcessIdentity {
            pid,
            started: started(pid).unwrap().unwrap(),
            space: space().unwrap(),
        };
        let mut watch = ProcessWatch::default();
        let own = ProcessIdentity::own().unwrap();
        assert!(watch.watch([&process, &own].into_iter()));
        let fds: Vec<_> = watch.descriptors().collect();
        assert_eq!(wait_for(&fds, Duration::ZERO), [false]);
        child.kill().unwrap();
        assert_eq!(wait_for(&fds, Duration::from_secs(30)), [true]);
        assert!(process.has_ended().unwrap());
        child.wait().unwrap();
        assert!(!watch.watch([&process].into_iter()));
    }
}
