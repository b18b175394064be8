//! Small conversions that several engines need.

use std::time::Duration;

use magnus::rb_sys::FromRawValue;
use magnus::{Error, RString, Value};

use crate::error;

/// The bytes of a String, copied.
pub fn copy(string: RString) -> Vec<u8> {
    // SAFETY: copied before any Ruby code runs.
    unsafe { string.as_slice() }.to_vec()
}

/// Bytes as a String: UTF-8, as documents are.
pub fn text(bytes: &[u8]) -> Value {
    // SAFETY: copies the bytes; only used with the GVL held.
    unsafe { Value::from_raw(rb_sys::rb_utf8_str_new(bytes.as_ptr().cast(), bytes.len() as _)) }
}

/// A time that can be waited for.
///
/// # Errors
/// `ArgumentError` naming it.
pub fn seconds(what: &str, value: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(value).map_err(|e| error::argument(format!("{what}: {e}")))
}
