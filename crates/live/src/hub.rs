//! The hub of one process: who is subscribed to what, and the way of a message to them.
//!
//! The thread `chaton-live` reads the log and puts what it finds into the inbox, in one order: new events, pages for
//! subscribers that catch up, a change of the log. A task on the thread of the connections takes them from there, so that
//! waking ten thousand connections takes no system call.

use std::collections::hash_map::Entry;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use chaton_core::process::counters::LiveCounters;
use chaton_core::process::scoreboard::OwnGauges;
use chaton_core::process::table::Counter;
use chaton_embedded::{ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::client_address::counted;
use crate::log::Log;
use crate::message::{check_name, Message};
use crate::position::{RequestDigest, Signer};
use crate::row::{unavailable, Extent, Kind, Position};
use crate::settings::Settings;
use crate::subscriber::{Event, Page, Subscriber};

/// Bytes in the inbox above which the log is not read on: the connections' thread takes them within milliseconds.
const INBOX_BYTES_MAX: usize = 16 << 20;
/// Deliveries after which the other tasks of the connections' thread have their turn: it takes 5 ms. Messages that come
/// at once reach a connection in one write, which costs more than to put them into its queue.
const TURN_DELIVERIES: usize = 50_000;
/// Open streams of a process. Only HTTP/2, with a hundred on each connection, gets here: they take 400 MB.
const STREAMS_MAX: usize = 100_000;
/// Names of all open streams together, each counted for each stream: an entry takes about 100 bytes.
const SUBSCRIPTIONS_MAX: usize = 1_000_000;

/// What the tail has found.
pub(crate) enum Item {
    /// A new event of a name.
    Event(Arc<str>, Arc<Event>),
    /// A page that a subscriber has asked for; see [`Subscriber::take_page`].
    Page(Arc<Subscriber>, Page),
    /// All subscriptions of a name end.
    End(Box<str>, u64),
    /// The log was read up to an offset, and has deleted messages up to another one.
    Read { offset: u64, deleted: u64 },
    /// The log is another one, of this epoch, whose positions are signed by this; none if it cannot be read now.
    Replaced(u64, Option<Arc<Signer>>),
}

#[derive(Default)]
struct Inbox {
    items: VecDeque<Item>,
    bytes: usize,
    waker: Option<Waker>,
}

type Subscribers = FxHashMap<u64, Arc<Subscriber>>;

/// All subscribers.
#[derive(Default)]
struct Subscribed {
    by_name: FxHashMap<Arc<str>, Subscribers>,
    /// How many there are of a client.
    by_client: FxHashMap<IpAddr, usize>,
    count: usize,
    /// Names, each counted for each subscriber.
    names: usize,
}

/// Who asks for a stream.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// What it has asked for, and as whom.
    pub request: RequestDigest,
    /// Its address, if that is known.
    pub address: Option<IpAddr>,
}

/// What a client gets that the application has let in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// The id of the last event that it got.
    pub last_id: Option<&'a [u8]>,
    /// Without that, it first gets all that the log keeps.
    pub history: bool,
    /// Time after which it has to ask the application again.
    pub max_age: Option<Duration>,
    /// At a gap its page is to be loaded again by Turbo.
    pub refreshes: bool,
}

/// Why a client gets no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its address has [`Settings::client_streams_max`] open ones.
    TooManyOfClient,
    /// The process has all that it can have.
    TooMany,
}

