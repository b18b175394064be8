//! `Chaton::Native::Streams`: the streams engine as a Ruby object.

use std::sync::Arc;

use chaton_streams::batch::Batch;
use chaton_streams::engine::{BatchSink, Engine, EngineSettings};
use magnus::{function, method, prelude::*, Error, RModule, Ruby};

use super::client::RbStreamsClient;
use super::log_error;
use crate::convert::seconds;
use crate::error;
use crate::feed::Feed;
use crate::gvl::{run_whole, wait_for};
use crate::handle::Handle;
use crate::pool::RbPool;
use crate::unit::{Unit, STREAMS_LANE};

/// Puts batches into the pool.
struct PoolSink(Feed);

fn batch_of(unit: Unit) -> Arc<Batch> {
    let Unit::Streams(batch) = unit else { unreachable!("the pool gives back what was put in") };
    batch
}

impl BatchSink for PoolSink {
    fn submit(&self, batch: Arc<Batch>) -> Result<(), Arc<Batch>> {
        self.0.submit(Unit::Streams(batch)).map_err(batch_of)
    }

    /// Ruby is woken once for all batches that became ready together.
    fn flush(&self) {
        self.0.flush();
    }

    fn take_waiting(&self) -> Vec<Arc<Batch>> {
        self.0.take_waiting().into_iter().map(batch_of).collect()
    }

    fn warn(&self, message: &str) {
        crate::pool::report(message);
    }
}

/// The engine as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Streams", free_immediately, size)]
pub struct RbStreams(Handle<Engine>);

impl RbStreams {
    /// `Streams.start(pool, client, settings as JSON)`.
    fn start(pool: &RbPool, client: &RbStreamsClient, settings: String) -> Result<Self, Error> {
        let parts = pool.0.get()?.clone();
        let settings: EngineSettings = serde_json::from_str(&settings)
            .map_err(|e| error::argument(format!("settings of streams: {e}")))?;
        let opened = client.open()?;
        let log = opened.log.clone();
        let sink = PoolSink(Feed::new(&parts, STREAMS_LANE));
        let engine =
            Engine::start(settings, log, Arc::new(move || opened.producer()), Arc::new(sink));
        Ok(Self(Handle::new(engine.map_err(|e| log_error::raised(&e))?)))
    }

    fn quiet(&self) -> Result<(), Error> {
        self.0.get()?.quiet();
        Ok(())
    }

    /// Waits, without the GVL, until nothing runs and what has ended is
    /// committed; false when time is up.
    fn wait_idle(&self, timeout_s: f64) -> Result<bool, Error> {
        let engine = self.0.get()?;
        let timeout = seconds("timeout_s", timeout_s)?;
        wait_for(timeout, |left| engine.wait_idle(left), &|| engine.interrupt_wait())
    }

    fn give_up(&self) -> Result<usize, Error> {
        Ok(self.0.get()?.give_up())
    }

    fn stop(&self) -> Result<(), Error> {
        let engine = self.0.get()?;
        run_whole(|| engine.stop())
    }

    /// JSON; see the engine's `Stats`.
    fn stats(&self) -> Result<String, Error> {
        serde_json::to_string(&self.0.get()?.stats())
            .map_err(|e| error::argument(format!("figures of streams: {e}")))
    }
}

/// Defines the class.
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Streams", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("start", function!(RbStreams::start, 3))?;
    class.define_method("quiet", method!(RbStreams::quiet, 0))?;
    class.define_method("wait_idle", method!(RbStreams::wait_idle, 1))?;
    class.define_method("give_up", method!(RbStreams::give_up, 0))?;
    class.define_method("stop", method!(RbStreams::stop, 0))?;
    class.define_method("stats", method!(RbStreams::stats, 0))?;
    Ok(())
}
