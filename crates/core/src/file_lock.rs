//! A lock between threads and processes, waited for in the kernel and for a
//! bounded time.
//!
//! A robust process-shared mutex (POSIX) in a mapped file: the death of its
//! holder frees it, also when a child that it forked lives on (a lock of an
//! open file would be inherited). A file of another boot, of another C
//! library, or copied from elsewhere is made anew: nobody who is alive can
//! hold it.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: usize = 4096;
const HEADER: usize = 128;

/// Longest wait in one piece: a waiter that was woken and killed before it
/// took the lock takes the wake-up with it; the next slice sees a free lock.
const SLICE: Duration = Duration::from_millis(20);

/// Of waits: one that nobody sets back.
#[cfg(target_env = "gnu")]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
/// Of waits: the only one that this C library has for them.
#[cfg(not(target_env = "gnu"))]
const CLOCK: libc::clockid_t = libc::CLOCK_REALTIME;

#[cfg(target_env = "gnu")]
extern "C" {
    /// Of glibc since 2.30; the libc crate does not have it.
    fn pthread_mutex_clocklock(
        mutex: *mut libc::pthread_mutex_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> libc::c_int;
}

/// Waits until a time of [`CLOCK`].
///
/// # Safety
/// Both must be valid, and the mutex one that was made.
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
    at: *mut u8,
}

// SAFETY: the mutex in the mapping is made for use by many threads.
unsafe impl Send for FileLock {}
// SAFETY: as above.
unsafe impl Sync for FileLock {}

/// The lock is held until this is dropped, by the thread that took it.
pub struct Held {
    lock: Arc<FileLock>,
    /// Only the thread that locked a mutex may unlock it.
    stays: PhantomData<*const ()>,
}

impl FileLock {
    /// Maps the lock in `file`, which must be open for reading and writing and
    /// is the lock's alone: its first [`BYTES`] are made if they are not there.
    ///
    /// # Errors
    /// What the operating system says: no room on the disk, or no memory.
    pub fn open(file: &File) -> io::Result<Arc<Self>> {
        // SAFETY: a descriptor that is open; held for the few steps below only.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let lock = Self::made(file);
        // By hand: a mapping keeps its open file, and that one's flock, alive.
        // SAFETY: as above.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        lock.map(Arc::new)
    }

    fn made(file: &File) -> io::Result<Self> {
        let lock = Self::map(file)?;
        lock.prepare(file.metadata()?.ino())?;
        Ok(lock)
    }

    fn map(file: &File) -> io::Result<Self> {
        // Room on the disk now: a page of a sparse file that finds none when
        // it is first written ends the process (SIGBUS).
        // SAFETY: a descriptor of ours.
        let code = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, BYTES as libc::off_t) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        // SAFETY: maps our file, which has that size; nobody truncates it.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: at.cast() })
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        // SAFETY: within the mapping; HEADER keeps it aligned.
        unsafe { self.at.add(HEADER).cast() }
    }

    /// Makes the mutex unless this boot has it, for this very file: who copied
    /// the folder may have copied a lock that was held. Called under the flock.
    fn prepare(&self, inode: u64) -> io::Result<()> {
        let mut wanted = [0u8; HEADER];
        let size = size_of::<libc::pthread_mutex_t>();
        let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mark = format!("chaton-lock 2 {library} {size} {inode:x} {}", boot.trim());
        let len = mark.len().min(HEADER);
        wanted[..len].copy_from_slice(&mark.as_bytes()[..len]);
        // SAFETY: the header lies in the mapping; writers hold the flock.
        let header = unsafe { std::slice::from_raw_parts_mut(self.at, HEADER) };
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
        // SAFETY: attributes and mutex are ours; nobody uses the mutex yet.
        unsafe {
            let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
            check(libc::pthread_mutexattr_init(&mut attr))?;
            check(libc::pthread_mutexattr_setpshared(&mut attr, libc::PTHREAD_PROCESS_SHARED))?;
            check(libc::pthread_mutexattr_setrobust(&mut attr, libc::PTHREAD_MUTEX_ROBUST))?;
            check(libc::pthread_mutex_init(self.mutex(), &attr))?;
            check(libc::pthread_mutexattr_destroy(&mut attr))
        }
    }

    /// Waits for the lock; `None` when time is up.
    ///
    /// # Errors
    /// What the operating system says of a mutex that cannot be used.
    pub fn acquire(self: &Arc<Self>, timeout: Duration) -> io::Result<Option<Held>> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.wait(left.min(SLICE))? {
                return Ok(Some(Held { lock: self.clone(), stays: PhantomData }));
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
        // SAFETY: a mutex that `prepare` made, and a time of ours.
        match unsafe { lock_until(self.mutex(), &until) } {
            0 => Ok(true),
            libc::EOWNERDEAD => {
                // What it guards is the holder's to look at, as after any start.
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
        // SAFETY: held by this thread, which this cannot leave.
        unsafe { libc::pthread_mutex_unlock(self.lock.mutex()) };
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; each `Held` keeps it alive.
        unsafe { libc::munmap(self.at.cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// The same file, opened anew each time: as other processes do.
    fn lock(file: &tempfile::NamedTempFile) -> Arc<FileLock> {
        FileLock::open(&File::options().read(true).write(true).open(file.path()).unwrap()).unwrap()
    }

    #[test]
    fn the_death_of_its_holder_frees_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = lock(&file);
        // SAFETY: the child takes the lock and leaves without giving it back.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            std::mem::forget(lock.acquire(PATIENCE));
            // SAFETY: leaves without running the test harness's handlers.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert!(lock.acquire(PATIENCE).unwrap().is_some());
    }

    #[test]
    fn waits_no_longer_than_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = (lock(&file), lock(&file));
        let held = one.acquire(PATIENCE).unwrap();
        let other = std::thread::scope(|scope| {
            let wait = || two.acquire(Duration::from_millis(5)).unwrap().is_none();
            scope.spawn(wait).join().unwrap()
        });
        assert!(other);
        drop(held);
        assert!(two.acquire(PATIENCE).unwrap().is_some());
    }

    #[test]
    fn a_copy_of_a_held_lock_is_free() {
        let (file, copy) =
            (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let _held = lock(&file).acquire(PATIENCE).unwrap();
        std::fs::copy(file.path(), copy.path()).unwrap();
        let copied = lock(&copy);
        let free = || copied.acquire(Duration::from_millis(5)).unwrap().is_some();
        assert!(std::thread::scope(|scope| scope.spawn(free).join().unwrap()));
    }
}
