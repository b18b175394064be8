//! `Chaton::Native::Web`: the web engine as a Ruby object.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use chaton_web::limits::{Limits, Timeouts};
use chaton_web::{AccessLog, Config, Engine, Exchange, Listener, ListenerKind, Sink};
use magnus::{
    function, method, prelude::*, Error, RArray, RHash, RModule, Ruby, Symbol, TryConvert, Value,
};

use crate::error;
use crate::feed::Feed;
use crate::gvl::{run_whole, wait_for};
use crate::handle::Handle;
use crate::pool::RbPool;
use crate::scoreboard::RbScoreboard;
use crate::settings::Settings;
use crate::unit::{Unit, WEB_LANE};
use crate::web::env_builder::EnvBuilder;

/// Puts requests into the pool.
struct PoolSink {
    feed: Feed,
    retry_after_s: u32,
}

impl Sink for PoolSink {
    fn submit(&self, exchange: Arc<Exchange>) -> Result<(), Arc<Exchange>> {
        let put = self.feed.submit(Unit::Web(exchange, self.retry_after_s));
        put.map_err(|unit| match unit {
            Unit::Web(exchange, _) => exchange,
            #[cfg(any(feature = "jobs", feature = "streams"))]
            _ => unreachable!("what the pool gives back is what was put in"),
        })
    }

    /// Ruby is woken once for all requests of one turn of the IO thread.
    fn flush(&self) {
        self.feed.flush();
    }

    fn warn(&self, message: &str) {
        crate::pool::report(message);
    }

    fn timed_out(&self, exchange: &Arc<Exchange>) {
        self.feed.pool.report_late(exchange.id());
    }
}

/// The engine as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Web", free_immediately, size)]
pub struct RbWeb(Handle<Engine>);

impl RbWeb {
    /// `Web.start(pool, scoreboard, listeners, templates, settings)`. `listeners` is
    /// an Array of `[fd, :tcp or :unix, label]`, `templates` an Array of env
    /// Hashes in the same order.
    fn start(
        ruby: &Ruby,
        pool: &RbPool,
        scoreboard: &RbScoreboard,
        listeners: RArray,
        templates: RArray,
        settings: RHash,
    ) -> Result<Self, Error> {
        let parts = pool.0.get()?;
        let string_io: Value = ruby.class_object().const_get("StringIO")?;
        let kit = Box::leak(Box::new(EnvBuilder::new(templates, string_io)?));
        let _ = parts.env_builder.set(kit);
        let settings = Settings(settings);
        let mut config = Config::new(own_listeners(listeners)?);
        config.limits = limits(&settings)?;
        config.timeouts = timeouts(&settings)?;
        config.access_log = access_log(ruby, settings.get("access_log")?)?;
        config.retry_after_s = settings.get("retry_after_s")?;
        config.scoreboard = Some(scoreboard.0.clone());
        config.slot = settings.get("slot")?;
        let ms = |key| settings.get::<f64>(key).map(|ms| Duration::from_secs_f64(ms / 1e3));
        config.accept_grace = ms("accept_grace_ms")?;
        config.accept_defer = ms("accept_defer_ms")?;
        config.hogged_after = ms("preempt_ms")?;
        let sink = Arc::new(PoolSink {
            feed: Feed::new(parts, WEB_LANE),
            retry_after_s: config.retry_after_s,
        });
        let engine = Engine::start(config, sink)
            .map_err(|e| error::named("Error", format!("the web engine: {e}")))?;
        Ok(Self(Handle::new(engine)))
    }

    fn pause_accept(&self) -> Result<(), Error> {
        self.0.get()?.pause_accept();
        Ok(())
    }

    fn drain(&self) -> Result<(), Error> {
        self.0.get()?.drain();
        Ok(())
    }

    /// Waits, without the GVL, until no connection is left; false when time is up.
    fn wait_drained(&self, timeout_s: f64) -> Result<bool, Error> {
        let engine = self.0.get()?;
        let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or_default();
        wait_for(timeout, |left| engine.wait_drained(left), &|| engine.interrupt_wait())
    }

