//! From Rack's `[status, headers, body]` to bytes, without calling Ruby.
//!
//! Only the usual shapes are handled here: an Integer, a Hash of Strings (or
//! Arrays of Strings), an Array of Strings. Anything else answers `None` and
//! Ruby brings it into this shape first (`lib/chaton/web/response.rb`).

use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};

use chaton_web::head::Version;
use chaton_web::reply_head::{BodySize, Finished, ReplyError, ReplyHead, RequestFacts};
use chaton_web::Exchange;
use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{prelude::*, Error, RArray, RHash, RString, Ruby, Value};
use rb_sys::VALUE;

use crate::error;

/// `ST_CONTINUE` and `ST_STOP` of `ruby/st.h`.
const CONTINUE: c_int = 0;
const STOP: c_int = 1;

enum Halt {
    Shape,
    Refused(ReplyError),
    Panicked,
}

struct Walk<'a, 'b> {
    head: &'a mut ReplyHead<'b>,
    halt: Option<Halt>,
}

/// What the head must know of the request.
pub fn facts(exchange: &Exchange) -> RequestFacts {
    let head = exchange.head();
    RequestFacts {
        version: match head.version {
            Version::Http10 => Version::Http10,
            Version::Http11 => Version::Http11,
        },
        is_head: head.get(head.method) == b"HEAD",
        keep_alive: exchange.keep_alive(),
    }
}

/// Writes the head; `None` when the shape is not the usual one.
///
/// # Errors
/// `Chaton::ResponseError` naming the status or header that cannot be sent.
pub fn head(
    exchange: &Exchange,
    status: Value,
    headers: Value,
    size: BodySize,
) -> Result<Option<Finished>, Error> {
    let Some(headers) = RHash::from_value(headers) else { return Ok(None) };
    let Some(status) = magnus::Integer::from_value(status) else { return Ok(None) };
    let status = status.to_u16().unwrap_or(0);
    let facts = facts(exchange);
    let mut head = ReplyHead::new(exchange.take_out(), status, &facts).map_err(refused)?;
    let mut walk = Walk { head: &mut head, halt: None };
    // SAFETY: `walk` outlives the call; the callback neither raises nor lets a
    // panic out, and changes no Ruby object.
    unsafe {
        rb_sys::rb_hash_foreach(headers.as_raw(), Some(each_header), (&raw mut walk) as VALUE);
    }
    match walk.halt {
        None => head.finish(size).map(Some).map_err(refused),
        Some(Halt::Shape) => Ok(None),
        Some(Halt::Refused(why)) => Err(refused(why)),
        Some(Halt::Panicked) => Err(error::named("Error", "writing the headers failed inside")),
    }
}

unsafe extern "C" fn each_header(name: VALUE, value: VALUE, walk: VALUE) -> c_int {
    // SAFETY: `head` passes its own `Walk`; name and value are live.
    let (walk, name, value) =
        unsafe { (&mut *(walk as *mut Walk), Value::from_raw(name), Value::from_raw(value)) };
    let put = AssertUnwindSafe(|| put_header(walk.head, name, value));
    walk.halt = catch_unwind(put).unwrap_or(Some(Halt::Panicked));
    if walk.halt.is_some() {
        STOP
    } else {
        CONTINUE
    }
}

fn put_header(head: &mut ReplyHead<'_>, name: Value, value: Value) -> Option<Halt> {
    let Some(name) = RString::from_value(name) else { return Some(Halt::Shape) };
    if let Some(value) = RString::from_value(value) {
        return put_line(head, name, value);
    }
    let Some(values) = RArray::from_value(value) else { return Some(Halt::Shape) };
    // SAFETY: nothing changes the Array while its elements are copied.
    unsafe { values.as_slice() }.iter().find_map(|value| match RString::from_value(*value) {
        Some(value) => put_line(head, name, value),
        None => Some(Halt::Shape),
    })
}

fn put_line(head: &mut ReplyHead<'_>, name: RString, value: RString) -> Option<Halt> {
    // SAFETY: the bytes are copied at once.
    let (name, value) = unsafe { (name.as_slice(), value.as_slice()) };
    head.header(name, value).err().map(Halt::Refused)
}

fn refused(why: ReplyError) -> Error {
    error::named("ResponseError", why.to_string())
}

/// The Strings of a body that is a plain Array of Strings, and their bytes.
pub fn strings<'a>(ruby: &Ruby, body: &'a RArray) -> Option<(&'a [Value], u64)> {
    // A subclass may have an `each` of its own.
    if !body.class().equal(ruby.class_array()).unwrap_or(false) {
        return None;
    }
    // SAFETY: the caller uses the slice at once, without running Ruby code.
    let parts = unsafe { body.as_slice() };
    let mut total = 0;
    for part in parts {
        total += RString::from_value(*part)?.len() as u64;
    }
    Some((parts, total))
}
