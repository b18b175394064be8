//! A span that is not ended.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use crate::otlp::SpanKind;
use crate::otlp::{Attribute, Span, SpanLink, SpanStatus, TypedValue, STATUS_ERROR};
use crate::span_context::SpanContext;

/// A longer text of an attribute is cut.
const TEXT_BYTES_MAX: usize = 1024;
/// Links to other traces that a span has, at most.
const LINKS_MAX: usize = 128;
/// Of the flags: whether the parent is of another process is known, and it is.
const PARENT_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;

/// A span that is not ended. One that is not recorded only has its context, to pass on.
#[derive(Debug)]
pub struct WorkSpan {
    context: SpanContext,
    record: Option<Box<Span>>,
}

thread_local! {
    /// The span of the work that this thread runs.
    static CURRENT: RefCell<Option<WorkSpan>> = const { RefCell::new(None) };
}

/// Sets the span of the work that this thread runs; returns the one before.
pub fn set_current(span: Option<WorkSpan>) -> Option<WorkSpan> {
    CURRENT.with_borrow_mut(|current| std::mem::replace(current, span))
}

/// Calls `look` with the span of the work that this thread runs, if any.
pub fn with_current<R>(look: impl FnOnce(&mut WorkSpan) -> R) -> Option<R> {
    CURRENT.with_borrow_mut(|current| current.as_mut().map(look))
}

impl WorkSpan {
    /// A span that is not recorded.
    pub fn unrecorded(context: SpanContext) -> Self {
        Self { context, record: None }
    }

    /// A span that is recorded and begins now.
    pub fn recorded(context: SpanContext, kind: SpanKind, parent: Option<&SpanContext>) -> Self {
        let remote = if parent.is_some() { PARENT_REMOTE } else { 0 };
        let record = Span {
            trace_id: context.trace_id.to_be_bytes().into(),
            span_id: context.span_id.to_be_bytes().into(),
            trace_state: context.state.as_deref().unwrap_or_default().into(),
            parent_span_id: parent.map_or(Vec::new(), |one| one.span_id.to_be_bytes().into()),
            flags: 1 | PARENT_KNOWN | remote,
            kind: kind as i32,
            start_time_unix_nano: now_ns(),
            ..Span::default()
        };
        Self { context, record: Some(Box::new(record)) }
    }

    /// What names it in other processes.
    pub fn context(&self) -> &SpanContext {
        &self.context
    }

    /// Whether it is recorded; nothing else has an effect on one that is not.
    pub fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// Its parent is a span of this process, not of another one.
    pub fn parent_is_here(&mut self) {
        if let Some(record) = &mut self.record {
            record.flags &= !PARENT_REMOTE;
        }
    }

    /// Its name.
    pub fn name(&mut self, name: impl Into<String>) {
        if let Some(record) = &mut self.record {
            record.name = cut(name.into());
        }
    }

    /// Adds to its name.
    pub fn extend_name(&mut self, more: &str) {
        if let Some(record) = &mut self.record {
            record.name = cut(format!("{} {more}", record.name));
        }
    }

    /// It began this long ago.
    pub fn began_before(&mut self, ago: Duration) {
        let ns = ago.as_nanos() as u64;
        if let Some(record) = &mut self.record {
            record.start_time_unix_nano = record.start_time_unix_nano.saturating_sub(ns);
        }
    }

    /// Adds an attribute.
    pub fn text(&mut self, key: &str, value: impl Into<String>) {
        self.attribute(key, || TypedValue::Text(cut(value.into())));
    }

    /// Adds an attribute of bytes that are text of a client.
    pub fn bytes(&mut self, key: &str, value: &[u8]) {
        self.attribute(key, || TypedValue::Text(cut(String::from_utf8_lossy(value).into())));
    }

    /// Adds an attribute.
    pub fn integer(&mut self, key: &str, value: i64) {
        self.attribute(key, || TypedValue::Integer(value));
    }

    /// Adds an attribute.
    pub fn number(&mut self, key: &str, value: f64) {
        self.attribute(key, || TypedValue::Number(value));
    }

    fn attribute(&mut self, key: &str, value: impl FnOnce() -> TypedValue) {
        if let Some(record) = &mut self.record {
            record.attributes.push(Attribute::new(key, value()));
        }
    }

    /// Adds a link to a span that had part in it.
    pub fn link(&mut self, to: &SpanContext) {
        let Some(record) = &mut self.record else { return };
        if record.links.len() >= LINKS_MAX {
            record.dropped_links_count += 1;
            return;
        }
        record.links.push(SpanLink {
            trace_id: to.trace_id.to_be_bytes().into(),
            span_id: to.span_id.to_be_bytes().into(),
            trace_state: to.state.as_deref().unwrap_or_default().into(),
            flags: u32::from(to.sampled) | PARENT_KNOWN | PARENT_REMOTE,
        });
    }

    /// It failed with an error of this class, or with this status. Only the first one counts.
    pub fn failed(&mut self, error_type: &str) {
        if let Some(record) = self.record.as_mut().filter(|record| record.status.is_none()) {
            record.status = Some(SpanStatus { code: STATUS_ERROR });
            self.text("error.type", error_type);
        }
    }

    /// What is sent of it, ended now; `None` when it is not recorded.
    pub fn end(self) -> Option<Span> {
        let mut record = self.record?;
        // The wall clock may have been set back meanwhile.
        record.end_time_unix_nano = now_ns().max(record.start_time_unix_nano);
        Some(*record)
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> SpanContext {
        SpanContext { trace_id: 7, span_id: 8, sampled: true, state: Some("a=1".into()) }
    }

    #[test]
    fn a_span_that_is_not_recorded_only_has_its_context() {
        let mut span = WorkSpan::unrecorded(context());
        span.text("a", "b");
        span.failed("E");
        assert_eq!(span.context().span_id, 8);
        assert!(span.end().is_none());
    }

    #[test]
    fn a_recorded_span_has_what_it_was_given_within_bounds() {
        let parent = SpanContext { span_id: 9, ..context() };
        let mut span = WorkSpan::recorded(context(), SpanKind::Server, Some(&parent));
        span.name("GET");
        span.extend_name("/a/:id");
        span.bytes("long", "ä".repeat(TEXT_BYTES_MAX).as_bytes());
        span.failed("A");
        span.failed("B");
        (0..=LINKS_MAX).for_each(|_| span.link(&parent));
        let record = span.end().unwrap();
        assert_eq!((record.name.as_str(), record.trace_state.as_str()), ("GET /a/:id", "a=1"));
        assert_eq!(record.parent_span_id, 9_u64.to_be_bytes());
        assert_eq!((record.links.len(), record.dropped_links_count), (LINKS_MAX, 1));
        assert!(record.start_time_unix_nano <= record.end_time_unix_nano);
        let texts: Vec<_> = record
            .attributes
            .into_iter()
            .map(|one| match one.value.and_then(|value| value.value) {
                Some(TypedValue::Text(text)) => (one.key, text.len()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, [("long".to_owned(), TEXT_BYTES_MAX), ("error.type".to_owned(), 1)]);
    }
}
