//! Lines of the log, on their way to standard output or standard error. The caller never waits for
//! a reader: what a pipe, a socket or a terminal does not take at once is kept, up to a bound, and
//! one thread writes it when the reader goes on. Lines past the bound are dropped and counted.
//!
//! Files are written directly. Nothing is kept and no thread runs while the reader keeps up.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fstat, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::thread;

mod line;

pub use line::{line, push_json_text, set_json, FieldValue};

/// Bytes of lines that wait for the reader of one output; as many may be in the writer's hands.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// What a pipe takes in one piece; it has room for so much when `poll` says that it can be written.
const PIECE_BYTES_MAX: usize = 4096;

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Writes whole lines, or keeps them for later. It waits for a disk, but for no reader.
pub fn write(output: Output, lines: &[u8]) {
    outputs()[output as usize].write(lines);
}

/// Writes a warning to standard error, in the form of the Ruby lines.
pub fn warn(message: &str) {
    warn_with(message, &[]);
}

/// Writes a warning that has facts.
pub fn warn_with(message: &str, fields: &[(&str, FieldValue<'_>)]) {
    write(Output::Stderr, &line("WARN", message, fields));
}

/// Writes a line of information in the same way.
pub fn info(message: &str) {
    write(Output::Stderr, &line("INFO", message, &[]));
}

/// Both outputs of this process; null before the first line and in a forked child.
static OUTPUTS: AtomicPtr<[LogOutput; 2]> = AtomicPtr::new(std::ptr::null_mut());
static WATCH_FORKS: Once = Once::new();

fn outputs() -> &'static [LogOutput; 2] {
    // SAFETY: the handler only uses atomics and closes descriptors.
    WATCH_FORKS.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forget_outputs));
    });
    let made = OUTPUTS.load(Ordering::Acquire);
    if !made.is_null() {
        // SAFETY: what is stored is never freed.
        return unsafe { &*made };
    }
    let new = Box::into_raw(Box::new([LogOutput::new(1), LogOutput::new(2)]));
    let null = std::ptr::null_mut();
    match OUTPUTS.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked above.
        Ok(_) => unsafe { &*new },
        // SAFETY: ours was not stored; the other thread's is never freed.
        Err(other) => unsafe {
            drop(Box::from_raw(new));
            &*other
        },
    }
}

/// In a forked child: the kept lines and the writer are the parent's, and a lock may be held for
/// ever. The child begins anew.
extern "C" fn forget_outputs() {
    let made = OUTPUTS.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: what is stored is never freed.
    if let Some(outputs) = unsafe { made.as_ref() } {
        outputs.iter().for_each(LogOutput::close_opened);
    }
}

/// One output and the lines that wait for its reader.
struct LogOutput {
    fd: RawFd,
    waiting: Mutex<WaitingLines>,
    /// What `opened` belongs to: device and inode behind `fd`.
    target: Mutex<(u64, u64)>,
    /// The same pipe or terminal opened once more, so that it can be set not to block for us
    /// alone; -1 if there is none.
    opened: AtomicI32,
}

#[derive(Default)]
struct WaitingLines {
    bytes: Vec<u8>,
    dropped: u64,
    /// A thread writes; no other one does then.
    writing: bool,
}

impl LogOutput {
    const fn new(fd: RawFd) -> Self {
        Self {
            fd,
            waiting: Mutex::new(WaitingLines { bytes: Vec::new(), dropped: 0, writing: false }),
            target: Mutex::new((0, 0)),
            opened: AtomicI32::new(-1),
        }
    }

