//! A lock between threads and processes, waited for in the kernel and for a
//! bounded time.
//!
//! The lock is a robust process-shared mutex (POSIX) in a mapped file. The death
//! of its holder frees it, even when a child of the holder lives on (a child
//! would inherit a lock on an open file). Each process that has the file mapped
//! holds a shared `flock` on it. The lock is made anew only under an exclusive
//! one, so that nobody uses it; a lock of another C library is refused.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{flock, FlockOperation};

use crate::shared_mapping::SharedMapping;

const BYTES: usize = 4096;
const HEADER: usize = 128;

/// Longest single wait. When a waiter is woken and killed before it takes the
/// lock, its wake-up is lost; the other waiters find the free lock after this time.
const SLICE: Duration = Duration::from_millis(20);

/// The clock of deadlines: one that is never set back.
#[cfg(target_env = "gnu")]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
/// The clock of deadlines: the only one that this C library supports.
#[cfg(not(target_env = "gnu"))]
const CLOCK: libc::clockid_t = libc::CLOCK_REALTIME;

#[cfg(target_env = "gnu")]
extern "C" {
    /// In glibc since 2.30; the libc crate lacks it.
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> libc::c_int;
}

/// Locks the mutex or waits until a time of [`CLOCK`].
///
/// # Safety
/// Both pointers must be valid and the mutex initialised.
unsafe fn lock_until(mutex: *mut libc::pthread_mutex_t, until: &libc::timespec) -> libc::c_int {
    #[cfg(target_env = "gnu")]
    // SAFETY: as the caller promises.
    return unsafe { pthread_mutex_clocklock(mutex, CLOCK, until) };
    #[cfg(not(target_env = "gnu"))]
    // SAFETY: as the caller promises.
    return unsafe { libc::pthread_mutex_timedlock(mutex, until) };
}

/// Begins the header, which names the C library that the mutex belongs to.
const MAGIC: &str = "chaton-lock 3 ";

fn header_of(library: &str) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let text = format!("{MAGIC}{library}");
    let len = text.len().min(HEADER);
    header[..len].copy_from_slice(&text.as_bytes()[..len]);
    header
}

/// The mapped lock.
pub struct FileLock {
    mapping: SharedMapping,
}

/// The thread that took the lock holds it until this is dropped.
pub struct Held {
    lock: Arc<FileLock>,
    /// Not `Send`: only the thread that locked a mutex may unlock it.
    not_send: PhantomData<*const ()>,
}

impl FileLock {
    /// Maps the lock in `file`, which must be open for reading and writing and
    /// must hold nothing else. The lock is made anew unless another process uses it.
    ///
    /// # Errors
    /// `Unsupported` when a process with another C library uses the lock, else the
    /// operating system's error: no room on the disk, or no memory.
    pub fn open(file: &File) -> io::Result<Arc<Self>> {
        let library = if cfg!(target_env = "musl") { "musl" } else { "glibc" };
        Self::open_as(file, &format!("{library} {}", size_of::<libc::pthread_mutex_t>()))
    }

