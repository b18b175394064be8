//! Figures of the allocator that this process runs with, and returning free memory
//! to the system. The allocator is recognised by the names of its functions.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr;
use std::sync::OnceLock;

use magnus::{Error, RHash, Ruby};

use crate::gvl::without_gvl;
use crate::symbol::symbol;

type Mallctl =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
type Trim = unsafe extern "C" fn(usize) -> c_int;
type Mallinfo = unsafe extern "C" fn() -> Mallinfo2;
type MiCollect = unsafe extern "C" fn(bool);
type MiProcessInfo = unsafe extern "C" fn(
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
    *mut usize,
);

/// `struct mallinfo2` of malloc.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

#[derive(Clone, Copy)]
enum Allocator {
    Jemalloc(Mallctl),
    Mimalloc(MiCollect, Option<MiProcessInfo>),
    Glibc(Trim, Option<Mallinfo>),
    Other,
}

/// An allocator's own figures, in bytes; 0 where it has none.
#[derive(Clone, Copy, Default)]
pub struct AllocatorFigures {
    /// Allocated by the program and not freed.
    pub allocated: u64,
    /// In pages with at least one allocation.
    pub active: u64,
    /// In physical memory.
    pub resident: u64,
    /// Address space whose pages were returned to the system.
    pub retained: u64,
}

fn allocator() -> Allocator {
    static FOUND: OnceLock<Allocator> = OnceLock::new();
    *FOUND.get_or_init(find)
}

fn find() -> Allocator {
    // SAFETY: each function has its documented signature, the same in jemalloc 4 and 5,
    // mimalloc 2 and 3, and glibc (mallinfo2: 2.33 and later).
    unsafe {
        if let Some(mallctl) = symbol(c"mallctl") {
            return Allocator::Jemalloc(std::mem::transmute::<*mut c_void, Mallctl>(mallctl));
        }
        if let Some(collect) = symbol(c"mi_collect") {
            let collect = std::mem::transmute::<*mut c_void, MiCollect>(collect);
            let info = symbol(c"mi_process_info")
                .map(|info| std::mem::transmute::<*mut c_void, MiProcessInfo>(info));
            return Allocator::Mimalloc(collect, info);
        }
        let Some(trim) = symbol(c"malloc_trim") else { return Allocator::Other };
        let info =
            symbol(c"mallinfo2").map(|info| std::mem::transmute::<*mut c_void, Mallinfo>(info));
        Allocator::Glibc(std::mem::transmute::<*mut c_void, Trim>(trim), info)
    }
}

/// Reads one figure of jemalloc, 0 if it has no such name.
fn jemalloc_read(mallctl: Mallctl, name: &CStr) -> u64 {
    let (mut value, mut size) = (0usize, std::mem::size_of::<usize>());
    // SAFETY: fills a size of ours; an unknown name is an error and fills nothing.
    let failed = unsafe {
        mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut size, ptr::null_mut(), 0)
    };
    if failed == 0 {
        value as u64
    } else {
        0
    }
}

/// Makes jemalloc update its figures.
fn jemalloc_refresh(mallctl: Mallctl) {
    let mut epoch = 1u64;
    // SAFETY: eight bytes of ours, read by the call.
    unsafe {
        mallctl(c"epoch".as_ptr(), ptr::null_mut(), ptr::null_mut(), (&raw mut epoch).cast(), 8);
    }
}

/// Reads the figures, on any thread: some ten microseconds, with glibc as many
/// milliseconds when memory is fragmented.
pub fn read() -> AllocatorFigures {
    match allocator() {
        Allocator::Jemalloc(mallctl) => {
            jemalloc_refresh(mallctl);
            AllocatorFigures {
                allocated: jemalloc_read(mallctl, c"stats.allocated"),
                active: jemalloc_read(mallctl, c"stats.active"),
                resident: jemalloc_read(mallctl, c"stats.resident"),
                retained: jemalloc_read(mallctl, c"stats.retained"),
            }
        }
        Allocator::Mimalloc(_, Some(info)) => {
            let mut at = [0usize; 8];
            let [a, b, c, d, e, f, g, h] = at.each_mut().map(ptr::from_mut);
            // SAFETY: fills eight sizes of ours.
            unsafe { info(a, b, c, d, e, f, g, h) };
            // Elapsed, user, system, resident, its peak, committed, its peak, faults.
            let (resident, committed) = (at[3] as u64, at[5] as u64);
            AllocatorFigures { allocated: committed, active: committed, resident, retained: 0 }
        }
        Allocator::Glibc(_, Some(info)) => {
            // SAFETY: takes no argument; thread-safe.
            let info = unsafe { info() };
            let active = info.uordblks + info.hblkhd;
            let resident = info.arena + info.hblkhd;
            AllocatorFigures {
                allocated: active as u64,
                active: active as u64,
                resident: resident as u64,
                retained: 0,
            }
        }
        _ => AllocatorFigures::default(),
    }
}

