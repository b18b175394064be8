//! The files that this process has open, each once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::connections::Connections;
use super::db::Db;
use super::schema::Manner;

struct Registry {
    pid: u32,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    known: HashMap<PathBuf, Weak<Db>>,
    /// What may be open, of files that are being dropped, too.
    open: Vec<Arc<Connections>>,
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
    let made = Box::new(Registry { pid, files: Mutex::default() });
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
/// opens and who closes, each file's locks who uses. (A backup has connections
/// of its own: it is for processes that do not fork.)
extern "C" fn before() {
    let files = registry().files.lock();
    files.open.iter().for_each(|one| one.before_fork());
    std::mem::forget(files);
}

extern "C" fn after() {
    let registry = registry();
    // SAFETY: `before` locked it on this thread and forgot the guard, so that
    // nobody else has it.
    let files = unsafe { &*registry.files.data_ptr() };
    // SAFETY: `before` closed each on this thread; none came or went since.
    files.open.iter().for_each(|one| unsafe { one.after_fork() });
    // SAFETY: as above.
    unsafe { registry.files.force_unlock() };
}

/// Closes what a file has open, for good, while this process does not fork.
pub(super) fn close(connections: &Arc<Connections>) {
    let mut files = registry().files.lock();
    connections.close();
    files.open.retain(|one| !Arc::ptr_eq(one, connections));
}

/// The file at `path` in this process: the same one for everybody.
pub(super) fn shared(path: &Path, manner: Manner) -> Arc<Db> {
    let mut files = registry().files.lock();
    if let Some(db) = files.known.get(path).and_then(Weak::upgrade) {
        return db;
    }
    let db = Arc::new(Db::new(path.to_path_buf(), manner));
    files.known.retain(|_, db| db.strong_count() > 0);
    files.known.insert(path.to_path_buf(), Arc::downgrade(&db));
    files.open.push(db.connections().clone());
    db
}
