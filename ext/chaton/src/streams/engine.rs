//! `Chaton::Native::Streams`: the streams engine as a Ruby object.

use std::sync::Arc;
use std::time::Duration;

use chaton_core::engine::PoolFeed;
use chaton_core::pool::queue::QueueLimits;
use chaton_core::process::scoreboard::OwnGauges;
use chaton_core::work::{downcast, Role};
use chaton_streams::batch::Batch;
use chaton_streams::engine::{BatchSlot, Engine, EngineSettings};
use magnus::typed_data::Obj;
use magnus::{function, method, prelude::*, Error, RModule, Ruby};

use super::batch::{BatchSource, RbBatch};
use super::client::RbStreamsClient;
use super::log_error;
use crate::engine::{define_engine, EngineObject};
use crate::handle::Handle;
use crate::in_flight::{RbDeathTable, RbInFlightTable};
use crate::pool::RbPool;

/// Bounds of the queue. A partition has one batch out at a time (with `order: :key` one per lane)
/// of a bounded size, so that the assignment bounds what waits; the engine keeps what does not fit.
const QUEUE: QueueLimits =
    QueueLimits { count_max: 10_000, bytes_max: 256 * 1024 * 1024, age_max: Duration::ZERO };

/// The engine as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Streams", free_immediately, size)]
pub struct RbStreams(Handle<Engine>);

impl RbStreams {
    /// `Streams.start(pool, client, routes whose consumers are notified of the end of a partition,
    /// in-flight table of batches and table of deaths, or nil)`; it joins its groups from `resume` on.
    fn start(
        ruby: &Ruby,
        pool: &RbPool,
        client: &RbStreamsClient,
        eof: Vec<usize>,
        in_flight: Option<Obj<RbInFlightTable>>,
        deaths: Option<Obj<RbDeathTable>>,
    ) -> Result<Self, Error> {
        let inner = pool.0.get()?;
        let mut settings: EngineSettings = inner.document.section("streams")?;
        settings.notify_eof(&eof);
        settings.begins_held = true;
        let slot = inner.pool.settings.slot;
        settings.gauges = Some(OwnGauges::new(inner.pool.scoreboard.clone(), slot));
        if let (Some(in_flight), Some(deaths)) = (in_flight, deaths) {
            let slot = in_flight.check(ruby, slot)?;
            in_flight.0.clear(slot);
            settings.in_flight =
                Some(BatchSlot { table: in_flight.0.clone(), slot, deaths: deaths.0.clone() });
        }
        let opened = client.open()?;
        let log = opened.log.clone();
        let system = opened.system();
        let routes_of = settings.groups.iter().map(|one| (&one.group.name, one.routes.len()));
        let groups: Vec<String> =
            routes_of.flat_map(|(name, routes)| vec![name.clone(); routes]).collect();
        inner.register(
            Role::Streams,
            Box::new(move |ruby, work, thread| {
                let batch = downcast::<Batch>(work)?;
                let group = groups.get(batch.route()).map_or("", |name| name);
                RbBatch::start(ruby, batch, thread, BatchSource { system, group })
            }),
        );
        let feed = PoolFeed::open(&inner.pool, Role::Streams, QUEUE);
        let engine = Engine::start(settings, log, Arc::new(move || opened.producer()), feed);
        Ok(Self(Handle::new(engine.map_err(|e| log_error::raised(&e))?)))
    }

    fn resume(&self) -> Result<(), Error> {
        self.0.get()?.resume();
        Ok(())
    }
}

impl EngineObject for RbStreams {
    fn engine(&self) -> Result<&dyn chaton_core::engine::Engine, Error> {
        Ok(self.0.get()?)
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Streams", ruby.class_object())?;
    class.define_singleton_method("start", function!(RbStreams::start, 5))?;
    class.define_method("resume", method!(RbStreams::resume, 0))?;
    define_engine!(class, RbStreams);
    Ok(())
}
