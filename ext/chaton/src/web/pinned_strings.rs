//! Ruby Strings that the IO thread writes without copying.
//!
//! For a large body a frozen String that shares its bytes is kept alive here until the
//! engine has written it. Dropping [`PinnedBytes`], on any thread, only queues its index;
//! the next mark phase or the next pin releases the String.

use std::sync::OnceLock;

use magnus::gc::Marker;
use magnus::rb_sys::FromRawValue;
use magnus::{prelude::*, DataTypeFunctions, Error, RModule, Ruby, TypedData, Value};
use parking_lot::Mutex;
use rb_sys::VALUE;

#[derive(Default)]
struct PinTable {
    strings: Vec<Option<VALUE>>,
    free: Vec<usize>,
}

impl PinTable {
    fn release(&mut self, done: &mut Vec<usize>) {
        for index in done.drain(..) {
            self.strings[index] = None;
            self.free.push(index);
        }
    }
}

static PINNED: OnceLock<PinnedStrings> = OnceLock::new();

#[derive(Default)]
struct PinnedStrings {
    table: Mutex<PinTable>,
    done: Mutex<Vec<usize>>,
}

/// The object that marks the pinned Strings.
#[derive(TypedData, Default)]
#[magnus(class = "Chaton::Native::PinnedStrings", mark, free_immediately)]
pub struct PinnedStringsMarker;

impl DataTypeFunctions for PinnedStringsMarker {
    fn mark(&self, marker: &Marker) {
        let Some(pins) = PINNED.get() else { return };
        let mut table = pins.table.lock();
        // In a forked child the IO thread's copy of the lock may be held for ever.
        if let Some(mut done) = pins.done.try_lock() {
            table.release(&mut done);
        }
        for value in table.strings.iter().flatten() {
            // SAFETY: kept alive and in index by this mark.
            marker.mark(unsafe { Value::from_raw(*value) });
        }
    }
}

/// Bytes of a Ruby String, valid until dropped.
pub struct PinnedBytes {
    index: usize,
    bytes: *const u8,
    len: usize,
}

// SAFETY: the bytes belong to a frozen String that is neither freed nor moved
// while `index` is taken; dropping touches only our own lock.
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
            pins.done.lock().push(self.index);
        }
    }
}

/// Pins a String that is not embedded in its slot. Call with the GVL. The application
/// may still change its String, which then gets its own copy of the bytes.
pub fn pin(string: VALUE) -> PinnedBytes {
    let pins = PINNED.get_or_init(PinnedStrings::default);
    // SAFETY: a String, with the GVL held; shares the bytes of a long one.
    let frozen = unsafe { rb_sys::rb_str_new_frozen(string) };
    let mut table = pins.table.lock();
    table.release(&mut pins.done.lock());
    let index = table.free.pop().unwrap_or_else(|| {
        table.strings.push(None);
        table.strings.len() - 1
    });
    table.strings[index] = Some(frozen);
    // SAFETY: a String that lives as long as its index is taken.
    let (bytes, len) =
        unsafe { (rb_sys::RSTRING_PTR(frozen).cast::<u8>(), rb_sys::RSTRING_LEN(frozen) as usize) };
    PinnedBytes { index, bytes, len }
}

/// Registers the object that marks the pinned Strings.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("PinnedStrings", ruby.class_object())?;
    class.undef_default_alloc_func();
    ruby.gc_register_mark_object(ruby.obj_wrap(PinnedStringsMarker));
    Ok(())
}
