//! What the engine's handle, its IO thread and its connections share.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chaton_core::clock;
use chaton_core::engine::Feed;
use chaton_core::idle_wait::IdleWait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::accept_policy::{self, WorkerLoad};
use crate::access_log::LogBuffer;
use crate::config::Config;
use crate::connection_registry::{ConnectionRegistry, IdleMark};
use crate::exchange::{Exchange, ExchangeContext};
use crate::head::{excess, HeadError};
use crate::line_gate::LineGate;
use crate::relays::Relays;
use crate::resumer::{Resumed, Resumer};
use crate::static_files::{StaticFiles, StaticOutcome};
use crate::stats::{add, Counters};
use crate::tls::Handshakes;

/// Bytes read from a socket in one call.
const SCRATCH_BYTES: usize = 64 * 1024;

/// Requests after which the feed is flushed before the event loop's turn ends.
const FLUSH_AFTER: u32 = 32;

/// Idle connections closed at once to make room, so that a thousand of them are not looked through for each new
/// one. With few connections it is an eighth of them.
const MAKE_ROOM_MAX: usize = 32;
/// Between two lines of the log about them.
const MADE_ROOM_EVERY: Duration = Duration::from_secs(60);
/// Between two lines about long heads: as often as an operator may want to see them, and no disk is filled.
const LONG_HEAD_EVERY: Duration = Duration::from_secs(1);

/// Connections of one engine.
#[derive(Default)]
struct ConnectionCounts {
    open: usize,
    /// Those of them whose first response has not begun, and that have not idled.
    unserved: usize,
}

/// State of one engine.
pub(crate) struct ServerState {
    pub config: Arc<Config>,
    pub exchanges: Arc<ExchangeContext>,
    pub counters: Arc<Counters>,
    pub feed: Arc<dyn Feed<Exchange>>,
    pub static_files: Option<Arc<StaticFiles>>,
    pub log: LogBuffer,
    /// Answers clients that come back to an event stream.
    pub resumer: OnceLock<Arc<dyn Resumer>>,
    pub registry: ConnectionRegistry,
    pub handshakes: Handshakes,
    /// Bodies over HTTP/2 that have widened the window of their connection.
    pub http2_shares: AtomicUsize,
    /// A connection lacked its header of the PROXY protocol, and the log says so.
    pub lacked_proxy_header: AtomicBool,
    /// The application wanted to switch protocols over HTTP/2, and the log says so.
    pub refused_upgrade: AtomicBool,
    /// A peer may send no header of the PROXY protocol, and the log says so.
    pub refused_proxy_source: AtomicBool,
    long_heads: LineGate,
    /// The buffer that sockets are read into; only the IO thread uses it.
    pub scratch: Mutex<Box<[u8]>>,
    /// Wakes the acceptors when a connection was closed or accepting ends.
    pub accept_changed: Notify,
    /// Requests handed over since the last flush of the feed.
    submitted: AtomicU32,
    request_ids: AtomicU64,
    accepting: AtomicBool,
    /// Requests whose response has not begun are answered 503.
    giving_up: AtomicBool,
    stopping: AtomicBool,
    connections: Mutex<ConnectionCounts>,
    closed_idle: LineGate,
    /// Acceptors that wait for a connection that closes or idles.
    pub lacking_room: AtomicUsize,
    began: Instant,
    /// When the workers' connections are compared again, since it began; only the IO thread uses it.
    next_move_ns: AtomicU64,
    /// Acceptors that may still take a connection.
    acceptors: AtomicUsize,
    /// Encrypted connections that the application has taken over.
    pub relays: Relays,
    /// Waits until no connection is left, and none will come.
    pub all_closed: IdleWait,
}

impl ServerState {
    pub fn new(config: Config, feed: Arc<dyn Feed<Exchange>>) -> Self {
        let (config, counters) = (Arc::new(config), Arc::<Counters>::default());
        Self {
            exchanges: Arc::new(ExchangeContext::new(Arc::clone(&config), Arc::clone(&counters))),
            log: LogBuffer::new(config.access_log),
            config,
            counters,
            feed,
            static_files: None,
            resumer: OnceLock::new(),
            registry: ConnectionRegistry::default(),
            handshakes: Handshakes::default(),
            http2_shares: AtomicUsize::new(0),
            lacked_proxy_header: AtomicBool::new(false),
            refused_upgrade: AtomicBool::new(false),
            long_heads: LineGate::every(LONG_HEAD_EVERY),
            refused_proxy_source: AtomicBool::new(false),
            scratch: Mutex::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            accept_changed: Notify::new(),
            submitted: AtomicU32::new(0),
            request_ids: AtomicU64::new(0),
            accepting: AtomicBool::new(true),
            giving_up: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            closed_idle: LineGate::every(MADE_ROOM_EVERY),
            lacking_room: AtomicUsize::new(0),
            began: Instant::now(),
            next_move_ns: AtomicU64::new(0),
            acceptors: AtomicUsize::new(0),
            relays: Relays::default(),
            all_closed: IdleWait::default(),
        }
    }