/// Returns free memory to the operating system; takes milliseconds, so call it without the GVL.
pub fn release_free() {
    match allocator() {
        Allocator::Jemalloc(mallctl) => {
            // All arenas: MALLCTL_ARENAS_ALL.
            for name in [c"thread.tcache.flush", c"arena.4096.purge"] {
                // SAFETY: commands without arguments.
                unsafe {
                    mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0);
                }
            }
        }
        // SAFETY: thread-safe.
        Allocator::Mimalloc(collect, _) => unsafe { collect(true) },
        // SAFETY: thread-safe.
        Allocator::Glibc(trim, _) => unsafe {
            trim(0);
        },
        Allocator::Other => {}
    }
}

/// Ends the calling thread's cache of free memory. Its allocations then go to the arena,
/// each with a lock.
pub fn end_thread_cache() {
    if let Allocator::Jemalloc(mallctl) = allocator() {
        set(mallctl, c"thread.tcache.enabled", false);
    }
}

/// Sets a switch of jemalloc; returns whether it was possible.
fn set(mallctl: Mallctl, name: &CStr, mut on: bool) -> bool {
    let value = (&raw mut on).cast();
    // SAFETY: one byte of ours, read by the call.
    unsafe { mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), value, 1) == 0 }
}

/// `Native::Memory.purge`.
pub fn purge() {
    without_gvl(release_free, &|| {});
}

/// `Native::Memory.background(on)`: switches jemalloc's purging thread, which does not
/// survive a fork. Returns whether it now runs.
pub fn background(on: bool) -> bool {
    let Allocator::Jemalloc(mallctl) = allocator() else { return false };
    set(mallctl, c"background_thread", on) && on
}

/// `Native::Memory.allocator`.
pub fn figures(ruby: &Ruby) -> Result<RHash, Error> {
    let figures = read();
    let hash = ruby.hash_new();
    hash.aset(ruby.to_symbol("name"), name())?;
    hash.aset(ruby.to_symbol("version"), version())?;
    for (key, value) in [
        ("allocated", figures.allocated),
        ("active", figures.active),
        ("resident", figures.resident),
        ("retained", figures.retained),
    ] {
        hash.aset(ruby.to_symbol(key), value)?;
    }
    Ok(hash)
}

fn name() -> &'static str {
    match allocator() {
        Allocator::Jemalloc(_) => "jemalloc",
        Allocator::Mimalloc(..) => "mimalloc",
        Allocator::Glibc(..) => "glibc",
        Allocator::Other => "other",
    }
}

fn version() -> Option<String> {
    // SAFETY: both return a string that is never freed.
    let text = |at: *const c_char| unsafe {
        (!at.is_null()).then(|| CStr::from_ptr(at).to_string_lossy().into_owned())
    };
    match allocator() {
        Allocator::Jemalloc(mallctl) => {
            let (mut at, mut size) = (ptr::null::<c_char>(), std::mem::size_of::<usize>());
            // SAFETY: fills a pointer of ours.
            unsafe {
                mallctl(
                    c"version".as_ptr(),
                    (&raw mut at).cast(),
                    &raw mut size,
                    ptr::null_mut(),
                    0,
                );
            }
            // "5.3.0-0-g54eaed1d…" up to the first dash.
            text(at).map(|version| version.split('-').next().unwrap_or_default().to_owned())
        }
        Allocator::Glibc(..) => symbol(c"gnu_get_libc_version").and_then(|found| {
            // SAFETY: the signature of gnu/libc-version.h.
            let call = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(found)
            };
            // SAFETY: takes no argument.
            text(unsafe { call() })
        }),
        Allocator::Mimalloc(..) | Allocator::Other => None,
    }
}
