//! `Chaton::Native::Admin`: the admin endpoint, as a process or on a thread.

use chaton_admin::server::{run_process, AdminThread};
use chaton_admin::Config;
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
        match without_gvl_to_the_end(run_process) {
            Some(ended) => ended.map_err(|e| error::system("the admin endpoint", &e)),
            None => Ok(()),
        }
    }

    /// Serves on a thread of this process.
    fn start(settings: String, scoreboard: &RbScoreboard) -> Result<Self, Error> {
        let config: Config =
            serde_json::from_str(&settings).map_err(|e| error::argument(e.to_string()))?;
        let thread = AdminThread::start(config, &scoreboard.0)
            .map_err(|e| error::system("the admin endpoint", &e))?;
        Ok(Self(Handle::new(thread)))
    }

    fn report(&self, line: String) -> Result<(), Error> {
        self.0.get()?.report(&line).map_err(|e| error::argument(e.to_string()))
    }

    fn stop(&self) -> Result<(), Error> {
        self.0.get()?.stop();
        Ok(())
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Admin", ruby.class_object())?;
    class.define_singleton_method("run", function!(RbAdmin::run, 0))?;
    class.define_singleton_method("start", function!(RbAdmin::start, 2))?;
    class.define_method("report", method!(RbAdmin::report, 1))?;
    class.define_method("stop", method!(RbAdmin::stop, 0))?;
    Ok(())
}
