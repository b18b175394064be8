//! One subscriber: the events that wait for its connection, and how it gets the next ones.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::row::Position;
use crate::settings::SlowClient;

/// Events that wait for one connection, which are shared with the others; further ones it reads from the log once
/// these are sent.
const QUEUE_EVENTS_MAX: usize = 1024;
/// The same in bytes. One event may have more.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// An event in the form in which it is sent, but for its id.
#[derive(Debug)]
pub(crate) struct Event {
    /// 0: it is not in the log yet.
    pub offset: u64,
    /// See [`crate::row::Row::kept`].
    pub kept: u64,
    pub body: Bytes,
}

/// How the subscriber gets the next events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It has asked for a page of the log.
    CatchingUp,
    /// Its queue was full: it asks for a page once the queue is empty.
    Behind,
    /// Each new event goes into its queue.
    Live,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<Arc<Event>>,
    bytes: usize,
    mode: Mode,
    /// Events up to here are in the queue, were sent, or are not for it.
    seen: Position,
    /// The last event that it got while the log could not be reached; see [`crate::row::Row::kept`].
    kept: u64,
    /// Events before those in the queue are lost.
    gap: bool,
    closed: bool,
    waker: Option<Waker>,
}

/// What a subscriber does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Its client is told that it has missed messages before this offset.
    Gap(u64),
    Event(Arc<Event>),
    /// It asks for the page behind this position.
    Page(Position),
    /// It waits, and its task is woken.
    Nothing,
    End,
}

/// What one read of the log has found for a subscriber.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub events: Vec<Arc<Event>>,
    /// The epoch of the position behind which it was asked for.
    pub asked: u64,
    /// It reaches up to here.
    pub read: Position,
    /// Events before it are lost.
    pub gap: bool,
    /// New events come behind it.
    pub is_last: bool,
}

/// A subscriber.
#[derive(Debug)]
pub(crate) struct Subscriber {
    /// Key among the subscribers of a name.
    pub key: u64,
    pub names: Box<[Arc<str>]>,
    /// Under which it is counted.
    pub client: Option<IpAddr>,
    /// Ends up to this offset were before the application let the client in.
    permitted: u64,
    slow_client: SlowClient,
    state: Mutex<State>,
}

impl Subscriber {
    /// One that has asked for the page behind `from`.
    pub fn new(
        key: u64,
        names: Box<[Arc<str>]>,
        client: Option<IpAddr>,
        (from, permitted): (Position, u64),
        gap: bool,
        slow_client: SlowClient,
    ) -> Self {
        let state = State {
            queue: VecDeque::new(),
            bytes: 0,
            mode: Mode::CatchingUp,
            seen: from,
            kept: 0,
            gap,
            closed: false,
            waker: None,
        };
        Self { key, names, client, permitted, slow_client, state: Mutex::new(state) }
    }

    /// A new event.
    pub fn push(&self, event: &Arc<Event>) {
        let mut state = self.state.lock();
        if state.mode != Mode::Live || state.has_seen(event) {
            return;
        }
        let bytes = state.bytes + event.body.len();
        let is_full = state.queue.len() >= QUEUE_EVENTS_MAX || bytes > QUEUE_BYTES_MAX;
        if is_full && !state.queue.is_empty() {
            match self.slow_client {
                SlowClient::Gap => state.mode = Mode::Behind,
                SlowClient::Close => state.closed = true,
            }
            return;
        }
        state.bytes = bytes;
        state.note(event);
        state.queue.push_back(Arc::clone(event));
        state.wake();
    }

    /// A page that it has asked for.
    pub fn take_page(&self, page: Page) {
        let mut state = self.state.lock();
        // One that was asked for before the log was replaced: its events are new ones of the other log.
        if state.mode != Mode::CatchingUp || page.asked != state.seen.epoch {
            return;
        }
        state.gap |= page.gap;
        for event in page.events {
            if event.kept == 0 || event.kept > state.kept {
                state.bytes += event.body.len();
                state.queue.push_back(event);
            }
        }
        state.seen = page.read;
        state.mode = if page.is_last { Mode::Live } else { Mode::Behind };
        state.wake();
    }

