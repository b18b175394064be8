//! The table of deaths: shared memory, made before the fork, in which the supervisor notes which batches of
//! records a worker was running when it died. Every worker reads it before it hands records out.
//!
//! Only the supervisor writes. An entry's number is stored last, with release ordering, and is 0 while the rest
//! changes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{fence, AtomicU64, Ordering};

use super::in_flight::JID_BYTES_MAX;
use crate::atomic_text::{AtomicText, WORD};
use crate::shared_mapping::{Layout, SharedMapping};

/// Deaths that are remembered; a further one replaces the oldest. They count for 72 hours: at one death in eight
/// minutes there is room for all.
const DEATHS_MAX: usize = 512;

#[repr(C, align(64))]
struct Entry {
    /// 1, 2, … in the order of the deaths; 0: none. In the first entry, which has no death: how many were noted.
    number: AtomicU64,
    at_ms: AtomicU64,
    work: AtomicText<{ JID_BYTES_MAX / WORD }>,
    cause: AtomicText<{ JID_BYTES_MAX / WORD }>,
}

/// Raise the version with every change of [`Entry`].
const LAYOUT: Layout =
    Layout { magic: *b"chatdead", version: 1, element_bytes: size_of::<Entry>() };

/// A worker's death, with the batch that one of its threads had started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The batch, as the in-flight table names it.
    pub work: String,
    /// Of what the worker died; the rest beyond [`JID_BYTES_MAX`] is cut off.
    pub cause: String,
    /// When, in ms since 1970.
    pub at_ms: u64,
}

/// Shared memory with the last deaths. It outlives `fork`; a process that was executed anew maps it by its
/// inherited descriptor.
pub struct DeathTable {
    mapping: SharedMapping,
    fd: OwnedFd,
}

impl DeathTable {
    /// Maps an empty table. Call before the fork.
    ///
    /// # Errors
    /// The operating system's error when the mapping is refused.
    pub fn new() -> io::Result<Self> {
        let (mapping, fd) = SharedMapping::create(c"chaton-deaths", LAYOUT, 1 + DEATHS_MAX)?;
        Ok(Self { mapping, fd })
    }

    /// Maps the table behind an inherited descriptor, which stays the caller's.
    ///
    /// # Errors
    /// `InvalidInput` when it is not a table of this layout, else the operating system's error.
    pub fn open(inherited: RawFd) -> io::Result<Self> {
        let (mapping, fd) = SharedMapping::open(inherited, LAYOUT)?;
        Ok(Self { mapping, fd })
    }

    /// The descriptor by which a process that is executed anew maps the same table.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Notes the death of a worker that was running this batch. Only the supervisor calls it.
    pub fn add(&self, work: &str, cause: &str, now_ms: u64) {
        let number = self.noted();
        let (head, entries) = self.parts();
        let entry = &entries[number as usize % entries.len()];
        entry.number.store(0, Ordering::Relaxed);
        // The stores below must not be visible before the number is 0.
        fence(Ordering::Release);
        entry.work.set(work.as_bytes());
        entry.cause.set(cause.as_bytes());
        entry.at_ms.store(now_ms, Ordering::Relaxed);
        entry.number.store(number + 1, Ordering::Release);
        head.number.store(number + 1, Ordering::Release);
    }

    /// How many deaths were noted, also those that were replaced.
    pub fn noted(&self) -> u64 {
        self.parts().0.number.load(Ordering::Acquire)
    }

    /// The deaths that are remembered.
    pub fn all(&self) -> Vec<Death> {
        let entries = self.parts().1.iter();
        let noted = entries.filter(|entry| entry.number.load(Ordering::Acquire) != 0);
        noted
            .map(|entry| Death {
                work: entry.work.get(),
                cause: entry.cause.get(),
                at_ms: entry.at_ms.load(Ordering::Relaxed),
            })
            .collect()
    }

    /// The first entry and the others.
    fn parts(&self) -> (&Entry, &[Entry]) {
        let count = self.mapping.count(size_of::<Entry>());
        // SAFETY: the mapping has this many entries until drop; they are aligned, and all-zero bytes are valid
        // atomics.
        let all =
            unsafe { std::slice::from_raw_parts(self.mapping.elements().cast().as_ptr(), count) };
        all.split_first().expect("a table has at least its first entry")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_reads_the_deaths_and_the_oldest_is_replaced() {
        let table = DeathTable::new().unwrap();
        let again = DeathTable::open(table.fd()).unwrap();
        assert_eq!((again.noted(), again.all().len()), (0, 0));
        for number in 1..=DEATHS_MAX as u64 + 1 {
            table.add(&format!("work {number}"), "SIGSEGV", number);
        }
        let deaths = again.all();
        assert_eq!((again.noted(), deaths.len()), (DEATHS_MAX as u64 + 1, DEATHS_MAX));
        let newest = Death { work: "work 513".into(), cause: "SIGSEGV".into(), at_ms: 513 };
        assert_eq!((&deaths[0], &*deaths[1].work), (&newest, "work 2"));
        assert!(DeathTable::open(-1).is_err());
    }
}
