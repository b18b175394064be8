//! The in-flight table: shared memory, made before the fork, in which every thread
//! of every worker notes the job or the batch it starts. It costs a few stores and survives
//! `kill -9`: the supervisor reads from it which jobs a dead worker was running.
//!
//! Only its own thread writes an entry: jid and start time first, then the ticket
//! with release ordering. So an entry whose ticket is not 0 is complete, even if
//! the writer was killed between two stores.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::atomic_text::{AtomicText, WORD};
use crate::shared_mapping::{Layout, SharedMapping};

/// Longest identity in bytes; the rest is cut off.
pub const IDENTITY_BYTES_MAX: usize = 128;
/// Longest jid in bytes; the rest is cut off.
pub const JID_BYTES_MAX: usize = 48;

/// The process that uses a slot.
#[repr(C, align(64))]
struct SlotHeader {
    identity: AtomicText<{ IDENTITY_BYTES_MAX / WORD }>,
    /// 1: its entries stay, see [`InFlightTable::keep`].
    kept: AtomicU64,
}

/// The job that a thread runs; one cache line.
#[repr(C, align(64))]
struct SlotEntry {
    ticket: AtomicU64,
    started_at_ms: AtomicU64,
    jid: AtomicText<{ JID_BYTES_MAX / WORD }>,
}

/// A job that was started in a slot and has not ended there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its ticket in the in-flight set of the slot's identity.
    pub ticket: u64,
    /// Its id.
    pub jid: String,
    /// When it was started, in ms since 1970.
    pub started_at_ms: u64,
}

const fn slot_bytes(threads: usize) -> usize {
    size_of::<SlotHeader>() + threads * size_of::<SlotEntry>()
}

/// Raise the version with every change of [`SlotHeader`] or [`SlotEntry`].
const fn layout(threads: usize) -> Layout {
    Layout { magic: *b"chatwork", version: 3, element_bytes: slot_bytes(threads) }
}

/// Shared memory with a slot per worker and an entry per thread.
///
/// It outlives `fork`. A process that was executed anew maps it by its inherited
/// descriptor.
pub struct InFlightTable {
    mapping: SharedMapping,
    threads: usize,
    fd: OwnedFd,
}

impl InFlightTable {
    /// Maps an empty table of `slots` workers with `threads` threads each. Call
    /// before the fork.
    ///
    /// # Errors
    /// The operating system's error when the mapping is refused.
    pub fn new(slots: usize, threads: usize) -> io::Result<Self> {
        let (slots, threads) = (slots.max(1), threads.max(1));
        let (mapping, fd) = SharedMapping::create(c"chaton-in-flight", layout(threads), slots)?;
        Ok(Self { mapping, threads, fd })
    }

    /// Maps the table behind an inherited descriptor, which stays the caller's.
    /// `threads` must be the number it was made with.
    ///
    /// # Errors
    /// `InvalidInput` when it is not a table of this layout, else the operating system's error.
    pub fn open(inherited: RawFd, threads: usize) -> io::Result<Self> {
        let threads = threads.max(1);
        let (mapping, fd) = SharedMapping::open(inherited, layout(threads))?;
        Ok(Self { mapping, threads, fd })
    }