    /// Says in the log what was too long in a head that was refused, as far as it was read.
    pub fn report_long_head(&self, client: &str, read: &[u8], error: HeadError) {
        if let Some(what) = excess::describe(read, error, &self.config.limits) {
            self.report_too_long(client, error.status(), &what);
        }
    }

    /// Says in the log that a request was refused, and why.
    pub fn report_too_long(&self, client: &str, status: u16, what: &str) {
        let others = match self.long_heads.pass(1, Instant::now()) {
            None => return,
            Some(1) => String::new(),
            Some(count) => format!(". {} like it before had no line", count - 1),
        };
        self.feed.warn(&format!("answered {status} to {client}: {what}{others}"));
    }

    /// Writes the gathered lines of the access log. The IO thread calls it last, because it may end
    /// without having slept since the last response.
    pub fn flush_log(&self) {
        self.log.flush();
    }

    /// Called before the IO thread sleeps.
    pub fn before_sleep(&self) {
        self.flush_submitted();
        self.log.flush();
        self.exchanges.budget.publish();
        self.exchanges.wake_ready(true);
    }

    /// Called after the IO thread woke.
    pub fn after_sleep(&self) {
        add(&self.counters.wakeups, 1);
        self.exchanges.wake_ready(false);
    }

    /// Hands a request over, unless it is for a static file; it is answered 503 when the queue is
    /// full.
    pub fn submit(&self, exchange: Arc<Exchange>) {
        if let Some(files) = &self.static_files {
            match files.answer(&exchange, false) {
                StaticOutcome::Answered => return,
                StaticOutcome::MustWait => return self.answer_from_disk(files, exchange),
                StaticOutcome::Missing => {}
            }
        }
        if let Some(exchange) = self.resume(exchange) {
            self.submit_now(exchange);
        }
    }

    fn submit_now(&self, exchange: Arc<Exchange>) {
        if let Err(exchange) = self.feed.submit(exchange) {
            exchange.shed();
        }
        let submitted = self.submitted.load(Relaxed) + 1;
        self.submitted.store(submitted, Relaxed);
        if submitted >= FLUSH_AFTER {
            self.flush_submitted();
        }
    }

