//! `Chaton::Native::Admin`: the admin endpoint, as a process or on a thread.

use chaton_admin::queues::QueueSource;
#[cfg(feature = "jobs")]
use chaton_admin::queues::{QueueSize, StoreSizes};
use chaton_admin::server::{run_process, AdminThread};
use chaton_admin::Config;
#[cfg(feature = "jobs")]
use chaton_jobs::store::{self, QueueStatus, Store, StoreOptions};
use magnus::{function, method, prelude::*, Error, RModule, Ruby};

use crate::error;
use crate::gvl::without_gvl_to_the_end;
use crate::handle::Handle;
use crate::scoreboard::RbScoreboard;

/// The endpoint of a server without workers.
#[magnus::wrap(class = "Chaton::Native::Admin", free_immediately, size)]
pub struct RbAdmin(Handle<AdminThread>);

impl RbAdmin {
    /// Serves in this process, which does nothing else. Returns when standard input ends.
    fn run() -> Result<(), Error> {
        match without_gvl_to_the_end(|| run_process(queues)) {
            Some(ended) => ended.map_err(|e| error::system("the admin endpoint", &e)),
            None => Ok(()),
        }
    }

    /// Serves on a thread of this process.
    fn start(settings: String, scoreboard: &RbScoreboard) -> Result<Self, Error> {
        let config: Config =
            serde_json::from_str(&settings).map_err(|e| error::argument(e.to_string()))?;
        let thread = AdminThread::start(config, &scoreboard.0, queues)
            .map_err(|e| error::system("the admin endpoint", &e))?;
        Ok(Self(Handle::new(thread)))
    }

    /// A scrape that has all metrics.
    fn sample_metrics() -> Result<String, Error> {
        chaton_admin::metrics::sample().map_err(|e| error::system("the sample", &e))
    }

    fn report(&self, line: String) -> Result<(), Error> {
        self.0.get()?.report(&line).map_err(|e| error::argument(e.to_string()))
    }

    fn stop(&self) -> Result<(), Error> {
        self.0.get()?.stop();
        Ok(())
    }
}

#[cfg(not(feature = "jobs"))]
fn queues(_settings: &serde_json::Value) -> Option<Box<dyn QueueSource>> {
    None
}

/// Opens the store of the jobs; one that cannot be named right was refused by the workers.
#[cfg(feature = "jobs")]
fn queues(settings: &serde_json::Value) -> Option<Box<dyn QueueSource>> {
    let options: StoreOptions = serde_json::from_value(settings.clone()).ok()?;
    Some(Box::new(StoreQueues(store::open(&options).ok()?.store())))
}

#[cfg(feature = "jobs")]
struct StoreQueues(Box<dyn Store>);

#[cfg(feature = "jobs")]
impl QueueSource for StoreQueues {
    fn read(&mut self) -> Option<StoreSizes> {
        let stats = self.0.stats().ok()?;
        let queues = self.0.queues().ok()?.into_iter();
        let size = |queue: QueueStatus| QueueSize {
            name: queue.name,
            size: queue.size,
            latency_s: queue.latency_s,
        };
        let sets = vec![
            ("scheduled", stats.scheduled),
            ("retries", stats.retries),
            ("dead", stats.dead),
            ("in_flight", stats.in_flight),
        ];
        Some(StoreSizes { queues: queues.map(size).collect(), sets })
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Admin", ruby.class_object())?;
    class.define_singleton_method("run", function!(RbAdmin::run, 0))?;
    class.define_singleton_method("start", function!(RbAdmin::start, 2))?;
    class.define_singleton_method("sample_metrics", function!(RbAdmin::sample_metrics, 0))?;
    class.define_method("report", method!(RbAdmin::report, 1))?;
    class.define_method("stop", method!(RbAdmin::stop, 0))?;
    Ok(())
}
