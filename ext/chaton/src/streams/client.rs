//! `Chaton::Native::StreamsClient`: what any process may do with a log.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_streams::admin_call;
use chaton_streams::log::{self, ErrorKind, LogError, Partition, Producer, RecordLog};
use chaton_streams::receipt::Receipt;
use chaton_streams::settings::LogSettings;
use magnus::{function, method, prelude::*, Error, RArray, RHash, RModule, RString, Ruby, Value};
use parking_lot::Mutex;

use super::failure;
use super::given::Given;
use super::place;
use super::reader::RbReader;
use super::receipt::RbReceipt;
use crate::convert::seconds;
use crate::gvl::{check_interrupts, without_gvl, without_gvl_to_the_end};
use crate::{error, handle};

/// What one process has opened of a log.
pub struct Parts {
    /// The log.
    pub log: Arc<dyn RecordLog>,
    producer: Mutex<Option<Arc<dyn Producer>>>,
}

impl Parts {
    /// The process's producer, made at the first call.
    ///
    /// # Errors
    /// As [`RecordLog::producer`].
    pub fn producer(&self) -> log::Result<Arc<dyn Producer>> {
        let mut made = self.producer.lock();
        if let Some(producer) = &*made {
            return Ok(producer.clone());
        }
        let producer = self.log.producer()?;
        *made = Some(producer.clone());
        Ok(producer)
    }
}

/// The client as a Ruby object. It may be used after a fork: the child opens
/// the log for itself.
#[magnus::wrap(class = "Chaton::Native::StreamsClient", free_immediately, size)]
pub struct RbStreamsClient {
    settings: LogSettings,
    /// Borrowed and changed with the GVL held only.
    parts: RefCell<(u32, Arc<Parts>)>,
}

// SAFETY: only used by threads that hold the GVL; what leaves it are the parts,
// which may be shared.
unsafe impl Sync for RbStreamsClient {}

impl Drop for RbStreamsClient {
    fn drop(&mut self) {
        let (made_in, parts) = &*self.parts.borrow();
        if *made_in != handle::generation() {
            // The parent's: its threads are not here, its locks may be held.
            std::mem::forget(parts.clone());
        }
    }
}

fn open(settings: &LogSettings) -> Result<Arc<Parts>, Error> {
    let log = log::open(settings).map_err(|e| failure::raised(&e))?;
    Ok(Arc::new(Parts { log, producer: Mutex::new(None) }))
}

impl RbStreamsClient {
    fn new(settings: String) -> Result<Self, Error> {
        let settings: LogSettings = serde_json::from_str(&settings)
            .map_err(|e| error::argument(format!("settings of the log: {e}")))?;
        let parts = open(&settings)?;
        Ok(Self { settings, parts: RefCell::new((handle::generation(), parts)) })
    }

    /// What this process has opened.
    ///
    /// # Errors
    /// As [`log::open`], in a forked child at its first call.
    pub fn parts(&self) -> Result<Arc<Parts>, Error> {
        let mut parts = self.parts.borrow_mut();
        if parts.0 != handle::generation() {
            let fresh = open(&self.settings)?;
            std::mem::forget(std::mem::replace(&mut parts.1, fresh));
            parts.0 = handle::generation();
        }
        Ok(parts.1.clone())
    }

    /// The producer, where this process has made one. A forked child that has
    /// not written anything opens nothing just to say so.
    fn own_producer(&self) -> Option<Arc<dyn Producer>> {
        let parts = self.parts.borrow();
        let ours = parts.0 == handle::generation();
        ours.then(|| parts.1.producer.lock().clone()).flatten()
    }

    fn producer(&self) -> Result<Arc<dyn Producer>, Error> {
        self.parts()?.producer().map_err(|e| failure::raised(&e))
    }

