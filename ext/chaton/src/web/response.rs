//! Converts Rack's `[status, headers, body]` to bytes without calling Ruby.
//!
//! Handles the common shape only: an Integer, a Hash of Strings (or Arrays of
//! Strings), an Array of Strings. For others it returns `None`, and Ruby converts
//! them first (`lib/chaton/web/response.rb`).

use std::ffi::c_int;
use std::panic::{catch_unwind, AssertUnwindSafe};

use chaton_web::response_head::{
    BodySize, CompressionOffer, EncodedHead, ResponseError, ResponseHead,
};
use chaton_web::{Exchange, FileAnswer};
use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{prelude::*, Error, RArray, RHash, RString, Ruby, Value};
use rb_sys::VALUE;

use crate::error;

/// `ST_CONTINUE` and `ST_STOP` of `ruby/st.h`.
const CONTINUE: c_int = 0;
const STOP: c_int = 1;

enum HeaderStop {
    Shape,
    Refused(ResponseError),
    Panicked,
}

struct HeaderVisit<F> {
    line: F,
    stop: Option<HeaderStop>,
}

/// Encodes the head; `None` when the shape is not the common one. Some of the headers of a file
/// are those of its answer.
///
/// # Errors
/// `Chaton::ResponseError` naming the status or header that cannot be sent.
pub fn head(
    exchange: &Exchange,
    status: Value,
    headers: Value,
    size: BodySize,
    compression: Option<CompressionOffer>,
    file: Option<&FileAnswer>,
) -> Result<Option<EncodedHead>, Error> {
    let Some(status) = magnus::Integer::from_value(status) else { return Ok(None) };
    let status = status.to_u16().unwrap_or(0);
    let context = exchange.response_context(compression);
    let mut head = ResponseHead::new(exchange.take_buffer(), status, &context).map_err(refused)?;
    let has_shape = each_line(headers, |name, value| match file {
        Some(file) if !file.keeps(name) => Ok(()),
        _ => head.header(name, value),
    })?;
    if !has_shape {
        return Ok(None);
    }
    if let Some(file) = file {
        file.append(&mut head).map_err(refused)?;
    }
    head.finish(size).map(Some).map_err(refused)
}

/// Calls `line` for each header; false when the headers are not of the common shape.
pub fn each_line<F>(headers: Value, line: F) -> Result<bool, Error>
where
    F: FnMut(&[u8], &[u8]) -> Result<(), ResponseError>,
{
    let Some(headers) = RHash::from_value(headers) else { return Ok(false) };
    let mut visit = HeaderVisit { line, stop: None };
    // SAFETY: `visit` outlives the call; the callback neither raises nor lets a
    // panic out, and changes no Ruby object.
    unsafe {
        rb_sys::rb_hash_foreach(
            headers.as_raw(),
            Some(visit_header::<F>),
            (&raw mut visit) as VALUE,
        );
    }
    match visit.stop {
        None => Ok(true),
        Some(HeaderStop::Shape) => Ok(false),
        Some(HeaderStop::Refused(why)) => Err(refused(why)),
        Some(HeaderStop::Panicked) => {
            Err(error::named("Error", "writing the headers failed inside"))
        }
    }
}

unsafe extern "C" fn visit_header<F>(name: VALUE, value: VALUE, visit: VALUE) -> c_int
where
    F: FnMut(&[u8], &[u8]) -> Result<(), ResponseError>,
{
    // SAFETY: `each_line` passes its own `HeaderVisit`; name and value are live.
    let (visit, name, value) = unsafe {
        (&mut *(visit as *mut HeaderVisit<F>), Value::from_raw(name), Value::from_raw(value))
    };
    let put = AssertUnwindSafe(|| put_header(&mut visit.line, name, value));
    visit.stop = catch_unwind(put).unwrap_or(Some(HeaderStop::Panicked));
    if visit.stop.is_some() {
        STOP
    } else {
        CONTINUE
    }
}

fn put_header<F>(line: &mut F, name: Value, value: Value) -> Option<HeaderStop>
where
    F: FnMut(&[u8], &[u8]) -> Result<(), ResponseError>,
{
    let Some(name) = RString::from_value(name) else { return Some(HeaderStop::Shape) };
    // SAFETY: the bytes are copied at once.
    let mut put = |value: RString| unsafe { line(name.as_slice(), value.as_slice()) }.err();
    if let Some(value) = RString::from_value(value) {
        return put(value).map(HeaderStop::Refused);
    }
    let Some(values) = RArray::from_value(value) else { return Some(HeaderStop::Shape) };
    // SAFETY: nothing changes the Array while its elements are copied.
    unsafe { values.as_slice() }.iter().find_map(|value| match RString::from_value(*value) {
        Some(value) => put(value).map(HeaderStop::Refused),
        None => Some(HeaderStop::Shape),
    })
}

fn refused(why: ResponseError) -> Error {
    error::named("ResponseError", why.to_string())
}

/// The size of a body that is an Array of Strings.
pub fn strings_len(ruby: &Ruby, body: RArray) -> Option<u64> {
    // A subclass may have an `each` of its own.
    if !body.class().equal(ruby.class_array()).unwrap_or(false) {
        return None;
    }
    // SAFETY: nothing changes the Array meanwhile.
    let mut parts = unsafe { body.as_slice() }.iter();
    parts.try_fold(0, |total, part| Some(total + RString::from_value(*part)?.len() as u64))
}
