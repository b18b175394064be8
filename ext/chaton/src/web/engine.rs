//! `Chaton::Native::Web`: the web engine as a Ruby object.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use chaton_core::engine::PoolFeed;
use chaton_core::pool::queue::QueueLimits;
use chaton_core::work::{downcast, Priority, Role};
use chaton_web::limits::{Limits, Timeouts};
use chaton_web::{AccessLog, Config, Engine, Exchange, Listener, ListenerKind};
use magnus::{
    function, method, prelude::*, Error, RArray, RHash, RModule, Ruby, Symbol, TryConvert, Value,
};

use crate::engine::{define_engine, EngineObject};
use crate::error;
use crate::handle::Handle;
use crate::pool::RbPool;
use crate::scoreboard::RbScoreboard;
use crate::settings::Settings;
use crate::web::env_builder::EnvBuilder;
use crate::web::request::Request;

/// The engine as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Web", free_immediately, size)]
pub struct RbWeb(Handle<Engine>);

impl RbWeb {
    /// `Web.start(pool, scoreboard, listeners, templates, settings)`. `listeners` is an Array of
    /// `[fd, :tcp or :unix, label]`, `templates` an Array of env Hashes in the same order.
    fn start(
        ruby: &Ruby,
        pool: &RbPool,
        scoreboard: &RbScoreboard,
        listeners: RArray,
        templates: RArray,
        settings: RHash,
    ) -> Result<Self, Error> {
        let inner = pool.0.get()?;
        let string_io: Value = ruby.class_object().const_get("StringIO")?;
        let env_builder: &'static EnvBuilder =
            Box::leak(Box::new(EnvBuilder::new(templates, string_io)?));
        inner.register(
            Role::Web,
            Box::new(move |ruby, work, _| {
                let exchange = downcast::<Exchange>(work)?;
                // It was answered 503 while it waited, or the client is gone.
                (!exchange.is_gone()).then(|| Request::wrap(ruby, env_builder, exchange))
            }),
        );
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
        let limits = QueueLimits {
            count_max: settings.get("queue_limit")?,
            bytes_max: settings.get("queue_bytes_max")?,
            age_max_ms: settings.seconds("queue_age_s")?.as_millis() as u64,
        };
        let feed = PoolFeed::open(&inner.pool, Role::Web, Priority::Interactive, limits);
        let engine = Engine::start(config, feed)
            .map_err(|e| error::named("Error", format!("the web engine: {e}")))?;
        Ok(Self(Handle::new(engine)))
    }

    fn pause_accept(&self) -> Result<(), Error> {
        self.0.get()?.pause_accept();
        Ok(())
    }
}

impl EngineObject for RbWeb {
    fn engine(&self) -> Result<&dyn chaton_core::engine::Engine, Error> {
        Ok(self.0.get()?)
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
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Web", ruby.class_object())?;
    class.define_singleton_method("start", function!(RbWeb::start, 5))?;
    class.define_method("pause_accept", method!(RbWeb::pause_accept, 0))?;
    define_engine!(class, RbWeb);
    Ok(())
}
