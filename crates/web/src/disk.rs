//! Reading files on the IO thread, which must not wait for a disk: only what is in memory is read there. Everything else is
//! read on one of the few threads that may wait.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::fstatfs;
use rustix::io::{preadv2, Errno, ReadWriteFlags};

use tokio::sync::Semaphore;

use crate::engine::DISK_THREADS_MAX;
use crate::socket;

/// One byte is looked at so often to learn whether a file is in memory. Linux reads ahead so much (`read_ahead_kb`), so
/// that less is seldom missing between two bytes that are there.
const PROBE_BYTES: u64 = 128 * 1024;
/// `TMPFS_MAGIC` of `linux/magic.h`. It has no disk and knows no `RWF_NOWAIT`.
const TMPFS: u32 = 0x0102_1994;

/// Reads under way. They have copies of descriptors, of which a process has few; and one thread is left for request bodies
/// when the disk of the files does not answer.
static READS: Semaphore = Semaphore::const_new(DISK_THREADS_MAX - 1);

/// Reads what is in memory of a file; `None`: that would wait for the disk, or the file system can't tell (NFS, FUSE,
/// overlayfs).
pub(crate) fn read_cached(file: &File, into: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    loop {
        let mut slices = [IoSliceMut::new(into)];
        match preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(len) => return Ok(Some(len)),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP) if fstatfs(file).is_ok_and(|it| it.f_type as u32 == TMPFS) => {
                return file.read_at(into, offset).map(Some);
            }
            // A thread that may wait gets the error, if it is one.
            Err(_) => return Ok(None),
        }
    }
}

/// Bytes from `offset` on that are in memory, at most `len`.
pub(crate) fn cached_len(file: &File, offset: u64, len: u64) -> u64 {
    let is_cached = |at| matches!(read_cached(file, &mut [0], at), Ok(Some(_)));
    let mut cached = 0;
    if is_cached(offset) {
        while cached < len && is_cached(offset + (cached + PROBE_BYTES).min(len) - 1) {
            cached = (cached + PROBE_BYTES).min(len);
        }
    }
    cached
}

/// Reads a part of a file, whatever that takes.
pub(crate) async fn read(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let one = READS.acquire().await;
    let file = file.try_clone()?;
    let read = move || {
        let _one = one;
        let mut bytes = vec![0; len];
        let len = file.read_at(&mut bytes, offset)?;
        bytes.truncate(len);
        Ok(bytes)
    };
    run(read).await
}

/// Sends a part of a file as [`socket::sendfile`], whatever that takes.
pub(crate) async fn send(
    socket: BorrowedFd<'_>,
    file: &File,
    offset: u64,
    len: u64,
) -> io::Result<usize> {
    let one = READS.acquire().await;
    let (socket, file) = (socket.try_clone_to_owned()?, file.try_clone()?);
    let send = move || {
        let _one = one;
        socket::sendfile(socket, &file, offset, len)
    };
    run(send).await
}

async fn run<R: Send + 'static>(
    work: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    // The runtime ends before the thread is done only at a stop.
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::fs::{fadvise, Advice};

    use super::*;

    #[test]
    fn only_what_is_in_memory_is_read() {
        let mut file = tempfile::tempfile().unwrap();
        let len = PROBE_BYTES * 3 + 5;
        file.write_all(&vec![7; len as usize]).unwrap();
        if read_cached(&file, &mut [0], 0).unwrap().is_none() {
            // This file system can't tell.
            return assert_eq!(cached_len(&file, 0, len), 0);
        }
        assert_eq!((cached_len(&file, 0, len), cached_len(&file, 9, 1)), (len, 1));
        // Behind the end there is nothing to wait for.
        assert_eq!(read_cached(&file, &mut [0], len).unwrap(), Some(0));
        if fstatfs(&file).is_ok_and(|it| it.f_type as u32 == TMPFS) {
            return;
        }
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        assert_eq!(cached_len(&file, 0, len), 0);
    }
}
