//! `Chaton::Native::Streams`: the streams engine as a Ruby object.

use std::sync::Arc;
use std::time::Instant;

use chaton_core::hub::Hub;
use chaton_streams::engine::{Engine, EngineSettings, Sink, Tools, Turn};
use magnus::{function, method, prelude::*, Error, RModule, Ruby};

use super::client::RbStreamsClient;
use super::failure;
use crate::convert::seconds;
use crate::error;
use crate::gvl::{check_interrupts, without_gvl};
use crate::gvl_events::Crowd;
use crate::handle::Handle;
use crate::hub::RbHub;
use crate::unit::{Unit, STREAMS_LANE};

/// Puts turns into the hub.
struct HubSink {
    hub: Arc<Hub<Unit>>,
    crowd: Option<Arc<Crowd>>,
}

fn turn_of(unit: Unit) -> Arc<Turn> {
    let Unit::Streams(turn) = unit else {
        unreachable!("what the hub gives back is what was put in")
    };
    turn
}

impl Sink for HubSink {
    fn submit(&self, turn: Arc<Turn>) -> Result<(), Arc<Turn>> {
        self.hub.enqueue(STREAMS_LANE, Unit::Streams(turn)).map_err(turn_of)
    }

    /// Ruby is woken once for all turns that became ready together.
    fn flush(&self) {
        self.hub.nudge();
        self.crowd.as_ref().inspect(|crowd| crowd.check());
    }

    fn take_waiting(&self) -> Vec<Arc<Turn>> {
        self.hub.take_waiting(STREAMS_LANE).into_iter().map(turn_of).collect()
    }

    fn warn(&self, message: &str) {
        crate::hub::report(message);
    }
}

/// The engine as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Streams", free_immediately, size)]
pub struct RbStreams(Handle<Engine>);

impl RbStreams {
    /// `Streams.start(hub, client, settings as JSON)`.
    fn start(hub: &RbHub, client: &RbStreamsClient, settings: String) -> Result<Self, Error> {
        let parts = hub.0.get()?.clone();
        let settings: EngineSettings = serde_json::from_str(&settings)
            .map_err(|e| error::argument(format!("settings of streams: {e}")))?;
        let opened = client.parts()?;
        let log = opened.log.clone();
        let tools = Tools { log, producer: Arc::new(move || opened.producer()) };
        let sink = HubSink { hub: parts.hub.clone(), crowd: parts.crowd.clone() };
        let engine = Engine::start(settings, tools, Arc::new(sink));
        Ok(Self(Handle::new(engine.map_err(|e| failure::raised(&e))?)))
    }

    fn quiet(&self) -> Result<(), Error> {
        self.0.get()?.quiet();
        Ok(())
    }

    /// Waits, without the GVL, until nothing runs and what has ended is
    /// committed; false when time is up.
    fn wait_idle(&self, timeout_s: f64) -> Result<bool, Error> {
        let engine = self.0.get()?;
        let until = Instant::now() + seconds("timeout_s", timeout_s)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let waited = without_gvl(|| engine.wait_idle(left), &|| engine.interrupt_wait());
            check_interrupts()?;
            if waited == Some(true) || Instant::now() >= until {
                return Ok(waited == Some(true));
            }
        }
    }

    fn give_up(&self) -> Result<usize, Error> {
        Ok(self.0.get()?.give_up())
    }

    fn stop(&self) -> Result<(), Error> {
        let engine = self.0.get()?;
        while without_gvl(|| engine.stop(), &|| {}).is_none() {
            check_interrupts()?;
        }
        Ok(())
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
