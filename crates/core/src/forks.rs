//! Counts forks, so that what belongs to one process is recognised in its children. A pid
//! would not do: it is used again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::Once;

static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
}

/// Counts forks from now on.
pub fn watch() {
    // SAFETY: the handler only adds to an atomic.
    WATCH.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    });
}

/// The number of forks that this process descends from since [`watch`] was first called:
/// one relaxed load.
pub fn count() -> u32 {
    FORKS.load(Relaxed)
}
