//! The scoreboard: one shared mapping, made before the fork, in which every worker
//! publishes how loaded it is. Siblings read it to decide who accepts a
//! connection, the supervisor to answer `status`.
//!
//! All fields are relaxed atomics: each is a gauge of its own, nothing is
//! ordered by them, and a torn *set* of gauges only makes one decision stale.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What one worker publishes. Padded so that two workers never share a line.
#[repr(C, align(128))]
#[derive(Default)]
pub struct WorkerGauges {
    /// Process id of the worker, 0 when the place is free.
    pub pid: AtomicU32,
    /// Open client connections.
    pub connections: AtomicU32,
    /// Units waiting in the first class of the queue.
    pub queued: AtomicU32,
    /// Units being run by Ruby threads.
    pub running: AtomicU32,
    /// Ruby threads in the pool.
    pub threads: AtomicU32,
    /// Age in ms of the oldest waiting unit, as last seen.
    pub queue_age_ms: AtomicU32,
    /// 1 while units wait and none was taken for the preemption interval.
    pub hogged: AtomicU32,
    /// When a Ruby thread last took a unit, in ms of the monotonic clock.
    pub taken_at_ms: AtomicU64,
    /// 1 while the worker accepts connections.
    pub accepting: AtomicU32,
    /// Requests read since the worker started.
    pub requests_total: AtomicU64,
    /// Requests answered 503 because the queue was full or too old.
    pub shed_total: AtomicU64,
    /// Units finished by Ruby since the worker started.
    pub finished_total: AtomicU64,
    /// What the collector did, and what the heap holds.
    pub heap: HeapGauges,
}

/// A worker's heap and allocator, as last seen.
#[derive(Default)]
pub struct HeapGauges {
    /// Minor collections.
    pub minor_total: AtomicU64,
    /// Full collections.
    pub major_total: AtomicU64,
    /// Full collections that began inside a unit of work.
    pub major_inside_total: AtomicU64,
    /// Time spent collecting inside units of work (ns).
    pub inside_ns: AtomicU64,
    /// Time spent collecting outside of them (ns).
    pub between_ns: AtomicU64,
    /// Slots that hold objects.
    pub live_slots: AtomicU64,
    /// Objects that were promoted.
    pub old_objects: AtomicU64,
    /// Pages of the heap.
    pub heap_pages: AtomicU64,
    /// Bytes the program has allocated and not freed, of the allocator.
    pub allocated_bytes: AtomicU64,
    /// Bytes in pages with at least one allocation.
    pub active_bytes: AtomicU64,
    /// Bytes of physical memory that the allocator holds.
    pub resident_bytes: AtomicU64,
    /// Bytes of address space that it has given back and kept.
    pub retained_bytes: AtomicU64,
}

impl HeapGauges {
    /// Every gauge with the name that Ruby and `status` know it by.
    pub fn gauges(&self) -> [(&'static str, &AtomicU64); 12] {
        [
            ("gc_minor_total", &self.minor_total),
            ("gc_major_total", &self.major_total),
            ("gc_major_inside_total", &self.major_inside_total),
            ("gc_inside_ns", &self.inside_ns),
            ("gc_between_ns", &self.between_ns),
            ("live_slots", &self.live_slots),
            ("old_objects", &self.old_objects),
            ("heap_pages", &self.heap_pages),
            ("allocator_allocated", &self.allocated_bytes),
            ("allocator_active", &self.active_bytes),
            ("allocator_resident", &self.resident_bytes),
            ("allocator_retained", &self.retained_bytes),
        ]
    }
}

impl WorkerGauges {
    /// Whether a unit has been running for `after_ms` without another being
    /// taken: a new connection would wait behind it. `now_ms` is the monotonic
    /// clock ([`crate::clock::now_ns`] in ms).
    pub fn is_hogged(&self, now_ms: u64, after_ms: u64) -> bool {
        self.running.load(Relaxed) > 0
            && now_ms.saturating_sub(self.taken_at_ms.load(Relaxed)) >= after_ms
    }