/// The hub of one process. It belongs to the process that made it.
pub struct Hub {
    pub(crate) log: Log,
    pub(crate) settings: Settings,
    subscribed: Mutex<Subscribed>,
    next_key: AtomicU64,
    inbox: Mutex<Inbox>,
    /// The inbox has room, or the hub stops.
    has_room: Condvar,
    /// Pages that subscribers ask for.
    wanted: Mutex<Vec<(Arc<Subscriber>, Position)>>,
    /// Wakes the tail.
    pub(crate) wake_up: EventFd,
    /// Signs positions of the log that is read; none before the first subscription.
    pub(crate) signer: Mutex<Option<Arc<Signer>>>,
    /// Ends of subscriptions by name. Positions before them are not valid any more.
    pub(crate) ends: Mutex<FxHashMap<Box<str>, u64>>,
    /// The offset up to which events are passed on, and that up to which messages are deleted.
    read: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) is_tailing: Mutex<bool>,
    is_dispatching: AtomicBool,
    stops: AtomicBool,
    /// Counts what happens; none before the first stream.
    gauges: OnceLock<OwnGauges>,
}

impl Hub {
    /// A hub that opens nothing until it is used.
    ///
    /// # Errors
    /// When the operating system gives no descriptor.
    pub fn new(settings: Settings) -> Result<Arc<Self>> {
        let wake_up = EventFd::new()
            .map_err(|error| unavailable(format!("no descriptor for event streams: {error}")))?;
        Ok(Arc::new(Self {
            log: Log::new(&settings)?,
            settings,
            subscribed: Mutex::default(),
            next_key: AtomicU64::new(0),
            inbox: Mutex::default(),
            has_room: Condvar::new(),
            wanted: Mutex::default(),
            wake_up,
            signer: Mutex::default(),
            ends: Mutex::default(),
            read: AtomicU64::new(0),
            deleted: AtomicU64::new(0),
            is_tailing: Mutex::new(false),
            is_dispatching: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            gauges: OnceLock::new(),
        }))
    }

    /// Adds a message to the log, and returns its offset; `None`: there is one with its key.
    ///
    /// # Errors
    /// When the log cannot be written. On a full disk, older messages or all have been deleted to make room before that.
    pub fn append(&self, message: &Message<'_>) -> Result<Option<u64>> {
        self.log.add(message, Kind::Message)
    }

    /// Adds the message with which a text begins, and returns its offset, which its pieces need.
    ///
    /// # Errors
    /// As [`Hub::append`].
    pub fn append_begin(&self, message: &Message<'_>) -> Result<Option<u64>> {
        self.log.add(message, Kind::Begin)
    }

    /// Adds a piece of the text that began at an offset; `None`: another text of this name has begun since.
    ///
    /// # Errors
    /// As [`Hub::append`].
    pub fn append_piece(&self, message: &Message<'_>, begin: u64) -> Result<Option<u64>> {
        self.log.add(message, Kind::Piece(begin))
    }

