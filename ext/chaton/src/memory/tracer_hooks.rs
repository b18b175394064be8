//! The two hooks of the tracer. They run inside Ruby's allocator and collector:
//! with the GVL, and where no Ruby object may be allocated.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::OnceLock;

use chaton_memory::profile::{CollectionKind, ObjectState};
use magnus::rb_sys::protect;
use magnus::{Error, Ruby};
use rb_sys::{ID, VALUE};

use super::tracer::TracerState;
use super::tracer_tags::{self, EachPage};
use crate::handle::generation;
use crate::preempt::symbol;

type GcFlags = unsafe extern "C" fn(VALUE, *mut ID, usize) -> usize;
type Memsize = unsafe extern "C" fn(VALUE) -> usize;

/// Flags that Ruby may tell of an object.
const FLAGS_MAX: usize = 8;
/// Types whose size Ruby can tell inside a collection without calling foreign
/// code: Object, String, Array, Hash, Struct, Bignum.
const SIZED: [u8; 6] = [0x01, 0x05, 0x07, 0x08, 0x09, 0x0a];
/// Types of the VM's own, imemo and node: what lies where others have their
/// class is something else.
const CLASSLESS: [u8; 2] = [0x1a, 0x1b];
/// A slot's size where nothing else is known.
const SLOT_BYTES: usize = 40;

/// How it is found out what became of an object.
#[derive(Clone, Copy)]
enum LivenessCheck {
    /// Asked at the end of marking, by a hook.
    Marks,
    /// SampleType its number, after the collection.
    Tags(EachPage),
}

/// What is asked of an object; not part of Ruby's public headers.
pub struct GcApi {
    flags: GcFlags,
    memsize: Memsize,
    marked: ID,
    old: ID,
    major_by: VALUE,
    way: LivenessCheck,
}

/// The tracer whose hooks are on.
static ACTIVE: AtomicPtr<TracerState> = AtomicPtr::new(ptr::null_mut());
static GC_API: OnceLock<Option<GcApi>> = OnceLock::new();

/// The two tracepoints of a tracer.
pub struct Tracepoints {
    /// On in a window.
    pub allocated: VALUE,
    /// On while the tracer runs.
    pub marked: VALUE,
}

