//! `Chaton::Native::Web`: the web engine as a Ruby object.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use chaton_core::engine::PoolFeed;
use chaton_core::process::scoreboard::OwnGauges;
use chaton_core::work::{downcast, Role};
use chaton_web::{Config, Engine, Exchange, Listener, ListenerKind, Resumer, TlsSettings};
use magnus::{
    function, method, prelude::*, Error, RArray, RModule, Ruby, Symbol, TryConvert, Value,
};

use crate::document_sections::parse;
use crate::engine::{define_engine, EngineObject};
use crate::error;
use crate::gvl::without_gvl_to_the_end;
use crate::handle::Handle;
use crate::pool::RbPool;
use crate::traces;
use crate::web::env_builder::EnvBuilder;
use crate::web::files;
use crate::web::request::Request;

/// The engine as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Web", free_immediately, size)]
pub struct RbWeb(Handle<Engine>);

impl RbWeb {
    /// `Web.start(pool, listeners, templates)`. `listeners` is an Array of
    /// `[fd, :tcp or :unix, label, TLS]` (TLS in JSON, or nil), `templates` an Array of env Hashes in the same order. The
    /// engine owns and closes the descriptors.
    fn start(
        ruby: &Ruby,
        pool: &RbPool,
        listeners: RArray,
        templates: RArray,
    ) -> Result<Self, Error> {
        let inner = pool.0.get()?;
        let mut config: Config = inner.document.section("web")?;
        let string_io: Value = ruby.class_object().const_get("StringIO")?;
        let env_builder: &'static EnvBuilder =
            Box::leak(Box::new(EnvBuilder::new(templates, string_io)?));
        inner.register(
            Role::Web,
            Box::new(move |ruby, work, _| {
                let exchange = downcast::<Exchange>(work)?;
                exchange.may_begin().then(|| {
                    traces::request_begins(&exchange);
                    Request::wrap(ruby, env_builder, exchange)
                })
            }),
        );
        config.listeners = own_listeners(listeners)?;
        config.scoreboard = Some(inner.pool.scoreboard.clone());
        config.slot = inner.pool.settings.slot;
        config.hogged_after = inner.pool.settings.quantum_min;
        config.threads_max = inner.pool.settings.threads_max;
        let feed = PoolFeed::open(&inner.pool, Role::Web, config.queue);
        let engine = Engine::start(config, feed)
            .map_err(|e| error::named("Error", format!("the web engine: {e}")))?;
        Ok(Self(Handle::new(engine)))
    }

    /// Reads the certificates of `tls` (JSON).
    fn check_tls(tls: String) -> Result<(), Error> {
        parse::<TlsSettings>("tls", &tls)?.check().map_err(|why| error::named("ConfigError", why))
    }

    /// Reads the files of the certificates again.
    fn reload_certificates(&self) -> Result<(), Error> {
        let engine = self.0.get()?;
        without_gvl_to_the_end(|| engine.reload_certificates());
        Ok(())
    }

    /// Has clients that come back to an event stream answered by this.
    ///
    /// # Errors
    /// `Chaton::ForkedError` in a forked child.
    pub fn set_resumer(&self, resumer: Arc<dyn Resumer>) -> Result<(), Error> {
        self.0.get()?.set_resumer(resumer);
        Ok(())
    }

    /// What the worker shows on the scoreboard.
    ///
    /// # Errors
    /// `Chaton::ForkedError` in a forked child.
    pub fn gauges(&self) -> Result<Option<OwnGauges>, Error> {
        Ok(self.0.get()?.gauges())
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
        let (fd, kind, label, tls) =
            <(i32, Symbol, String, Option<String>)>::try_convert(listener)?;
        // SAFETY: the caller gives the descriptor away.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let kind = match &*kind.name()? {
            "unix" => ListenerKind::Unix,
            _ => ListenerKind::Tcp,
        };
        let tls = tls.map(|json| parse("tls", &json)).transpose()?;
        Ok(Listener { fd, kind, label, tls })
    };
    list.into_iter().map(own).collect()
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Web", ruby.class_object())?;
    class.define_singleton_method("start", function!(RbWeb::start, 3))?;
    class.define_singleton_method("open_below", function!(files::descriptor_below, 2))?;
    class.define_singleton_method("check_tls", function!(RbWeb::check_tls, 1))?;
    class.define_method("reload_certificates", method!(RbWeb::reload_certificates, 0))?;
    class.define_method("pause_accept", method!(RbWeb::pause_accept, 0))?;
    define_engine!(class, RbWeb);
    Ok(())
}