    fn borrowed(&self) -> BorrowedFd<'_> {
        // SAFETY: used for single calls; a closed descriptor gives an error.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    fn write(&'static self, lines: &[u8]) {
        if self.is_file() {
            return self.write_file(lines);
        }
        let mut waiting = lock(&self.waiting);
        let behind = waiting.writing || !waiting.bytes.is_empty();
        let rest = if behind { lines } else { &lines[self.write_now(lines)..] };
        if rest.is_empty() {
            return;
        }
        if waiting.bytes.len() + rest.len() > WAITING_BYTES_MAX {
            waiting.dropped += rest.iter().filter(|byte| **byte == b'\n').count() as u64;
        } else {
            waiting.bytes.extend_from_slice(rest);
        }
        if !waiting.writing {
            // If the system has no thread, the next line asks again.
            waiting.writing = thread::spawn("chaton log", || self.write_waiting()).is_ok();
        }
    }

    /// The body of the writing thread, which ends when nothing waits.
    fn write_waiting(&self) {
        loop {
            let bytes = {
                let mut waiting = lock(&self.waiting);
                if waiting.bytes.is_empty() {
                    waiting.writing = false;
                    return;
                }
                let mut bytes = mem::take(&mut waiting.bytes);
                if let dropped @ 1.. = mem::take(&mut waiting.dropped) {
                    let dropped = format!(
                        "{dropped} lines of the log were dropped here, because nobody read it"
                    );
                    bytes.extend(line("WARN", &dropped, &[]));
                }
                bytes
            };
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                rest = &rest[self.write_now(rest)..];
                if !rest.is_empty() {
                    let _ = poll(&mut [PollFd::new(&self.borrowed(), PollFlags::OUT)], None);
                }
            }
        }
    }

    fn is_file(&self) -> bool {
        let kind = fstat(self.borrowed()).map(|about| FileType::from_raw_mode(about.st_mode));
        match kind {
            Ok(FileType::Fifo | FileType::Socket) => false,
            Ok(FileType::CharacterDevice) => !rustix::termios::isatty(self.borrowed()),
            _ => true,
        }
    }

    fn write_file(&self, mut lines: &[u8]) {
        while !lines.is_empty() {
            match rustix::io::write(self.borrowed(), lines) {
                Ok(written) if written > 0 => lines = &lines[written..],
                Err(Errno::INTR) => {}
                // A closed or full output must not stop the server.
                _ => return,
            }
        }
    }

    /// Writes what is taken at once; returns how much is done with. Lines that nobody will ever
    /// read are done with, too.
    fn write_now(&self, lines: &[u8]) -> usize {
        let mut done = 0;
        while done < lines.len() {
            match self.write_piece(&lines[done..]) {
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return done,
                Err(_) => return lines.len(),
            }
        }
        done
    }

    fn write_piece(&self, lines: &[u8]) -> Result<usize, Errno> {
        let fd = self.borrowed();
        let about = fstat(fd)?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Socket => {
                rustix::net::send(fd, lines, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
            FileType::Fifo | FileType::CharacterDevice => {
                match self.opened((about.st_dev as u64, about.st_ino as u64)) {
                    Some(opened) => rustix::io::write(opened, lines),
                    None => self.write_if_ready(lines),
                }
            }
            _ => rustix::io::write(fd, lines),
        }
    }

    /// Only where the output can't be opened again, as when it belongs to another user. Another
    /// process may take the room between the two calls.
    fn write_if_ready(&self, lines: &[u8]) -> Result<usize, Errno> {
        let fd = self.borrowed();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&now))? == 0 {
            return Err(Errno::AGAIN);
        }
        rustix::io::write(fd, &lines[..lines.len().min(PIECE_BYTES_MAX)])
    }

    /// The output opened anew. It follows when the descriptor was redirected.
    fn opened(&self, target: (u64, u64)) -> Option<BorrowedFd<'_>> {
        let mut known = lock(&self.target);
        if *known != target {
            self.close_opened();
            *known = target;
            if let Ok(fd) = open_again(self.fd) {
                self.opened.store(fd, Ordering::Relaxed);
            }
        }
        let opened = self.opened.load(Ordering::Relaxed);
        // SAFETY: closed only above and in a forked child.
        (opened >= 0).then(|| unsafe { BorrowedFd::borrow_raw(opened) })
    }

    fn close_opened(&self) {
        let opened = self.opened.swap(-1, Ordering::Relaxed);
        if opened >= 0 {
            // SAFETY: opened by `open_again` and closed once.
            unsafe { libc::close(opened) };
        }
    }
}

/// The master of a terminal, `/dev/ptmx`, has this number (Linux's devices.txt). Opened again, it is the master of
/// another terminal.
const PTMX: u64 = libc::makedev(5, 2);

fn open_again(fd: RawFd) -> io::Result<RawFd> {
    // SAFETY: the descriptor is the output's, which stays open.
    if fstat(unsafe { BorrowedFd::borrow_raw(fd) })?.st_rdev as u64 == PTMX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let path = CString::new(format!("/proc/self/fd/{fd}"))?;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into_raw_fd())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