    /// The log was replaced by another one: what was not sent of the old one is lost.
    pub fn restart(&self, epoch: u64) {
        let mut state = self.state.lock();
        (state.gap, state.seen, state.bytes) = (true, Position { epoch, offset: 0 }, 0);
        state.queue.clear();
        state.mode = Mode::Live;
        state.wake();
    }

    /// All subscriptions of one of its names end with the message of this offset.
    pub fn end(&self, offset: u64) {
        let mut state = self.state.lock();
        if offset > self.permitted {
            state.closed = true;
            state.wake();
        }
    }

    /// Whether nothing waits for it, and each new event would.
    pub fn is_current(&self) -> bool {
        let state = self.state.lock();
        state.mode == Mode::Live && state.queue.is_empty()
    }

    /// Messages of the log, up to the offset `read`, that its client has not been sent.
    pub fn lag(&self, read: u64) -> u64 {
        let state = self.state.lock();
        match (state.queue.front().filter(|next| next.offset > 0), state.mode) {
            (Some(next), _) => (read + 1).saturating_sub(next.offset),
            (None, Mode::Live) => 0,
            (None, Mode::CatchingUp | Mode::Behind) => read.saturating_sub(state.seen.offset),
        }
    }

    /// Takes what comes next; the task of `waker` is woken when there is something.
    pub fn next(&self, waker: &Waker) -> Next {
        let mut state = self.state.lock();
        if state.closed {
            return Next::End;
        }
        if std::mem::take(&mut state.gap) {
            let next = state.queue.iter().find(|event| event.offset > 0);
            return Next::Gap(next.map_or(state.seen.offset, |event| event.offset - 1));
        }
        if let Some(event) = state.queue.pop_front() {
            state.bytes -= event.body.len();
            if state.queue.is_empty() {
                // Most connections are idle most of the time.
                state.queue = VecDeque::new();
            }
            return Next::Event(event);
        }
        if state.mode == Mode::Behind {
            state.mode = Mode::CatchingUp;
            return Next::Page(state.seen);
        }
        if !state.waker.as_ref().is_some_and(|own| own.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        Next::Nothing
    }
}

impl State {
    /// Whether a new event has been in the queue, as one of the log or as one that came before it could be reached.
    fn has_seen(&mut self, event: &Event) -> bool {
        let was_kept = event.kept > 0 && event.kept <= self.kept;
        if was_kept && event.offset > 0 {
            self.seen.offset = self.seen.offset.max(event.offset);
        }
        was_kept || (event.offset > 0 && event.offset <= self.seen.offset)
    }

