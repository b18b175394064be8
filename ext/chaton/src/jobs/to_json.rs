//! A job's arguments from Ruby objects to JSON, without calling Ruby.
//!
//! The result is that of `JSON.generate`. Values that would not come back equal
//! from JSON are refused, with the messages of `lib/chaton/jobs/arguments.rb`.

use std::ffi::c_int;
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

use magnus::rb_sys::FromRawValue;
use magnus::{prelude::*, Error, Value};
use rb_sys::macros::{FIXNUM_P, RARRAY_AREF, RARRAY_LEN, RB_TYPE, RSTRING_LEN, RSTRING_PTR};
use rb_sys::{ruby_value_type, VALUE};

use crate::error;

/// Deeper arguments are a mistake, or an attack on the parser.
pub const DEPTH_MAX: usize = 100;
/// Characters of a value that an error shows.
const SHOWN_MAX: usize = 60;
/// `ST_CONTINUE` and `ST_STOP` of `ruby/st.h`.
const CONTINUE: c_int = 0;
const STOP: c_int = 1;
/// Code ranges of a String: ASCII only, and valid in its encoding.
const PLAIN: c_int = rb_sys::ruby_coderange_type::RUBY_ENC_CODERANGE_7BIT as c_int;
const VALID: c_int = rb_sys::ruby_coderange_type::RUBY_ENC_CODERANGE_VALID as c_int;

/// A value that cannot be written, and the path to it, innermost step first.
pub struct Fault {
    value: VALUE,
    kind: FaultKind,
    path: Vec<PathStep>,
}

enum PathStep {
    Index(usize),
    Key(VALUE),
}

enum FaultKind {
    Kind,
    Text,
    Key,
    KeyText,
    Depth,
    Panic,
}

/// Writes the elements of an Array of arguments, brackets and all. The caller keeps `args` alive.
pub fn write_args(out: &mut Vec<u8>, args: VALUE) -> Result<(), Fault> {
    // SAFETY: the caller passes an Array.
    unsafe { write_array(out, args, 0) }
}

/// # Safety
/// `value` is live and the GVL is held.
unsafe fn write(out: &mut Vec<u8>, value: VALUE, depth: usize) -> Result<(), Fault> {
    if FIXNUM_P(value) {
        // An i64 shifted left by one, with the tag at the bottom.
        write_integer(out, (value as i64) >> 1);
        return Ok(());
    }
    // SAFETY: as the caller says, here and below.
    unsafe {
        match RB_TYPE(value) {
            ruby_value_type::RUBY_T_NIL => out.extend_from_slice(b"null"),
            ruby_value_type::RUBY_T_TRUE => out.extend_from_slice(b"true"),
            ruby_value_type::RUBY_T_FALSE => out.extend_from_slice(b"false"),
            ruby_value_type::RUBY_T_STRING => write_string(out, value)?,
            ruby_value_type::RUBY_T_FLOAT => {
                let number = rb_sys::rb_float_value(value);
                if !number.is_finite() {
                    return Err(fault(value, FaultKind::Kind));
                }
                write_float(out, number);
            }
            ruby_value_type::RUBY_T_BIGNUM => {
                let digits = rb_sys::rb_big2str(value, 10);
                out.extend_from_slice(bytes(&digits));
            }
            ruby_value_type::RUBY_T_ARRAY => {
                if depth >= DEPTH_MAX {
                    return Err(fault(value, FaultKind::Depth));
                }
                if !is_a(value, rb_sys::rb_cArray) {
                    return Err(fault(value, FaultKind::Kind));
                }
                write_array(out, value, depth + 1)?;
            }
            ruby_value_type::RUBY_T_HASH => {
                if depth >= DEPTH_MAX {
                    return Err(fault(value, FaultKind::Depth));
                }
                // A subclass, such as one with indifferent access, does not come back.
                if !is_a(value, rb_sys::rb_cHash) {
                    return Err(fault(value, FaultKind::Kind));
                }
                write_hash(out, value, depth + 1)?;
            }
            _ => return Err(fault(value, FaultKind::Kind)),
        }
    }
    Ok(())
}

/// # Safety
/// `array` is a live Array and the GVL is held.
unsafe fn write_array(out: &mut Vec<u8>, array: VALUE, depth: usize) -> Result<(), Fault> {
    out.push(b'[');
    // SAFETY: no Ruby code runs, so the Array stays as it is.
    let len = unsafe { RARRAY_LEN(array) } as usize;
    for index in 0..len {
        if index > 0 {
            out.push(b',');
        }
        // SAFETY: within the Array.
        let written = unsafe { write(out, RARRAY_AREF(array, index as _), depth) };
        written.map_err(|fault| fault.within(PathStep::Index(index)))?;
    }
    out.push(b']');
    Ok(())
}

