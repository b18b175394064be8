//! Watches files for changes through inotify: this wakes readers and members in all processes.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use chaton_embedded::change_file::{path_of, ChangeFile};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::errors;
use crate::log::{ErrorKind, LogError, Result};

/// The files are looked at this often while some of them cannot be watched.
const POLL: Duration = Duration::from_secs(1);
/// And this often even if nothing is reported.
const POLL_WATCHED: Duration = Duration::from_secs(30);

/// Identifies a watched path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WatchId(i32);

pub(super) enum WatchEvent {
    /// Something changed at this path.
    Changed(WatchId),
    /// The kernel's queue overflowed: anything may have changed.
    Overflow,
}

pub(super) struct FileWatch {
    inotify: Option<OwnedFd>,
    /// Why some files are not watched.
    failure: OnceLock<LogError>,
}

impl FileWatch {
    pub fn new() -> Self {
        let mut watch = Self { inotify: None, failure: OnceLock::new() };
        match init() {
            Ok(inotify) => watch.inotify = Some(inotify),
            Err(error) => watch.failed("instance", "instances", error),
        }
        watch
    }

    /// Watches a channel of the log, unless the limits of inotify are reached.
    pub fn add(&self, database: &Path, channel: u8) -> Result<Option<WatchId>> {
        let Some(inotify) = &self.inotify else { return Ok(None) };
        let path = &path_of(database, channel);
        ChangeFile::open(database, channel)
            .map_err(|error| errors::io(path, "opening the wake file", &error))?;
        match inotify::add_watch(inotify, path, WatchFlags::ATTRIB) {
            Ok(id) => Ok(Some(WatchId(id))),
            Err(error @ (Errno::NOSPC | Errno::NOMEM)) => {
                self.failed("watch", "watches", error);
                Ok(None)
            }
            Err(error) => Err(errors::io(path, "watching", &error.into())),
        }
    }

    fn failed(&self, what: &str, limit: &str, error: Errno) {
        let message = format!(
            "no inotify {what} is left ({error}), and new records are looked for every {POLL:?}; \
             raise fs.inotify.max_user_{limit} or the limit of open files"
        );
        let _ = self.failure.set(LogError::new(ErrorKind::Unreachable, message));
    }

    /// Why some files are not watched.
    pub fn failure(&self) -> Option<&LogError> {
        self.failure.get()
    }

    /// The longest time between two looks at the files.
    pub fn poll_interval(&self) -> Duration {
        if self.failure.get().is_some() {
            POLL
        } else {
            POLL_WATCHED
        }
    }

    /// Passes on all events since the last call.
    pub fn read_events(&self, mut each: impl FnMut(WatchEvent)) {
        let Some(inotify) = &self.inotify else { return };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                each(WatchEvent::Overflow);
            } else if !event.events().contains(ReadFlags::IGNORED) {
                each(WatchEvent::Changed(WatchId(event.wd())));
            }
        }
    }

    /// The descriptor that becomes readable with the next event.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }
}

fn init() -> rustix::io::Result<OwnedFd> {
    #[cfg(test)]
    if USED_UP.get() {
        return Err(Errno::MFILE);
    }
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
}

#[cfg(test)]
thread_local! {
    /// This thread gets no inotify instance.
    pub(super) static USED_UP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::wait_readable;

    #[test]
    fn a_channel_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log.db");
        let watch = FileWatch::new();
        let seven = watch.add(&file, 7).unwrap().unwrap();
        let eight = watch.add(&file, 8).unwrap().unwrap();
        assert_ne!(seven, eight);
        let wait = |time| wait_readable(&[watch.descriptor().unwrap()], time);
        assert_eq!(wait(Duration::ZERO), [false]);
        ChangeFile::open(&file, 7).unwrap().notify();
        assert_eq!(wait(Duration::from_secs(30)), [true]);
        watch.read_events(|event| match event {
            WatchEvent::Changed(id) => assert_eq!(id, seven),
            WatchEvent::Overflow => panic!("overflow"),
        });
        assert_eq!(wait(Duration::ZERO), [false]);
    }
}
