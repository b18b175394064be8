//! Spans of jobs and records that are written, and the context that goes with them.

use std::sync::atomic::{AtomicUsize, Ordering};

use chaton_traces::span_context::SpanContext;
use chaton_traces::work_span::{SpanKind, WorkSpan};
use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{prelude::*, Error, RString, Ruby, Value};

use super::{current, error_type, tracing};
use crate::convert::copy;

/// A callable that returns the `traceparent` of the span in which Ruby's SDK is, or nil; 0 without one.
static PARENT: AtomicUsize = AtomicUsize::new(0);

/// `Native.producer_parent = callable`
pub fn set_parent(callable: Value) {
    let ruby = Ruby::get_with(callable);
    ruby.gc_register_mark_object(callable);
    let raw = if callable.is_nil() { 0 } else { callable.as_raw() as usize };
    PARENT.store(raw, Ordering::Relaxed);
}

/// The span that is the parent of what is written now.
fn parent() -> Result<Option<SpanContext>, Error> {
    let own = current();
    let raw = PARENT.load(Ordering::Relaxed);
    if raw == 0 {
        return Ok(own);
    }
    // SAFETY: registered with the collector for good.
    let callable = unsafe { Value::from_raw(raw as _) };
    let text: Option<RString> = callable.funcall("call", ())?;
    let state = own.as_ref().and_then(|own| own.state.clone());
    let parsed = text.and_then(|text| SpanContext::parse(&copy(text), None));
    Ok(parsed.map(|parsed| SpanContext { state, ..parsed }).or(own))
}

/// The span of jobs or records that are being written.
pub struct ProducerSpan(WorkSpan);

/// Begins the span of `count` messages; `None` when there is nothing to pass on with them.
///
/// # Errors
/// What Ruby's SDK raises.
pub fn produced(
    system: &str,
    destination: &str,
    count: usize,
) -> Result<Option<ProducerSpan>, Error> {
    let Some(tracing) = tracing() else { return Ok(None) };
    let parent = parent()?;
    if let Some(parent) = parent.as_ref().filter(|parent| !parent.sampled) {
        return Ok(Some(ProducerSpan(WorkSpan::unrecorded(parent.clone()))));
    }
    let mut span = tracing.begin(SpanKind::Producer, parent.as_ref());
    if !span.is_recorded() {
        return Ok(None);
    }
    span.parent_is_here();
    span.name(format!("send {destination}"));
    span.text("messaging.system", system);
    span.text("messaging.operation.name", "send");
    span.text("messaging.operation.type", "send");
    span.text("messaging.destination.name", destination);
    if count > 1 {
        span.integer("messaging.batch.message_count", count as i64);
    }
    Ok(Some(ProducerSpan(span)))
}

impl ProducerSpan {
    /// `traceparent` and `tracestate` that go with the messages.
    pub fn headers(&self) -> ([u8; 55], Option<&str>) {
        let context = self.0.context();
        (context.traceparent(), context.state.as_deref())
    }

    /// The id of the one message.
    pub fn message_id(&mut self, id: &str) {
        self.0.text("messaging.message.id", id);
    }

    /// The messages are written, or not.
    pub fn end<T>(mut self, result: &Result<T, Error>) {
        let Some(tracing) = tracing() else { return };
        if let Err(error) = result {
            self.0.failed(&error_type(error));
        }
        tracing.end(self.0);
    }
}