    fn note(&mut self, event: &Event) {
        match event.offset {
            0 => self.kept = event.kept,
            offset => self.seen.offset = offset,
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscriber(slow_client: SlowClient) -> Subscriber {
        Subscriber::new(1, Box::new([]), None, (position(10), 10), false, slow_client)
    }

    fn position(offset: u64) -> Position {
        Position { epoch: 7, offset }
    }

    fn page(events: Vec<Arc<Event>>, read: u64, is_last: bool) -> Page {
        Page { events, asked: 7, read: position(read), gap: false, is_last }
    }

    fn event(offset: u64, len: usize) -> Arc<Event> {
        Arc::new(Event { offset, kept: 0, body: vec![b'x'; len].into() })
    }

    /// All that comes next, as text.
    fn drain(subscriber: &Subscriber) -> Vec<String> {
        let next = || match subscriber.next(Waker::noop()) {
            Next::Gap(offset) => Some(format!("gap {offset}")),
            Next::Event(event) => Some(format!("{}", event.offset)),
            Next::Page(from) => Some(format!("page {}", from.offset)),
            Next::Nothing => None,
            Next::End => Some("end".into()),
        };
        let mut all: Vec<String> = Vec::new();
        while let Some(text) = next() {
            all.push(text);
            if all.last().is_some_and(|last| last == "end") {
                break;
            }
        }
        all
    }

    #[test]
    fn events_come_once_and_in_order_behind_the_first_page() {
        let subscriber = subscriber(SlowClient::Gap);
        // It is in the page that was asked for.
        subscriber.push(&event(12, 1));
        assert!(drain(&subscriber).is_empty());
        subscriber.take_page(page(vec![event(11, 1), event(12, 1)], 13, true));
        subscriber.push(&event(13, 1));
        subscriber.push(&event(14, 1));
        assert_eq!(drain(&subscriber), ["11", "12", "14"]);
    }

    #[test]
    fn one_that_does_not_read_goes_on_from_the_log_or_is_closed() {
        for (slow_client, then) in [(SlowClient::Gap, "page 1034"), (SlowClient::Close, "end")] {
            let subscriber = subscriber(slow_client);
            subscriber.take_page(page(vec![], 10, true));
            (11..2000).for_each(|offset| subscriber.push(&event(offset, 1)));
            let all = drain(&subscriber);
            assert_eq!(all.last().unwrap(), then);
            assert_eq!(all.len(), if then == "end" { 1 } else { QUEUE_EVENTS_MAX + 1 });
        }
    }

    #[test]
    fn a_large_event_waits_alone() {
        let subscriber = subscriber(SlowClient::Gap);
        subscriber.take_page(page(vec![], 10, true));
        subscriber.push(&event(11, 2 * QUEUE_BYTES_MAX));
        subscriber.push(&event(12, 1));
        assert_eq!(drain(&subscriber), ["11", "page 11"]);
        subscriber.take_page(page(vec![event(12, 1)], 12, false));
        assert_eq!(drain(&subscriber), ["12", "page 12"]);
    }

    #[test]
    fn how_far_it_is_behind() {
        let subscriber = subscriber(SlowClient::Gap);
        assert_eq!(subscriber.lag(15), 5);
        subscriber.take_page(page(vec![], 15, true));
        assert_eq!(subscriber.lag(20), 0, "nothing of that was for it");
        (21..3000).for_each(|offset| subscriber.push(&event(offset, 1)));
        assert_eq!(subscriber.lag(3000), 2980);
        while let Next::Event(_) = subscriber.next(Waker::noop()) {}
        assert_eq!(subscriber.lag(3000), 3000 - 20 - QUEUE_EVENTS_MAX as u64);
    }

    #[test]
    fn a_gap_is_told_before_what_comes_behind_it() {
        let subscriber = subscriber(SlowClient::Gap);
        subscriber.take_page(Page { gap: true, ..page(vec![event(50, 1)], 60, true) });
        assert_eq!(drain(&subscriber), ["gap 49", "50"]);
        subscriber.restart(8);
        subscriber.push(&event(1, 1));
        assert_eq!(drain(&subscriber), ["gap 0", "1"]);
    }

    #[test]
    fn a_page_that_was_asked_for_before_the_log_was_replaced_is_not_taken() {
        let subscriber = subscriber(SlowClient::Gap);
        subscriber.restart(8);
        subscriber.push(&event(1, 1));
        let stale = || Page {
            gap: true,
            read: Position { epoch: 8, offset: 1 },
            ..page(vec![event(1, 1)], 1, true)
        };
        subscriber.take_page(stale());
        assert_eq!(drain(&subscriber), ["gap 0", "1"]);
        // Also while it waits for another one.
        (2..2000).for_each(|offset| subscriber.push(&event(offset, 1)));
        assert_eq!(drain(&subscriber).last().unwrap(), "page 1025");
        subscriber.take_page(stale());
        assert!(drain(&subscriber).is_empty());
    }

    #[test]
    fn what_another_log_says_is_not_taken_for_old() {
        let subscriber = subscriber(SlowClient::Gap);
        subscriber.take_page(Page {
            gap: true,
            read: Position { epoch: 8, offset: 2 },
            ..page(vec![event(2, 1)], 0, true)
        });
        subscriber.push(&event(3, 1));
        assert_eq!(drain(&subscriber), ["gap 1", "2", "3"]);
    }
}