    /// The descriptor by which a process that is executed anew maps the same table.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.mapping.count(slot_bytes(self.threads))
    }

    /// Entries of a slot.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Stores the identity of the process that uses the slot.
    ///
    /// # Panics
    /// When there is no such slot, as in every method that takes a slot.
    pub fn name(&self, slot: usize, identity: &str) {
        self.head(slot).identity.set(identity.as_bytes());
    }

    /// The identity of the process that uses, or last used, the slot.
    pub fn identity(&self, slot: usize) -> Option<String> {
        let identity = self.head(slot).identity.get();
        (!identity.is_empty()).then_some(identity)
    }

    /// Notes that a thread starts a job. A thread without an entry is not noted: its
    /// job is still recovered, but never counted as the cause of a crash.
    pub fn start(&self, slot: usize, thread: usize, ticket: u64, jid: &str, now_ms: u64) {
        let Some(entry) = self.entry(slot, thread) else { return };
        entry.ticket.store(0, Ordering::Relaxed);
        // The stores below must not be visible before the ticket is 0.
        std::sync::atomic::fence(Ordering::Release);
        entry.jid.set(jid.as_bytes());
        entry.started_at_ms.store(now_ms, Ordering::Relaxed);
        entry.ticket.store(ticket, Ordering::Release);
    }

    /// Keeps the entries of a worker that its supervisor is about to end for what its work does. From now
    /// on an entry stays when its job ends, and the worker leaves running jobs in its in-flight set,
    /// so that its death counts against them.
    pub fn keep(&self, slot: usize) {
        self.head(slot).kept.store(1, Ordering::Release);
    }

    /// Whether the entries of the slot are kept.
    pub fn is_kept(&self, slot: usize) -> bool {
        self.head(slot).kept.load(Ordering::Acquire) == 1
    }

    /// Notes that the job with this ticket has ended. Nothing happens when the
    /// thread has started another one since.
    pub fn end(&self, slot: usize, thread: usize, ticket: u64) {
        let Some(entry) = self.entry(slot, thread).filter(|_| !self.is_kept(slot)) else { return };
        let _ = entry.ticket.compare_exchange(ticket, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// The jobs that were started in the slot and have not ended.
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
        self.head(slot).kept.store(0, Ordering::Release);
        for entry in (0..self.threads).filter_map(|thread| self.entry(slot, thread)) {
            entry.ticket.store(0, Ordering::Release);
        }
    }

    fn head(&self, slot: usize) -> &SlotHeader {
        assert!(
            slot < self.slots(),
            "in-flight table has {} slots, asked for {slot}",
            self.slots()
        );
        // SAFETY: in bounds and aligned (both sizes are multiples of 64), mapped
        // until drop; all-zero bytes are valid atomics.
        unsafe {
            let start = self.mapping.elements().add(slot * slot_bytes(self.threads));
            start.cast::<SlotHeader>().as_ref()
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const JID: &str = "0123456789abcdef01234567";

    #[test]
    fn the_parent_reads_the_jobs_of_a_killed_child() {
        let table = InFlightTable::new(2, 3).unwrap();
        // SAFETY: the child only stores to the mapping and is killed by itself.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            table.name(1, "host:7:ab");
            table.start(1, 0, 5, JID, 1);
            table.start(1, 2, 6, JID, 2);
            table.end(1, 0, 5);
            table.start(1, 3, 7, JID, 3);
            // SAFETY: ends this very process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert_eq!(table.identity(1).as_deref(), Some("host:7:ab"));
        let one = Started { ticket: 6, jid: JID.into(), started_at_ms: 2 };
        assert_eq!(table.started(1), [one]);
        assert_eq!((table.identity(0), table.started(0).len()), (None, 0));
        table.clear(1);
        assert_eq!((table.identity(1), table.started(1).len()), (None, 0));
    }

    #[test]
    fn a_late_end_does_not_remove_the_next_job() {
        let table = InFlightTable::new(1, 1).unwrap();
        table.start(0, 0, 1, "a", 0);
        table.start(0, 0, 2, "b", 0);
        table.end(0, 0, 1);
        assert_eq!(table.started(0)[0].jid, "b");
        table.end(0, 0, 2);
        assert!(table.started(0).is_empty());
    }

    #[test]
    fn entries_that_are_kept_outlive_their_jobs() {
        let table = InFlightTable::new(2, 1).unwrap();
        table.start(1, 0, 5, JID, 1);
        table.keep(1);
        table.end(1, 0, 5);
        assert_eq!((table.is_kept(0), table.is_kept(1), table.started(1).len()), (false, true, 1));
        table.clear(1);
        assert_eq!((table.is_kept(1), table.started(1).len()), (false, 0));
    }

    #[test]
    fn long_names_are_cut_off() {
        let table = InFlightTable::new(1, 1).unwrap();
        table.name(0, &"i".repeat(200));
        table.start(0, 0, 1, &"j".repeat(200), 0);
        assert_eq!(table.identity(0).map(|text| text.len()), Some(IDENTITY_BYTES_MAX));
        assert_eq!(table.started(0)[0].jid.len(), JID_BYTES_MAX);
        table.start(0, 0, 2, "short", 0);
        assert_eq!(table.started(0)[0].jid, "short");
    }

    #[test]
    fn an_inherited_descriptor_maps_the_same_table() {
        let table = InFlightTable::new(3, 5).unwrap();
        let again = InFlightTable::open(table.fd(), 5).unwrap();
        assert_eq!((again.slots(), again.threads()), (3, 5));
        again.start(2, 4, 9, JID, 4);
        assert_eq!(table.started(2)[0].ticket, 9);
        let wrong = InFlightTable::open(table.fd(), 400).err().unwrap();
        assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
        assert!(wrong.to_string().contains("chaton restart --full"), "{wrong}");
        assert!(InFlightTable::open(-1, 5).is_err());
    }

    #[test]
    #[should_panic(expected = "in-flight table has 1 slots")]
    fn an_unknown_slot_is_refused() {
        InFlightTable::new(1, 1).unwrap().clear(1);
    }
}
