//! What stands in for `traces` in an extension that was built without them.

use magnus::{function, prelude::*, Error, RModule, Value};
use rb_sys::VALUE;

use crate::error;
use crate::pool::RbPool;

/// As in `traces`.
pub fn are_on() -> bool {
    false
}

/// As in `traces`.
pub fn work_ends() {}

/// As in `traces`.
pub fn traceparent() -> Option<[u8; 55]> {
    None
}

/// As in `traces`.
pub fn request_begins(_exchange: &chaton_web::Exchange) {}

/// As in `traces`.
pub fn responded(_exchange: &chaton_web::Exchange, _status: Value, _env: VALUE) {}

/// As in `traces`.
#[cfg(feature = "jobs")]
pub fn job_begins(_job: &chaton_jobs::engine::Job) {}

/// As in `traces`.
#[cfg(feature = "streams")]
pub fn batch_begins(_batch: &chaton_streams::batch::Batch, _system: &str, _group: &str) {}

/// As in `traces`; there is none.
pub enum ProducerSpan {}

/// As in `traces`.
///
/// # Errors
/// None.
pub fn produced(_: &str, _: &str, _: usize) -> Result<Option<ProducerSpan>, Error> {
    Ok(None)
}

impl ProducerSpan {
    /// As in `traces`.
    pub fn headers(&self) -> ([u8; 55], Option<&str>) {
        match *self {}
    }

    /// As in `traces`.
    pub fn message_id(&mut self, _id: &str) {}

    /// As in `traces`.
    pub fn end<T>(self, _result: &Result<T, Error>) {}
}

fn start(_pool: &RbPool) -> Result<(), Error> {
    Err(error::named("ConfigError", "traces: this extension was built without them"))
}

/// Defines the functions.
pub fn define(native: RModule) -> Result<(), Error> {
    native.define_singleton_method("start_traces", function!(start, 1))?;
    native.define_singleton_method("stop_traces", function!(|_: f64| 0, 1))?;
    native.define_singleton_method("traceparent", function!(|| None::<String>, 0))?;
    native.define_singleton_method("tracestate", function!(|| None::<String>, 0))?;
    native.define_singleton_method("trace_id", function!(|| None::<String>, 0))?;
    native.define_singleton_method("span_failed", function!(|_: String| (), 1))?;
    native.define_singleton_method("producer_parent=", function!(|_: Value| (), 1))?;
    Ok(())
}
