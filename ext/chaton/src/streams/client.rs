//! `Chaton::Native::StreamsClient`: writes and reads a log in any process.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::process::counters::ProducedCounters;
use chaton_core::process::scoreboard::OwnGauges;
use chaton_streams::admin_call;
use chaton_streams::delivery_errors::DeliveryErrors;
use chaton_streams::log::{self, ErrorKind, LogError, Partition, Producer, RecordLog};
use chaton_streams::receipt::Receipt;
use chaton_streams::settings::LogSettings;
use chaton_streams::shared_producer::SharedProducer;
use magnus::{function, method, prelude::*, Error, RArray, RHash, RModule, RString, Ruby, Value};

use super::log_error;
use super::new_record::RubyRecord;
use super::position::position;
use super::reader::RbReader;
use super::receipt::RbReceipt;
use crate::convert::{copy, seconds};
use crate::gvl::{check_interrupts, without_gvl, without_gvl_to_the_end};
use crate::pool::RbPool;
use crate::traces::{self, ProducerSpan};
use crate::{document_sections, error, handle};

/// A log that this process has opened.
pub struct OpenLog {
    /// The log.
    pub log: Arc<dyn RecordLog>,
    producer: SharedProducer,
    errors: Arc<DeliveryErrors>,
}

impl OpenLog {
    /// The producer of this process, made at the first call and after a fatal error.
    ///
    /// # Errors
    /// As [`RecordLog::producer`].
    pub fn producer(&self) -> log::Result<Arc<dyn Producer>> {
        self.producer.get(|| self.log.producer())
    }

    /// What traces call the log.
    pub fn system(&self) -> &'static str {
        if self.log.address().starts_with("kafka") {
            return "kafka";
        }
        "chaton"
    }
}

/// The client as a Ruby object. It can be used after a fork: the child opens the log again.
#[magnus::wrap(class = "Chaton::Native::StreamsClient", free_immediately, size)]
pub struct RbStreamsClient {
    settings: LogSettings,
    /// Borrowed and changed with the GVL held only.
    opened: RefCell<(u32, Arc<OpenLog>)>,
}

// SAFETY: only used by threads that hold the GVL; the `OpenLog` that leaves it may be shared.
unsafe impl Sync for RbStreamsClient {}

impl Drop for RbStreamsClient {
    fn drop(&mut self) {
        let (made_in, opened) = &*self.opened.borrow();
        if *made_in != handle::generation() {
            // It belongs to the parent: its threads are not here, and its locks may be held.
            std::mem::forget(opened.clone());
        }
    }
}

fn log_settings(json: &str) -> Result<LogSettings, Error> {
    document_sections::parse("streams.log", json)
}

fn open(settings: &LogSettings) -> Result<Arc<OpenLog>, Error> {
    let log = log::open(settings).map_err(|e| log_error::raised(&e))?;
    let errors = log.delivery_errors();
    Ok(Arc::new(OpenLog { log, producer: SharedProducer::default(), errors }))
}

impl RbStreamsClient {
    fn new(settings: String) -> Result<Self, Error> {
        let settings = log_settings(&settings)?;
        let opened = open(&settings)?;
        Ok(Self { settings, opened: RefCell::new((handle::generation(), opened)) })
    }

    /// The log, opened in this process.
    ///
    /// # Errors
    /// In a forked child, those of [`log::open`] at the first call.
    pub fn open(&self) -> Result<Arc<OpenLog>, Error> {
        let mut opened = self.opened.borrow_mut();
        if opened.0 == handle::generation() {
            return Ok(opened.1.clone());
        }
        let fresh = open(&self.settings)?;
        std::mem::forget(std::mem::replace(&mut opened.1, fresh.clone()));
        opened.0 = handle::generation();
        drop(opened);
        if let Some(streams) = error::chaton::<RModule>("Streams") {
            // Ruby's threads of the parent are not here either.
            streams.funcall::<_, _, Value>("forked", ())?;
        }
        Ok(fresh)
    }

    /// The producer, if this process has made one.
    fn own_producer(&self) -> Option<Arc<dyn Producer>> {
        let opened = self.opened.borrow();
        let is_own = opened.0 == handle::generation();
        is_own.then(|| opened.1.producer.made()).flatten()
    }

    /// The producer, and a receipt for so many records.
    fn begin(&self, records: usize) -> Result<(Arc<dyn Producer>, Arc<Receipt>), Error> {
        let opened = self.open()?;
        let producer = opened.producer().map_err(|e| log_error::raised(&e))?;
        Ok((producer, Arc::new(Receipt::watched(records, opened.errors.clone()))))
    }