/// Makes the tracepoints, switched off.
///
/// # Errors
/// What is missing, in words.
pub fn points(ruby: &Ruby) -> Result<Tracepoints, String> {
    if GC_API.get_or_init(|| find(ruby)).is_none() {
        return Err("this Ruby does not tell which objects a collection has marked".into());
    }
    let ractors = ruby.eval::<u64>("Ractor.count").unwrap_or(1);
    if loses_the_moved() && ractors > 1 {
        return Err("Ruby 3.1 crashes when allocations are traced beside Ractors".into());
    }
    let make = |event: u32, hook: unsafe extern "C" fn(VALUE, *mut c_void)| {
        // SAFETY: with the GVL; the hook has the type asked for.
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

fn find(ruby: &Ruby) -> Option<GcApi> {
    let is_3_1 = ruby.eval::<String>("RUBY_VERSION").is_ok_and(|v| v.starts_with("3.1."));
    let way = if is_3_1 {
        let walk = symbol(c"rb_objspace_each_objects")?;
        // SAFETY: the signature of Ruby's internal/gc.h.
        LivenessCheck::Tags(unsafe { std::mem::transmute::<*mut c_void, EachPage>(walk) })
    } else {
        LivenessCheck::Marks
    };
    let flags = symbol(c"rb_obj_gc_flags")?;
    let memsize = symbol(c"rb_obj_memsize_of")?;
    // SAFETY: signatures of Ruby's internal/gc.h, 3.1 to 3.4; with the GVL.
    let api = unsafe {
        GcApi {
            flags: std::mem::transmute::<*mut c_void, GcFlags>(flags),
            memsize: std::mem::transmute::<*mut c_void, Memsize>(memsize),
            marked: rb_sys::rb_intern(c"marked".as_ptr()),
            old: rb_sys::rb_intern(c"old".as_ptr()),
            major_by: rb_sys::rb_id2sym(rb_sys::rb_intern(c"major_by".as_ptr())),
            way,
        }
    };
    // Both make their symbols at the first call, which must not be in a collection.
    let mut flags = [0 as ID; FLAGS_MAX];
    // SAFETY: a module, which is an object like any; an array of ours; a known key.
    unsafe {
        (api.flags)(rb_sys::rb_mGC, flags.as_mut_ptr(), FLAGS_MAX);
        rb_sys::rb_gc_latest_gc_info(api.major_by);
    }
    Some(api)
}

/// Makes it the one whose hooks are on; false when another one is.
pub fn activate(tracing: &TracerState) -> bool {
    let new = ptr::from_ref(tracing).cast_mut();
    let now = ACTIVE.load(Relaxed);
    // SAFETY: a tracer is taken out before it is freed.
    let stale = unsafe { now.as_ref() }.is_none_or(|other| other.made_in != generation());
    if stale {
        ACTIVE.store(new, Relaxed);
    }
    stale
}

/// Takes it out, if it is in. With the GVL: no hook is at work then.
pub fn deactivate(tracing: &TracerState) {
    let own = ptr::from_ref(tracing).cast_mut();
    let _ = ACTIVE.compare_exchange(own, ptr::null_mut(), Relaxed, Relaxed);
}

/// Records what a unit of work waited for, if a tracer is on.
pub fn record_unit(label: impl FnOnce() -> String, waiting: u64, holding: u64, total: u64) {
    // SAFETY: with the GVL, as every change of it.
    if let Some(tracing) = unsafe { ACTIVE.load(Relaxed).as_ref() } {
        tracing.table.lock().record(&label(), waiting, holding, total);
    }
}

/// Switches a tracepoint.
///
/// # Errors
/// What Ruby raises.
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
    // SAFETY: with the GVL; taken out before it is freed.
    let Some(tracing) = (unsafe { ACTIVE.load(Relaxed).as_ref() }) else { return };
    let left = tracing.left.load(Relaxed);
    if left > 1 {
        tracing.left.store(left - 1, Relaxed);
        return;
    }
    tracing.left.store(next_gap(tracing), Relaxed);
    // A forked child has locks that nobody will open.
    if tracing.made_in != generation() {
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
        let id = match GC_API.get() {
            Some(Some(GcApi { way: LivenessCheck::Tags(_), .. })) => tracer_tags::number(object),
            _ => object as usize,
        };
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

/// Objects until the next sample, at random around `every`: allocation has a
/// rhythm of its own.
fn next_gap(tracing: &TracerState) -> u32 {
    let mut x = tracing.random.load(Relaxed);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    tracing.random.store(x, Relaxed);
    1 + ((x >> 32) as u32) % (2 * tracing.every - 1)
}

unsafe extern "C" fn on_marked(_: VALUE, _: *mut c_void) {
    // SAFETY: with the GVL; taken out before it is freed.
    let Some(tracing) = (unsafe { ACTIVE.load(Relaxed).as_ref() }) else { return };
    let Some(Some(api)) = GC_API.get() else { return };
    if tracing.made_in != generation() {
        return;
    }
    // SAFETY: a known key as an immediate symbol.
    let major_by = unsafe { rb_sys::rb_gc_latest_gc_info(api.major_by) };
    let minor = major_by == rb_sys::Qnil as VALUE || major_by == rb_sys::Qfalse as VALUE;
    let kind = if minor { CollectionKind::Minor } else { CollectionKind::Major };
    tracing.profile.lock().after_mark(kind, |object| api.state(object, false));
}

/// Collections have taken place. With the GVL, outside of one.
pub fn after_collections() {
    with_tags(tracer_tags::after_collections);
}

/// A window has been closed: reads the sizes of what was sampled in it.
pub fn after_window() {
    with_tags(|tracing, api, each_page| {
        tracer_tags::after_collections(tracing, api, each_page);
        tracer_tags::measure(tracing, api);
    });
}

fn with_tags(work: impl FnOnce(&TracerState, &GcApi, EachPage)) {
    // SAFETY: with the GVL; taken out before it is freed.
    let Some(tracing) = (unsafe { ACTIVE.load(Relaxed).as_ref() }) else { return };
    if tracing.made_in != generation() {
        return;
    }
    if let Some(Some(api)) = GC_API.get() {
        if let LivenessCheck::Tags(each_page) = api.way {
            work(tracing, api, each_page);
        }
    }
}

/// Whether objects that move are lost sight of.
pub fn loses_the_moved() -> bool {
    matches!(GC_API.get(), Some(Some(GcApi { way: LivenessCheck::Tags(_), .. })))
}

impl GcApi {
    /// What a collection made of an object: one that is `known_alive`, or, at
    /// the end of marking, one that is marked or else still whole.
    pub fn state(&self, object: usize, known_alive: bool) -> ObjectState {
        let mut flags = [0 as ID; FLAGS_MAX];
        // SAFETY: an object that has not been swept; an array of ours.
        let count = unsafe { (self.flags)(object as VALUE, flags.as_mut_ptr(), FLAGS_MAX) };
        let told = &flags[..count.min(FLAGS_MAX)];
        ObjectState {
            alive: known_alive || told.contains(&self.marked),
            old: told.contains(&self.old),
            bytes: size(self, object),
            class: 0,
        }
    }

    /// One that is not there any more.
    pub fn dead() -> ObjectState {
        ObjectState { alive: false, old: false, bytes: 0, class: 0 }
    }
}

/// Bytes of an object, 0 where that would call foreign code. The object must not
/// have been swept.
pub fn size(api: &GcApi, object: usize) -> usize {
    // SAFETY: as above; a slot begins with its flags.
    let kind = unsafe { (*(object as *const rb_sys::RBasic)).flags & 0x1f } as u8;
    if !SIZED.contains(&kind) {
        return 0;
    }
    // SAFETY: as above; of these types it reads the object and calls nothing.
    unsafe { (api.memsize)(object as VALUE) }
}
