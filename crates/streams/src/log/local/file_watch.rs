//! Watches files for changes through inotify: this wakes readers and members in all processes.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::errors;
use crate::log::Result;

/// The content of a file changes.
pub(super) const MODIFIED: WatchFlags = WatchFlags::MODIFY;
/// Names appear in a folder or vanish by renaming: everything that others
/// should notice is renamed into its place.
pub(super) const RENAMED: WatchFlags = WatchFlags::MOVED_TO.union(WatchFlags::MOVED_FROM);

/// Identifies a watched path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WatchId(i32);

pub(super) enum WatchEvent {
    /// Something changed at this path.
    Changed(WatchId),
    /// The kernel's queue overflowed: anything may have changed.
    Overflow,
}

pub(super) struct FileWatch(OwnedFd);

impl FileWatch {
    pub fn new() -> Result<Self> {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map(Self).map_err(|error| {
            let doing = "opening (fs.inotify.max_user_instances may be too low)";
            errors::io(Path::new("inotify"), doing, &error.into())
        })
    }

    pub fn add(&self, path: &Path, flags: WatchFlags) -> Result<WatchId> {
        inotify::add_watch(&self.0, path, flags)
            .map(WatchId)
            .map_err(|error| errors::io(path, "watching", &error.into()))
    }

    pub fn remove(&self, id: WatchId) {
        // It fails if the watched file is gone, and its watch with it.
        let _ = inotify::remove_watch(&self.0, id.0);
    }

    /// Passes on all events since the last call.
    pub fn read_events(&self, mut each: impl FnMut(WatchEvent)) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                each(WatchEvent::Overflow);
            } else if !event.events().contains(ReadFlags::IGNORED) {
                each(WatchEvent::Changed(WatchId(event.wd())));
            }
        }
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::poll::wait_readable;

    #[test]
    fn a_write_and_a_new_name_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("head");
        std::fs::write(&file, "1").unwrap();
        let watch = FileWatch::new().unwrap();
        let modified = watch.add(&file, MODIFIED).unwrap();
        let renamed = watch.add(folder.path(), RENAMED).unwrap();
        assert_eq!(wait_readable(&[watch.as_fd()], Duration::ZERO), [false]);
        std::fs::write(&file, "2").unwrap();
        std::fs::write(folder.path().join("tmp"), "").unwrap();
        std::fs::rename(folder.path().join("tmp"), folder.path().join("new")).unwrap();
        assert_eq!(wait_readable(&[watch.as_fd()], Duration::from_secs(30)), [true]);
        let mut changed = Vec::new();
        watch.read_events(|event| match event {
            WatchEvent::Changed(id) => changed.push(id),
            WatchEvent::Overflow => panic!("overflow"),
        });
        assert!(changed.contains(&modified) && changed.contains(&renamed));
        watch.remove(modified);
        watch.read_events(|_| panic!("there is no event left"));
        std::fs::write(&file, "3").unwrap();
        assert_eq!(wait_readable(&[watch.as_fd()], Duration::ZERO), [false]);
    }
}