    fn open_as(file: &File, library: &str) -> io::Result<Arc<Self>> {
        // Allocates the disk space now: a write to a page of a sparse file on a
        // full disk ends the process (SIGBUS).
        // SAFETY: the descriptor is open.
        let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, BYTES as libc::off_t) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        let lock = Self { mapping: SharedMapping::of(file, BYTES)? };
        // The mapping keeps the open file, and with it the flock, as long as the mutex can be used.
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => lock.init(library)?,
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::io::retry_on_intr(|| flock(file, FlockOperation::LockShared))?;
        lock.check(library).map(|()| Arc::new(lock))
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        // SAFETY: within the mapping; HEADER keeps it aligned.
        unsafe { self.mapping.start().add(HEADER).as_ptr().cast() }
    }

    fn header(&self) -> *mut [u8; HEADER] {
        self.mapping.start().as_ptr().cast()
    }

    /// Makes the mutex, which no process uses. Called under the exclusive flock.
    fn init(&self, library: &str) -> io::Result<()> {
        let check = |code: i32| match code {
            0 => Ok(()),
            _ => Err(io::Error::from_raw_os_error(code)),
        };
        // SAFETY: attributes and mutex are ours; the mutex is not in use yet.
        unsafe {
            let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
            check(libc::pthread_mutexattr_init(&mut attr))?;
            check(libc::pthread_mutexattr_setpshared(&mut attr, libc::PTHREAD_PROCESS_SHARED))?;
            check(libc::pthread_mutexattr_setrobust(&mut attr, libc::PTHREAD_MUTEX_ROBUST))?;
            check(libc::pthread_mutex_init(self.mutex(), &attr))?;
            check(libc::pthread_mutexattr_destroy(&mut attr))?;
        }
        // SAFETY: the header lies in the mapping; only the holder of the exclusive flock writes it.
        unsafe { self.header().write(header_of(library)) };
        Ok(())
    }

    /// Checks that the mutex is one of this C library. Called under the shared flock.
    fn check(&self, library: &str) -> io::Result<()> {
        // SAFETY: the header lies in the mapping; nobody writes it while it is locked.
        let found = unsafe { self.header().read() };
        if found == header_of(library) {
            return Ok(());
        }
        let found = String::from_utf8_lossy(&found);
        let found = found.trim_start_matches(MAGIC).trim_end_matches('\0');
        let message = format!(
            "it is used by a process with another C library or version of Chaton ({found:?}, this \
             process: {library:?}); let all processes that share it run the same build, and stop \
             the others first"
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }

    /// Waits for the lock; `None` when the time is up.
    ///
    /// # Errors
    /// The operating system's error for a mutex that cannot be used.
    pub fn acquire(self: &Arc<Self>, timeout: Duration) -> io::Result<Option<Held>> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.wait(left.min(SLICE))? {
                return Ok(Some(Held { lock: self.clone(), not_send: PhantomData }));
            }
            if left <= SLICE {
                return Ok(None);
            }
        }
    }

    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `until` is ours.
        unsafe { libc::clock_gettime(CLOCK, &mut until) };
        until.tv_nsec += libc::c_long::from(timeout.subsec_nanos() as i32);
        until.tv_sec += timeout.as_secs() as libc::time_t + until.tv_nsec / 1_000_000_000;
        until.tv_nsec %= 1_000_000_000;
        // SAFETY: `open` made or checked the mutex; `until` is ours.
        match unsafe { lock_until(self.mutex(), &until) } {
            0 => Ok(true),
            libc::EOWNERDEAD => {
                // The new holder checks the protected data, as after any start.
                // SAFETY: we hold the mutex.
                unsafe { libc::pthread_mutex_consistent(self.mutex()) };
                Ok(true)
            }
            libc::ETIMEDOUT => Ok(false),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: this thread holds it, because `Held` is not `Send`.
        unsafe { libc::pthread_mutex_unlock(self.lock.mutex()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(5);

    /// The lock of the file, opened anew as other processes do.
    fn lock(file: &tempfile::NamedTempFile) -> Arc<FileLock> {
        FileLock::open(&File::options().read(true).write(true).open(file.path()).unwrap()).unwrap()
    }

    #[test]
    fn the_death_of_its_holder_frees_the_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = lock(&file);
        // SAFETY: the child takes the lock and leaves without giving it back.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            std::mem::forget(lock.acquire(LONG));
            // SAFETY: leaves without running the test harness's handlers.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert!(lock.acquire(LONG).unwrap().is_some());
    }

    #[test]
    fn a_wait_ends_at_its_timeout() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = (lock(&file), lock(&file));
        let held = one.acquire(LONG).unwrap();
        let other = std::thread::scope(|scope| {
            let wait = || two.acquire(Duration::from_millis(5)).unwrap().is_none();
            scope.spawn(wait).join().unwrap()
        });
        assert!(other);
        drop(held);
        assert!(two.acquire(LONG).unwrap().is_some());
    }

    #[test]
    fn a_lock_in_use_by_another_c_library_is_refused_and_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let other = FileLock::open_as(&open(), "other 48").unwrap();
        let held = other.acquire(LONG).unwrap();
        let before = std::fs::read(file.path()).unwrap();
        let error = FileLock::open(&open()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("\"other 48\""), "{error}");
        assert_eq!(std::fs::read(file.path()).unwrap(), before);
        drop((held, other));
        assert!(lock(&file).acquire(LONG).unwrap().is_some(), "nobody uses it any more");
    }

    #[test]
    fn a_lock_that_nobody_uses_is_made_anew() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let one = lock(&file);
        let locked = one.acquire(LONG).unwrap();
        let content = std::fs::read(file.path()).unwrap();
        drop((locked, one));
        // As after a loss of power: locked by a thread that is not there.
        std::fs::write(file.path(), content).unwrap();
        assert!(lock(&file).acquire(LONG).unwrap().is_some());
    }

    #[test]
    fn a_copy_of_a_held_lock_is_free() {
        let (file, copy) =
            (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let _held = lock(&file).acquire(LONG).unwrap();
        std::fs::copy(file.path(), copy.path()).unwrap();
        let copied = lock(&copy);
        let free = || copied.acquire(Duration::from_millis(5)).unwrap().is_some();
        assert!(std::thread::scope(|scope| scope.spawn(free).join().unwrap()));
    }
}
