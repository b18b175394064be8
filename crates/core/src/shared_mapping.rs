//! Memory that several processes share through an open file.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{null_mut, NonNull};

use rustix::fs::{fstat, ftruncate, memfd_create, MemfdFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// A shared mapping of a file. It outlives `fork`: parent and children see the
/// same memory. Dropping it unmaps the file in this process only.
pub(crate) struct SharedMapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is valid until drop; its users store only what may be
// shared between threads.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps the first `bytes` of the file. The file must have that size and must
    /// not be truncated later.
    ///
    /// # Errors
    /// The operating system's error when the mapping is refused.
    pub fn of(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free address range.
        let at = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, bytes })
    }

    /// Makes and maps an anonymous file of zeros. Its descriptor is closed when
    /// another program is executed.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(name: &CStr, bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, bytes as u64)?;
        Ok((Self::of(&fd, bytes)?, fd))
    }

    /// Maps the whole file behind an inherited descriptor, which stays the
    /// caller's. Its size must be a multiple of `element_bytes`.
    ///
    /// # Errors
    /// `InvalidInput` when the file is not of `what`, else the operating system's error.
    pub fn open(inherited: RawFd, element_bytes: usize, what: &str) -> io::Result<(Self, OwnedFd)> {
        if inherited < 0 {
            return Err(rustix::io::Errno::BADF.into());
        }
        // SAFETY: the descriptor is only duplicated; a closed one is an error.
        let fd = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(inherited) }, 0)?;
        let bytes = fstat(&fd)?.st_size as usize;
        if bytes == 0 || !bytes.is_multiple_of(element_bytes) {
            let message = format!("descriptor {inherited} is no {what}: {bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok((Self::of(&fd, bytes)?, fd))
    }

    /// Where the mapping begins.
    pub fn start(&self) -> NonNull<u8> {
        self.at
    }

    /// The size of the mapping.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this size; no reference outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
