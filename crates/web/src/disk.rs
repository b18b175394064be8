//! Sending files on the IO thread, which must not wait for a disk: only what is in memory is read there. One of the few
//! threads that may wait brings everything else there before, a window at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::fs::fstatfs;
use rustix::io::{pread, preadv2, Errno, ReadWriteFlags};

use tokio::sync::Semaphore;

use crate::socket;

/// Threads that wait for the disk: to write large request bodies to their files, and to find and read
/// files that are not in memory. More of them wait for each other, as they would for the disk.
pub(crate) const DISK_THREADS_MAX: usize = 4;
/// Bytes brought into memory at once, or looked for. With 1 MiB the changes of threads cost more than the reading of what is
/// there; but the first byte waits for all of them.
const WINDOW_BYTES: u64 = 4 * 1024 * 1024;
/// So long what was in memory is believed to be there: the kernel drops what was used least recently. A slow client takes
/// the rest of a window when nobody knows any more.
const WARM_TIME: Duration = Duration::from_secs(1);
/// One byte is looked at so often to learn whether a file is in memory. Linux reads ahead so much (`read_ahead_kb`), so
/// that less is seldom missing between two bytes that are there.
const PROBE_BYTES: u64 = 128 * 1024;
/// `TMPFS_MAGIC` of `linux/magic.h`. It has no disk and knows no `RWF_NOWAIT`.
const TMPFS: u32 = 0x0102_1994;

/// Files being brought into memory: one thread is left for request bodies when their disk does not answer.
static WARM_UPS: Semaphore = Semaphore::const_new(DISK_THREADS_MAX - 1);

/// Reads what is in memory of a file; `None`: that would wait for the disk, or the file system can't tell (NFS, FUSE,
/// overlayfs).
pub(crate) fn read_cached(file: &File, into: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    loop {
        let mut slices = [IoSliceMut::new(into)];
        match preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(len) => return Ok(Some(len)),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP) if fstatfs(file).is_ok_and(|it| it.f_type as u32 == TMPFS) => {
                return Ok(Some(pread(file, into, offset)?));
            }
            // A thread that may wait gets the error, if it is one.
            Err(_) => return Ok(None),
        }
    }
}

/// Bytes from `offset` on that are in memory, at most `len`.
fn cached_len(file: &File, offset: u64, len: u64) -> u64 {
    let is_cached = |at| matches!(read_cached(file, &mut [0], at), Ok(Some(_)));
    let mut cached = 0;
    if is_cached(offset) {
        while cached < len && is_cached(offset + (cached + PROBE_BYTES).min(len) - 1) {
            cached = (cached + PROBE_BYTES).min(len);
        }
    }
    cached
}

/// A range of a file, of which the front is sent next.
pub(crate) struct FileRange {
    pub file: Arc<File>,
    pub offset: u64,
    pub left: u64,
    /// Up to where the file was in memory, and when.
    warm: Option<(u64, Instant)>,
}

impl FileRange {
    pub fn new(file: Arc<File>, offset: u64, left: u64) -> Self {
        Self { file, offset, left, warm: None }
    }

    /// Bytes at the front that were in memory a moment ago.
    fn warm_len(&self) -> u64 {
        match self.warm {
            Some((end, since)) if end > self.offset && since.elapsed() < WARM_TIME => {
                self.left.min(end - self.offset)
            }
            _ => 0,
        }
    }

    /// Reads from the front; `None`: it is not in memory.
    pub fn read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let wanted = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = match self.warm_len() {
            0 => read_cached(&self.file, &mut into[..wanted], self.offset)?,
            warm => {
                let wanted = wanted.min(warm as usize);
                Some(pread(&self.file, &mut into[..wanted], self.offset)?)
            }
        };
        read.map(not_at_end).transpose()
    }

    /// Has the kernel send from the front; `None`: it is not in memory.
    pub fn send(&mut self, socket: BorrowedFd) -> io::Result<Option<usize>> {
        let mut len = self.warm_len();
        if len == 0 {
            len = cached_len(&self.file, self.offset, self.left.min(WINDOW_BYTES));
            if len == 0 {
                return Ok(None);
            }
            self.warm = Some((self.offset + len, Instant::now()));
        }
        let sent = socket::sendfile(socket, &self.file, self.offset, len)?;
        not_at_end(sent).map(Some)
    }

    /// Brings what is sent next into memory, whatever that takes.
    pub async fn warm_up(&mut self) -> io::Result<()> {
        let one = WARM_UPS.acquire().await;
        let (file, offset, len) =
            (Arc::clone(&self.file), self.offset, self.left.min(WINDOW_BYTES));
        let warm_up = move || {
            let _one = one;
            load(&file, offset, len)
        };
        // The runtime ends before the thread is done only at a stop.
        let loaded = tokio::task::spawn_blocking(warm_up).await;
        let len =
            loaded.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).and_then(not_at_end)?;
        self.warm = Some((offset + len as u64, Instant::now()));
        Ok(())
    }
}

