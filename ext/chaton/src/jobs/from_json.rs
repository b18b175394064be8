//! A job's arguments from JSON to Ruby objects, without calling Ruby.
//!
//! The result is that of `JSON.parse`; of equal keys the last one is kept, as by json
//! before its version 3. Integers beyond 64 bits, numbers beyond a Float, and text that
//! serde_json refuses, are left to `JSON.parse` itself.

use std::fmt;

use magnus::rb_sys::FromRawValue;
use magnus::{kwargs, prelude::*, Error, Ruby, Value};
use rb_sys::VALUE;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::Deserializer;

use super::to_json::DEPTH_MAX;
use crate::names::interned;

/// The arguments and the levels nested in them.
const LEVELS_MAX: usize = DEPTH_MAX + 1;
/// From here on serde_json makes Floats of integers.
const INTEGER_MAX: f64 = 9.2e18;

/// The arguments as an Array. Call with the GVL.
///
/// # Errors
/// What `JSON.parse` raises.
pub fn parse(ruby: &Ruby, json: &str) -> Result<Value, Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let parsed = LevelsLeft(LEVELS_MAX).deserialize(&mut reader);
    match parsed {
        // SAFETY: just made, and only in this frame since.
        Ok(value) => Ok(unsafe { Value::from_raw(value) }),
        Err(_) => parse_by_ruby(ruby, json),
    }
}

#[cold]
fn parse_by_ruby(ruby: &Ruby, json: &str) -> Result<Value, Error> {
    let parser: Value = ruby.class_object().const_get("JSON")?;
    parser.funcall("parse", (json, kwargs!(ruby, "max_nesting" => LEVELS_MAX)))
}

/// How many further levels may be nested.
#[derive(Clone, Copy)]
struct LevelsLeft(usize);

impl<'de> DeserializeSeed<'de> for LevelsLeft {
    type Value = VALUE;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<VALUE, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl LevelsLeft {
    fn below<E: serde::de::Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(LevelsLeft).ok_or_else(|| E::custom("nested too deep"))
    }
}

impl<'de> Visitor<'de> for LevelsLeft {
    type Value = VALUE;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<VALUE, E> {
        Ok(rb_sys::Qnil as VALUE)
    }

    fn visit_bool<E>(self, value: bool) -> Result<VALUE, E> {
        Ok(if value { rb_sys::Qtrue as VALUE } else { rb_sys::Qfalse as VALUE })
    }

    fn visit_i64<E>(self, value: i64) -> Result<VALUE, E> {
        // SAFETY: the GVL is held, as for every call of Ruby here.
        Ok(unsafe { rb_sys::rb_ll2inum(value) })
    }

    fn visit_u64<E>(self, value: u64) -> Result<VALUE, E> {
        // SAFETY: as above.
        Ok(unsafe { rb_sys::rb_ull2inum(value) })
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<VALUE, E> {
        // It may be an integer of more than 64 bits, or -0.
        if value.abs() >= INTEGER_MAX || (value == 0.0 && value.is_sign_negative()) {
            return Err(E::custom("not certainly a Float"));
        }
        // SAFETY: as above.
        Ok(unsafe { rb_sys::rb_float_new(value) })
    }

    fn visit_str<E>(self, text: &str) -> Result<VALUE, E> {
        // SAFETY: as above; copies the bytes.
        Ok(unsafe { rb_sys::rb_utf8_str_new(text.as_ptr().cast(), text.len() as _) })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<VALUE, A::Error> {
        let below = self.below()?;
        // SAFETY: as above. `array` is used after each call that may collect,
        // so it stays on the stack or in a register, where the collector looks.
        let array = unsafe { rb_sys::rb_ary_new() };
        while let Some(item) = items.next_element_seed(below)? {
            // SAFETY: a fresh Array and a live value.
            unsafe { rb_sys::rb_ary_push(array, item) };
        }
        Ok(std::hint::black_box(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<VALUE, A::Error> {
        let below = self.below()?;
        // SAFETY: as in `visit_seq`.
        let hash = unsafe { rb_sys::rb_hash_new() };
        while let Some(key) = pairs.next_key_seed(HashKey)? {
            let value = pairs.next_value_seed(below)?;
            // SAFETY: a fresh Hash; its key is a frozen String, so that nothing
            // but Ruby's own hashing runs.
            unsafe { rb_sys::rb_hash_aset(hash, key, value) };
        }
        Ok(std::hint::black_box(hash))
    }
}

/// A key: a String shared with equal ones, as `JSON.parse` makes it.
struct HashKey;

impl<'de> DeserializeSeed<'de> for HashKey {
    type Value = VALUE;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<VALUE, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for HashKey {
    type Value = VALUE;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<VALUE, E> {
        Ok(interned(text))
    }
}
