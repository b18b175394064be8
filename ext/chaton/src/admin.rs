//! `Chaton::Native::Admin`: the admin endpoint, as a process or on a thread, and
//! `Chaton::Native::Dashboard`: its page in an application.

mod store;

use chaton_admin::dashboard::{MountedDashboard, MountedRequest};
use chaton_admin::server::{run_process, AdminThread};
use chaton_admin::state::State;
use chaton_admin::{Config, HEADERS};
use chaton_core::process::scoreboard::Scoreboard;
use magnus::{function, method, prelude::*, Error, RHash, RModule, Ruby};
use store::open;

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
        match without_gvl_to_the_end(|| run_process(open)) {
            Some(ended) => ended.map_err(|e| error::system("the admin endpoint", &e)),
            None => Ok(()),
        }
    }

    /// Serves on a thread of this process.
    fn start(settings: String, scoreboard: &RbScoreboard) -> Result<Self, Error> {
        let config: Config =
            serde_json::from_str(&settings).map_err(|e| error::argument(e.to_string()))?;
        let thread = AdminThread::start(config, &scoreboard.0, open)
            .map_err(|e| error::system("the admin endpoint", &e))?;
        Ok(Self(Handle::new(thread)))
    }

    /// A scrape that has all metrics.
    fn sample_metrics() -> Result<String, Error> {
        chaton_admin::metrics::sample().map_err(|e| error::system("the sample", &e))
    }

    /// Whether the server and its workers are ready, as JSON; settings and report are those of the endpoint.
    fn readiness(
        settings: String,
        report: String,
        scoreboard: &RbScoreboard,
    ) -> Result<String, Error> {
        chaton_admin::health::document(&settings, &report, &scoreboard.0)
            .map_err(|e| error::argument(e.to_string()))
    }

    fn report(&self, line: String) -> Result<(), Error> {
        self.0.get()?.report(&line).map_err(|e| error::argument(e.to_string()))
    }

    fn stop(&self) -> Result<(), Error> {
        self.0.get()?.stop();
        Ok(())
    }
}

/// The page in an application.
#[magnus::wrap(class = "Chaton::Native::Dashboard", free_immediately, size)]
pub struct RbDashboard(Handle<MountedDashboard>);

impl RbDashboard {
    fn new(settings: String, scoreboard: &RbScoreboard) -> Result<Self, Error> {
        let config: Config =
            serde_json::from_str(&settings).map_err(|e| error::argument(e.to_string()))?;
        let mounted = Scoreboard::open(scoreboard.0.fd())
            .and_then(|scoreboard| MountedDashboard::new(State::new(config, scoreboard, open)));
        Ok(Self(Handle::new(mounted.map_err(|e| error::system("the dashboard", &e))?)))
    }

    /// The headers of all answers.
    fn headers(ruby: &Ruby) -> Result<RHash, Error> {
        let headers = ruby.hash_new();
        HEADERS.into_iter().try_for_each(|(name, value)| headers.aset(name, value))?;
        Ok(headers)
    }

    /// `call(mount, method, path, query, host, origin, fetch_site)`: `[status, type, body]`; nil when the thread
    /// was interrupted before.
    #[allow(clippy::too_many_arguments)]
    fn call(
        &self,
        mount: String,
        method: String,
        path: String,
        query: String,
        host: Option<String>,
        origin: Option<String>,
        fetch_site: Option<String>,
    ) -> Result<Option<(u16, &'static str, String)>, Error> {
        let mounted = self.0.get()?;
        let request = MountedRequest { mount, method, path, query, host, origin, fetch_site };
        Ok(without_gvl_to_the_end(|| mounted.call(request)))
    }
}

/// Defines the classes.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Admin", ruby.class_object())?;
    class.define_singleton_method("run", function!(RbAdmin::run, 0))?;
    class.define_singleton_method("start", function!(RbAdmin::start, 2))?;
    class.define_singleton_method("sample_metrics", function!(RbAdmin::sample_metrics, 0))?;
    class.define_singleton_method("readiness", function!(RbAdmin::readiness, 3))?;
    class.define_method("report", method!(RbAdmin::report, 1))?;
    class.define_method("stop", method!(RbAdmin::stop, 0))?;
    let class = native.define_class("Dashboard", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(RbDashboard::new, 2))?;
    class.define_singleton_method("headers", function!(RbDashboard::headers, 0))?;
    class.define_method("call", method!(RbDashboard::call, 7))?;
    Ok(())
}
