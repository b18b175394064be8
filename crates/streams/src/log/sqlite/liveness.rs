//! Which processes have ended.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::errors;
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

    /// The same as [`ProcessIdentity::has_ended`], with an error of the log.
    pub fn is_gone(&self) -> Result<bool> {
        self.has_ended().map_err(|error| errors::io(&stat_path(self.pid), "reading", &error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_looked_at_has_not_ended() {
        assert!(parse_start_time("").is_none() && parse_start_time("1 (a) S 2").is_none());
        let zeros = " 0".repeat(18);
        assert_eq!(parse_start_time(&format!("1 (a) b) S{zeros} 77 0")), Some(Some(77)));
        assert_eq!(parse_start_time(&format!("1 (a) Z{zeros} 77 0")), Some(None));
        for (code, absent) in [(libc::ENOENT, true), (libc::ESRCH, true), (libc::EMFILE, false)] {
            assert_eq!(is_absent(&io::Error::from_raw_os_error(code)), absent, "{code}");
        }
        let own = ProcessIdentity::own().unwrap();
        assert!(!own.has_ended().unwrap());
        let earlier = ProcessIdentity { started: own.started + 1, ..own };
        assert!(earlier.has_ended().unwrap());
    }
}
