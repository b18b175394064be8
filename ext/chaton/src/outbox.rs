//! `Chaton::Native::OutboxRelay`: hands what transactions of the application have stored for a log to it.

use std::sync::Arc;
use std::time::Duration;

use chaton_core::outbox::{Delivery, OnDelivery, Outlet, OwnedRecord};
use chaton_jobs::store::{self, StoreOptions};
use chaton_streams::log::{self, ErrorKind, LogError, Producer, RecordLog};
use chaton_streams::receipt::Receipt;
use chaton_streams::settings::LogSettings;
use chaton_streams::shared_producer::SharedProducer;
use magnus::typed_data::Obj;
use magnus::{function, method, prelude::*, Error, RArray, RModule, Ruby};
use parking_lot::Mutex;

use crate::document_sections::parse;
use crate::error;
use crate::gvl::without_gvl_to_the_end;
use crate::handle::Handle;
use crate::jobs::client::RbJobsClient;
use crate::streams::new_record::RubyRecord;
use crate::traces;

/// A record is tried for ever (here: 24 days, the most that librdkafka takes), since one that is given up could be written
/// behind a later one of its key.
const DELIVERY: Duration = Duration::from_millis(i32::MAX as u64);

/// A log with a producer of its own, opened with the first record.
struct LogOutlet {
    settings: LogSettings,
    log: Option<Arc<dyn RecordLog>>,
    producer: SharedProducer,
}

impl LogOutlet {
    fn producer(&mut self) -> log::Result<Arc<dyn Producer>> {
        let log = match &self.log {
            Some(log) => log,
            None => self.log.insert(log::open(&self.settings)?),
        };
        self.producer.get(|| log.producer())
    }
}

impl Outlet for LogOutlet {
    fn send(&mut self, record: OwnedRecord, done: OnDelivery) {
        let receipt = Arc::new(Receipt::with_callback(1, move |receipt| {
            done(receipt.failures().pop().map_or(Delivery::Written, |(_, error)| delivery(error)));
        }));
        let sent = self
            .producer()
            .and_then(|producer| record.with(|record| producer.send(record, Some((&receipt, 0)))));
        if let Err(error) = sent {
            receipt.complete(0, Err(error));
        }
    }

    fn reset(&mut self) {
        self.producer.forget();
    }

    fn complaint(&mut self) -> Option<String> {
        let told = self.log.as_ref()?.delivery_errors().rest();
        told.into_iter().last().map(|one| one.error.message)
    }

    fn address(&self) -> String {
        self.log.as_ref().map_or_else(String::new, |log| log.address().to_owned())
    }
}

/// Whether another try may help.
fn delivery(error: LogError) -> Delivery {
    match error.kind {
        ErrorKind::Invalid | ErrorKind::UnknownTopic => Delivery::Refused(error.message),
        ErrorKind::Refused | ErrorKind::Corrupt if error.of_record => {
            Delivery::Refused(error.message)
        }
        _ => Delivery::Failed(error.message),
    }
}

/// `outbox_insert(jobs, rows)`: the statement that stores records for the relay.
fn insert(jobs: Obj<RbJobsClient>, rows: RArray) -> Result<String, Error> {
    let mut rows: Vec<_> =
        rows.into_iter().map(RubyRecord::from_array).collect::<Result<_, _>>()?;
    let topic = rows.first().map_or_else(String::new, |row| row.owned().topic);
    let span = traces::produced("chaton", &topic, rows.len())?;
    rows.iter_mut().for_each(|row| row.pass_on(span.as_ref()));
    let records: Vec<_> = rows.iter().map(RubyRecord::owned).collect();
    let made = jobs.own(|own| own.outbox(&records));
    span.into_iter().for_each(|span| span.end(&made));
    made
}

/// What stops the relay.
type Stop = Box<dyn FnOnce() + Send>;

/// The relay of one process.
#[magnus::wrap(class = "Chaton::Native::OutboxRelay", free_immediately, size)]
pub struct RbOutboxRelay(Handle<Mutex<Option<Stop>>>);

impl RbOutboxRelay {
    /// `OutboxRelay.start(store, log)`: JSON of the parts `store` of the section `jobs` and `log` of the section `streams`.
    fn start(store: String, log: String) -> Result<Self, Error> {
        let options: StoreOptions = parse("jobs.store", &store)?;
        let mut settings: LogSettings = parse("streams.log", &log)?;
        settings.delivery_timeout = DELIVERY;
        let factory = store::open(&options).map_err(|e| error::store(&e))?;
        let outlet = LogOutlet { settings, log: None, producer: SharedProducer::default() };
        let stop = factory.relay(Box::new(outlet)).map_err(|e| error::store(&e))?;
        Ok(Self(Handle::new(Mutex::new(stop))))
    }

    /// Waits until the log has what was handed to it, for a bounded time.
    fn stop(&self) -> Result<(), Error> {
        let mut stop = self.0.get()?.lock().take();
        without_gvl_to_the_end(|| stop.take().into_iter().for_each(|stop| stop()));
        Ok(())
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.define_singleton_method("outbox_insert", function!(insert, 2))?;
    let class = native.define_class("OutboxRelay", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("start", function!(RbOutboxRelay::start, 2))?;
    class.define_method("stop", method!(RbOutboxRelay::stop, 0))?;
    crate::settle::<RbOutboxRelay>(ruby);
    Ok(())
}
