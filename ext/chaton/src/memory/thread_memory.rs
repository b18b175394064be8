//! Less memory for a pool thread: what matters where a thousand of them wait.

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;

use super::allocator;

/// Pool threads that keep the allocator's cache of free memory, which takes 50 KB a
/// thread and saves a tenth of the CPU time of the shortest requests. Threads above this
/// number mostly wait.
const CACHED_THREADS: usize = 32;

thread_local! {
    /// Its address tells which of the process's blocks of thread-local variables is the
    /// one of this library.
    static MARK: Cell<u8> = const { Cell::new(0) };
}

/// Call on a pool thread that has just entered the pool.
pub fn reduce(thread: usize) {
    if thread >= CACHED_THREADS {
        allocator::end_thread_cache();
    }
    #[cfg(target_os = "linux")]
    {
        release_pages(&signal_stack(), |_| true);
        release_pages(&local_variables(), |page| page.iter().all(|word| *word == 0));
    }
}

/// Gives whole pages back to the system; they then hold zeros.
fn release_pages(memory: &Range<usize>, is_free: impl Fn(&[u64]) -> bool) {
    // SAFETY: takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut at = memory.start.next_multiple_of(page);
    while at + page <= memory.end {
        // SAFETY: readable memory that only the calling thread uses, see the callers.
        unsafe {
            if is_free(std::slice::from_raw_parts(at as *const u64, page / 8)) {
                libc::madvise(at as *mut c_void, page, libc::MADV_DONTNEED);
            }
        }
        at += page;
    }
}

/// The stack that Ruby gave this thread for signal handlers, 16 KB. It holds nothing while
/// no handler runs; the allocator may have used its pages before.
fn signal_stack() -> Range<usize> {
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: only fills the record.
    let stack = unsafe {
        libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr());
        stack.assume_init()
    };
    let used = stack.ss_flags & (libc::SS_DISABLE | libc::SS_ONSTACK) != 0;
    let start = stack.ss_sp as usize;
    start..start + if used { 0 } else { stack.ss_size }
}

/// The calling thread's variables of this library: 16 KB, nearly all of them buffers of
/// librdkafka. A thread of the pool does not use those, but the dynamic linker writes
/// zeros to them.
#[cfg(target_os = "linux")]
fn local_variables() -> Range<usize> {
    let mut search = Search { mark: MARK.with(Cell::as_ptr) as usize, found: 0..0 };
    // SAFETY: the callback gets `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

#[cfg(target_os = "linux")]
struct Search {
    mark: usize,
    found: Range<usize>,
}

/// Finds the library whose block of the calling thread has the mark.
#[cfg(target_os = "linux")]
unsafe extern "C" fn visit(
    library: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> std::ffi::c_int {
    // SAFETY: the linker's record, valid during the call, and our own `Search`.
    let (library, search) = unsafe { (&*library, &mut *search.cast::<Search>()) };
    let block = library.dlpi_tls_data as usize;
    // SAFETY: the library's program headers.
    let headers =
        unsafe { std::slice::from_raw_parts(library.dlpi_phdr, library.dlpi_phnum.into()) };
    let variables = headers.iter().find(|header| header.p_type == libc::PT_TLS);
    let block = block..block + variables.map_or(0, |header| header.p_memsz as usize);
    if block.contains(&search.mark) {
        search.found = block;
    }
    (!search.found.is_empty()).into()
}
