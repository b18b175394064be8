//! Liveness of sampled objects on CRuby 3.1, where a hook on the end of marking
//! would cost every allocation some 20 ns, in windows and between them.
//!
//! CRuby 3.1 does not use the upper half of a slot's flags on 64-bit machines. A sampled object
//! gets a tag there, which stays until its slot is used again. After a collection has finished
//! sweeping, the object is alive if its slot still has its tag. Pages may have been returned to the
//! system meanwhile, so an address is read only if it lies inside a page that exists now.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use chaton_memory::profile::{CollectionKind, ObjectState};
use magnus::rb_sys::protect;
use rb_sys::VALUE;

use super::gc_api::{EachPage, GcApi};
use super::tracer_state::TracerState;

/// Addresses have 48 bits.
const SHIFT: u32 = 48;
const ADDRESS: usize = (1 << SHIFT) - 1;

/// Tags the object; returns its id in the profile (address and tag).
///
/// # Safety
/// A new object, with the GVL.
pub unsafe fn tag(object: VALUE) -> usize {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let tag = LAST.load(Relaxed).wrapping_add(1).max(1);
    LAST.store(tag, Relaxed);
    // SAFETY: the caller has the GVL and passes a live object.
    unsafe { (*(object as *mut rb_sys::RBasic)).flags |= VALUE::from(tag) << SHIFT };
    object as usize | (usize::from(tag) << SHIFT)
}

/// Updates the profile if collections took place since the last call. Call with
/// the GVL, outside of a collection.
pub fn after_collections(tracing: &TracerState, api: &GcApi, each_page: EachPage) {
    let count = tracing.stats.count.read();
    let seen = tracing.count_seen.swap(count, Relaxed);
    let majors = tracing.major.read();
    let majors_seen = tracing.majors_seen.swap(majors, Relaxed);
    if count == seen {
        return;
    }
    let pages = pages(each_page);
    // Several collections since the last call count as one, because it is not known
    // how many of them an object has survived.
    let kind = if majors > majors_seen { CollectionKind::Major } else { CollectionKind::Minor };
    tracing.profile.lock().after_mark(kind, |id| match alive(id, &pages) {
        Some(object) => api.state(object, true),
        None => ObjectState { alive: false, old: false, bytes: 0, class: 0 },
    });
}

/// Reads the sizes of objects sampled since the last collection. Call right after
/// [`after_collections`], so that none of them has been freed.
pub fn measure(tracing: &TracerState, api: &GcApi) {
    tracing.profile.lock().measure(|id| api.size(id & ADDRESS));
}

/// The address, if the object is still there.
fn alive(id: usize, pages: &[(usize, usize)]) -> Option<usize> {
    let (object, tag) = (id & ADDRESS, id >> SHIFT);
    let after = pages.partition_point(|(start, _)| *start <= object);
    let (_, end) = pages.get(after.checked_sub(1)?)?;
    if object >= *end {
        return None;
    }
    // SAFETY: inside a page of the heap, where the sampled slot begins.
    let flags = unsafe { (*(object as *const rb_sys::RBasic)).flags };
    (flags >> SHIFT == tag as VALUE).then_some(object)
}

/// The pages of the heap, sorted.
fn pages(each_page: EachPage) -> Vec<(usize, usize)> {
    let mut pages: Vec<(usize, usize)> = Vec::with_capacity(4096);
    let list = &raw mut pages;
    // After an error inside Ruby the pages found so far are used.
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
