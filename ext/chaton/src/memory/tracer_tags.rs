//! What has become of sampled objects, on CRuby 3.1: there a hook on the end of
//! marking would cost every allocation some 20 ns, in windows and between them.
//!
//! The upper half of a slot's flags is not used by 3.1 on 64-bit machines. A
//! sampled object gets a number there, which stays with it and is gone when its
//! slot is used again. After a collection, swept to its end, a followed object
//! is alive if its slot still has its number. Pages may have been given back to
//! the system meanwhile, so an address counts only inside a page of today.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use chaton_memory::profile::CollectionKind;
use magnus::rb_sys::protect;
use rb_sys::VALUE;

use super::tracer::TracerState;
use super::tracer_hooks::{size, GcApi};

type PageCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int;
/// `rb_objspace_each_objects`; sweeps to the end before it walks.
pub type EachPage = unsafe extern "C" fn(PageCallback, *mut c_void);

/// Addresses have 48 bits.
const SHIFT: u32 = 48;
const ADDRESS: usize = (1 << SHIFT) - 1;

/// Gives the object a number; answers what the profile knows it by.
///
/// # Safety
/// A new object, with the GVL.
pub unsafe fn number(object: VALUE) -> usize {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let tag = LAST.load(Relaxed).wrapping_add(1).max(1);
    LAST.store(tag, Relaxed);
    // SAFETY: the caller's.
    unsafe { (*(object as *mut rb_sys::RBasic)).flags |= VALUE::from(tag) << SHIFT };
    object as usize | (usize::from(tag) << SHIFT)
}

/// Looks what the collections since the last look have left. With the GVL,
/// outside of a collection.
pub fn after_collections(tracing: &TracerState, api: &GcApi, each_page: EachPage) {
    let count = tracing.stats.count.read();
    let seen = tracing.count_seen.swap(count, Relaxed);
    let majors = tracing.major.read();
    let majors_seen = tracing.majors_seen.swap(majors, Relaxed);
    if count == seen {
        return;
    }
    let pages = pages(each_page);
    // Several between two looks count as one: which of them an object has seen
    // is not known.
    let kind = if majors > majors_seen { CollectionKind::Major } else { CollectionKind::Minor };
    tracing.profile.lock().after_mark(kind, |id| match alive(id, &pages) {
        Some(object) => api.state(object, true),
        None => GcApi::dead(),
    });
}

/// Reads sizes of what was sampled since the last collection.
pub fn measure(tracing: &TracerState, api: &GcApi) {
    // Nothing has been freed since: the look that came before says so.
    tracing.profile.lock().measure(|id| size(api, id & ADDRESS));
}

/// The address, if the object is still there.
fn alive(id: usize, pages: &[(usize, usize)]) -> Option<usize> {
    let (object, tag) = (id & ADDRESS, id >> SHIFT);
    let after = pages.partition_point(|(start, _)| *start <= object);
    let (_, end) = pages.get(after.checked_sub(1)?)?;
    if object >= *end {
        return None;
    }
    // SAFETY: inside a page of the heap, where a slot of ours began.
    let flags = unsafe { (*(object as *const rb_sys::RBasic)).flags };
    (flags >> SHIFT == tag as VALUE).then_some(object)
}

/// The pages of the heap, in order.
fn pages(each_page: EachPage) -> Vec<(usize, usize)> {
    let mut pages: Vec<(usize, usize)> = Vec::with_capacity(4096);
    let list = &raw mut pages;
    // An error would be of Ruby's own making; what was found by then is used.
    let _ = protect(|| {
        // SAFETY: with the GVL, outside of a collection; the list outlives the call.
        unsafe { each_page(note_page, list.cast()) };
        rb_sys::Qnil as VALUE
    });
    pages.sort_unstable();
    pages
}

unsafe extern "C" fn note_page(
    start: *mut c_void,
    end: *mut c_void,
    _: usize,
    list: *mut c_void,
) -> c_int {
    // SAFETY: the list that `pages` passed.
    unsafe { (*list.cast::<Vec<(usize, usize)>>()).push((start as usize, end as usize)) };
    0
}
