//! `Chaton::Native::Jobs`: the jobs engine as a Ruby object.

use std::sync::Arc;

use chaton_core::process::events::SupportEvent;
use chaton_jobs::cron::Cron;
use chaton_jobs::engine::{Config, Engine, Job, QueueMode, Sink, WorkerDeath};
use chaton_jobs::store;
use magnus::{
    function, method, prelude::*, Error, RArray, RHash, RModule, Ruby, Symbol, TryConvert, Value,
};

use super::job::InFlightSlot;
use super::options::store_options;
use super::to_ruby::SymbolHash;
use crate::convert::seconds;
use crate::error;
use crate::feed::Feed;
use crate::gvl::{check_interrupts, run_whole, wait_for, without_gvl};
use crate::handle::Handle;
use crate::in_flight::RbInFlightTable;
use crate::pool::{PoolParts, RbPool};
use crate::settings::Settings;
use crate::unit::{Unit, JOBS_LANE};

/// Puts jobs into the pool.
struct PoolSink(Feed);

fn job_of(unit: Unit) -> Arc<Job> {
    let Unit::Jobs(job) = unit else { unreachable!("what the pool gives back is what was put in") };
    job
}

impl Sink for PoolSink {
    fn submit(&self, job: Arc<Job>) -> Result<(), Arc<Job>> {
        self.0.submit(Unit::Jobs(job)).map_err(job_of)
    }

    /// Ruby is woken once for all jobs of one claim.
    fn flush(&self) {
        self.0.flush();
    }

    fn take_waiting(&self) -> Vec<Arc<Job>> {
        self.0.take_waiting().into_iter().map(job_of).collect()
    }

    fn idle_threads(&self) -> usize {
        self.0.pool.idle_threads()
    }

    fn warn(&self, message: &str) {
        crate::pool::report(message);
    }

    fn signal(&self, name: &str) {
        self.0.pool.events().post(SupportEvent::Signal(name.to_string()));
    }
}

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
        let parts = pool.0.get()?.clone();
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
        let _ = parts
            .notes
            .set(Box::leak(Box::new(InFlightSlot { in_flight: in_flight.clone(), slot })));
        let engine = start_engine(&parts, config, &factory)?;
        in_flight.inspect(|in_flight| in_flight.name(slot, engine.identity()));
        Ok(Self(Handle::new(engine)))
    }

    fn identity(&self) -> Result<&str, Error> {
        Ok(self.0.get()?.identity())
    }

    fn quiet(&self) -> Result<(), Error> {
        self.0.get()?.quiet();
        Ok(())
    }

    fn resume(&self) -> Result<(), Error> {
        self.0.get()?.resume();
        Ok(())
    }

    fn release(&self) -> Result<usize, Error> {
        Ok(self.0.get()?.release())
    }

    /// Waits, without the GVL, until nothing runs and every end is written;
    /// false when time is up.
    fn wait_idle(&self, timeout_s: f64) -> Result<bool, Error> {
        let engine = self.0.get()?;
        let timeout = seconds("timeout_s", timeout_s)?;
        wait_for(timeout, |left| engine.wait_idle(left), &|| engine.interrupt_wait())
    }

    fn give_back_running(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        Ok(ruby.ary_from_iter(rb_self.0.get()?.give_back_running()))
    }

    fn stop(&self) -> Result<(), Error> {
        let engine = self.0.get()?;
        run_whole(|| engine.stop())
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let stats = rb_self.0.get()?.stats();
        let mut hash = SymbolHash::new(ruby)
            .with("unstarted", stats.unstarted)?
            .with("running", stats.running)?
            .with("unwritten", stats.unwritten)?
            .with("service_us", stats.service_us)?
            .with("quiet", stats.quiet)?
            .with("holds_lease", stats.holds_lease)?;
        for (name, total) in stats.totals() {
            hash = hash.with(name, total)?;
        }
        Ok(hash.0)
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

/// The engine asks its store before it starts; that may take a while.
fn start_engine(
    parts: &PoolParts,
    config: Config,
    factory: &Arc<dyn store::StoreFactory>,
) -> Result<Engine, Error> {
    let sink = PoolSink(Feed::new(parts, JOBS_LANE));
    let mut given = Some((config, Arc::new(sink)));
    loop {
        let begin = || given.take().map(|(config, sink)| Engine::start(config, factory, sink));
        match without_gvl(begin, &|| {}).flatten() {
            Some(started) => return started.map_err(|e| error::store(&e)),
            None => check_interrupts()?,
        }
    }
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
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Jobs", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("start", function!(RbJobs::start, 3))?;
    class.define_method("identity", method!(RbJobs::identity, 0))?;
    class.define_method("quiet", method!(RbJobs::quiet, 0))?;
    class.define_method("resume", method!(RbJobs::resume, 0))?;
    class.define_method("release", method!(RbJobs::release, 0))?;
    class.define_method("wait_idle", method!(RbJobs::wait_idle, 1))?;
    class.define_method("give_back_running", method!(RbJobs::give_back_running, 0))?;
    class.define_method("stop", method!(RbJobs::stop, 0))?;
    class.define_method("stats", method!(RbJobs::stats, 0))?;
    class.define_method("recover", method!(RbJobs::recover, 3))?;
    Ok(())
}