    #[allow(clippy::too_many_arguments)] // As many as a record has parts.
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
        let given = Given::new(topic, value, key, headers, partition, timestamp_ms)?;
        let producer = self.producer()?;
        let receipt = Arc::new(Receipt::new(1));
        let mut patience = Patience::new(timeout_s)?;
        match send(&*producer, &given, (&receipt, 0), &mut patience)? {
            Ok(()) => Ok(RbReceipt::new(receipt)),
            Err(failed) => Err(failure::raised(&failed)),
        }
    }

    /// All of them under one receipt; a record that is not taken fails there,
    /// and the others are sent.
    fn produce_many(&self, list: RArray, timeout_s: f64) -> Result<RbReceipt, Error> {
        self.produce_list(list, timeout_s, Given::from_array)
    }

    fn produce_values(
        &self,
        topic: RString,
        values: RArray,
        timeout_s: f64,
    ) -> Result<RbReceipt, Error> {
        self.produce_list(values, timeout_s, |value| {
            let value = magnus::TryConvert::try_convert(value)?;
            Given::new(topic, value, None, None, None, None)
        })
    }

    fn produce_list(
        &self,
        list: RArray,
        timeout_s: f64,
        given: impl Fn(Value) -> Result<Given, Error>,
    ) -> Result<RbReceipt, Error> {
        let producer = self.producer()?;
        let count = list.len();
        let receipt = Arc::new(Receipt::new(count));
        let mut patience = Patience::new(timeout_s)?;
        for index in 0..count {
            let row: Value = list.entry(index as isize)?;
            let sent = send(&*producer, &given(row)?, (&receipt, index), &mut patience)?;
            if let Err(failed) = sent {
                receipt.settle(index, Err(failed));
            }
        }
        Ok(RbReceipt::new(receipt))
    }

    /// Sends what waits; answers how many records are left when time is up.
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

    fn buffered(&self) -> usize {
        self.own_producer().map_or(0, |producer| producer.buffered())
    }

    /// Lets go of the producer; the next call makes another one.
    fn close(&self) {
        let Some(producer) = self.own_producer() else { return };
        self.parts.borrow().1.producer.lock().take();
        without_gvl_to_the_end(|| drop(producer));
    }

    fn address(&self) -> Result<String, Error> {
        Ok(self.parts()?.log.address().to_string())
    }

    fn admin(&self, call: String) -> Result<String, Error> {
        let parts = self.parts()?;
        waited(|| {
            let mut admin = parts.log.admin()?;
            admin_call::answer(&mut *admin, &call)
        })
    }

    fn reader(&self, topic: String, partition: i32, from: Value) -> Result<RbReader, Error> {
        let parts = self.parts()?;
        let from = place::position(from)?;
        let partition = Partition { topic: Arc::from(topic), number: partition };
        let reader = waited(|| parts.log.reader(&partition, from))?;
        Ok(RbReader::new(reader, partition))
    }
}

/// Whether a log can be opened with these settings: a property that is none is
/// found before anything is started. Nothing is connected to or kept.
fn check_log(settings: String) -> Result<(), Error> {
    let settings: LogSettings = serde_json::from_str(&settings)
        .map_err(|e| error::argument(format!("settings of the log: {e}")))?;
    log::check(&settings).map_err(|e| failure::raised(&e))
}

/// Runs a call that ends by its own time limit, without the GVL.
fn waited<R>(work: impl Fn() -> log::Result<R>) -> Result<R, Error> {
    loop {
        let answer = without_gvl_to_the_end(&work);
        check_interrupts()?;
        if let Some(answer) = answer {
            return answer.map_err(|e| failure::raised(&e));
        }
    }
}

/// How long a call waits for room in all. Its clock is first looked at when
/// there is none: most calls never wait.
struct Patience {
    timeout: Duration,
    until: Option<Instant>,
}

impl Patience {
    fn new(timeout_s: f64) -> Result<Self, Error> {
        Ok(Self { timeout: seconds("timeout_s", timeout_s)?, until: None })
    }

    fn left(&mut self) -> Duration {
        let now = Instant::now();
        self.until.get_or_insert_with(|| now + self.timeout).saturating_duration_since(now)
    }
}

/// Hands a record over, and waits for room while there is none.
///
/// # Errors
/// What Ruby raised meanwhile; what the log says is in the answer.
fn send(
    producer: &dyn Producer,
    given: &Given,
    receipt: (&Arc<Receipt>, usize),
    patience: &mut Patience,
) -> Result<log::Result<()>, Error> {
    loop {
        match given.with(|record| producer.send(record, Some(receipt))) {
            Err(full) if full.kind == ErrorKind::Full => {
                let left = patience.left();
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
        format!("{}; it was waited for as long as produce_timeout allows", full.message),
    )
}

/// Defines the class.
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.define_singleton_method("check_log", function!(check_log, 1))?;
    let class = native.define_class("StreamsClient", ruby.class_object())?;
    class.define_singleton_method("new", function!(RbStreamsClient::new, 1))?;
    class.define_method("produce", method!(RbStreamsClient::produce, 7))?;
    class.define_method("produce_many", method!(RbStreamsClient::produce_many, 2))?;
    class.define_method("produce_values", method!(RbStreamsClient::produce_values, 3))?;
    class.define_method("flush", method!(RbStreamsClient::flush, 1))?;
    class.define_method("buffered", method!(RbStreamsClient::buffered, 0))?;
    class.define_method("close", method!(RbStreamsClient::close, 0))?;
    class.define_method("address", method!(RbStreamsClient::address, 0))?;
    class.define_method("admin", method!(RbStreamsClient::admin, 1))?;
    class.define_method("reader", method!(RbStreamsClient::reader, 3))?;
    Ok(())
}
