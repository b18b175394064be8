//! The files that this process has open, each once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::db::Db;
use super::schema::Manner;

struct Registry {
    pid: u32,
    files: Mutex<HashMap<PathBuf, Weak<Db>>>,
    /// Those that are closed while the process forks.
    forking: Mutex<Vec<Arc<Db>>>,
}

/// The process's registry. A child of a fork makes its own: the parent's may
/// have been in use by a thread that the child does not have.
static OPEN: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());

fn registry() -> &'static Registry {
    let seen = OPEN.load(Ordering::Acquire);
    let pid = std::process::id();
    // SAFETY: registries are never freed.
    if let Some(registry) = unsafe { seen.as_ref() }.filter(|registry| registry.pid == pid) {
        return registry;
    }
    let made = Box::new(Registry { pid, files: Mutex::default(), forking: Mutex::default() });
    let made = Box::into_raw(made);
    match OPEN.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if seen.is_null() {
                // Once for a process and its children, who inherit handlers.
                // SAFETY: functions that live as long as the program.
                unsafe { libc::pthread_atfork(Some(before), Some(after), None) };
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

/// Nobody opens, uses or closes a file of SQLite's during the fork: its own
/// locks would stay held for ever in the child. The files' lock keeps out who
/// opens and who closes, each file's locks who uses.
extern "C" fn before() {
    let registry = registry();
    let files = registry.files.lock();
    let open: Vec<Arc<Db>> = files.values().filter_map(Weak::upgrade).collect();
    open.iter().for_each(|db| db.before_fork());
    let mut forking = registry.forking.lock();
    *forking = open;
    std::mem::forget((files, forking));
}

extern "C" fn after() {
    let registry = registry();
    // SAFETY: `before` locked it on this thread and forgot the guard.
    unsafe { registry.forking.force_unlock() };
    let open = std::mem::take(&mut *registry.forking.lock());
    for db in &open {
        // SAFETY: `before` closed it on this thread.
        unsafe { db.after_fork() };
    }
    // SAFETY: as `forking`. Before `open` goes, which may close a file.
    unsafe { registry.files.force_unlock() };
}

/// Closes a file, by `close`, while this process does not fork.
pub(super) fn closing(close: impl FnOnce()) {
    let _files = registry().files.lock();
    close();
}

/// The file at `path` in this process: the same one for everybody.
pub(super) fn shared(path: &Path, manner: Manner) -> Arc<Db> {
    let mut files = registry().files.lock();
    if let Some(db) = files.get(path).and_then(Weak::upgrade) {
        return db;
    }
    let db = Arc::new(Db::new(path.to_path_buf(), manner));
    files.retain(|_, db| db.strong_count() > 0);
    files.insert(path.to_path_buf(), Arc::downgrade(&db));
    db
}
