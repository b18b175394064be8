//! The in_flight: one shared mapping, made before the fork, in which every thread
//! of every worker notes the job it *starts*. It costs a few stores and
//! survives `kill -9`: the supervisor reads from it what a dead worker ran.
//!
//! An entry is written by its thread only: number of the job and time first,
//! then the ticket with release ordering. A ticket that is not 0 is therefore
//! one whose entry is whole, even if the writer was killed between two stores.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest identity that is kept, in bytes; the rest is cut off.
pub const IDENTITY_BYTES_MAX: usize = 128;
/// Longest job number that is kept, in bytes; the rest is cut off.
pub const JID_BYTES_MAX: usize = 48;

const WORD: usize = 8;

/// Text in shared memory: padded with zeros, so it has none in it.
#[repr(C)]
struct Text<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Text<WORDS> {
    fn set(&self, text: &[u8]) {
        for (index, word) in self.0.iter().enumerate() {
            let from = (index * WORD).min(text.len());
            let part = &text[from..(from + WORD).min(text.len())];
            let mut bytes = [0; WORD];
            bytes[..part.len()].copy_from_slice(part);
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    fn get(&self) -> String {
        let bytes: Vec<u8> =
            self.0.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let len = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

/// Who works in a slot.
#[repr(C)]
struct SlotHeader {
    identity: Text<{ IDENTITY_BYTES_MAX / WORD }>,
}

/// What a thread runs; one cache line.
#[repr(C, align(64))]
struct SlotEntry {
    ticket: AtomicU64,
    started_at_ms: AtomicU64,
    jid: Text<{ JID_BYTES_MAX / WORD }>,
}

/// A job that was started in a slot and has not ended there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its number in the in-flight set of the slot's identity.
    pub ticket: u64,
    /// Its number.
    pub jid: String,
    /// When it was started, in ms since 1970.
    pub started_at_ms: u64,
}

/// The shared mapping: a slot per worker, an entry per thread.
///
/// It outlives `fork`; a process that was started anew maps it by its
/// inherited descriptor. Dropping the handle unmaps it in this process only.
pub struct InFlightTable {
    at: NonNull<u8>,
    slots: usize,
    threads: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping is valid until drop and holds atomics only.
unsafe impl Send for InFlightTable {}
// SAFETY: as above; every access goes through atomics.
unsafe impl Sync for InFlightTable {}

const fn slot_bytes(threads: usize) -> usize {
    std::mem::size_of::<SlotHeader>() + threads * std::mem::size_of::<SlotEntry>()
}

impl InFlightTable {
    /// Maps a in_flight of `slots` workers with `threads` threads each, all empty.
    /// Call before the fork.
    ///
    /// # Errors
    /// The operating system's error when the mapping is refused.
    pub fn new(slots: usize, threads: usize) -> io::Result<Self> {
        let (slots, threads) = (slots.max(1), threads.max(1));
        // SAFETY: a literal name with its NUL; the flag keeps it from other programs.
        let raw = unsafe { libc::memfd_create(c"chaton-in-flight".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let bytes = (slots * slot_bytes(threads)) as libc::off_t;
        // SAFETY: a descriptor of ours.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(fd, slots, threads)
    }

    /// Maps the in_flight behind an inherited descriptor, which stays the
    /// caller's. `threads` is what it was made with.
    ///
    /// # Errors
    /// `InvalidInput` when it is no such in_flight, else the operating system's error.
    pub fn open(inherited: RawFd, threads: usize) -> io::Result<Self> {
        let threads = threads.max(1);
        // SAFETY: duplicates; a bad descriptor is an error, not harm.
        let raw = unsafe { libc::fcntl(inherited, libc::F_DUPFD_CLOEXEC, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, owned by nobody else.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        let bytes = file.metadata()?.len() as usize;
        if bytes == 0 || !bytes.is_multiple_of(slot_bytes(threads)) {
            let message = format!(
                "descriptor {inherited} is no in-flight table of {threads} threads: {bytes} bytes"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Self::map(file.into(), bytes / slot_bytes(threads), threads)
    }

    fn map(fd: OwnedFd, slots: usize, threads: usize) -> io::Result<Self> {
        // SAFETY: the file behind `fd` has this size and is never truncated.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                slots * slot_bytes(threads),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { at, slots, threads, fd })
    }

    /// The descriptor by which a process started anew maps the same in_flight.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Threads that a slot has room for.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Says who works in the slot.
    ///
    /// # Panics
    /// When there is no such slot, like every method that takes one.
    pub fn name(&self, slot: usize, identity: &str) {
        self.head(slot).identity.set(identity.as_bytes());
    }

    /// Who works, or worked, in the slot.
    pub fn identity(&self, slot: usize) -> Option<String> {
        let identity = self.head(slot).identity.get();
        (!identity.is_empty()).then_some(identity)
    }

    /// A thread starts a job. One past the room of the slot is not noted: its
    /// job will be given back, but never blamed.
    pub fn start(&self, slot: usize, thread: usize, ticket: u64, jid: &str, now_ms: u64) {
        let Some(entry) = self.entry(slot, thread) else { return };
        entry.ticket.store(0, Ordering::Relaxed);
        // Keeps the two stores of the ticket on their sides of what is between.
        std::sync::atomic::fence(Ordering::Release);
        entry.jid.set(jid.as_bytes());
        entry.started_at_ms.store(now_ms, Ordering::Relaxed);
        entry.ticket.store(ticket, Ordering::Release);
    }

    /// The job under this ticket has ended. Nothing happens when the thread has
    /// started another one since.
    pub fn end(&self, slot: usize, thread: usize, ticket: u64) {
        let Some(entry) = self.entry(slot, thread) else { return };
        let _ = entry.ticket.compare_exchange(ticket, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// What was started in the slot and has not ended.
    pub fn started(&self, slot: usize) -> Vec<Started> {
        let entries = (0..self.threads).filter_map(|thread| self.entry(slot, thread));
        entries
            .filter_map(|entry| {
                let ticket = entry.ticket.load(Ordering::Acquire);
                (ticket != 0).then(|| Started {
                    ticket,
                    jid: entry.jid.get(),
                    started_at_ms: entry.started_at_ms.load(Ordering::Relaxed),
                })
            })
            .collect()
    }

    /// Empties the slot.
    pub fn clear(&self, slot: usize) {
        self.head(slot).identity.set(b"");
        for entry in (0..self.threads).filter_map(|thread| self.entry(slot, thread)) {
            entry.ticket.store(0, Ordering::Release);
        }
    }

    fn head(&self, slot: usize) -> &SlotHeader {
        assert!(slot < self.slots, "in-flight table has {} slots, asked for {slot}", self.slots);
        // SAFETY: in bounds and aligned (both sizes are multiples of 64), mapped
        // until drop; all-zero bytes are valid atomics.
        unsafe { self.at.add(slot * slot_bytes(self.threads)).cast::<SlotHeader>().as_ref() }
    }

    fn entry(&self, slot: usize, thread: usize) -> Option<&SlotEntry> {
        let head: *const SlotHeader = self.head(slot);
        if thread >= self.threads {
            return None;
        }
        // SAFETY: the entries follow the head within the slot; as in `head`.
        unsafe { head.add(1).cast::<SlotEntry>().add(thread).as_ref() }
    }
}

impl Drop for InFlightTable {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; no reference outlives `self`.
        unsafe {
            libc::munmap(self.at.as_ptr().cast(), self.slots * slot_bytes(self.threads));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JID: &str = "0123456789abcdef01234567";

    #[test]
    fn a_killed_childs_jobs_are_read_by_its_parent() {
        let in_flight = InFlightTable::new(2, 3).unwrap();
        // SAFETY: the child only stores to the mapping and is killed by itself.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            in_flight.name(1, "host:7:ab");
            in_flight.start(1, 0, 5, JID, 1);
            in_flight.start(1, 2, 6, JID, 2);
            in_flight.end(1, 0, 5);
            in_flight.start(1, 3, 7, JID, 3);
            // SAFETY: ends this very process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert_eq!(in_flight.identity(1).as_deref(), Some("host:7:ab"));
        let one = Started { ticket: 6, jid: JID.into(), started_at_ms: 2 };
        assert_eq!(in_flight.started(1), [one]);
        assert_eq!((in_flight.identity(0), in_flight.started(0).len()), (None, 0));
        in_flight.clear(1);
        assert_eq!((in_flight.identity(1), in_flight.started(1).len()), (None, 0));
    }

    #[test]
    fn an_end_that_comes_late_leaves_the_next_job_alone() {
        let in_flight = InFlightTable::new(1, 1).unwrap();
        in_flight.start(0, 0, 1, "a", 0);
        in_flight.start(0, 0, 2, "b", 0);
        in_flight.end(0, 0, 1);
        assert_eq!(in_flight.started(0)[0].jid, "b");
        in_flight.end(0, 0, 2);
        assert!(in_flight.started(0).is_empty());
    }

    #[test]
    fn long_names_are_cut() {
        let in_flight = InFlightTable::new(1, 1).unwrap();
        in_flight.name(0, &"i".repeat(200));
        in_flight.start(0, 0, 1, &"j".repeat(200), 0);
        assert_eq!(in_flight.identity(0).map(|text| text.len()), Some(IDENTITY_BYTES_MAX));
        assert_eq!(in_flight.started(0)[0].jid.len(), JID_BYTES_MAX);
        in_flight.start(0, 0, 2, "short", 0);
        assert_eq!(in_flight.started(0)[0].jid, "short");
    }

    #[test]
    fn an_inherited_descriptor_shows_the_same_ledger() {
        let in_flight = InFlightTable::new(3, 5).unwrap();
        let again = InFlightTable::open(in_flight.fd(), 5).unwrap();
        assert_eq!((again.slots(), again.threads()), (3, 5));
        again.start(2, 4, 9, JID, 4);
        assert_eq!(in_flight.started(2)[0].ticket, 9);
        let wrong = InFlightTable::open(in_flight.fd(), 400).err().unwrap();
        assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
        assert!(InFlightTable::open(-1, 5).is_err());
    }

    #[test]
    #[should_panic(expected = "in-flight table has 1 slots")]
    fn an_unknown_slot_is_refused() {
        InFlightTable::new(1, 1).unwrap().clear(1);
    }
}
