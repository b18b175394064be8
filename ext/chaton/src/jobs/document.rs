//! Writes the documents of plain jobs: a prepared head, then what differs from job to job.

use std::io::Write;
use std::ops::Range;

use chaton_jobs::document::Fields;
use chaton_jobs::store::NewJob;
use magnus::rb_sys::AsRawValue;
use magnus::{prelude::*, Error, RArray, RString, Ruby, TryConvert, Value};

use super::jid;
use super::to_json::{self, Fault};
use crate::error;
use crate::traces::ProducerSpan;

/// Bytes reserved per job beyond its head.
const ROOM: usize = 160;

/// When jobs are due.
pub enum DueTimes {
    /// At once.
    Now,
    /// All at one time (s since 1970).
    At(f64),
    /// Each at its own.
    Each(Vec<f64>),
}

impl DueTimes {
    /// Reads nil, a Float or an Array of Floats.
    ///
    /// # Errors
    /// `ArgumentError` when it is none of these, or has not `count` of them.
    pub fn read(value: Value, count: usize) -> Result<Self, Error> {
        if value.is_nil() {
            return Ok(Self::Now);
        }
        let Some(list) = RArray::from_value(value) else {
            return Ok(Self::At(time(value)?));
        };
        if list.len() != count {
            return Err(error::argument(format!(
                "at has {} times for {count} jobs; it must have one for each",
                list.len()
            )));
        }
        list.into_iter().map(time).collect::<Result<_, _>>().map(Self::Each)
    }

    fn of(&self, index: usize) -> Option<f64> {
        match self {
            Self::Now => None,
            Self::At(at) => Some(*at),
            Self::Each(list) => list.get(index).copied(),
        }
    }
}

fn time(value: Value) -> Result<f64, Error> {
    let at = f64::try_convert(value)?;
    if at.is_finite() {
        return Ok(at);
    }
    Err(error::argument("at is no finite number; it must be a time in seconds since 1970"))
}

/// Documents, one after the other in one buffer.
pub struct Documents {
    bytes: Vec<u8>,
    each: Vec<(Range<usize>, Option<f64>)>,
}

impl Documents {
    /// The jobs as the store takes them.
    pub fn jobs<'a>(&'a self, queue: &'a str) -> Vec<NewJob<'a>> {
        let job = |(range, at): &(Range<usize>, Option<f64>)| NewJob {
            queue,
            payload: &self.bytes[range.clone()],
            at: *at,
            lock: None,
            bid: None,
        };
        self.each.iter().map(job).collect()
    }
}

/// The common part of all jobs of a call.
pub struct JobTemplate<'a> {
    /// The document up to its arguments, without the closing brace.
    pub head: &'a [u8],
    /// When they are due.
    pub due: DueTimes,
    /// Their ids, when the caller made them.
    pub jids: Option<RArray>,
    /// Generation of Sidekiq's format.
    pub format: u8,
    /// Now (s since 1970).
    pub now_s: f64,
}

/// Writes the documents of jobs with these arguments; returns them with the
/// jobs' ids. The caller keeps the Arrays alive.
///
/// # Errors
/// `ArgumentError` naming the argument that JSON does not bring back.
pub fn write(
    ruby: &Ruby,
    template: &JobTemplate<'_>,
    lists: RArray,
) -> Result<(Documents, RArray), Error> {
    let count = lists.len();
    if let Some(given) = template.jids.filter(|given| given.len() != count) {
        let message = format!("jids has {} numbers for {count} jobs", given.len());
        return Err(error::argument(message));
    }
    let jids = ruby.ary_new_capa(count);
    let mut bytes = Vec::with_capacity(count * (template.head.len() + ROOM));
    let mut each = Vec::with_capacity(count);
    let stamp = stamp(template.format, template.now_s);
    for index in 0..count {
        let from = bytes.len();
        let args: Value = lists.entry(index as isize)?;
        let Some(args) = RArray::from_value(args) else {
            // SAFETY: the name of a live object's class, copied at once.
            let class = unsafe { args.classname() }.into_owned();
            let name = class_name(template.head);
            return Err(error::argument(format!("args of {name} is {class}; it must be an Array")));
        };
        begin(&mut bytes, template.head);
        to_json::write_args(&mut bytes, args.as_raw())
            .map_err(|fault| named(fault, template.head, index, count))?;
        bytes.extend_from_slice(b",\"jid\":");
        jids.push(write_jid(ruby, &mut bytes, template.jids, index)?)?;
        bytes.extend_from_slice(b",\"created_at\":");
        bytes.extend_from_slice(&stamp);
        let at = template.due.of(index);
        if at.is_none() {
            bytes.extend_from_slice(b",\"enqueued_at\":");
            bytes.extend_from_slice(&stamp);
        }
        bytes.push(b'}');
        each.push((from..bytes.len(), at));
    }
    Ok((Documents { bytes, each }, jids))
}