    /// The position behind the newest message.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn end(&self) -> Result<Position> {
        Ok(self.reach()?.1)
    }

    /// The positions before the oldest message and behind the newest one. While the log cannot be reached, it is the last
    /// one that was read: what comes behind it is sent once that is possible.
    pub(crate) fn reach(&self) -> Result<(Position, Position)> {
        match self.log.extent() {
            Err(error) if error.kind == ErrorKind::Unavailable => {
                let epoch = self.signer().ok_or(error)?.epoch;
                Ok((Position { epoch, offset: 0 }, Position { epoch, offset: self.read() }))
            }
            extent => extent.map(|extent| (extent.begin(), extent.end())),
        }
    }

    /// Ends all subscriptions of a name, in all processes.
    ///
    /// # Errors
    /// As [`Hub::append`], and for a name that cannot be one.
    pub fn disconnect(&self, name: &str) -> std::result::Result<Result<()>, String> {
        check_name(name)?;
        let end = Message { name, data: "", event: None, key: None };
        Ok(self.log.add(&end, Kind::End).map(drop))
    }

    /// Adds a subscriber behind a position, who may have the messages up to another one only if their names had not ended.
    pub(crate) fn add(
        &self,
        names: &[Arc<str>],
        (from, permitted): (Position, u64),
        gap: bool,
        client: Option<IpAddr>,
    ) -> std::result::Result<Arc<Subscriber>, Refused> {
        let key = self.next_key.fetch_add(1, Relaxed);
        let mut all = self.subscribed.lock();
        let client = client.and_then(counted);
        if let Err(refused) = all.admits(names.len(), client, self.settings.client_streams_max) {
            drop(all);
            self.count(|live| &live.refused, 1);
            return Err(refused);
        }
        let names: Vec<Arc<str>> = names.iter().map(|name| all.shared(name)).collect();
        let (begin, slow_client) = ((from, permitted), self.settings.slow_client);
        let subscriber = Subscriber::new(key, names.into(), client, begin, gap, slow_client);
        let subscriber = Arc::new(subscriber);
        all.add(&subscriber);
        self.show_open(all.count);
        drop(all);
        self.want(&subscriber, from);
        Ok(subscriber)
    }

    pub(crate) fn unsubscribe(&self, subscriber: &Subscriber) {
        let mut all = self.subscribed.lock();
        all.remove(subscriber);
        // With the lock, so that the last one is shown.
        self.show_open(all.count);
    }

    /// Asks the tail for the page behind a position.
    pub(crate) fn want(&self, subscriber: &Arc<Subscriber>, from: Position) {
        self.wanted.lock().push((Arc::clone(subscriber), from));
        self.wake_up.notify();
    }

    /// Has what happens counted on the scoreboard, from the first call on.
    pub fn count_on(&self, gauges: OwnGauges) {
        // It is the same for each.
        let _ = self.gauges.set(gauges);
    }

    pub(crate) fn count(&self, counter: impl FnOnce(&LiveCounters) -> &Counter, n: usize) {
        if let Some(gauges) = self.gauges.get() {
            counter(&gauges.counters().live).fetch_add(n as u64, Relaxed);
        }
    }

    /// Shows how many streams are open.
    fn show_open(&self, open: usize) {
        if let Some(gauges) = self.gauges.get() {
            gauges.event_streams.store(open as u64, Relaxed);
            gauges.counters().live.open.store(open as u64, Relaxed);
        }
    }

    /// Shows what the log keeps.
    pub(crate) fn show_history(&self, extent: &Extent) {
        if let Some(gauges) = self.gauges.get() {
            let live = &gauges.counters().live;
            live.history_messages.store(extent.messages, Relaxed);
            live.history_bytes.store(extent.bytes, Relaxed);
        }
    }

    /// Shows how far the client is behind that is furthest; returns that.
    pub(crate) fn show_lag(&self) -> u64 {
        let Some(gauges) = self.gauges.get() else { return 0 };
        let (read, all) = (self.read(), self.subscribed.lock());
        let each = all.by_name.values().flat_map(|of_name| of_name.values());
        let lag = each.map(|subscriber| subscriber.lag(read)).max().unwrap_or(0);
        gauges.counters().live.lag.store(lag, Relaxed);
        lag
    }

    pub(crate) fn count_gap(&self) {
        self.count(|live| &live.gaps, 1);
    }

    pub(crate) fn count_delivered(&self, events: usize) {
        self.count(|live| &live.delivered, events);
    }

    /// Ends the thread. Subscriptions get nothing more.
    pub fn stop(&self) {
        self.stops.store(true, SeqCst);
        self.wake_up.notify();
        let _inbox = self.inbox.lock();
        self.has_room.notify_all();
    }
}

impl Subscribed {
    /// Whether there is room for another one with so many names.
    fn admits(
        &self,
        names: usize,
        client: Option<IpAddr>,
        client_max: usize,
    ) -> std::result::Result<(), Refused> {
        let of_client = client.and_then(|client| self.by_client.get(&client));
        if of_client.is_some_and(|count| *count >= client_max) {
            return Err(Refused::TooManyOfClient);
        }
        match self.count < STREAMS_MAX && self.names + names <= SUBSCRIPTIONS_MAX {
            true => Ok(()),
            false => Err(Refused::TooMany),
        }
    }