/// A file that is shorter than promised fails: only a cut tells the client.
fn not_at_end(len: usize) -> io::Result<usize> {
    if len == 0 {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(len)
    }
}

/// Brings a part of a file into memory; returns how many bytes. The kernel copies nothing on the way to `/dev/null`
/// (15 µs for 1 MiB that is there; 20 µs with a mapping, 31 µs with reads).
fn load(file: &File, offset: u64, len: u64) -> io::Result<usize> {
    static NULL: LazyLock<io::Result<File>> =
        LazyLock::new(|| OpenOptions::new().write(true).open("/dev/null"));
    loop {
        let loaded = match &*NULL {
            Ok(null) => socket::sendfile(null, file, offset, len),
            Err(_) => Err(Errno::INVAL.into()),
        };
        match loaded {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A file system without splice.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return file.read_at(&mut vec![0; len as usize], offset);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{fadvise, Advice};

    use super::*;

    const LEN: u64 = WINDOW_BYTES + PROBE_BYTES + 5;

    fn range_of_a_file() -> FileRange {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; LEN as usize], 0).unwrap();
        FileRange::new(Arc::new(file), 0, LEN)
    }

    /// Whether the file system can tell what is in memory, and that is nothing now.
    fn drop_from_memory(file: &File) -> bool {
        file.sync_all().unwrap();
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        !matches!(read_cached(file, &mut [0], 0), Ok(Some(_)))
            && fstatfs(file).is_ok_and(|it| it.f_type as u32 != TMPFS)
    }

    #[test]
    fn only_what_is_in_memory_is_read() {
        let FileRange { file, .. } = range_of_a_file();
        if read_cached(&file, &mut [0], 0).unwrap().is_none() {
            // This file system can't tell.
            return assert_eq!(cached_len(&file, 0, LEN), 0);
        }
        assert_eq!((cached_len(&file, 0, LEN), cached_len(&file, 9, 1)), (LEN, 1));
        // Behind the end there is nothing to wait for.
        assert_eq!(read_cached(&file, &mut [0], LEN).unwrap(), Some(0));
        if drop_from_memory(&file) {
            assert_eq!(cached_len(&file, 0, LEN), 0);
        }
    }

    #[tokio::test]
    async fn a_window_is_brought_into_memory_at_once_and_believed_to_be_there_for_a_time() {
        let mut range = range_of_a_file();
        if !drop_from_memory(&range.file) {
            return;
        }
        let mut bytes = [0; 9];
        assert_eq!(range.read(&mut bytes).unwrap(), None);
        range.warm_up().await.unwrap();
        // As for a file system that can't tell.
        drop_from_memory(&range.file);
        assert_eq!((range.read(&mut bytes).unwrap(), bytes), (Some(9), [7; 9]));
        drop_from_memory(&range.file);
        (range.offset, range.left) = (WINDOW_BYTES - 4, LEN - WINDOW_BYTES + 4);
        assert_eq!((range.warm_len(), range.read(&mut bytes).unwrap()), (4, Some(4)));
        drop_from_memory(&range.file);
        range.warm = Some((LEN, Instant::now() - WARM_TIME));
        assert_eq!(range.read(&mut bytes).unwrap(), None);
    }

    #[tokio::test]
    async fn a_file_that_has_become_shorter_fails() {
        let mut range = range_of_a_file();
        range.warm_up().await.unwrap();
        range.file.set_len(0).unwrap();
        let kind = |error: io::Error| error.kind();
        assert_eq!(range.read(&mut [0]).map_err(kind), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(range.warm_up().await.map_err(kind), Err(io::ErrorKind::UnexpectedEof));
    }
}