struct HashWriter<'a> {
    out: &'a mut Vec<u8>,
    depth: usize,
    first: bool,
    fault: Option<Fault>,
}

/// # Safety
/// `hash` is a live Hash and the GVL is held.
unsafe fn write_hash(out: &mut Vec<u8>, hash: VALUE, depth: usize) -> Result<(), Fault> {
    out.push(b'{');
    let mut walk = HashWriter { out, depth, first: true, fault: None };
    // SAFETY: `walk` outlives the call; the callback neither raises nor lets a
    // panic out, and changes no Ruby object.
    unsafe {
        rb_sys::rb_hash_foreach(hash, Some(each_pair), (&raw mut walk) as VALUE);
    }
    let HashWriter { out, fault, .. } = walk;
    if let Some(found) = fault {
        return Err(found);
    }
    out.push(b'}');
    Ok(())
}

unsafe extern "C" fn each_pair(key: VALUE, value: VALUE, walk: VALUE) -> c_int {
    // SAFETY: `write_hash` passes its own `HashWriter`.
    let walk = unsafe { &mut *(walk as *mut HashWriter) };
    // SAFETY: key and value are live, and the GVL is held.
    let pair = AssertUnwindSafe(|| unsafe { write_pair(walk, key, value) });
    let written = catch_unwind(pair).unwrap_or(Err(fault(value, FaultKind::Panic)));
    walk.fault = written.err();
    if walk.fault.is_some() {
        STOP
    } else {
        CONTINUE
    }
}

/// # Safety
/// `key` and `value` are live and the GVL is held.
unsafe fn write_pair(walk: &mut HashWriter<'_>, key: VALUE, value: VALUE) -> Result<(), Fault> {
    if !std::mem::take(&mut walk.first) {
        walk.out.push(b',');
    }
    // SAFETY: as the caller says.
    unsafe {
        if RB_TYPE(key) != ruby_value_type::RUBY_T_STRING {
            return Err(fault(key, FaultKind::Key));
        }
        write_string(walk.out, key).map_err(|_| fault(key, FaultKind::KeyText))?;
        walk.out.push(b':');
        write(walk.out, value, walk.depth).map_err(|fault| fault.within(PathStep::Key(key)))
    }
}

/// # Safety
/// `string` is a live String and the GVL is held.
unsafe fn write_string(out: &mut Vec<u8>, string: VALUE) -> Result<(), Fault> {
    // SAFETY: reads the String, and caches its code range in it.
    let (range, utf8) = unsafe {
        if !is_a(string, rb_sys::rb_cString) {
            return Err(fault(string, FaultKind::Kind));
        }
        let utf8 = rb_sys::rb_enc_get_index(string) == rb_sys::rb_utf8_encindex();
        (rb_sys::rb_enc_str_coderange(string) as c_int, utf8)
    };
    if range != PLAIN && !(range == VALID && utf8) {
        return Err(fault(string, FaultKind::Text));
    }
    // SAFETY: copied before any Ruby code runs.
    write_text(out, unsafe { bytes(&string) });
    Ok(())
}

/// Writes UTF-8 text between quotes, escaped as `JSON.generate` does.
pub fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    while let Some(at) = rest.iter().position(special) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            // Writing to memory cannot fail, here and below.
            control => drop(write!(out, "\\u{control:04x}")),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Writes an integer.
