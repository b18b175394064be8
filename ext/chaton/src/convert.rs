//! Small conversions that several engines need.

use std::time::Duration;

use magnus::rb_sys::FromRawValue;
use magnus::{kwargs, prelude::*, Error, RString, Ruby, Value};
use serde::Serialize;

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

/// A value as Ruby objects, Hashes with Symbol keys: how all statistics come back.
pub fn to_ruby(ruby: &Ruby, value: &impl Serialize) -> Result<Value, Error> {
    let json = serde_json::to_string(value).map_err(|e| error::argument(e.to_string()))?;
    from_json(ruby, &json)
}

/// JSON text as Ruby objects, Hashes with Symbol keys.
pub fn from_json(ruby: &Ruby, json: &str) -> Result<Value, Error> {
    let class: Value = ruby.class_object().const_get("JSON")?;
    class.funcall("parse", (json, kwargs!(ruby, "symbolize_names" => true)))
}
