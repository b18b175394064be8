//! The directory whose files are served. Nothing outside of it can be opened through it.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    fstat, fstatfs, openat, openat2, statat, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat,
};
use rustix::io::Errno;

use crate::disk::read_cached;
use crate::error::Error;

/// Why there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoFile {
    /// None of that name is below the root, or it is no regular file, or it may not be read.
    Missing,
    /// The answer is on the disk: ask again from a thread that may wait.
    MustWait,
    /// There is a file, and no descriptor left to open it with.
    NoDescriptor,
}

/// How names are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// `openat2` (Linux 5.6) stays below the root, also through symbolic links. With `RESOLVE_CACHED`
    /// (Linux 5.12) it says when it would have to wait for the disk.
    Openat2 { tells_waits: bool },
    /// Each part is opened by itself, and symbolic links are refused.
    ByParts,
}

/// The state of a file by which a change is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StaticFileStamp {
    device: u64,
    inode: u64,
    pub len: u64,
    pub modified_s: u64,
    pub modified_ns: u64,
    changed: (i64, u64),
}

pub(super) struct RootDirectory {
    fd: OwnedFd,
    resolution: Resolution,
    /// Even to open a file that the kernel knows waits for an answer of somebody else.
    is_remote: bool,
}

/// File systems of other machines and processes (`linux/magic.h`): NFS, FUSE with virtiofs, SMB twice, 9P, Ceph.
const REMOTE: [u32; 6] = [0x6969, 0x6573_5546, 0xfe53_4d42, 0xff53_4d42, 0x0102_1997, 0x00c3_6400];

/// `O_NONBLOCK`: opening a pipe must not wait for its writer.
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl RootDirectory {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fd = rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(|error| {
            Error::new(format!("can't serve the files in {}", path.display()), error.into())
        })?;
        let resolution = resolution(&fd);
        let is_remote = fstatfs(&fd).is_ok_and(|it| REMOTE.contains(&(it.f_type as u32)));
        Ok(Self { fd, resolution, is_remote })
    }

    /// Opens a regular file by its name below the root. With `may_wait` false it does not wait for
    /// the disk, as far as the kernel can tell before: older kernels than 5.12 can't, and a lookup
    /// then reads a few blocks of directories at most.
    pub fn file(
        &self,
        name: impl AsRef<[u8]>,
        may_wait: bool,
    ) -> Result<(File, StaticFileStamp), NoFile> {
        let name = name.as_ref();
        if self.is_remote && !may_wait {
            return Err(NoFile::MustWait);
        }
        let opened = match self.resolution {
            Resolution::Openat2 { tells_waits } => {
                let cached = tells_waits && !may_wait;
                let flags = if cached { ResolveFlags::CACHED } else { ResolveFlags::empty() };
                match openat2(&self.fd, name, FILE, Mode::empty(), flags | BENEATH) {
                    Err(Errno::AGAIN) if cached => return Err(NoFile::MustWait),
                    opened => opened,
                }
            }
            Resolution::ByParts => self.by_parts(name),
        };
        let file = File::from(opened.map_err(|error| self.no_file(name, error))?);
        let stamp = stamp_of(&file).ok_or(NoFile::Missing)?;
        Ok((file, stamp))
    }

    fn no_file(&self, name: &[u8], error: Errno) -> NoFile {
        let is_file = |stat: Stat| FileType::from_raw_mode(stat.st_mode).is_file();
        let has_file = || statat(&self.fd, name, AtFlags::empty()).is_ok_and(is_file);
        match error {
            Errno::MFILE | Errno::NFILE if has_file() => NoFile::NoDescriptor,
            _ => NoFile::Missing,
        }
    }

    fn by_parts(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let mut parts: Vec<&[u8]> = name.split(|&byte| byte == b'/').collect();
        let file = parts.pop().unwrap_or_default();
        let mut directory: Option<OwnedFd> = None;
        for part in parts {
            let at = directory.as_ref().unwrap_or(&self.fd);
            directory = Some(openat(at, part, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?);
        }
        let at = directory.as_ref().unwrap_or(&self.fd);
        openat(at, file, FILE | OFlags::NOFOLLOW, Mode::empty())
    }

    /// As on a kernel without `openat2`.
    #[cfg(test)]
    pub fn without_openat2(mut self) -> Self {
        self.resolution = Resolution::ByParts;
        self
    }
}

/// Opens a regular file below one of the directories, whose paths have no symbolic links. The path may have some that
/// lead into one of them. The path may change after it was resolved, so the file is opened from the directory on: a
/// symbolic link that was put there meanwhile leads nowhere else.
pub fn open_below(roots: &[PathBuf], path: &Path) -> Option<File> {
    let path = fs::canonicalize(path).ok()?;
    let root = roots.iter().find(|root| path.starts_with(root))?;
    let name = path.strip_prefix(root).ok()?.as_os_str().as_bytes();
    let (file, _) = RootDirectory::open(root).ok()?.file(name, true).ok()?;
    Some(file)
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

fn resolution(root: &OwnedFd) -> Resolution {
    let works = |flags| match openat2(root, ".", DIRECTORY, Mode::empty(), BENEATH | flags) {
        Ok(_) | Err(Errno::AGAIN) => true,
        // Unknown to the kernel or to a filter of system calls.
        Err(_) => false,
    };
    if works(ResolveFlags::empty()) {
        Resolution::Openat2 { tells_waits: works(ResolveFlags::CACHED) }
    } else {
        Resolution::ByParts
    }
}

/// `None` if it is no regular file.
pub(super) fn stamp_of(file: &File) -> Option<StaticFileStamp> {
    let stat = fstat(file).ok()?;
    FileType::from_raw_mode(stat.st_mode).is_file().then_some(StaticFileStamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        len: u64::try_from(stat.st_size).unwrap_or(0),
        modified_s: u64::try_from(stat.st_mtime).unwrap_or(0),
        modified_ns: stat.st_mtime_nsec as u64,
        changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
    })
}

/// The whole content of a small file; `Ok(None)` if it has changed since its stamp was taken.
pub(super) fn read(
    file: &File,
    stamp: &StaticFileStamp,
    may_wait: bool,
) -> Result<Option<Vec<u8>>, NoFile> {
    let mut bytes = vec![0; stamp.len as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        let (rest, offset) = (&mut bytes[filled..], filled as u64);
        let read = match may_wait {
            true => file.read_at(rest, offset).map(Some),
            false => read_cached(file, rest, offset),
        };
        match read {
            Ok(Some(0)) => return Ok(None),
            Ok(Some(len)) => filled += len,
            Ok(None) => return Err(NoFile::MustWait),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(NoFile::Missing),
        }
    }
    Ok((stamp_of(file).as_ref() == Some(stamp)).then_some(bytes))
}
