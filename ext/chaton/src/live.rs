//! `Chaton::Native::Live`: the log of messages and the hub of event streams, as a Ruby object.

use std::sync::Arc;
use std::task::{Context, Poll};

use chaton_live::{Hub, Message, Settings, Step, Subscription};
use chaton_web::{FeedStep, Feeder};
use magnus::{function, method, prelude::*, Error, RArray, RHash, RModule, RString, Ruby, Value};

use crate::document_sections::parse;
use crate::error;
use crate::gvl::{check_interrupts, without_gvl_to_the_end};
use crate::handle::Handle;
use crate::web::request::Request;

/// The hub of this process.
#[magnus::wrap(class = "Chaton::Native::Live", free_immediately, size)]
pub struct RbLive(Handle<Arc<Hub>>);

/// A subscription as the web engine takes it.
struct SubscriptionFeeder(Subscription);

impl Feeder for SubscriptionFeeder {
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        drains: bool,
        out: &mut Vec<u8>,
    ) -> Poll<FeedStep> {
        self.0.poll_step(cx, drains, out).map(|step| match step {
            Step::Send(bytes) => FeedStep::Send(bytes),
            Step::End => FeedStep::End,
        })
    }
}

impl RbLive {
    fn new(settings: String) -> Result<Self, Error> {
        let settings: Settings = parse("live", &settings)?;
        Ok(Self(Handle::new(Hub::new(settings).map_err(|e| error::embedded(&e))?)))
    }

    /// Adds a message to the log, without the GVL; false: there is one with its key.
    fn append(
        &self,
        name: String,
        data: RString,
        event: Option<String>,
        key: Option<String>,
    ) -> Result<bool, Error> {
        let hub = self.0.get()?;
        let data = data.to_string()?;
        let message = Message::new(&name, &data, event.as_deref(), key.as_deref());
        let message = message.map_err(error::argument)?;
        Ok(run(|| hub.append(&message))?.is_some())
    }

    /// Answers a request with the events of these names from now on. False, and nothing is done, when the head is not of
    /// the common shape.
    fn stream(
        &self,
        request: &Request,
        status: Value,
        headers: Value,
        names: RArray,
    ) -> Result<bool, Error> {
        let hub = self.0.get()?;
        let names: Vec<String> = names.to_vec()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let subscription = run(|| hub.subscribe(&names, None))?;
        request.begin_fed(status, headers, Box::new(SubscriptionFeeder(subscription)))
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let stats = rb_self.0.get()?.stats();
        let hash = ruby.hash_new();
        hash.aset(ruby.to_symbol("subscriptions"), stats.subscriptions)?;
        hash.aset(ruby.to_symbol("names"), stats.names)?;
        hash.aset(ruby.to_symbol("delivered"), stats.delivered)?;
        hash.aset(ruby.to_symbol("gaps"), stats.gaps)?;
        Ok(hash)
    }

    fn stop(&self) -> Result<(), Error> {
        self.0.get()?.stop();
        Ok(())
    }
}

/// Runs a call of the log without the GVL. Ruby's interrupts are handled before it begins.
fn run<R>(work: impl FnOnce() -> chaton_live::Result<R>) -> Result<R, Error> {
    let mut work = Some(work);
    loop {
        match without_gvl_to_the_end(|| work.take().map(|work| work())).flatten() {
            Some(done) => return done.map_err(|e| error::embedded(&e)),
            None => check_interrupts()?,
        }
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Live", ruby.class_object())?;
    class.define_singleton_method("new", function!(RbLive::new, 1))?;
    class.define_method("append", method!(RbLive::append, 4))?;
    class.define_method("stream", method!(RbLive::stream, 4))?;
    class.define_method("stats", method!(RbLive::stats, 0))?;
    class.define_method("stop", method!(RbLive::stop, 0))?;
    Ok(())
}
