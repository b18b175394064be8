//! The main thread's stack, which CRuby touches to its limit of 8 MB when it starts.
//!
//! Where CRuby is compiled with `-fstack-clash-protection` (Debian 13, Ubuntu), the frame
//! with which it reserves the stack writes to each page of it, and all of them stay
//! resident: ruby/ruby, `reserve_stack` in `thread_pthread.c`.

/// What stays for the calls that follow.
const KEPT_BYTES: usize = 256 * 1024;

/// `Native::Memory.release_main_stack`: gives the unused part of the stack back to the
/// system. Returns its size in bytes; 0 on another thread than the main one.
pub fn release() -> usize {
    #[cfg(target_os = "linux")]
    return std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| release_mapped(&maps));
    #[cfg(not(target_os = "linux"))]
    0
}

#[cfg(target_os = "linux")]
fn release_mapped(maps: &str) -> usize {
    let mark = 0u8;
    let here = std::ptr::from_ref(&mark) as usize;
    let Some(stack) = maps.lines().find_map(stack_of) else { return 0 };
    if !stack.contains(&here) || !is_main_thread() {
        return 0;
    }
    // SAFETY: takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let end = here.saturating_sub(KEPT_BYTES) / page * page;
    let bytes = end.saturating_sub(stack.start);
    // SAFETY: the stack grows down, and this thread uses nothing below its current frame.
    let released = bytes > 0
        && unsafe { libc::madvise(stack.start as *mut _, bytes, libc::MADV_DONTNEED) == 0 };
    if released {
        bytes
    } else {
        0
    }
}

#[cfg(target_os = "linux")]
fn is_main_thread() -> bool {
    // SAFETY: both take nothing.
    unsafe { libc::gettid() == libc::getpid() }
}

/// The addresses in a line of `/proc/self/maps`, if it is the main thread's stack.
#[cfg(target_os = "linux")]
fn stack_of(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = line.strip_suffix("[stack]")?.split(' ').next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}