    /// Lets a client come back to an event stream without Ruby. Returns other requests.
    fn resume(&self, exchange: Arc<Exchange>) -> Option<Arc<Exchange>> {
        let Some(resumer) = self.resumer.get() else { return Some(exchange) };
        let Some(id) = exchange.head().header("last-event-id") else { return Some(exchange) };
        match resumer.resume(&exchange, id) {
            Resumed::Answered => return None,
            Resumed::After(Duration::ZERO) => return Some(exchange),
            Resumed::After(time) => {
                let feed = Arc::clone(&self.feed);
                tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    // Its client may have left.
                    if exchange.is_gone() {
                        return;
                    }
                    if let Err(exchange) = feed.submit(exchange) {
                        exchange.shed();
                    }
                    feed.flush();
                });
            }
            Resumed::Refused => exchange.shed(),
        }
        None
    }

    /// Looks for a static file on a thread that may wait for the disk, and hands the request over
    /// from there if there is none.
    fn answer_from_disk(&self, files: &Arc<StaticFiles>, exchange: Arc<Exchange>) {
        let (files, feed) = (Arc::clone(files), Arc::clone(&self.feed));
        tokio::task::spawn_blocking(move || {
            if files.answer(&exchange, true) != StaticOutcome::Answered {
                if let Err(exchange) = feed.submit(exchange) {
                    exchange.shed();
                }
                feed.flush();
            }
        });
    }

    /// Flushes the feed if requests were handed over.
    pub fn flush_submitted(&self) {
        if self.submitted.load(Relaxed) > 0 {
            self.submitted.store(0, Relaxed);
            self.feed.flush();
        }
    }

    /// The number of the next request.
    pub fn next_id(&self) -> u64 {
        let id = self.request_ids.load(Relaxed) + 1;
        self.request_ids.store(id, Relaxed);
        if let Some(slot) = self.config.own_gauges() {
            // The maximum, because those that run may be left out later, and a total never falls.
            slot.requests_total.fetch_max(self.requests_total(), Relaxed);
        }
        id
    }

    pub fn requests_total(&self) -> u64 {
        self.request_ids.load(Relaxed) - self.counters.left_out.load(Relaxed)
    }

    pub fn connection_opened(&self) {
        let mut counts = self.connections.lock();
        counts.open += 1;
        counts.unserved += 1;
        self.publish_connections(&counts);
    }

    /// The first response of a connection has begun, or the connection has idled.
    pub fn connection_served(&self) {
        let mut counts = self.connections.lock();
        counts.unserved -= 1;
        self.publish_connections(&counts);
    }

    /// A connection was closed or hijacked; `served` as in
    /// [`Self::connection_served`].
    pub fn connection_closed(&self, served: bool) {
        let mut counts = self.connections.lock();
        let was_full = counts.open >= self.config.limits.connections_max;
        counts.open -= 1;
        counts.unserved -= usize::from(!served);
        self.publish_connections(&counts);
        let none_left = counts.open == 0;
        drop(counts);
        if none_left {
            self.all_closed.changed();
        }
        if was_full {
            self.accept_changed.notify_waiters();
        }
    }

    fn publish_connections(&self, counts: &ConnectionCounts) {
        if let Some(slot) = self.config.own_gauges() {
            slot.connections.store(u32::try_from(counts.open).unwrap_or(u32::MAX), Relaxed);
            slot.unserved.store(u32::try_from(counts.unserved).unwrap_or(u32::MAX), Relaxed);
        }
    }

    pub fn connections(&self) -> usize {
        self.connections.lock().open
    }

    pub fn acceptor_started(&self) {
        self.acceptors.fetch_add(1, SeqCst);
    }

    pub fn acceptor_ended(&self) {
        self.acceptors.fetch_sub(1, SeqCst);
        self.all_closed.changed();
    }

    /// Whether no connection is left and none will come.
    pub fn is_idle(&self) -> bool {
        // In this order: an acceptor counts its connections before it ends.
        self.acceptors.load(SeqCst) == 0 && self.connections() == 0 && !self.relays.has_unfinished()
    }

    /// Whether `connections_max` allows another connection.
    pub fn has_capacity(&self) -> bool {
        self.connections() < self.config.limits.connections_max
    }

    /// A connection waits for a request.
    pub fn idles(&self, mark: &IdleMark) {
        self.registry.idles(mark);
        if self.lacking_room.load(Relaxed) > 0 {
            self.accept_changed.notify_waiters();
        }
    }

    /// Has the connections closed that have idled longest; false: none idles. `why` is for the log.
    pub fn make_room(&self, why: impl FnOnce() -> String) -> bool {
        let closed = self.registry.close_idle((self.connections() / 8).clamp(1, MAKE_ROOM_MAX));
        let lines = (closed > 0).then(|| self.closed_idle.pass(closed, Instant::now()));
        if let Some(count) = lines.flatten() {
            let why = why();
            self.feed
                .warn(&format!("closed {count} idle connections to make room for new ones: {why}"));
        }
        closed > 0
    }

    pub fn is_accepting(&self) -> bool {
        self.accepting.load(Relaxed)
    }

    /// Whether the rule holds for a sibling of this worker, and this worker.
    pub fn any_sibling(&self, rule: fn(WorkerLoad, WorkerLoad) -> bool) -> bool {
        let config = &self.config;
        let scoreboard = config.scoreboard.as_ref();
        scoreboard.is_some_and(|scoreboard| accept_policy::any_sibling(scoreboard, config, rule))
    }

    /// Whether the connection with the next response should be closed for a freer
    /// sibling: one in each `accept_defer` at most. `now` is the time of its request.
    pub fn should_move_connection(&self, now: Instant) -> bool {
        let (defer, now) = (self.config.accept_defer, now.saturating_duration_since(self.began));
        if (now.as_nanos() as u64) < self.next_move_ns.load(Relaxed) || defer.is_zero() {
            return false;
        }
        self.next_move_ns.store((now + defer).as_nanos() as u64, Relaxed);
        self.any_sibling(accept_policy::has_room)
    }

    /// Tells the sibling workers whether this one takes connections.
    pub fn publish_accepting(&self, accepting: bool) {
        if let Some(slot) = self.config.own_gauges() {
            slot.accepting.store(u32::from(accepting), Relaxed);
        }
    }

    /// Tells the sibling workers that this one has accepted a connection.
    pub fn publish_accept(&self) {
        if let Some(slot) = self.config.own_gauges() {
            slot.accepted_at_ms.store(clock::now_ms(), Relaxed);
        }
    }

    /// When a sibling last accepted a connection, on the clock of [`clock::now_ms`].
    pub fn siblings_accepted_at_ms(&self) -> u64 {
        let Some(scoreboard) = &self.config.scoreboard else { return 0 };
        let siblings = scoreboard.siblings(self.config.slot);
        siblings.map(|slot| slot.accepted_at_ms.load(Relaxed)).max().unwrap_or(0)
    }

    pub fn pause_accept(&self) {
        self.accepting.store(false, Relaxed);
        self.publish_accepting(false);
        self.accept_changed.notify_waiters();
    }

    pub fn start_drain(&self) {
        self.exchanges.start_drain();
        self.pause_accept();
        // Idle ones close, now or in a moment.
        self.registry.wake_all();
    }

    pub fn is_giving_up(&self) -> bool {
        self.giving_up.load(Relaxed)
    }

    /// Answers 503 to every request whose response has not begun, now and later.
    pub fn give_up(&self) {
        self.giving_up.store(true, Relaxed);
        self.registry.wake_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    pub fn start_stop(&self) {
        self.pause_accept();
        self.stopping.store(true, Relaxed);
        self.exchanges.wake_io();
    }
}
