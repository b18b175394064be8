//! Reports the deaths of other members' processes through their pidfds.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{pidfd_open, Pid, PidfdFlags};

use super::liveness::{is_absent, ProcessIdentity};

#[derive(Default)]
pub(super) struct ProcessWatch {
    watched: BTreeMap<ProcessIdentity, OwnedFd>,
    /// The deaths of some processes are not reported: they are in another
    /// PID namespace, or their pidfd could not be opened.
    pub has_unwatched: bool,
}

impl ProcessWatch {
    /// Watches these processes and no others. False if one has ended already.
    pub fn watch<'a>(&mut self, processes: impl Iterator<Item = &'a ProcessIdentity>) -> bool {
        let own = std::process::id() as i32;
        let mut before = std::mem::take(&mut self.watched);
        let mut all_alive = true;
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
            // Another process may have taken the PID meanwhile.
            match fd.and_then(|fd| Ok((fd, process.has_ended()?))) {
                Ok((fd, false)) => {
                    self.watched.insert(process.clone(), fd);
                }
                Ok((_, true)) => all_alive = false,
                Err(error) if is_absent(&error) => all_alive = false,
                Err(_) => self.has_unwatched = true,
            }
        }
        all_alive
    }

    /// Descriptors that become readable when their process ends.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.values().map(AsFd::as_fd)
    }
}

fn open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::poll::wait_readable;

    #[test]
    fn a_death_is_reported() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = ProcessIdentity::of(child.id() as i32).unwrap();
        let mut watch = ProcessWatch::default();
        let own = ProcessIdentity::own().unwrap();
        assert!(watch.watch([&process, &own].into_iter()));
        let fds: Vec<_> = watch.descriptors().collect();
        assert_eq!(wait_readable(&fds, Duration::ZERO), [false]);
        child.kill().unwrap();
        assert_eq!(wait_readable(&fds, Duration::from_secs(30)), [true]);
        assert!(process.has_ended().unwrap());
        child.wait().unwrap();
        assert!(!watch.watch([&process].into_iter()));
    }
}
