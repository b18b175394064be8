//! A lock between threads and processes, waited for in the kernel and for a
//! bounded time.
//!
//! The lock is a robust process-shared mutex (POSIX) in a mapped file. The death
//! of its holder frees it, even when a child of the holder lives on (a child
//! would inherit a lock on an open file). The lock is made anew when the file is
//! from an earlier boot or another C library or is a copy: then no live process
//! can hold it.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
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
    /// must hold nothing else. The lock is made unless it is there already.
    ///
    /// # Errors
    /// The operating system's error: no room on the disk, or no memory.
    pub fn open(file: &File) -> io::Result<Arc<Self>> {
        flock(file, FlockOperation::LockExclusive)?;
        let lock = Self::map_and_prepare(file);
        // Unlocked explicitly: the mapping keeps the open file and its flock alive.
        let _ = flock(file, FlockOperation::Unlock);
        lock.map(Arc::new)
    }

    fn map_and_prepare(file: &File) -> io::Result<Self> {
        // Allocates the disk space now: a write to a page of a sparse file on a
        // full disk ends the process (SIGBUS).
        // SAFETY: the descriptor is open.
        let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, BYTES as libc::off_t) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        let lock = Self { mapping: SharedMapping::of(file, BYTES)? };
        lock.prepare(file.metadata()?.ino())?;
        Ok(lock)
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        // SAFETY: within the mapping; HEADER keeps it aligned.
        unsafe { self.mapping.start().add(HEADER).as_ptr().cast() }
    }

    /// Makes the mutex unless it was made in this boot for this very file: a copy
    /// of the file may hold a locked mutex. Called under the flock.
    fn prepare(&self, inode: u64) -> io::Result<()> {
        let mut wanted = [0u8; HEADER];
        let size = size_of::<libc::pthread_mutex_t>();
        let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mark = format!("chaton-lock 2 {library} {size} {inode:x} {}", boot.trim());
        let len = mark.len().min(HEADER);
        wanted[..len].copy_from_slice(&mark.as_bytes()[..len]);
        // SAFETY: the header lies in the mapping; writers hold the flock.
        let header =
            unsafe { std::slice::from_raw_parts_mut(self.mapping.start().as_ptr(), HEADER) };
        if header == wanted {
            return Ok(());
        }
        self.init()?;
        header.copy_from_slice(&wanted);
        Ok(())
    }

    fn init(&self) -> io::Result<()> {
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
            check(libc::pthread_mutexattr_destroy(&mut attr))
        }
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
        // SAFETY: `prepare` made the mutex; `until` is ours.
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
