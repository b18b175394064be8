//! Traces at the boundary: which span a thread is in, and what Ruby sees of it.
//!
//! A pool thread begins the span of its work when it takes it and ends it with its next take, so that no Ruby
//! code runs for it. All of it does nothing unless the process has started it.

mod consumed;
mod produced;
mod requests;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use chaton_core::process::scoreboard::OwnGauges;
use chaton_traces::span_context::SpanContext;
use chaton_traces::tracing::Tracing;
use chaton_traces::work_span::{set_current, with_current};
use chaton_traces::Config;
use magnus::{function, prelude::*, Error, RModule, Value};

#[cfg(feature = "streams")]
pub use consumed::batch_begins;
#[cfg(feature = "jobs")]
pub use consumed::job_begins;
#[cfg(any(feature = "jobs", feature = "streams"))]
pub use produced::{produced, ProducerSpan};
pub use requests::{request_begins, responded};

use crate::convert::{seconds, text};
use crate::gvl::without_gvl_to_the_end;
use crate::pool::RbPool;
use crate::{error, handle};

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

/// `Native.start_traces(pool)`: by the section `traces` of its document.
fn start(pool: &RbPool) -> Result<(), Error> {
    let inner = pool.0.get()?;
    let config: Config = inner.document.section("traces")?;
    let gauges = OwnGauges::new(inner.pool.scoreboard.clone(), inner.pool.settings.slot);
    let tracing = Tracing::start(config, Some(gauges)).map_err(|e| error::system("traces", &e))?;
    STARTED_IN.store(handle::generation(), Ordering::Relaxed);
    TRACING.store(Box::into_raw(Box::new(tracing)), Ordering::Release);
    Ok(())
}

/// `Native.stop_traces(timeout_s)`: sends what is left; how many spans could not be sent in this time.
fn stop(timeout_s: f64) -> Result<usize, Error> {
    let within = seconds("timeout_s", timeout_s)?;
    let Some(tracing) = tracing() else { return Ok(0) };
    let lost = without_gvl_to_the_end(|| tracing.stop(within));
    TRACING.store(null_mut(), Ordering::Release);
    Ok(lost.unwrap_or_default())
}

/// `Native.traceparent`: of the span that the calling thread is in, or nil.
fn traceparent_text() -> Option<Value> {
    traceparent().map(|traceparent| text(&traceparent))
}

/// `Native.tracestate`.
fn tracestate() -> Option<String> {
    current().and_then(|context| context.state).map(String::from)
}

/// `Native.trace_id`.
fn trace_id() -> Option<String> {
    current().map(|context| context.trace_id_text())
}

/// `Native.span_failed(class)`: notes the error of the span that the calling thread is in.
fn span_failed(class: String) {
    if tracing().is_some() {
        with_current(|span| span.failed(&class));
    }
}

/// Defines the functions.
pub fn define(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("start_traces", function!(start, 1))?;
    native.define_singleton_method("stop_traces", function!(stop, 1))?;
    native.define_singleton_method("traceparent", function!(traceparent_text, 0))?;
    native.define_singleton_method("tracestate", function!(tracestate, 0))?;
    native.define_singleton_method("trace_id", function!(trace_id, 0))?;
    native.define_singleton_method("span_failed", function!(span_failed, 1))?;
    native.define_singleton_method("producer_parent=", function!(produced::set_parent, 1))?;
    Ok(())
}
