//! Files that the application sends.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use chaton_web::open_below;
use magnus::{Error, RArray, RString, TryConvert};

use crate::gvl::{check_interrupts, without_gvl};

/// Opens a regular file that the application names by a path, or that it has open already.
pub fn open(path: RString, descriptor: Option<i32>) -> Result<Option<(File, Metadata)>, Error> {
    let path = owned(path);
    waiting(|| {
        let file = match descriptor {
            Some(fd) => {
                // SAFETY: the caller's IO stays open during the call.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                File::from(fd.try_clone_to_owned().ok()?)
            }
            // A blocking open of a FIFO would wait for its writer.
            None => {
                OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).ok()?
            }
        };
        let about = file.metadata().ok()?;
        about.is_file().then_some((file, about))
    })
}

/// `Web.open_below(roots, path)`: a descriptor of a regular file, or nil. See [`open_below`].
pub fn descriptor_below(roots: RArray, path: RString) -> Result<Option<i32>, Error> {
    let roots = roots.into_iter().map(|root| RString::try_convert(root).map(owned));
    let (roots, path) = (roots.collect::<Result<Vec<_>, _>>()?, owned(path));
    Ok(waiting(|| open_below(&roots, &path))?.map(IntoRawFd::into_raw_fd))
}

fn owned(path: RString) -> PathBuf {
    // SAFETY: copied at once.
    OsStr::from_bytes(unsafe { path.as_slice() }).into()
}

/// Runs without the GVL what may wait for a mount that does not respond.
fn waiting<R>(work: impl Fn() -> R) -> Result<R, Error> {
    loop {
        match without_gvl(&work, &|| {}) {
            Some(done) => return Ok(done),
            None => check_interrupts()?,
        }
    }
}