    fn add(&mut self, subscriber: &Arc<Subscriber>) {
        for name in &subscriber.names {
            let of_name = self.by_name.entry(Arc::clone(name)).or_default();
            of_name.insert(subscriber.key, Arc::clone(subscriber));
        }
        if let Some(client) = subscriber.client {
            *self.by_client.entry(client).or_default() += 1;
        }
        self.count += 1;
        self.names += subscriber.names.len();
    }

    fn remove(&mut self, subscriber: &Subscriber) {
        for name in &subscriber.names {
            if let Some(of_name) = self.by_name.get_mut(name) {
                of_name.remove(&subscriber.key);
                if of_name.is_empty() {
                    self.by_name.remove(name);
                }
            }
        }
        if let Some(Entry::Occupied(mut count)) =
            subscriber.client.map(|one| self.by_client.entry(one))
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.count -= 1;
        self.names -= subscriber.names.len();
    }

    /// A name as the others of it have it.
    fn shared(&self, name: &str) -> Arc<str> {
        let known = self.by_name.get_key_value(name);
        known.map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name))
    }
}

/// The side of the tail.
impl Hub {
    /// Reads what positions of the log are signed with; returns its end.
    pub(crate) fn load(&self) -> Result<(Position, Arc<Signer>)> {
        let (extent, secret, ends) = self.log.secret()?;
        *self.ends.lock() = ends.into_iter().map(|(name, at)| (name.into(), at)).collect();
        self.read.store(extent.last, Relaxed);
        self.deleted.store(extent.deleted, Relaxed);
        self.show_history(&extent);
        let end = Position { epoch: extent.epoch, offset: extent.last };
        Ok((end, Arc::new(Signer::new(extent.epoch, &secret))))
    }

    /// The log is another one than before.
    pub(crate) fn replace(&self, epoch: u64) {
        // Without a signer clients get no ids, and come back through the application.
        let signer = self.load().ok().map(|(_, signer)| signer);
        self.read.store(0, Relaxed);
        self.put(Item::Replaced(epoch, signer));
    }

    pub(crate) fn stops(&self) -> bool {
        self.stops.load(SeqCst)
    }

    /// The pages that subscribers have asked for.
    pub(crate) fn take_wanted(&self) -> Vec<(Arc<Subscriber>, Position)> {
        std::mem::take(&mut *self.wanted.lock())
    }

    /// The name as its subscribers have it, if there are any.
    pub(crate) fn subscribed(&self, name: &str) -> Option<Arc<str>> {
        self.subscribed.lock().by_name.get_key_value(name).map(|(name, _)| Arc::clone(name))
    }

    /// Puts something into the inbox, and waits until there is room for more.
    pub(crate) fn put(&self, item: Item) {
        let mut inbox = self.inbox.lock();
        inbox.bytes += item.bytes();
        inbox.items.push_back(item);
        while inbox.bytes > INBOX_BYTES_MAX && !self.stops() {
            inbox.wake();
            self.has_room.wait(&mut inbox);
        }
    }

    /// Wakes the task that takes from the inbox.
    pub(crate) fn end_turn(&self) {
        self.inbox.lock().wake();
    }
}

/// The side of the connections' thread.
impl Hub {
    /// What signs positions.
    pub(crate) fn signer(&self) -> Option<Arc<Signer>> {
        self.signer.lock().clone()
    }

    /// The offset up to which events are passed on.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Starts the task that passes events on; called by a task of the connections' thread.
    pub(crate) fn start_dispatching(self: &Arc<Self>) {
        if !self.is_dispatching.swap(true, Relaxed) {
            let hub = Arc::clone(self);
            tokio::spawn(poll_fn(move |cx| hub.poll_dispatch(cx)));
        }
    }

