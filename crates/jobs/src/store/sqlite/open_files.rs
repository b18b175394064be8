//! The registry of files that this process has open, each once.

use std::any::Any;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::file_connections::FileConnections;

struct OpenFiles {
    pid: u32,
    files: Mutex<FileList>,
}

#[derive(Default)]
struct FileList {
    shared: HashMap<PathBuf, Weak<dyn Any + Send + Sync>>,
    /// All connections that may be open, also of files that are being dropped.
    open: Vec<Arc<FileConnections>>,
}

/// The process's registry. A forked child makes its own: the parent's may have
/// been locked by a thread that the child does not have.
static OPEN_FILES: AtomicPtr<OpenFiles> = AtomicPtr::new(std::ptr::null_mut());

fn registry() -> &'static OpenFiles {
    let seen = OPEN_FILES.load(Ordering::Acquire);
    let pid = std::process::id();
    // SAFETY: registries are never freed.
    if let Some(registry) = unsafe { seen.as_ref() }.filter(|registry| registry.pid == pid) {
        return registry;
    }
    let made = Box::new(OpenFiles { pid, files: Mutex::default() });
    let made = Box::into_raw(made);
    match OPEN_FILES.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if seen.is_null() {
                // Once for a process and its children, which inherit handlers.
                // SAFETY: functions that live as long as the program.
                unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), None) };
            }
            // SAFETY: made above, never freed.
            unsafe { &*made }
        }
        // SAFETY: `made` is ours alone; the other one is never freed.
        Err(other) => unsafe {
            drop(Box::from_raw(made));
            &*other
        },
    }
}

/// Prevents that a thread opens, uses or closes a SQLite file during the fork:
/// SQLite's own locks would stay held for ever in the child. The lock of the list
/// keeps out opening and closing, those of the connections keep out use. (A
/// backup has its own connections: it is for processes that do not fork.)
extern "C" fn before_fork() {
    let files = registry().files.lock();
    files.open.iter().for_each(|one| one.before_fork());
    std::mem::forget(files);
}

extern "C" fn after_fork() {
    let registry = registry();
    // SAFETY: `before_fork` locked it on this thread and forgot the guard, so that
    // no other thread has it.
    let files = unsafe { &*registry.files.data_ptr() };
    // SAFETY: `before_fork` closed each on this thread; the list is unchanged.
    files.open.iter().for_each(|one| unsafe { one.after_fork() });
    // SAFETY: as above.
    unsafe { registry.files.force_unlock() };
}

/// Closes a file's connections for good, while this process does not fork.
pub(super) fn close(connections: &Arc<FileConnections>) {
    let mut files = registry().files.lock();
    connections.close();
    files.open.retain(|one| !Arc::ptr_eq(one, connections));
}

/// What this process shares of the file at `path`; made on first use.
pub(super) fn shared<T: Send + Sync + 'static>(
    path: &Path,
    make: impl FnOnce(Arc<FileConnections>) -> T,
) -> Arc<T> {
    let mut files = registry().files.lock();
    let known = files.shared.get(path).and_then(Weak::upgrade);
    if let Some(known) = known.and_then(|known| known.downcast().ok()) {
        return known;
    }
    let connections = Arc::<FileConnections>::default();
    let made = Arc::new(make(connections.clone()));
    let weak: Weak<dyn Any + Send + Sync> = Arc::<T>::downgrade(&made);
    files.shared.retain(|_, file| file.strong_count() > 0);
    files.shared.insert(path.to_path_buf(), weak);
    files.open.push(connections);
    made
}
