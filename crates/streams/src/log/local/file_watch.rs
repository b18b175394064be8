//! Hears of changes of files, through inotify: how readers and members of all
//! processes are woken.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::errors;
use crate::log::Result;

/// A file's content changes.
pub(super) const MODIFIED: u32 = libc::IN_MODIFY;
/// Names appear in a folder or go, by renaming: all that others are told of
/// is put there whole.
pub(super) const RENAMED: u32 = libc::IN_MOVED_TO | libc::IN_MOVED_FROM;

/// A place that is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WatchId(i32);

/// What was heard.
pub(super) enum WatchEvent {
    /// Something at this place.
    Changed(WatchId),
    /// More than could be kept: anything may have changed.
    Overflow,
}

/// The listening end.
pub(super) struct FileWatch(OwnedFd);

impl FileWatch {
    /// Listens to nothing yet.
    pub fn new() -> Result<Self> {
        // SAFETY: makes a descriptor; owned below.
        let raw = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        if raw < 0 {
            let error = io::Error::last_os_error();
            return Err(errors::io(
                Path::new("inotify"),
                "opening (fs.inotify.max_user_instances may be too low)",
                &error,
            ));
        }
        // SAFETY: just made, owned by nobody else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Listens to a place, too.
    pub fn add(&self, path: &Path, mask: u32) -> Result<WatchId> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| errors::invalid(format!("{} has a NUL in it", path.display())))?;
        // SAFETY: a descriptor of ours and a name with its NUL.
        let watch_id = unsafe { libc::inotify_add_watch(self.fd(), name.as_ptr(), mask) };
        if watch_id < 0 {
            return Err(errors::io(path, "watching", &io::Error::last_os_error()));
        }
        Ok(WatchId(watch_id))
    }

    /// Listens there no longer.
    pub fn remove(&self, watch_id: WatchId) {
        // SAFETY: a descriptor of ours; a spot that is gone is no matter.
        unsafe { libc::inotify_rm_watch(self.fd(), watch_id.0) };
    }

    /// Tells all that was heard since the last time.
    pub fn read_events(&self, mut each: impl FnMut(WatchEvent)) {
        let mut buffer = [0u64; 512];
        loop {
            let bytes = size_of_val(&buffer);
            // SAFETY: reads into our buffer; the descriptor does not block.
            let read = unsafe { libc::read(self.fd(), buffer.as_mut_ptr().cast(), bytes) };
            let Ok(read @ 1..) = usize::try_from(read) else { return };
            let mut at = 0;
            while at + size_of::<libc::inotify_event>() <= read {
                // SAFETY: the kernel writes whole events one after the other;
                // read unaligned from within the buffer.
                let event: libc::inotify_event = unsafe {
                    buffer
                        .as_ptr()
                        .cast::<u8>()
                        .add(at)
                        .cast::<libc::inotify_event>()
                        .read_unaligned()
                };
                at += size_of::<libc::inotify_event>() + event.len as usize;
                if event.mask & libc::IN_Q_OVERFLOW != 0 {
                    each(WatchEvent::Overflow);
                } else if event.mask & libc::IN_IGNORED == 0 {
                    each(WatchEvent::Changed(WatchId(event.wd)));
                }
            }
        }
    }

    /// To wait on.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until one of these can be read, or time is up; which of them can.
pub(super) fn wait_for(descriptors: &[RawFd], timeout: Duration) -> Vec<bool> {
    let entry = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<_> = descriptors.iter().map(entry).collect();
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let time = libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(left.subsec_nanos() as i32),
        };
        let count = entries.len() as libc::nfds_t;
        // SAFETY: entries and a time of ours; no signal mask.
        let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, &time, std::ptr::null()) };
        let interrupted =
            ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if !interrupted {
            return entries.iter().map(|entry| ready > 0 && entry.revents != 0).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_and_a_new_name_are_heard() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("head");
        std::fs::write(&file, "1").unwrap();
        let watch = FileWatch::new().unwrap();
        let written = watch.add(&file, MODIFIED).unwrap();
        let names = watch.add(folder.path(), RENAMED).unwrap();
        assert_eq!(wait_for(&[watch.fd()], Duration::ZERO), [false]);
        std::fs::write(&file, "2").unwrap();
        std::fs::write(folder.path().join("tmp"), "").unwrap();
        std::fs::rename(folder.path().join("tmp"), folder.path().join("new")).unwrap();
        assert_eq!(wait_for(&[watch.fd()], Duration::from_secs(30)), [true]);
        let mut events = Vec::new();
        watch.read_events(|what| match what {
            WatchEvent::Changed(watch_id) => events.push(watch_id),
            WatchEvent::Overflow => panic!("overflow"),
        });
        assert!(events.contains(&written) && events.contains(&names));
        watch.remove(written);
        watch.read_events(|_| panic!("nothing more was events"));
        std::fs::write(&file, "3").unwrap();
        assert_eq!(wait_for(&[watch.fd()], Duration::ZERO), [false]);
    }
}