    #[allow(clippy::too_many_arguments)] // The fields of a record.
    fn produce(
        &self,
        topic: RString,
        value: Option<RString>,
        key: Option<RString>,
        headers: Option<RHash>,
        partition: Option<i32>,
        timestamp_ms: Option<i64>,
        timeout_s: f64,
    ) -> Result<RbReceipt, Error> {
        let span = self.span(topic, 1)?;
        let mut record = RubyRecord::new(topic, value, key, headers, partition, timestamp_ms)?;
        record.pass_on(span.as_ref());
        let sent = self.send(&record, timeout_s);
        span.into_iter().for_each(|span| span.end(&sent));
        sent
    }

    fn send(&self, record: &RubyRecord, timeout_s: f64) -> Result<RbReceipt, Error> {
        let (producer, receipt) = self.begin(1)?;
        let mut deadline = RoomDeadline::new(timeout_s)?;
        match send(&*producer, record, (&receipt, 0), &mut deadline)? {
            Ok(()) => Ok(RbReceipt::new(receipt)),
            Err(failed) => Err(log_error::raised(&failed)),
        }
    }

    /// The span of records that are written.
    fn span(&self, topic: RString, count: usize) -> Result<Option<ProducerSpan>, Error> {
        if !traces::are_on() {
            return Ok(None);
        }
        let topic = copy(topic);
        traces::produced(self.open()?.system(), &String::from_utf8_lossy(&topic), count)
    }

    /// Writes all under one receipt. A record that is refused fails there; the others are sent.
    fn produce_many(&self, list: RArray, timeout_s: f64) -> Result<RbReceipt, Error> {
        let first: Option<RArray> = list.entry(0)?;
        let topic: Option<RString> = first.map_or(Ok(None), |row| row.entry(0))?;
        let span = topic.map_or(Ok(None), |topic| self.span(topic, list.len()))?;
        self.produce_list(list, timeout_s, span, RubyRecord::from_array)
    }

    fn produce_values(
        &self,
        topic: RString,
        values: RArray,
        timeout_s: f64,
    ) -> Result<RbReceipt, Error> {
        let span = if values.is_empty() { None } else { self.span(topic, values.len())? };
        self.produce_list(values, timeout_s, span, |value| {
            let value = magnus::TryConvert::try_convert(value)?;
            RubyRecord::new(topic, value, None, None, None, None)
        })
    }

    fn produce_list(
        &self,
        list: RArray,
        timeout_s: f64,
        span: Option<ProducerSpan>,
        to_record: impl Fn(Value) -> Result<RubyRecord, Error>,
    ) -> Result<RbReceipt, Error> {
        let traced = |value| {
            let mut record = to_record(value)?;
            record.pass_on(span.as_ref());
            Ok(record)
        };
        let sent = self.send_list(list, timeout_s, traced);
        span.into_iter().for_each(|span| span.end(&sent));
        sent
    }

    fn send_list(
        &self,
        list: RArray,
        timeout_s: f64,
        to_record: impl Fn(Value) -> Result<RubyRecord, Error>,
    ) -> Result<RbReceipt, Error> {
        let count = list.len();
        let (producer, receipt) = self.begin(count)?;
        let mut deadline = RoomDeadline::new(timeout_s)?;
        for index in 0..count {
            let row: Value = list.entry(index as isize)?;
            let record = to_record(row)?;
            let sent = send(&*producer, &record, (&receipt, index), &mut deadline)?;
            if let Err(failed) = sent {
                record.with(|record| receipt.fail(index, record.topic, failed));
            }
        }
        Ok(RbReceipt::new(receipt))
    }