/// Adds the context of the span that pushes the jobs to the head of their documents, unless it may be there:
/// a document with two members of one name cannot be read.
pub fn add_context(head: &mut Vec<u8>, span: Option<&ProducerSpan>) {
    let Some(span) = span else { return };
    let has = |name: &[u8]| head.windows(name.len()).any(|text| text == name);
    if !has(b"\"traceparent\"") && !has(b"\"tracestate\"") {
        write_context(head, span);
    }
}

/// Adds it to a whole document, unless that has one: a job that is pushed again, or other software's.
pub fn add_context_to_whole(document: &mut Vec<u8>, span: Option<&ProducerSpan>) {
    let Some(span) = span else { return };
    let names = ["traceparent", "tracestate"];
    let has = |fields: Fields<'_>| names.into_iter().any(|name| fields.get(name).is_some());
    if Fields::parse(document).map_or(true, has) {
        return;
    }
    let end = document.trim_ascii_end().len();
    document.truncate(end - 1);
    write_context(document, span);
    document.push(b'}');
}

/// Writes the members into an object that is not closed.
fn write_context(object: &mut Vec<u8>, span: &ProducerSpan) {
    let (traceparent, tracestate) = span.headers();
    let mut add = |key: &str, text: &[u8]| {
        let empty = object.trim_ascii_end().last() == Some(&b'{');
        object.extend_from_slice(if empty { b"" } else { b"," });
        to_json::write_text(object, key.as_bytes());
        object.push(b':');
        to_json::write_text(object, text);
    };
    add("traceparent", &traceparent);
    tracestate.into_iter().for_each(|state| add("tracestate", state.as_bytes()));
}

fn begin(bytes: &mut Vec<u8>, head: &[u8]) {
    bytes.extend_from_slice(head);
    let empty = head.trim_ascii_end().last() == Some(&b'{');
    bytes.extend_from_slice(if empty { b"\"args\":" } else { b",\"args\":" });
}

fn write_jid(
    ruby: &Ruby,
    bytes: &mut Vec<u8>,
    given: Option<RArray>,
    index: usize,
) -> Result<RString, Error> {
    let Some(given) = given else {
        let digits = jid::new();
        to_json::write_text(bytes, &digits);
        // SAFETY: copies the digits; the GVL is held.
        let text = unsafe { rb_sys::rb_utf8_str_new(digits.as_ptr().cast(), jid::DIGITS as _) };
        // SAFETY: the String just made.
        let text = unsafe { magnus::rb_sys::FromRawValue::from_raw(text) };
        return RString::from_value(text)
            .ok_or_else(|| Error::new(ruby.exception_runtime_error(), "no String"));
    };
    let text: RString = given.entry(index as isize)?;
    to_json::write_text(bytes, text.to_string()?.as_bytes());
    Ok(text)
}

/// A time in the format of the generation.
fn stamp(format: u8, now_s: f64) -> Vec<u8> {
    let mut stamp = Vec::with_capacity(20);
    if format >= 8 {
        to_json::write_integer(&mut stamp, (now_s * 1e3) as i64);
    } else {
        // Microseconds: further digits are noise and are not read back exactly.
        drop(write!(stamp, "{now_s:.6}"));
        let zeros = stamp.iter().rev().take_while(|digit| **digit == b'0').count();
        stamp.truncate(stamp.len() - zeros.min(5));
    }
    stamp
}

#[cold]
fn named(fault: Fault, head: &[u8], index: usize, count: usize) -> Error {
    let name = class_name(head);
    if count == 1 {
        return fault.error(&name);
    }
    fault.error(&format!("{name} (job {} of {count})", index + 1))
}

#[cold]
fn class_name(head: &[u8]) -> String {
    let whole = [head, b"}"].concat();
    let name = Fields::parse(&whole).ok().and_then(|fields| fields.text("class"));
    name.unwrap_or_else(|| "the job".into())
}
