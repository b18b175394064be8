//! Ruby Strings that the IO thread writes from where they lie.
//!
//! A large body is not copied: a frozen String sharing its bytes is kept alive
//! here until the engine has written it. Dropping [`PinnedBytes`], on any thread,
//! only notes that; the collector's mark phase, or the next pin, lets go.

use std::sync::OnceLock;

use magnus::gc::Marker;
use magnus::rb_sys::FromRawValue;
use magnus::{prelude::*, DataTypeFunctions, Error, RModule, Ruby, TypedData, Value};
use parking_lot::Mutex;
use rb_sys::VALUE;

#[derive(Default)]
struct PinTable {
    places: Vec<Option<VALUE>>,
    free: Vec<usize>,
}

impl PinTable {
    fn let_go(&mut self, done: &mut Vec<usize>) {
        for place in done.drain(..) {
            self.places[place] = None;
            self.free.push(place);
        }
    }
}

static PINNED: OnceLock<PinnedStrings> = OnceLock::new();

#[derive(Default)]
struct PinnedStrings {
    table: Mutex<PinTable>,
    done: Mutex<Vec<usize>>,
}

/// The object through which the collector sees the pinned Strings.
#[derive(TypedData, Default)]
#[magnus(class = "Chaton::Native::PinnedStrings", mark, free_immediately)]
pub struct PinnedStringsMarker;

impl DataTypeFunctions for PinnedStringsMarker {
    fn mark(&self, marker: &Marker) {
        let Some(pins) = PINNED.get() else { return };
        let mut table = pins.table.lock();
        // In a forked child the IO thread's lock may stay taken for ever.
        if let Some(mut done) = pins.done.try_lock() {
            table.let_go(&mut done);
        }
        for value in table.places.iter().flatten() {
            // SAFETY: kept alive by this very mark. It is not moved either.
            marker.mark(unsafe { Value::from_raw(*value) });
        }
    }
}

/// Bytes of a Ruby String, valid until dropped.
pub struct PinnedBytes {
    place: usize,
    bytes: *const u8,
    len: usize,
}

// SAFETY: the bytes belong to a frozen String that is neither freed nor moved
// while `place` is taken; dropping touches only our own lock.
unsafe impl Send for PinnedBytes {}

impl AsRef<[u8]> for PinnedBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: see above.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len) }
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        if let Some(pins) = PINNED.get() {
            pins.done.lock().push(self.place);
        }
    }
}

/// Pins a String with at least one byte in memory of its own (not embedded). Call with the GVL. The
/// caller may go on changing its String: it then gets bytes of its own.
pub fn pin(string: VALUE) -> PinnedBytes {
    let pins = PINNED.get_or_init(PinnedStrings::default);
    // SAFETY: a String, with the GVL held; shares the bytes of a long one.
    let frozen = unsafe { rb_sys::rb_str_new_frozen(string) };
    let mut table = pins.table.lock();
    table.let_go(&mut pins.done.lock());
    let place = table.free.pop().unwrap_or_else(|| {
        table.places.push(None);
        table.places.len() - 1
    });
    table.places[place] = Some(frozen);
    // SAFETY: a String that lives as long as its place is taken.
    let (bytes, len) =
        unsafe { (rb_sys::RSTRING_PTR(frozen).cast::<u8>(), rb_sys::RSTRING_LEN(frozen) as usize) };
    PinnedBytes { place, bytes, len }
}

/// Shows the pinned Strings to the collector.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("PinnedStrings", ruby.class_object())?;
    class.undef_default_alloc_func();
    let keeper = ruby.obj_wrap(PinnedStringsMarker);
    ruby.gc_register_mark_object(keeper);
    Ok(())
}