    /// Waits until all records are sent; returns how many are left when time is up.
    fn flush(&self, timeout_s: f64) -> Result<usize, Error> {
        let Some(producer) = self.own_producer() else { return Ok(0) };
        let until = Instant::now() + seconds("timeout_s", timeout_s)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let remaining = without_gvl(|| producer.flush(left), &|| producer.interrupt());
            check_interrupts()?;
            match remaining {
                Some(0) => return Ok(0),
                Some(records) if Instant::now() >= until => return Ok(records),
                _ => {}
            }
        }
    }

    /// Waits for records that failed and whose receipt nobody has read: `[topic, class name,
    /// message, records]` each; nil does not wait, for a process that ends.
    fn delivery_errors(
        ruby: &Ruby,
        rb_self: &Self,
        timeout_s: Option<f64>,
    ) -> Result<RArray, Error> {
        let errors = rb_self.open()?.errors.clone();
        let told = match timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()? {
            None => Some(errors.rest()),
            Some(timeout) => without_gvl(|| errors.next(timeout), &|| errors.interrupt()),
        };
        if told.as_ref().is_none_or(Vec::is_empty) {
            check_interrupts()?;
        }
        let list = ruby.ary_new();
        for one in told.into_iter().flatten() {
            let class = log_error::class_name(one.error.kind);
            list.push((one.topic, class, one.error.message, one.records))?;
        }
        Ok(list)
    }

    /// Counts lost records for the metrics of this worker.
    fn count_delivery_errors(
        &self,
        pool: &RbPool,
        topic: String,
        records: u64,
    ) -> Result<(), Error> {
        let pool = &pool.0.get()?.pool;
        let gauges = OwnGauges::new(pool.scoreboard.clone(), pool.settings.slot);
        let produced = gauges.named::<ProducedCounters>(&topic, "");
        produced.undelivered.fetch_add(records, Ordering::Relaxed);
        Ok(())
    }

    fn buffered(&self) -> usize {
        self.own_producer().map_or(0, |producer| producer.buffered())
    }

    /// Closes the producer; the next call makes another one.
    fn close(&self) {
        let Some(producer) = self.own_producer() else { return };
        self.opened.borrow().1.producer.forget();
        without_gvl_to_the_end(|| drop(producer));
    }

    fn address(&self) -> Result<String, Error> {
        Ok(self.open()?.log.address().to_string())
    }

    fn admin(&self, call: String) -> Result<String, Error> {
        let opened = self.open()?;
        waited(|| {
            let mut admin = opened.log.admin()?;
            admin_call::answer(&mut *admin, &call)
        })
    }

    fn reader(&self, topic: String, partition: i32, from: Value) -> Result<RbReader, Error> {
        let opened = self.open()?;
        let from = position(from)?;
        let partition = Partition { topic: Arc::from(topic), number: partition };
        let reader = waited(|| opened.log.reader(&partition, from))?;
        Ok(RbReader::new(reader, partition))
    }
}

/// Raises for settings that no log can be opened with, such as an unknown property, before anything
/// is started. Connects to nothing.
fn check_log(settings: String) -> Result<(), Error> {
    log::check(&log_settings(&settings)?).map_err(|e| log_error::raised(&e))
}

/// Runs a call that ends by its own time limit, without the GVL.
fn waited<R>(work: impl Fn() -> log::Result<R>) -> Result<R, Error> {
    loop {
        let answer = without_gvl_to_the_end(&work);
        check_interrupts()?;
        if let Some(answer) = answer {
            return answer.map_err(|e| log_error::raised(&e));
        }
    }
}

/// How long a call waits for room in all. The clock is read when there is none; most calls never
/// wait.
struct RoomDeadline {
    timeout: Duration,
    until: Option<Instant>,
}

impl RoomDeadline {
    fn new(timeout_s: f64) -> Result<Self, Error> {
        Ok(Self { timeout: seconds("timeout_s", timeout_s)?, until: None })
    }

    fn left(&mut self) -> Duration {
        let now = Instant::now();
        self.until.get_or_insert_with(|| now + self.timeout).saturating_duration_since(now)
    }
}

/// Gives a record to the producer, and waits while the buffer is full.
///
/// # Errors
/// What Ruby raises meanwhile; errors of the log are in the result.
fn send(
    producer: &dyn Producer,
    record: &RubyRecord,
    receipt: (&Arc<Receipt>, usize),
    deadline: &mut RoomDeadline,
) -> Result<log::Result<()>, Error> {
    loop {
        match record.with(|record| producer.send(record, Some(receipt))) {
            Err(full) if full.kind == ErrorKind::Full => {
                let left = deadline.left();
                if left == Duration::ZERO {
                    return Ok(Err(no_room(&full)));
                }
                without_gvl(|| producer.wait_room(left), &|| producer.interrupt());
                check_interrupts()?;
            }
            answer => return Ok(answer),
        }
    }
}

fn no_room(full: &LogError) -> LogError {
    LogError::new(
        ErrorKind::Full,
        format!("{}; waited as long as produce_timeout allows", full.message),
    )
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.define_singleton_method("check_log", function!(check_log, 1))?;
    let class = native.define_class("StreamsClient", ruby.class_object())?;
    class.define_singleton_method("new", function!(RbStreamsClient::new, 1))?;
    class.define_method("produce", method!(RbStreamsClient::produce, 7))?;
    class.define_method("produce_many", method!(RbStreamsClient::produce_many, 2))?;
    class.define_method("produce_values", method!(RbStreamsClient::produce_values, 3))?;
    class.define_method("flush", method!(RbStreamsClient::flush, 1))?;
    class.define_method("delivery_errors", method!(RbStreamsClient::delivery_errors, 1))?;
    let count = method!(RbStreamsClient::count_delivery_errors, 3);
    class.define_method("count_delivery_errors", count)?;
    class.define_method("buffered", method!(RbStreamsClient::buffered, 0))?;
    class.define_method("close", method!(RbStreamsClient::close, 0))?;
    class.define_method("address", method!(RbStreamsClient::address, 0))?;
    class.define_method("admin", method!(RbStreamsClient::admin, 1))?;
    class.define_method("reader", method!(RbStreamsClient::reader, 3))?;
    Ok(())
}