    /// Frees the place for the next worker: every gauge back to 0.
    pub fn clear(&self) {
        for gauge in [
            &self.pid,
            &self.connections,
            &self.queued,
            &self.running,
            &self.threads,
            &self.queue_age_ms,
            &self.hogged,
            &self.accepting,
        ] {
            gauge.store(0, Relaxed);
        }
        for total in
            [&self.requests_total, &self.shed_total, &self.finished_total, &self.taken_at_ms]
        {
            total.store(0, Relaxed);
        }
        for (_, gauge) in self.heap.gauges() {
            gauge.store(0, Relaxed);
        }
    }
}

/// The shared mapping with one [`WorkerGauges`] per worker.
///
/// It outlives `fork`: parent and children see the same memory. A process that
/// was started anew (a mold) maps it by its inherited descriptor. Dropping the
/// handle unmaps it in this process only.
pub struct Scoreboard {
    slots: NonNull<WorkerGauges>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping is valid until drop and holds atomics only.
unsafe impl Send for Scoreboard {}
// SAFETY: as above; every access goes through atomics.
unsafe impl Sync for Scoreboard {}

impl Scoreboard {
    /// Maps a scoreboard of `len` slots, all zero. Call before the fork.
    ///
    /// # Errors
    /// The operating system's error when the mapping is refused.
    pub fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1);
        // SAFETY: a literal name with its NUL; the flag keeps it from other programs.
        let raw = unsafe { libc::memfd_create(c"chaton-scoreboard".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let bytes = (len * std::mem::size_of::<WorkerGauges>()) as libc::off_t;
        // SAFETY: a descriptor of ours.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(fd, len)
    }

    /// Maps the scoreboard behind an inherited descriptor, which stays the caller's.
    ///
    /// # Errors
    /// `InvalidInput` when it is no scoreboard, else the operating system's error.
    pub fn open(inherited: RawFd) -> io::Result<Self> {
        // SAFETY: duplicates; a bad descriptor is an error, not harm.
        let raw = unsafe { libc::fcntl(inherited, libc::F_DUPFD_CLOEXEC, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, owned by nobody else.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        let bytes = file.metadata()?.len() as usize;
        let size = std::mem::size_of::<WorkerGauges>();
        if bytes == 0 || !bytes.is_multiple_of(size) {
            let message = format!("descriptor {inherited} is no scoreboard: {bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Self::map(file.into(), bytes / size)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<Self> {
        // SAFETY: the file behind `fd` has this size and is never truncated.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * std::mem::size_of::<WorkerGauges>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let slots = NonNull::new(at.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { slots, len, fd })
    }

    /// The descriptor by which a process started anew maps the same scoreboard.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Number of slots.
    #[allow(clippy::len_without_is_empty)] // never empty: at least one slot
    pub fn len(&self) -> usize {
        self.len
    }

    /// The slot of worker `index`.
    ///
    /// # Panics
    /// When `index` is not below [`Scoreboard::len`].
    pub fn slot(&self, index: usize) -> &WorkerGauges {
        assert!(index < self.len, "scoreboard has {} slots, asked for {index}", self.len);
        // SAFETY: in bounds, mapped until drop, all-zero bytes are valid atomics.
        unsafe { self.slots.add(index).as_ref() }
    }

    /// The slots of the other workers that are alive.
    pub fn siblings(&self, index: usize) -> impl Iterator<Item = &WorkerGauges> {
        (0..self.len)
            .filter(move |i| *i != index)
            .map(|i| self.slot(i))
            .filter(|slot| slot.pid.load(Relaxed) != 0)
    }
}

impl Drop for Scoreboard {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size; no reference outlives `self`.
        unsafe {
            libc::munmap(
                self.slots.as_ptr().cast(),
                self.len * std::mem::size_of::<WorkerGauges>(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_writes_what_the_parent_reads() {
        let scoreboard = Scoreboard::new(2).unwrap();
        // SAFETY: the child only stores to the mapping and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            scoreboard.slot(1).queued.store(7, Relaxed);
            // SAFETY: leaves without running the test harness's handlers.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        assert_eq!(scoreboard.slot(1).queued.load(Relaxed), 7);
        scoreboard.slot(1).clear();
        assert_eq!(scoreboard.slot(1).queued.load(Relaxed), 0);
    }

    #[test]
    fn an_inherited_descriptor_shows_the_same_board() {
        let scoreboard = Scoreboard::new(3).unwrap();
        let again = Scoreboard::open(scoreboard.fd()).unwrap();
        assert_eq!(again.len(), 3);
        again.slot(2).running.store(4, Relaxed);
        assert_eq!(scoreboard.slot(2).running.load(Relaxed), 4);
    }

    #[test]
    fn what_is_no_board_is_refused() {
        let file = tempfile_of(5);
        assert_eq!(
            Scoreboard::open(file.as_raw_fd()).err().unwrap().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(Scoreboard::open(-1).is_err());
    }

    fn tempfile_of(bytes: i64) -> OwnedFd {
        // SAFETY: a literal name; the result is checked and owned here.
        unsafe {
            let raw = libc::memfd_create(c"no-scoreboard".as_ptr(), libc::MFD_CLOEXEC);
            assert!(raw >= 0);
            assert_eq!(libc::ftruncate(raw, bytes), 0);
            OwnedFd::from_raw_fd(raw)
        }
    }

    #[test]
    fn siblings_are_the_living_others() {
        let scoreboard = Scoreboard::new(3).unwrap();
        scoreboard.slot(0).pid.store(10, Relaxed);
        scoreboard.slot(2).pid.store(12, Relaxed);
        assert_eq!(scoreboard.siblings(0).count(), 1);
        assert_eq!(scoreboard.siblings(1).count(), 2);
    }

    #[test]
    #[should_panic(expected = "scoreboard has 2 slots")]
    fn an_unknown_slot_is_refused() {
        let scoreboard = Scoreboard::new(2).unwrap();
        let _ = scoreboard.slot(2);
    }
}
