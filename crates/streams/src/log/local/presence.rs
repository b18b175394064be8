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

use super::{failure, files};
use crate::log::Result;

/// A process on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Process {
    pub pid: i32,
    /// When it began, in ticks since the start of the machine: a number may be
    /// given again.
    started: u64,
    /// The namespace its number is of.
    space: u64,
}

impl Process {
    /// This one.
    pub fn own() -> Self {
        let pid = std::process::id() as i32;
        Self { pid, started: started(pid).unwrap_or_default(), space: space() }
    }

    /// Whether its number means the same to us.
    fn is_near(&self) -> bool {
        self.space == space()
    }

    /// Whether it has ended for certain.
    fn is_over(&self) -> bool {
        self.is_near() && started(self.pid) != Some(self.started)
    }
}

fn space() -> u64 {
    fs::metadata("/proc/self/ns/pid").map(|found| found.ino()).unwrap_or_default()
}

/// When a process began; `None` when there is none, or only its remains.
fn started(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let dead = matches!(state, "Z" | "X" | "x");
    fields.nth(18).filter(|_| !dead)?.parse().ok()
}

/// As long as it lives, its member does.
pub(super) struct Presence {
    path: PathBuf,
    _locked: File,
}

impl Presence {
    /// A member comes in.
    pub fn enter(members: &Path, id: &str) -> Result<Self> {
        let path = members.join(id);
        let locked = files::open_or_make(&path).and_then(|file| lock(&file).map(|()| file));
        let locked = locked.map_err(|error| failure::of(&path, "locking", &error))?;
        Ok(Self { path, _locked: locked })
    }
}

impl Drop for Presence {
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
pub(super) fn is_alive(members: &Path, id: &str, process: &Process) -> bool {
    // A child that it forked may hold the lock on after its death.
    if process.is_over() {
        return false;
    }
    let Ok(file) = File::open(members.join(id)) else { return false };
    let mut asked = request();
    // SAFETY: a descriptor and a request of ours, which it fills.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut asked) };
    answer == 0 && asked.l_type != libc::F_UNLCK as libc::c_short
}

/// Listens for the deaths of other processes.
#[derive(Default)]
pub(super) struct Deathwatch {
    watched: BTreeMap<Process, OwnedFd>,
    /// Some are in another namespace: their deaths are not heard.
    pub has_far: bool,
}

impl Deathwatch {
    /// Watches these and no others. False when one of them has ended already.
    pub fn watch<'a>(&mut self, processes: impl Iterator<Item = &'a Process>) -> bool {
        let own = Process::own();
        let mut before = std::mem::take(&mut self.watched);
        let mut all = true;
        self.has_far = false;
        for process in processes {
            if *process == own || self.watched.contains_key(process) {
                continue;
            }
            if !process.is_near() {
                self.has_far = true;
                continue;
            }
            match before.remove(process).or_else(|| open(process.pid)) {
                // Another one may have that number by now.
                Some(fd) if !process.is_over() => {
                    self.watched.insert(process.clone(), fd);
                }
                _ => all = false,
            }
        }
        all
    }

    /// To wait on: each can be read when its process has ended.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.watched.values().map(AsRawFd::as_raw_fd)
    }
}

fn open(pid: i32) -> Option<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: just opened, owned by nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::log::local::ear::wait_for;

    #[test]
    fn a_member_is_alive_as_long_as_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let own = Process::own();
        assert!(!is_alive(folder.path(), "a", &own));
        let presence = Presence::enter(folder.path(), "a").unwrap();
        assert!(is_alive(folder.path(), "a", &own));
        let earlier = Process { started: own.started + 1, ..own.clone() };
        assert!(!is_alive(folder.path(), "a", &earlier));
        assert!(Presence::enter(folder.path(), "a").is_err());
        drop(presence);
        assert!(!is_alive(folder.path(), "a", &own));
    }

    #[test]
    fn a_death_is_heard() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as i32;
        let process = Process { pid, started: started(pid).unwrap(), space: space() };
        let mut watch = Deathwatch::default();
        assert!(watch.watch([&process, &Process::own()].into_iter()));
        let fds: Vec<_> = watch.descriptors().collect();
        assert_eq!(wait_for(&fds, Duration::ZERO), [false]);
        child.kill().unwrap();
        assert_eq!(wait_for(&fds, Duration::from_secs(30)), [true]);
        assert!(process.is_over());
        child.wait().unwrap();
        assert!(!watch.watch([&process].into_iter()));
    }
}