    fn poll_dispatch(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut deliveries = 0;
        while deliveries < TURN_DELIVERIES {
            let mut inbox = self.inbox.lock();
            let Some(item) = inbox.items.pop_front() else {
                if !inbox.waker.as_ref().is_some_and(|own| own.will_wake(cx.waker())) {
                    inbox.waker = Some(cx.waker().clone());
                }
                return Poll::Pending;
            };
            let was_full = inbox.bytes > INBOX_BYTES_MAX;
            inbox.bytes -= item.bytes();
            if was_full && inbox.bytes <= INBOX_BYTES_MAX {
                self.has_room.notify_all();
            }
            drop(inbox);
            deliveries += 1 + self.pass_on(item);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes an item on; returns to how many.
    fn pass_on(&self, item: Item) -> usize {
        match item {
            Item::Event(name, event) => {
                let all = self.subscribed.lock();
                let Some(of_name) = all.by_name.get(&name) else { return 0 };
                of_name.values().for_each(|subscriber| subscriber.push(&event));
                of_name.len()
            }
            Item::Page(to, page) => {
                to.take_page(page);
                1
            }
            Item::Read { offset, deleted } => {
                self.read.store(offset, Relaxed);
                if self.deleted.swap(deleted, Relaxed) != deleted {
                    // An end that is deleted concerns no valid position.
                    self.ends.lock().retain(|_, at| *at > deleted);
                }
                1
            }
            Item::End(name, offset) => {
                let all = self.subscribed.lock();
                let of_name =
                    all.by_name.get(&*name).into_iter().flat_map(|of_name| of_name.values());
                of_name.for_each(|one| one.end(offset));
                drop(all);
                self.ends.lock().insert(name, offset);
                1
            }
            Item::Replaced(epoch, signer) => {
                *self.signer.lock() = signer;
                let all = self.subscribed.lock();
                let each = all.by_name.values().flat_map(|of_name| of_name.values());
                each.for_each(|one| one.restart(epoch));
                all.count
            }
        }
    }
}

impl Item {
    fn bytes(&self) -> usize {
        // What an item and its entry in the inbox take, about.
        const ITEM_BYTES: usize = 128;
        ITEM_BYTES
            + match self {
                Self::Event(_, event) => event.body.len(),
                Self::Page(_, page) => page.events.iter().map(|event| event.body.len()).sum(),
                Self::End(..) | Self::Read { .. } | Self::Replaced(..) => 0,
            }
    }
}

impl Inbox {
    fn wake(&self) {
        if let Some(waker) = self.waker.as_ref().filter(|_| !self.items.is_empty()) {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SlowClient;

    #[test]
    fn a_client_and_all_of_them_have_a_limit() {
        let [mine, other] = ["203.0.113.1", "203.0.113.2"].map(|one| one.parse().ok());
        let subscriber = |key, client| {
            let names = Box::new([Arc::from("a"), Arc::from("b")]);
            let from = (Position::default(), 0);
            Arc::new(Subscriber::new(key, names, client, from, false, SlowClient::Gap))
        };
        let mut all = Subscribed::default();
        let both = [subscriber(1, mine), subscriber(2, mine)];
        both.iter().for_each(|one| all.add(one));
        assert_eq!(all.admits(1, mine, 2), Err(Refused::TooManyOfClient));
        assert!(all.admits(1, mine, 3).is_ok() && all.admits(1, other, 2).is_ok());
        assert!(all.admits(1, None, 2).is_ok());
        all.names = SUBSCRIPTIONS_MAX - 64;
        assert!(all.admits(64, other, 2).is_ok());
        assert_eq!(all.admits(65, other, 2), Err(Refused::TooMany));
        (all.names, all.count) = (4, STREAMS_MAX);
        assert_eq!(all.admits(1, other, 2), Err(Refused::TooMany));
        all.count = 2;
        both.iter().for_each(|one| all.remove(one));
        assert!(all.by_name.is_empty() && all.by_client.is_empty());
        assert_eq!((all.count, all.names), (0, 0));
    }
}