pub fn write_integer(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes a finite number as Ruby's `Float#to_s` does, except for the last digit
/// where two are equally near: the shortest digits that are read back equal, with
/// an exponent below 10⁻⁴, and for integers from 10¹⁵.
pub fn write_float(out: &mut Vec<u8>, number: f64) {
    if number == 0.0 {
        out.extend_from_slice(if number.is_sign_negative() { b"-0.0" } else { b"0.0" });
        return;
    }
    if number.abs() >= 1e-4 && (number.abs() < 1e15 || number.fract() != 0.0) {
        let from = out.len();
        drop(write!(out, "{number}"));
        if !out[from..].contains(&b'.') {
            out.extend_from_slice(b".0");
        }
        return;
    }
    let mut text = [0u8; 32];
    let mut rest = &mut text[..];
    drop(write!(rest, "{number:e}"));
    let left = rest.len();
    let text = &text[..text.len() - left];
    let at = text.iter().position(|byte| *byte == b'e').unwrap_or(text.len());
    let (digits, exponent) = (&text[..at], &text[(at + 1).min(text.len())..]);
    out.extend_from_slice(digits);
    if !digits.contains(&b'.') {
        out.extend_from_slice(b".0");
    }
    let (sign, exponent) = match exponent {
        [b'-', rest @ ..] => (b'-', rest),
        rest => (b'+', rest),
    };
    out.extend_from_slice(&[b'e', sign]);
    if exponent.len() < 2 {
        out.push(b'0');
    }
    out.extend_from_slice(exponent);
}

impl Fault {
    #[cold]
    fn within(mut self, step: PathStep) -> Self {
        self.path.push(step);
        self
    }

    /// `ArgumentError` that names the argument. The caller keeps the arguments
    /// alive. Calls Ruby (`inspect`).
    #[cold]
    pub fn error(self, class_name: &str) -> Error {
        match self.describe() {
            Ok(what) => error::argument(format!(
                "Job arguments to {class_name} must come back equal from JSON, but {what}"
            )),
            Err(raised) => raised,
        }
    }

    fn describe(self) -> Result<String, Error> {
        let mut place = String::from("args");
        for (level, step) in self.path.iter().rev().enumerate() {
            match step {
                PathStep::Index(index) if level == 0 => place = format!("argument {}", index + 1),
                PathStep::Index(index) => place.push_str(&format!("[{index}]")),
                PathStep::Key(key) => {
                    // SAFETY: a key of a Hash within the arguments.
                    let key: String = unsafe { Value::from_raw(*key) }.funcall("inspect", ())?;
                    place.push_str(&format!("[{key}]"));
                }
            }
        }
        // SAFETY: a value within the arguments.
        let value = unsafe { Value::from_raw(self.value) };
        Ok(match self.kind {
            FaultKind::Depth => format!("{place} is nested more than {DEPTH_MAX} deep"),
            FaultKind::Panic => format!("{place} could not be written"),
            FaultKind::Text => {
                let encoding: Value = value.funcall("encoding", ())?;
                format!("{place} is no UTF-8 text ({encoding}); encode binary data as Base64")
            }
            FaultKind::Key => {
                // SAFETY: the name of a live object's class, copied at once.
                let class = unsafe { value.classname() }.into_owned();
                let shown: String = value.funcall("inspect", ())?;
                format!("{shown} is a {class} (a key of {place}); use a String")
            }
            FaultKind::KeyText => {
                let shown: String = value.funcall("inspect", ())?;
                format!("{shown} is no UTF-8 text (a key of {place}); encode binary data as Base64")
            }
            FaultKind::Kind => describe_kind(value, &place)?,
        })
    }
}

fn describe_kind(value: Value, place: &str) -> Result<String, Error> {
    // SAFETY: the name of a live object's class, copied at once.
    let class = unsafe { value.classname() }.into_owned();
    let shown: String = value.funcall("inspect", ())?;
    let cut: String = shown.chars().take(SHOWN_MAX).collect();
    let shown = if cut.len() < shown.len() { format!("{cut}…") } else { shown };
    let ruby = magnus::Ruby::get_with(value);
    let instead = if value.is_kind_of(ruby.class_symbol()) {
        "use a String"
    } else if value.is_kind_of(ruby.class_time()) {
        "use its to_f or iso8601"
    } else if value.is_kind_of(ruby.class_float()) {
        "use a finite number"
    } else {
        "pass an id or plain values instead"
    };
    Ok(format!("{shown} is a {class} ({place}); {instead}"))
}

#[cold]
fn fault(value: VALUE, kind: FaultKind) -> Fault {
    Fault { value, kind, path: Vec::new() }
}

/// Whether the object is of that class itself, not of one below it.
///
/// # Safety
/// `value` is a live object and the GVL is held.
unsafe fn is_a(value: VALUE, class: VALUE) -> bool {
    // SAFETY: as the caller says.
    unsafe { rb_sys::rb_obj_class(value) == class }
}

/// The bytes of a live String.
///
/// # Safety
/// `string` is a live String; no Ruby code runs while the bytes are used.
pub unsafe fn bytes(string: &VALUE) -> &[u8] {
    // SAFETY: as the caller says.
    unsafe {
        std::slice::from_raw_parts(RSTRING_PTR(*string).cast(), RSTRING_LEN(*string) as usize)
    }
}
