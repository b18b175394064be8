//! Whether the process of an owner has ended, by a lock that the kernel releases then.
//!
//! A process that sends heartbeats holds a lock on one byte of the change file and notes in the database on which. A pid
//! says nothing in another pid namespace (a container that shares the file), while a lock is the same in all of them.
//!
//! It belongs to the open file (an OFD lock): a lock of the process would be lost when any other descriptor of the file
//! is closed. So a child that a job forks inherits it. If the child outlives its parent, only the lease tells.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use chaton_core::forks;

use crate::change_file::{path_of, suffix};
use crate::side_files::{self, inode};

/// Bytes tried until one is free: another process has drawn the same of 2⁶² hardly ever.
const TRIES: usize = 4;

/// Which byte of which file is locked, as the database has it.
#[derive(Clone, Debug, PartialEq)]
pub struct LockPlace {
    /// Device and inode: a file that replaced the locked one says nothing.
    pub file: String,
    /// The byte.
    pub byte: i64,
}

/// The lock of this process.
pub struct OwnerLock {
    /// Its last descriptor releases the lock.
    _file: File,
    byte: i64,
    inode: (u64, u64),
    /// Forks when it was taken: a child has its own.
    made_in: u32,
}

impl OwnerLock {
    /// Takes a lock on the change file of a database.
    ///
    /// # Errors
    /// When the file cannot be opened, or no free byte is found.
    pub fn take(database: &Path) -> io::Result<Self> {
        let file = side_files::open(database, &suffix(0))?;
        let about = file.metadata()?;
        let inode = (about.dev(), about.ino());
        let mut result = Ok(());
        for _ in 0..TRIES {
            let byte = fastrand::i64(1..1 << 62);
            result = fcntl(&file, libc::F_OFD_SETLK, byte).map(drop);
            if result.is_ok() {
                return Ok(Self { _file: file, byte, inode, made_in: forks::count() });
            }
        }
        result.and(Err(io::ErrorKind::WouldBlock.into()))
    }

    /// Whether it is on the file that others look at, and of this process.
    pub fn is_of(&self, database: &Path) -> bool {
        self.made_in == forks::count() && inode(&path_of(database, 0)) == Some(self.inode)
    }

    /// Where it is.
    pub fn place(&self) -> LockPlace {
        LockPlace { file: named(self.inode), byte: self.byte }
    }
}

/// Whether nobody holds this lock, although it could be seen. A lock of the same open file looks free.
pub fn is_free(database: &Path, place: &LockPlace) -> bool {
    let look = || {
        let file = side_files::open(database, &suffix(0))?;
        let about = file.metadata()?;
        let same = named((about.dev(), about.ino())) == place.file;
        Ok::<_, io::Error>(same && fcntl(&file, libc::F_OFD_GETLK, place.byte)?)
    };
    look().unwrap_or(false)
}

fn named((device, inode): (u64, u64)) -> String {
    format!("{device}:{inode}")
}

/// Sets a lock on a byte, or asks for it: then whether it is free.
fn fcntl(file: &File, command: libc::c_int, byte: i64) -> io::Result<bool> {
    // SAFETY: a structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = 1;
    // SAFETY: the descriptor is open, and the structure is ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock.l_type == libc::F_UNLCK as libc::c_short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_free_when_its_holder_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.db");
        let lock = OwnerLock::take(&path).unwrap();
        let place = lock.place();
        assert!(lock.is_of(&path) && !is_free(&path, &place));
        // Closing other descriptors of the file does not release it.
        drop(side_files::open(&path, &suffix(0)).unwrap());
        assert!(!is_free(&path, &place));
        // Another file says nothing.
        std::fs::rename(path_of(&path, 0), dir.path().join("old")).unwrap();
        assert!(!lock.is_of(&path) && !is_free(&path, &place));
        std::fs::rename(dir.path().join("old"), path_of(&path, 0)).unwrap();
        drop(lock);
        assert!(is_free(&path, &place));
    }
}
