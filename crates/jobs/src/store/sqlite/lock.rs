//! Who may write: a lock between processes that is waited for in the kernel
//! and for a bounded time. SQLite's own wait for a lock is a row of sleeps.
//!
//! It is a robust process-shared mutex (POSIX) in a mapped file beside the
//! database: the death of its holder frees it. A file of another boot, or of
//! another C library, is made anew: nobody who is alive can hold it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BYTES: usize = 4096;
const HEADER: usize = 128;

/// Longest wait in one piece.
const SLICE: Duration = Duration::from_millis(20);

/// The mapped lock.
pub(super) struct FileLock {
    at: *mut u8,
}

// SAFETY: the mutex in the mapping is made for use by many threads.
unsafe impl Send for FileLock {}
// SAFETY: as above.
unsafe impl Sync for FileLock {}

/// The lock is held until this is dropped.
pub(super) struct Held<'a>(&'a FileLock);

impl FileLock {
    /// Maps `FILE-lock`, made on first use.
    pub fn open(database: &Path) -> io::Result<Self> {
        let mut name = database.as_os_str().to_owned();
        name.push("-lock");
        let path = PathBuf::from(name);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        // SAFETY: a descriptor of ours; held for the few steps below only.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let lock = Self::map(&file).and_then(|lock| lock.prepare().map(|()| lock));
        // By hand: a mapping keeps its open file, and that one's flock, alive.
        // SAFETY: a descriptor of ours.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        lock
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

    /// Makes the mutex unless this boot has it. Called under the flock.
    fn prepare(&self) -> io::Result<()> {
        let mut wanted = [0u8; HEADER];
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let size = std::mem::size_of::<libc::pthread_mutex_t>();
        let libc_name = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let mark = format!("chaton-lock 1 {libc_name} {size} {}", boot.trim());
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
        let check = |code: i32| {
            if code == 0 {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(code))
            }
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

    /// Waits for the lock; `None` when the time is up. In slices: a waiter
    /// that was woken and killed before it took the lock takes the wake-up
    /// with it (seen in one of thirty double kills), and the lock is free
    /// while the next one sleeps. The next slice takes it.
    pub fn acquire(&self, timeout: Duration) -> io::Result<Option<Held<'_>>> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.wait(left.min(SLICE))? {
                None if left > SLICE => {}
                answer => return Ok(answer),
            }
        }
    }

    fn wait(&self, timeout: Duration) -> io::Result<Option<Held<'_>>> {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `until` is ours.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut until) };
        until.tv_sec += timeout.as_secs() as libc::time_t;
        until.tv_nsec += libc::c_long::from(timeout.subsec_nanos() as i32);
        if until.tv_nsec >= 1_000_000_000 {
            until.tv_sec += 1;
            until.tv_nsec -= 1_000_000_000;
        }
        // SAFETY: a mutex that `prepare` made.
        match unsafe { libc::pthread_mutex_timedlock(self.mutex(), &until) } {
            0 => Ok(Some(Held(self))),
            libc::EOWNERDEAD => {
                // SQLite rolls back what the dead one left; nothing else is
                // guarded. SAFETY: we hold the mutex.
                unsafe { libc::pthread_mutex_consistent(self.mutex()) };
                Ok(Some(Held(self)))
            }
            libc::ETIMEDOUT => Ok(None),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: held by this thread.
        unsafe { libc::pthread_mutex_unlock(self.0.mutex()) };
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; no `Held` outlives `self`.
        unsafe { libc::munmap(self.at.cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_death_of_its_holder_frees_it() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FileLock::open(&folder.path().join("db")).unwrap();
        // SAFETY: the child takes the lock and leaves without giving it back.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let held = lock.acquire(Duration::from_secs(5));
            std::mem::forget(held);
            // SAFETY: leaves without running the test harness's handlers.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert!(lock.acquire(Duration::from_secs(5)).unwrap().is_some());
    }

    #[test]
    fn waits_no_longer_than_told() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (
            FileLock::open(&folder.path().join("db")).unwrap(),
            FileLock::open(&folder.path().join("db")).unwrap(),
        );
        let held = one.acquire(Duration::from_secs(5)).unwrap();
        let other = std::thread::scope(|scope| {
            let wait = || two.acquire(Duration::from_millis(5)).unwrap().is_none();
            scope.spawn(wait).join().unwrap()
        });
        assert!(other);
        drop(held);
        assert!(two.acquire(Duration::from_secs(5)).unwrap().is_some());
    }
}
