//! Memory that several processes share through an open file.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{null_mut, NonNull};

use rustix::fs::{fstat, ftruncate, memfd_create, MemfdFlags};
use rustix::io::{fcntl_dupfd_cloexec, Errno};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use rustix::rand::{getrandom, GetRandomFlags};

/// Bytes of the secret in the header, behind what [`Layout::header`] fills.
const SECRET_BYTES: usize = 32;
/// Where it begins.
const SECRET_AT: usize = 64;
/// Bytes before the elements, which keep their alignment.
const HEADER_BYTES: usize = 128;

/// What the elements of a mapping are. It stands at the beginning of the file, because a phased
/// restart may bring another version of Chaton, which maps the file of this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Names the kind of the elements.
    pub magic: [u8; 8],
    /// Changes with the meaning or the place of anything in an element.
    pub version: u64,
    pub element_bytes: usize,
}

impl Layout {
    fn header(self) -> [u64; 3] {
        [u64::from_ne_bytes(self.magic), self.version, self.element_bytes as u64]
    }
}

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

    /// Makes and maps an anonymous file: the layout and `count` elements of zeros. Its descriptor
    /// is closed when another program is executed.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(name: &CStr, layout: Layout, count: usize) -> io::Result<(Self, OwnedFd)> {
        let bytes = HEADER_BYTES + count * layout.element_bytes;
        let fd = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, bytes as u64)?;
        let mapping = Self::of(&fd, bytes)?;
        // SAFETY: aligned and in bounds; nobody else has the mapping yet.
        unsafe { mapping.at.cast::<[u64; 3]>().write(layout.header()) };
        let mut secret = [0; SECRET_BYTES];
        getrandom_whole(&mut secret)?;
        // SAFETY: in the header; as above.
        unsafe { mapping.at.add(SECRET_AT).cast::<[u8; SECRET_BYTES]>().write(secret) };
        Ok((mapping, fd))
    }

    /// Maps the whole file behind an inherited descriptor, which stays the caller's.
    ///
    /// # Errors
    /// `InvalidInput` when the file has another layout, else the operating system's error.
    pub fn open(inherited: RawFd, layout: Layout) -> io::Result<(Self, OwnedFd)> {
        if inherited < 0 {
            return Err(rustix::io::Errno::BADF.into());
        }
        // SAFETY: the descriptor is only duplicated; a closed one is an error.
        let fd = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(inherited) }, 0)?;
        let bytes = fstat(&fd)?.st_size as usize;
        if bytes > HEADER_BYTES && (bytes - HEADER_BYTES).is_multiple_of(layout.element_bytes) {
            let mapping = Self::of(&fd, bytes)?;
            // SAFETY: aligned and in bounds; written before another process could map it.
            if unsafe { mapping.at.cast::<[u64; 3]>().read() } == layout.header() {
                return Ok((mapping, fd));
            }
        }
        let message = "it was made by another version of Chaton, whose layout differs; \
                       restart the server in full (SIGUSR2, `chaton restart --full`)";
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Random bytes, made with the file, which nobody knows but the processes that map it.
    pub fn secret(&self) -> [u8; SECRET_BYTES] {
        // SAFETY: made by `create` or `open`, the mapping is longer than its header, which is
        // written before another process could map it.
        unsafe { self.at.add(SECRET_AT).cast::<[u8; SECRET_BYTES]>().read() }
    }

    /// Replaces these bytes; call before another process or thread may read them.
    pub fn set_secret(&self, secret: [u8; SECRET_BYTES]) {
        // SAFETY: in the header, as above; nobody reads it meanwhile.
        unsafe { self.at.add(SECRET_AT).cast::<[u8; SECRET_BYTES]>().write(secret) };
    }

    /// Where the elements begin.
    pub fn elements(&self) -> NonNull<u8> {
        // SAFETY: made by `create` or `open`, the mapping is longer than its header.
        unsafe { self.at.add(HEADER_BYTES) }
    }

    /// The number of elements of this size.
    pub fn count(&self, element_bytes: usize) -> usize {
        (self.bytes - HEADER_BYTES) / element_bytes
    }

    /// Where the mapping begins.
    pub fn start(&self) -> NonNull<u8> {
        self.at
    }
}

fn getrandom_whole(mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match getrandom(&mut *into, GetRandomFlags::empty()) {
            Ok(len) => into = &mut into[len..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this size; no reference outlives `self`.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
