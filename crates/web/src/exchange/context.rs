//! What all exchanges of one engine share.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;

use crate::budget::Budget;
use crate::compression::Encoders;
use crate::config::Config;
use crate::exchange::Exchange;
use crate::ready_queue::ReadyQueue;
use crate::stats::Counters;

/// What all exchanges of one engine share.
pub(crate) struct ExchangeContext {
    pub(super) config: Arc<Config>,
    pub(super) counters: Arc<Counters>,
    pub budget: Arc<Budget>,
    /// `None`: answers are sent as they are.
    pub(super) encoders: Option<Arc<Encoders>>,
    draining: AtomicBool,
    /// A header was kept from the application, and the log says so.
    pub(super) has_warned_hidden: AtomicBool,
    /// Exchanges whose connection has something to do.
    ready: ReadyQueue<Arc<Exchange>>,
    io_waker: Mutex<Option<Waker>>,
}

impl ExchangeContext {
    pub fn new(config: Arc<Config>, counters: Arc<Counters>) -> Self {
        Self {
            budget: Arc::new(Budget::new(Arc::clone(&config))),
            encoders: config.compression.map(|settings| Arc::new(Encoders::new(settings))),
            config,
            counters,
            draining: AtomicBool::new(false),
            has_warned_hidden: AtomicBool::new(false),
            ready: ReadyQueue::default(),
            io_waker: Mutex::default(),
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub fn start_drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Sets how the IO thread is woken. Cleared when that thread ends: the waker
    /// holds the event loop, which holds this.
    pub fn set_io_waker(&self, waker: Option<Waker>) {
        *self.io_waker.lock() = waker;
    }

    pub fn wake_io(&self) {
        if let Some(waker) = &*self.io_waker.lock() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn push_ready(&self, exchange: Arc<Exchange>) {
        if self.ready.push(exchange) {
            self.wake_io();
        }
    }

    /// Wakes the connections that have something to do. With `sleep` the next
    /// one wakes the IO thread as well.
    pub fn wake_ready(&self, sleep: bool) {
        self.ready.drain(sleep, |exchange| exchange.wake_connection());
    }

    /// As [`ExchangeContext::wake_ready`], called often by a busy IO thread.
    pub fn wake_ready_if_any(&self) {
        if self.ready.seems_filled() {
            self.wake_ready(false);
        }
    }

    pub(super) fn count_shed(&self) {
        self.counters.shed.fetch_add(1, Relaxed);
        if let Some(slot) = self.config.own_gauges() {
            slot.shed_total.fetch_add(1, Relaxed);
        }
        if let Some(counters) = self.config.own_counters() {
            counters.shed.fetch_add(1, Relaxed);
        }
    }
}
