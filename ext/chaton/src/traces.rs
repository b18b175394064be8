//! Traces at the boundary: which span a thread is in, and what Ruby sees of it.
//!
//! A pool thread begins the span of its work when it takes it and ends it with its next take, so that no Ruby
//! code runs for it. All of it does nothing unless the process has started it.

mod consumed;
pub mod native;
mod produced;
mod requests;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use chaton_traces::span_context::SpanContext;
use chaton_traces::tracing::Tracing;
use chaton_traces::work_span::{set_current, with_current};
use magnus::{prelude::*, Error};

pub use consumed::batch_begins;
pub use consumed::job_begins;
pub use produced::{produced, ProducerSpan};
pub use requests::{request_begins, responded};

use crate::handle;

/// What makes the spans of the process; never freed, because spans may be open on any thread.
static TRACING: AtomicPtr<Tracing> = AtomicPtr::new(null_mut());
/// The process that has started it.
static STARTED_IN: AtomicU32 = AtomicU32::new(0);

/// What makes the spans, if this process has started it.
fn tracing() -> Option<&'static Tracing> {
    let tracing = TRACING.load(Ordering::Acquire);
    if tracing.is_null() || STARTED_IN.load(Ordering::Relaxed) != handle::generation() {
        return None;
    }
    // SAFETY: what is stored is never freed.
    Some(unsafe { &*tracing })
}

/// Whether this process makes spans.
pub fn are_on() -> bool {
    tracing().is_some()
}

/// The work that the calling thread ran, if any, has ended.
pub fn work_ends() {
    if let Some(tracing) = tracing() {
        set_current(None).into_iter().for_each(|span| tracing.end(span));
    }
}

/// The context of the span that the calling thread is in.
fn current() -> Option<SpanContext> {
    tracing()?;
    with_current(|span| span.context().clone())
}

/// `traceparent` of the span that the calling thread is in.
pub fn traceparent() -> Option<[u8; 55]> {
    tracing()?;
    with_current(|span| span.context().traceparent())
}

/// The class of an error, as `error.type` names it.
fn error_type(error: &Error) -> String {
    match error.value() {
        // SAFETY: the name of a live object's class, copied at once.
        Some(value) => unsafe { value.classname() }.into_owned(),
        None => "error".into(),
    }
}
