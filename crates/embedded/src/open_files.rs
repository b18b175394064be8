//! The registry of files that this process has open, each once.

use std::any::Any;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use chaton_core::forks;
use parking_lot::Mutex;

use crate::connections::FileConnections;

/// Longest wait (ms) of a fork, which holds the GVL, for transactions of other threads. A
/// transaction takes milliseconds, unless the disk is stuck.
pub static FORK_WAIT_MAX_MS: AtomicU64 = AtomicU64::new(1_000);

struct OpenFiles {
    made_in: u32,
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
/// Whether `before_fork` has closed and locked everything.
static CLOSED: AtomicBool = AtomicBool::new(true);
/// Whether this process was forked while SQLite was in use.
static INHERITED_IN_USE: AtomicBool = AtomicBool::new(false);

fn registry() -> &'static OpenFiles {
    let seen = OPEN_FILES.load(Ordering::Acquire);
    let made_in = forks::count();
    // SAFETY: registries are never freed.
    if let Some(registry) = unsafe { seen.as_ref() }.filter(|one| one.made_in == made_in) {
        return registry;
    }
    let made = Box::into_raw(Box::new(OpenFiles { made_in, files: Mutex::default() }));
    match OPEN_FILES.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if seen.is_null() {
                // Once for a process and its children, which inherit handlers.
                forks::watch();
                let (parent, child) = (after_fork_in_parent, after_fork_in_child);
                // SAFETY: functions that live as long as the program.
                unsafe { libc::pthread_atfork(Some(before_fork), Some(parent), Some(child)) };
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

/// Closes all connections and keeps them locked, so that no thread opens, uses or closes a
/// SQLite file during the fork: SQLite's own locks would stay held for ever in the child.
/// Where another thread does not finish in time, nothing is closed, and the child must not
/// use SQLite. (A backup has its own connections: it is for processes that do not fork.)
extern "C" fn before_fork() {
    let wait = Duration::from_millis(FORK_WAIT_MAX_MS.load(Ordering::Relaxed));
    CLOSED.store(close_for_fork(registry(), Instant::now() + wait), Ordering::SeqCst);
}

fn close_for_fork(registry: &OpenFiles, deadline: Instant) -> bool {
    let Some(files) = registry.files.try_lock_until(deadline) else { return false };
    let locked = files.open.iter().take_while(|one| one.lock_until(deadline)).count();
    if locked < files.open.len() {
        // SAFETY: locked above, on this thread.
        files.open[..locked].iter().for_each(|one| unsafe { one.unlock() });
        return false;
    }
    // SAFETY: as above.
    files.open.iter().for_each(|one| unsafe { one.close_locked() });
    std::mem::forget(files);
    true
}

extern "C" fn after_fork_in_parent() {
    if !CLOSED.load(Ordering::SeqCst) {
        return;
    }
    let registry = registry();
    // SAFETY: `before_fork` locked it on this thread and forgot the guard, so that
    // no other thread has it.
    let files = unsafe { &*registry.files.data_ptr() };
    // SAFETY: `before_fork` locked each on this thread; the list is unchanged.
    files.open.iter().for_each(|one| unsafe { one.unlock() });
    // SAFETY: as above.
    unsafe { registry.files.force_unlock() };
}

extern "C" fn after_fork_in_child() {
    if !CLOSED.load(Ordering::SeqCst) {
        INHERITED_IN_USE.store(true, Ordering::SeqCst);
    }
}

/// Whether this process may call SQLite.
pub(crate) fn is_usable() -> bool {
    !INHERITED_IN_USE.load(Ordering::SeqCst)
}

/// Closes a file's connections for good, while this process does not fork.
pub(crate) fn close(connections: &Arc<FileConnections>) {
    let mut files = registry().files.lock();
    connections.close();
    files.open.retain(|one| !Arc::ptr_eq(one, connections));
}

/// What this process shares of the file at `path`; made on first use.
pub(crate) fn shared<T: Send + Sync + 'static>(
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
