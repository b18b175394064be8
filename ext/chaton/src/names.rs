//! Names of classes and queues, which repeat with every job: each becomes a frozen Ruby
//! String once.

use magnus::rb_sys::FromRawValue;
use magnus::Value;
use parking_lot::Mutex;
use rb_sys::VALUE;
use rustc_hash::FxHashMap;

use crate::web::header_keys::for_good;

/// Names that are kept for good; documents could contain any number of them.
const NAMES_MAX: usize = 1_000;

static NAMES: Mutex<Option<FxHashMap<Box<str>, VALUE>>> = Mutex::new(None);

/// The name as a frozen, interned String. Call with the GVL.
pub fn name(text: &str) -> Value {
    let mut names = NAMES.lock();
    let names = names.get_or_insert_with(FxHashMap::default);
    let known = names.get(text).copied();
    let value = known.unwrap_or_else(|| {
        let value = interned(text);
        if names.len() < NAMES_MAX {
            names.insert(text.into(), for_good(value));
        }
        value
    });
    // SAFETY: registered with the collector, or just made.
    unsafe { Value::from_raw(value) }
}

/// A frozen UTF-8 String that Ruby shares with equal ones. Call with the GVL.
pub fn interned(text: &str) -> VALUE {
    // CRuby 3.1 crashes on the pointer of an empty slice.
    let at = if text.is_empty() { c"".as_ptr() } else { text.as_ptr().cast() };
    // SAFETY: copies that many bytes; the GVL is held.
    unsafe { rb_sys::rb_enc_interned_str(at, text.len() as _, rb_sys::rb_utf8_encoding()) }
}
