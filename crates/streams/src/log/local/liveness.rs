//! Which members are alive: each member locks a file of its own, and the
//! kernel frees the lock when its process dies.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{errors, files};
use crate::log::Result;

/// A process on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ProcessIdentity {
    pub pid: i32,
    /// Its start time in ticks since the machine booted, because a PID may be used again.
    started: u64,
    /// The PID namespace.
    #[serde(rename = "space")]
    namespace: u64,
}

impl ProcessIdentity {
    /// This process.
    pub fn own() -> Result<Self> {
        let pid = std::process::id() as i32;
        Self::of(pid).map_err(|error| errors::io(&stat_path(pid), "reading", &error))
    }

    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let started = start_time(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid, started, namespace: own_namespace()? })
    }

    pub(super) fn is_in_own_namespace(&self) -> io::Result<bool> {
        Ok(self.namespace == own_namespace()?)
    }

    /// Whether it has certainly ended.
    pub(super) fn has_ended(&self) -> io::Result<bool> {
        Ok(self.is_in_own_namespace()? && start_time(self.pid)? != Some(self.started))
    }
}

fn own_namespace() -> io::Result<u64> {
    fs::metadata("/proc/self/ns/pid").map(|found| found.ino())
}

fn stat_path(pid: i32) -> PathBuf {
    format!("/proc/{pid}/stat").into()
}

/// When a process began; `None` if it does not exist or is a zombie.
fn start_time(pid: i32) -> io::Result<Option<u64>> {
    match fs::read_to_string(stat_path(pid)) {
        Ok(text) => parse_start_time(&text).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same from the text of `/proc/PID/stat`; `None` if it is malformed.
fn parse_start_time(text: &str) -> Option<Option<u64>> {
    // The name is in brackets and may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X" | "x");
    let started = fields.nth(18)?.parse().ok()?;
    Some(Some(started).filter(|_| !is_zombie))
}

/// Whether the process or file does not exist. Other errors leave that open.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The locked file of a member of this process.
pub(super) struct MemberLock {
    path: PathBuf,
    _locked: File,
}

impl MemberLock {
    pub fn acquire(members: &Path, id: &str) -> Result<Self> {
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

// Open file description locks, which rustix does not offer: the other kind
// is lost when any descriptor of the file is closed.
fn write_lock() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn lock(file: &File) -> io::Result<()> {
    // SAFETY: an open descriptor and a valid request.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &write_lock()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a member is alive. A stopped process (SIGSTOP) is alive.
///
/// # Errors
/// When that cannot be found out, for example without free descriptors. The
/// member counts as alive then.
pub(super) fn is_alive(members: &Path, id: &str, process: &ProcessIdentity) -> Result<bool> {
    // A forked child may still hold the lock after the member's death.
    let ended = process.has_ended();
    if ended.map_err(|error| errors::io(&stat_path(process.pid), "reading", &error))? {
        return Ok(false);
    }
    let path = members.join(id);
    is_locked(&path).map_err(|error| errors::io(&path, "checking the lock", &error))
}

fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if is_absent(&error) => return Ok(false),
        opened => opened?,
    };
    let mut request = write_lock();
    // SAFETY: an open descriptor and a valid request, which the kernel fills.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut request) } {
        0 => Ok(request.l_type != libc::F_UNLCK as libc::c_short),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_alive_as_long_as_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let own = ProcessIdentity::own().unwrap();
        assert!(!is_alive(folder.path(), "a", &own).unwrap());
        let lock = MemberLock::acquire(folder.path(), "a").unwrap();
        assert!(is_alive(folder.path(), "a", &own).unwrap());
        let earlier = ProcessIdentity { started: own.started + 1, ..own.clone() };
        assert!(!is_alive(folder.path(), "a", &earlier).unwrap());
        assert!(MemberLock::acquire(folder.path(), "a").is_err());
        drop(lock);
        assert!(!is_alive(folder.path(), "a", &own).unwrap());
    }

    #[test]
    fn a_member_whose_lock_cannot_be_checked_is_not_dead() {
        let folder = tempfile::tempdir().unwrap();
        let own = ProcessIdentity::own().unwrap();
        // A symlink to itself exists and cannot be opened.
        std::os::unix::fs::symlink("a", folder.path().join("a")).unwrap();
        let error = is_alive(folder.path(), "a", &own).unwrap_err();
        assert!(error.message.contains("checking the lock"), "{error}");
        assert!(parse_start_time("").is_none() && parse_start_time("1 (a) S 2").is_none());
        let zeros = " 0".repeat(18);
        assert_eq!(parse_start_time(&format!("1 (a) b) S{zeros} 77 0")), Some(Some(77)));
        assert_eq!(parse_start_time(&format!("1 (a) Z{zeros} 77 0")), Some(None));
        for (code, absent) in [(libc::ENOENT, true), (libc::ESRCH, true), (libc::EMFILE, false)] {
            assert_eq!(is_absent(&io::Error::from_raw_os_error(code)), absent, "{code}");
        }
    }
}
