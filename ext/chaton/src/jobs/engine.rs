//! `Chaton::Native::Jobs`: the jobs engine as a Ruby object.

use std::sync::Arc;

use chaton_core::engine::PoolFeed;
use chaton_core::pool::queue::QueueLimits;
use chaton_core::work::{downcast, Priority, Role};
use chaton_jobs::cron::Cron;
use chaton_jobs::engine::{Config, Engine, Job, QueueMode, WorkerDeath};
use chaton_jobs::store;
use magnus::{
    function, method, prelude::*, Error, RArray, RHash, RModule, Ruby, Symbol, TryConvert, Value,
};

use super::job::{InFlightSlot, RbJob};
use super::options::store_options;
use crate::convert::seconds;
use crate::engine::{define_engine, EngineObject};
use crate::error;
use crate::gvl::{check_interrupts, without_gvl};
use crate::handle::Handle;
use crate::in_flight::RbInFlightTable;
use crate::pool::RbPool;
use crate::settings::Settings;

/// Jobs that may wait where the settings do not say it: twice what is prefetched at most.
const JOBS_WAITING_MAX: usize = 2_000;
/// Bytes of their documents.
const JOBS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The engine as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Jobs", free_immediately, size)]
pub struct RbJobs(Handle<Engine>);

impl RbJobs {
    /// `Jobs.start(pool, in_flight or nil, settings)`.
    fn start(
        ruby: &Ruby,
        pool: &RbPool,
        in_flight: Option<magnus::typed_data::Obj<RbInFlightTable>>,
        settings: RHash,
    ) -> Result<Self, Error> {
        let inner = pool.0.get()?;
        let settings = Settings(settings);
        let mut config = config(&settings)?;
        config.supervised = in_flight.is_some();
        let factory = store::open(&store_options(&settings)?).map_err(|e| error::store(&e))?;
        let slot = settings.get("slot")?;
        let in_flight = match in_flight {
            Some(in_flight) => {
                in_flight.check(ruby, slot)?;
                Some(in_flight.0.clone())
            }
            None => None,
        };
        // Before the first job can be taken.
        in_flight.as_ref().inspect(|in_flight| in_flight.clear(slot));
        let noted: &'static InFlightSlot =
            Box::leak(Box::new(InFlightSlot { in_flight: in_flight.clone(), slot }));
        inner.register(
            Role::Jobs,
            Box::new(move |ruby, work, thread| {
                RbJob::start(ruby, noted, thread, downcast::<Job>(work)?)
            }),
        );
        let limits = queue_limits(&settings)?;
        let feed = PoolFeed::open(&inner.pool, Role::Jobs, Priority::Background, limits);
        let engine = start_engine(feed, config, &factory)?;
        in_flight.inspect(|in_flight| in_flight.name(slot, engine.identity()));
        Ok(Self(Handle::new(engine)))
    }

    fn identity(&self) -> Result<&str, Error> {
        Ok(self.0.get()?.identity())
    }

    fn resume(&self) -> Result<(), Error> {
        self.0.get()?.resume();
        Ok(())
    }

    fn recover(
        &self,
        identity: String,
        cause: Option<String>,
        tickets: Vec<u64>,
    ) -> Result<(), Error> {
        self.0.get()?.recover(WorkerDeath { identity, cause, tickets });
        Ok(())
    }
}

impl EngineObject for RbJobs {
    fn engine(&self) -> Result<&dyn chaton_core::engine::Engine, Error> {
        Ok(self.0.get()?)
    }
}

/// The engine asks its store before it starts; that may take a while.
fn start_engine(
    feed: Arc<PoolFeed<Job>>,
    config: Config,
    factory: &Arc<dyn store::StoreFactory>,
) -> Result<Engine, Error> {
    let mut arguments = Some((config, feed));
    loop {
        let begin = || arguments.take().map(|(config, feed)| Engine::start(config, factory, feed));
        match without_gvl(begin, &|| {}).flatten() {
            Some(started) => return started.map_err(|e| error::store(&e)),
            None => check_interrupts()?,
        }
    }
}

/// Bounds of the queue. Jobs have none by age: the engine takes back what waits too long.
fn queue_limits(settings: &Settings) -> Result<QueueLimits, Error> {
    Ok(QueueLimits {
        count_max: settings.optional("queue_limit")?.unwrap_or(JOBS_WAITING_MAX),
        bytes_max: settings.optional("queue_bytes_max")?.unwrap_or(JOBS_BYTES_MAX),
        age_max_ms: 0,
    })
}

fn config(settings: &Settings) -> Result<Config, Error> {
    let mut config = Config::new(&[]);
    for queue in settings.get::<RArray>("queues")? {
        let (name, weight) = <(String, u32)>::try_convert(queue)
            .map_err(|e| error::argument(format!("setting queues: {e}")))?;
        config.queues.push((Arc::from(name), weight));
    }
    config.mode = mode(settings.get("mode")?)?;
    config.concurrency = settings.get("threads")?;
    config.prefetch = settings.seconds("prefetch_s")?;
    config.prefetch_max = settings.get("prefetch_max")?;
    config.ack_delay = settings.seconds("ack_delay_s")?;
    config.heartbeat = settings.seconds("beat_s")?;
    config.lease = settings.seconds("lease_s")?;
    config.limit_retry = settings.seconds("limit_retry_s")?;
    config.claim_due = settings.get("claim_due")?;
    config.format = settings.get("format")?;
    config.tag = settings.optional("tag")?.unwrap_or_default();
    config.labels = settings.optional("labels")?.unwrap_or_default();
    config.version = settings.optional("version")?.unwrap_or(config.version);
    config.due_max = settings.optional("due_max")?.unwrap_or(config.due_max);
    if let Some(longest) = settings.optional::<f64>("retry_max_s")? {
        config.retry_max = seconds("setting retry_max_s", longest)?;
    }
    for cron in settings.optional::<RArray>("crons")?.into_iter().flatten() {
        type Row = (String, String, String, String, String);
        let (name, expression, zone, queue, head) =
            Row::try_convert(cron).map_err(|e| error::argument(format!("setting crons: {e}")))?;
        let cron = Cron::new(&name, &expression, &zone, &queue, &head);
        config.crons.push(cron.map_err(error::argument)?);
    }
    Ok(config)
}

fn mode(value: Value) -> Result<QueueMode, Error> {
    let name = match Symbol::from_value(value) {
        Some(symbol) => symbol.name()?.into_owned(),
        None => String::try_convert(value)?,
    };
    match &*name {
        "strict" => Ok(QueueMode::Strict),
        "weighted" => Ok(QueueMode::Weighted),
        "random" => Ok(QueueMode::Random),
        _ => Err(error::argument(format!(
            "setting mode: {name} is none of strict, weighted, random"
        ))),
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Jobs", ruby.class_object())?;
    class.define_singleton_method("start", function!(RbJobs::start, 3))?;
    class.define_method("identity", method!(RbJobs::identity, 0))?;
    class.define_method("resume", method!(RbJobs::resume, 0))?;
    class.define_method("recover", method!(RbJobs::recover, 3))?;
    define_engine!(class, RbJobs);
    Ok(())
}
