//! What the engine's handle, its IO thread and its exchanges share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use chaton_core::process::scoreboard::WorkerGauges;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::access_log::LogBuffer;
use crate::completions::Completions;
use crate::config::Config;
use crate::exchange::Exchange;
use crate::registry::Registry;
use crate::sink::Sink;
use crate::stats::Counters;

/// Bytes read from a socket in one call.
const SCRATCH_BYTES: usize = 64 * 1024;

/// Requests handed over before the sink is told without waiting for the turn's end.
const FLUSH_AFTER: u32 = 32;

/// State of one engine.
pub(crate) struct Shared {
    pub config: Config,
    pub sink: Arc<dyn Sink>,
    pub counters: Counters,
    pub log: LogBuffer,
    pub registry: Registry,
    /// What sockets are read into; the IO thread's own.
    pub scratch: Mutex<Box<[u8]>>,
    /// Tells the listeners that a place is free or that accepting ends.
    pub places: Notify,
    completions: Completions,
    /// Handed over since the sink was last told.
    submitted: AtomicU32,
    ids: AtomicU64,
    io_waker: Mutex<Option<Waker>>,
    accepting: AtomicBool,
    draining: AtomicBool,
    /// The drained connections' grace is over.
    idle_over: AtomicBool,
    stopping: AtomicBool,
    open: Mutex<Open>,
    open_changed: Condvar,
}

#[derive(Default)]
struct Open {
    connections: usize,
    interrupted: bool,
}

impl Shared {
    pub fn new(config: Config, sink: Arc<dyn Sink>) -> Self {
        let log = LogBuffer::new(config.access_log);
        Self {
            config,
            sink,
            counters: Counters::default(),
            log,
            registry: Registry::default(),
            scratch: Mutex::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            places: Notify::new(),
            completions: Completions::default(),
            submitted: AtomicU32::new(0),
            ids: AtomicU64::new(0),
            io_waker: Mutex::default(),
            accepting: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            idle_over: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            open: Mutex::default(),
            open_changed: Condvar::new(),
        }
    }

    /// This worker's slot on the scoreboard.
    pub fn slot(&self) -> Option<&WorkerGauges> {
        self.config.scoreboard.as_ref().map(|scoreboard| scoreboard.slot(self.config.slot))
    }

    // Word from other threads.

    /// A connection has something to do.
    pub fn complete(&self, exchange: Arc<Exchange>) {
        if self.completions.push(exchange) {
            self.wake_io();
        }
    }

    /// Wakes the IO thread.
    fn wake_io(&self) {
        if let Some(waker) = &*self.io_waker.lock() {
            waker.wake_by_ref();
        }
    }

    /// How the IO thread is woken.
    pub fn set_io_waker(&self, waker: &Waker) {
        *self.io_waker.lock() = Some(waker.clone());
    }

    /// The IO thread has ended. The waker holds the event loop, which holds this.
    pub fn clear_io_waker(&self) {
        *self.io_waker.lock() = None;
    }

    // The IO thread's turns.

    /// Before the IO thread sleeps: nothing may be left undone.
    pub fn before_sleep(&self) {
        self.flush_submitted();
        self.log.flush();
        self.completions.deliver(true);
    }

    /// After the IO thread woke.
    pub fn after_sleep(&self) {
        self.counters.wakeups.add(1);
        self.completions.deliver(false);
    }

    /// Between two connections of a long turn.
    pub fn amid_turn(&self) {
        if self.completions.some() {
            self.completions.deliver(false);
        }
    }

    /// Hands a request over; it is shed when there is no room.
    pub fn submit(&self, exchange: Arc<Exchange>) {
        if let Err(exchange) = self.sink.submit(exchange) {
            exchange.shed(self.config.retry_after_s);
        }
        let submitted = self.submitted.load(Relaxed) + 1;
        self.submitted.store(submitted, Relaxed);
        if submitted >= FLUSH_AFTER {
            self.flush_submitted();
        }
    }

    /// Wakes those who take requests, if any were handed over.
    pub fn flush_submitted(&self) {
        if self.submitted.load(Relaxed) > 0 {
            self.submitted.store(0, Relaxed);
            self.sink.flush();
        }
    }

    /// The number of the next request.
    pub fn next_id(&self) -> u64 {
        let id = self.ids.load(Relaxed) + 1;
        self.ids.store(id, Relaxed);
        if let Some(slot) = self.slot() {
            slot.requests_total.store(id, Relaxed);
        }
        id
    }

    /// Requests read so far.
    pub fn requests_total(&self) -> u64 {
        self.ids.load(Relaxed)
    }

    pub fn note_shed(&self) {
        self.counters.shed.add_shared(1);
        if let Some(slot) = self.slot() {
            slot.shed_total.fetch_add(1, Relaxed);
        }
    }

    // Connections.

    /// A connection was accepted.
    pub fn opened(&self) {
        let mut open = self.open.lock();
        open.connections += 1;
        self.show_connections(open.connections);
    }

    /// A connection was closed or handed over.
    pub fn closed(&self) {
        let mut open = self.open.lock();
        let was_full = open.connections >= self.config.limits.connections_max;
        open.connections -= 1;
        self.show_connections(open.connections);
        if open.connections == 0 {
            self.open_changed.notify_all();
        }
        drop(open);
        if was_full {
            self.places.notify_waiters();
        }
    }

    fn show_connections(&self, count: usize) {
        if let Some(slot) = self.slot() {
            slot.connections.store(u32::try_from(count).unwrap_or(u32::MAX), Relaxed);
        }
    }

    pub fn connections(&self) -> usize {
        self.open.lock().connections
    }

    pub fn has_place(&self) -> bool {
        self.connections() < self.config.limits.connections_max
    }

    /// Waits until no connection is left; false when the time is up or the
    /// wait was interrupted.
    pub fn wait_closed(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut open = self.open.lock();
        // An interrupt that came before the wait counts for it.
        while open.connections > 0 && !std::mem::take(&mut open.interrupted) {
            if self.open_changed.wait_until(&mut open, until).timed_out() {
                break;
            }
        }
        open.connections == 0
    }

    pub fn interrupt_wait(&self) {
        self.open.lock().interrupted = true;
        self.open_changed.notify_all();
    }

    // The engine's life.

    pub fn is_accepting(&self) -> bool {
        self.accepting.load(Relaxed)
    }

    /// Shows the siblings whether this worker takes connections.
    pub fn show_accepting(&self, accepting: bool) {
        if let Some(slot) = self.slot() {
            slot.accepting.store(u32::from(accepting), Relaxed);
        }
    }

    pub fn pause_accept(&self) {
        self.accepting.store(false, Relaxed);
        self.show_accepting(false);
        self.places.notify_waiters();
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub fn start_drain(&self) {
        self.draining.store(true, Relaxed);
        self.pause_accept();
        self.wake_io();
    }

    pub fn is_idle_over(&self) -> bool {
        self.idle_over.load(Relaxed)
    }

    /// Closes what is idle, now and later.
    pub fn end_idle(&self) {
        self.idle_over.store(true, Relaxed);
        self.registry.wake_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    pub fn start_stop(&self) {
        self.pause_accept();
        self.stopping.store(true, Relaxed);
        self.wake_io();
    }
}
