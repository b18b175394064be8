//! The two hooks of the tracer. They run with the GVL inside Ruby's allocator and
//! collector, where no Ruby object may be allocated.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use magnus::rb_sys::protect;
use magnus::{Error, Ruby};
use rb_sys::VALUE;

use super::gc_api::{EachPage, GcApi};
use super::tracer_state::{self, TracerState};
use super::tracer_tags;

/// Internal types of the VM (imemo and node), which have no class where other objects have theirs.
const CLASSLESS: [u8; 2] = [0x1a, 0x1b];
/// The size of a slot that is assumed until the object is measured.
const SLOT_BYTES: usize = 40;

/// The two tracepoints of a tracer.
pub struct Tracepoints {
    /// Enabled within windows.
    pub allocated: VALUE,
    /// Enabled while the tracer runs.
    pub marked: VALUE,
}

/// Makes the tracepoints, disabled.
///
/// # Errors
/// A sentence about the missing feature.
pub fn points(ruby: &Ruby) -> Result<Tracepoints, String> {
    if GcApi::load(ruby).is_none() {
        return Err("this Ruby does not tell which objects a collection has marked".into());
    }
    let ractors = ruby.eval::<u64>("Ractor.count").unwrap_or(1);
    if loses_moved_objects() && ractors > 1 {
        return Err("Ruby 3.1 crashes when allocations are traced beside Ractors".into());
    }
    let make = |event: u32, hook: unsafe extern "C" fn(VALUE, *mut c_void)| {
        // SAFETY: with the GVL; the hook has the type that Ruby expects.
        protect(|| unsafe {
            rb_sys::rb_tracepoint_new(rb_sys::Qnil as VALUE, event, Some(hook), ptr::null_mut())
        })
        .map_err(|error| error.to_string())
    };
    Ok(Tracepoints {
        allocated: make(rb_sys::RUBY_INTERNAL_EVENT_NEWOBJ, on_allocation)?,
        marked: make(rb_sys::RUBY_INTERNAL_EVENT_GC_END_MARK, on_marked)?,
    })
}

/// Enables or disables a tracepoint.
pub fn switch(point: VALUE, on: bool) -> Result<(), Error> {
    protect(|| {
        // SAFETY: a tracepoint that its tracer keeps alive; switching twice is no harm.
        unsafe {
            match (on, rb_sys::rb_tracepoint_enabled_p(point) == rb_sys::Qtrue as VALUE) {
                (true, false) => rb_sys::rb_tracepoint_enable(point),
                (false, true) => rb_sys::rb_tracepoint_disable(point),
                _ => rb_sys::Qnil as VALUE,
            }
        }
    })
    .map(drop)
}

unsafe extern "C" fn on_allocation(point: VALUE, _: *mut c_void) {
    let Some(tracing) = tracer_state::active() else { return };
    let left = tracing.left.load(Relaxed);
    if left > 1 {
        tracing.left.store(left - 1, Relaxed);
        return;
    }
    tracing.left.store(next_gap(tracing), Relaxed);
    if !tracing.is_ours() {
        return;
    }
    // SAFETY: inside the hook of this tracepoint. The object has its type and class.
    unsafe {
        let object = rb_sys::rb_tracearg_object(rb_sys::rb_tracearg_from_tracepoint(point));
        let basic = &*(object as *const rb_sys::RBasic);
        let frames = &mut *tracing.frames.get();
        let lines = &mut *tracing.lines.get();
        let depth = rb_sys::rb_profile_frames(
            0,
            frames.len() as c_int,
            frames.as_mut_ptr(),
            lines.as_mut_ptr(),
        );
        let depth = usize::try_from(depth).unwrap_or(0).min(frames.len());
        let stack: Vec<(usize, u32)> = frames[..depth]
            .iter()
            .zip(&lines[..depth])
            .map(|(frame, line)| (*frame as usize, (*line).max(0) as u32))
            .collect();
        let tagged = loses_moved_objects();
        let id = if tagged { tracer_tags::tag(object) } else { object as usize };
        let kind = (basic.flags & 0x1f) as u8;
        tracing.profile.lock().sample(
            id,
            if CLASSLESS.contains(&kind) { 0 } else { basic.klass as usize },
            kind,
            SLOT_BYTES,
            &stack,
            tracing.weight,
        );
    }
}

/// Objects until the next sample: random around `every`, because allocations have
/// a rhythm of their own.
fn next_gap(tracing: &TracerState) -> u32 {
    let mut x = tracing.random.load(Relaxed);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    tracing.random.store(x, Relaxed);
    1 + ((x >> 32) as u32) % (2 * tracing.every - 1)
}

unsafe extern "C" fn on_marked(_: VALUE, _: *mut c_void) {
    let Some(tracing) = tracer_state::active() else { return };
    let Some(api) = GcApi::get() else { return };
    if tracing.is_ours() {
        tracing.profile.lock().after_mark(api.kind(), |object| api.state(object, false));
    }
}

/// Updates the profile after collections. Call with the GVL, outside of a collection.
pub fn after_collections() {
    with_tags(tracer_tags::after_collections);
}

/// Reads the sizes of the objects that were sampled in the window just closed.
pub fn after_window() {
    with_tags(|tracing, api, each_page| {
        tracer_tags::after_collections(tracing, api, each_page);
        tracer_tags::measure(tracing, api);
    });
}

fn with_tags(work: impl FnOnce(&TracerState, &GcApi, EachPage)) {
    let (Some(tracing), Some(api)) = (tracer_state::active(), GcApi::get()) else { return };
    if let (true, Some(each_page)) = (tracing.is_ours(), api.each_page) {
        work(tracing, api, each_page);
    }
}

/// Whether objects that compaction moves can no longer be followed.
pub fn loses_moved_objects() -> bool {
    GcApi::get().is_some_and(|api| api.each_page.is_some())
}
