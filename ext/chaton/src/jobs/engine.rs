//! `Chaton::Native::Jobs`: the jobs engine as a Ruby object.

use std::sync::Arc;
use std::time::Duration;

use chaton_core::engine::PoolFeed;
use chaton_core::pool::queue::QueueLimits;
use chaton_core::process::scoreboard::OwnGauges;
use chaton_core::work::{downcast, Role};
use chaton_jobs::cron::Cron;
use chaton_jobs::engine::{Config, Engine, Job, WorkerDeath};
use chaton_jobs::store;
use magnus::{function, method, prelude::*, Error, RArray, RModule, Ruby, TryConvert, Value};

use super::job::{InFlightSlot, RbJob};
use crate::convert::seconds;
use crate::engine::{define_engine, EngineObject};
use crate::error;
use crate::gvl::{check_interrupts, without_gvl};
use crate::handle::Handle;
use crate::in_flight::RbInFlightTable;
use crate::pool::RbPool;

/// Bounds of the jobs that wait in the pool: twice the most that `prefetch_max` may
/// be. There is none by age: the engine takes back jobs that wait too long.
const QUEUE_LIMITS: QueueLimits =
    QueueLimits { count_max: 2_000, bytes_max: 256 << 20, age_max: Duration::ZERO };

/// The engine as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Jobs", free_immediately, size)]
pub struct RbJobs(Handle<Engine>);

impl RbJobs {
    /// `Jobs.start(pool, in_flight or nil, crons, claim_due)`; it claims from `resume` on. A cron job is an Array of
    /// name, expression, zone, queue, head, and the member `chaton` and the seconds of the lock, which may be nil.
    fn start(
        ruby: &Ruby,
        pool: &RbPool,
        in_flight: Option<magnus::typed_data::Obj<RbInFlightTable>>,
        crons: RArray,
        claim_due: bool,
    ) -> Result<Self, Error> {
        let inner = pool.0.get()?;
        let mut config: Config = inner.document.section("jobs")?;
        config.concurrency = inner.pool.settings.threads_max;
        config.crons = crons.into_iter().map(cron).collect::<Result<_, _>>()?;
        config.claim_due = claim_due;
        config.begins_quiet = true;
        config.supervised = in_flight.is_some();
        let factory = store::open(&config.store).map_err(|e| error::store(&e))?;
        let slot = inner.pool.settings.slot;
        config.gauges = Some(OwnGauges::new(inner.pool.scoreboard.clone(), slot));
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
        let feed = PoolFeed::open(&inner.pool, Role::Jobs, QUEUE_LIMITS);
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

    fn leave_running(&self) -> Result<(), Error> {
        self.0.get()?.leave_running();
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

fn cron(row: Value) -> Result<Cron, Error> {
    type Row = (String, String, String, String, String, Option<String>, Option<f64>);
    let (name, expression, zone, queue, head, chaton, lock_s) =
        Row::try_convert(row).map_err(|e| error::argument(format!("crons: {e}")))?;
    let cron = Cron::new(&name, &expression, &zone, &queue, &head).map_err(error::argument)?;
    let Some(chaton) = chaton else { return Ok(cron) };
    let lock_ttl = lock_s.map(|lock_s| seconds("the seconds of the lock", lock_s)).transpose()?;
    cron.with_options(&chaton, lock_ttl).map_err(error::argument)
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Jobs", ruby.class_object())?;
    class.define_singleton_method("start", function!(RbJobs::start, 4))?;
    class.define_method("identity", method!(RbJobs::identity, 0))?;
    class.define_method("resume", method!(RbJobs::resume, 0))?;
    class.define_method("leave_running", method!(RbJobs::leave_running, 0))?;
    class.define_method("recover", method!(RbJobs::recover, 3))?;
    define_engine!(class, RbJobs);
    Ok(())
}
