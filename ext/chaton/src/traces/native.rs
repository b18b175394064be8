//! What Ruby calls: `Native.start_traces` and its like.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use chaton_core::process::scoreboard::OwnGauges;
use chaton_traces::tracing::Tracing;
use chaton_traces::work_span::with_current;
use chaton_traces::Config;
use magnus::{function, prelude::*, Error, RModule, Value};

use super::produced::set_parent as set_producer_parent;
use super::{current, traceparent, tracing, STARTED_IN, TRACING};
use crate::convert::{seconds, text};
use crate::gvl::without_gvl_to_the_end;
use crate::pool::RbPool;
use crate::{error, handle};

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
    native.define_singleton_method("producer_parent=", function!(set_producer_parent, 1))?;
    Ok(())
}