    fn stop(&self) -> Result<(), Error> {
        let engine = self.0.get()?;
        run_whole(|| engine.stop())
    }

    fn stats(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let stats = rb_self.0.get()?.stats();
        let hash = ruby.hash_new();
        for (name, value) in [
            ("connections", stats.connections as u64),
            ("accepted_total", stats.accepted_total),
            ("requests_total", stats.requests_total),
            ("shed_total", stats.shed_total),
            ("refused_total", stats.refused_total),
            ("late_total", stats.late_total),
            ("read_bytes_total", stats.read_bytes_total),
            ("sent_bytes_total", stats.sent_bytes_total),
            ("wakeups_total", stats.wakeups_total),
            ("accept_failures_total", stats.accept_failures_total),
            ("panics_total", stats.panics_total),
        ] {
            hash.aset(ruby.to_symbol(name), value)?;
        }
        hash.aset(ruby.to_symbol("responses_total"), ruby.ary_from_iter(stats.responses_total))?;
        Ok(hash)
    }
}

fn own_listeners(list: RArray) -> Result<Vec<Listener>, Error> {
    let own = |listener: Value| {
        let (fd, kind, label) = <(i32, Symbol, String)>::try_convert(listener)?;
        // SAFETY: Ruby holds the descriptor open during this call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let fd = fd.try_clone_to_owned().map_err(|e| error::system("a listening socket", &e))?;
        let kind = match &*kind.name()? {
            "unix" => ListenerKind::Unix,
            _ => ListenerKind::Tcp,
        };
        Ok(Listener { fd, kind, label })
    };
    list.into_iter().map(own).collect()
}

fn limits(settings: &Settings) -> Result<Limits, Error> {
    Ok(Limits {
        header_bytes_max: settings.get("header_bytes_max")?,
        header_count_max: settings.get("header_count_max")?,
        uri_bytes_max: settings.get("uri_bytes_max")?,
        body_bytes_max: settings.get("body_bytes_max")?,
        body_memory_bytes_max: settings.get("body_memory_bytes_max")?,
        connections_max: settings.get("connections_max")?,
        requests_per_connection_max: settings.get("requests_per_connection_max")?,
        reply_memory_bytes_max: settings.get("reply_memory_bytes_max")?,
        reply_spool_bytes_max: settings.get("reply_spool_bytes_max")?,
    })
}

fn timeouts(settings: &Settings) -> Result<Timeouts, Error> {
    let request = settings.seconds("request_timeout_s")?;
    Ok(Timeouts {
        header: settings.seconds("header_timeout_s")?,
        body: settings.seconds("body_timeout_s")?,
        write: settings.seconds("write_timeout_s")?,
        idle: settings.seconds("idle_timeout_s")?,
        request: (!request.is_zero()).then_some(request),
        drain_idle: settings.seconds("drain_idle_s")?,
    })
}

fn access_log(ruby: &Ruby, name: Symbol) -> Result<AccessLog, Error> {
    match &*name.name()? {
        "off" => Ok(AccessLog::Off),
        "common" => Ok(AccessLog::Common),
        "json" => Ok(AccessLog::Json),
        other => Err(Error::new(
            ruby.exception_arg_error(),
            format!("setting access_log: {other} is none of off, common, json"),
        )),
    }
}

/// Defines the class.
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Web", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("start", function!(RbWeb::start, 5))?;
    class.define_method("pause_accept", method!(RbWeb::pause_accept, 0))?;
    class.define_method("drain", method!(RbWeb::drain, 0))?;
    class.define_method("wait_drained", method!(RbWeb::wait_drained, 1))?;
    class.define_method("stop", method!(RbWeb::stop, 0))?;
    class.define_method("stats", method!(RbWeb::stats, 0))?;
    Ok(())
}
