//! What one connection is sent: its events, comments while there are none, and its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{sleep_until, Sleep};

use crate::hub::Hub;
use crate::position::Ticket;
use crate::subscriber::{Next, Subscriber};

/// Events up to this size are copied together into one buffer; larger ones are shared by all connections.
const COPIED_BYTES_MAX: usize = 8 << 10;
/// Bytes of such a buffer after which it is sent.
const STEP_BYTES_MAX: usize = 32 << 10;
/// Time after which an id is given again with the next comment.
const RENEWED: Duration = Duration::from_secs(120);
/// Clients of a process that was killed come back within this time, and not all at once (ms).
const RETRY_MS: std::ops::Range<u64> = 200..1200;

/// Time within which pages are loaded again when all clients get a gap at once.
const REFRESHED_WITHIN: Duration = Duration::from_secs(3);
/// What has Turbo load the page again.
const REFRESH: &[u8] = b"data: <turbo-stream action=\"refresh\"></turbo-stream>\n\n";

/// What a connection does next.
#[derive(Debug)]
pub enum Step {
    /// It sends the buffer, and then these bytes.
    Send(Option<Bytes>),
    /// It ends the response.
    End,
}

/// The subscription of one connection. Dropped, it is ended.
pub struct Subscription {
    hub: Arc<Hub>,
    subscriber: Arc<Subscriber>,
    ticket: Ticket,
    /// The offset of the last id.
    offset: u64,
    /// When the id is given again, so that it does not expire.
    renew_at: Instant,
    /// Armed at the next comment or at the end; none before the first poll.
    timer: Option<Pin<Box<Sleep>>>,
    /// When the client is to be sent something, events or a comment.
    ping_at: Instant,
    /// When the connection is closed, because the process stops or the application has to be asked again.
    closes_at: Option<Instant>,
    /// When its page is to be loaded again, because it has missed messages.
    refreshes_at: Option<Instant>,
    /// The process stops.
    drains: bool,
}

impl Subscription {
    pub(crate) fn new(
        hub: Arc<Hub>,
        subscriber: Arc<Subscriber>,
        ticket: Ticket,
        offset: u64,
    ) -> Self {
        let now = Instant::now();
        let closes_at = ticket.time_left().map(|left| now + left);
        let (ping_at, renew_at, timer, refreshes_at) = (now, now, None, None);
        Self {
            hub,
            subscriber,
            ticket,
            offset,
            renew_at,
            timer,
            ping_at,
            closes_at,
            refreshes_at,
            drains: false,
        }
    }

    /// Adds the id of the message with this offset.
    fn append_id(&mut self, offset: u64, out: &mut Vec<u8>) {
        if let Some(signer) = self.hub.signer() {
            out.extend_from_slice(b"id: ");
            signer.append_id(&self.ticket, offset, out);
            out.push(b'\n');
        }
        self.offset = offset;
        self.renew_at = Instant::now() + RENEWED;
    }

    /// What the connection does next; `out` gets bytes to send. If that is pending, the task is woken. `drains` says
    /// that the process stops. Called by a task of tokio.
    pub fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        drains: bool,
        out: &mut Vec<u8>,
    ) -> Poll<Step> {
        let Some(armed_at) = self.timer.as_ref().map(|timer| timer.deadline().into_std()) else {
            self.begin(out);
            return Poll::Ready(Step::Send(None));
        };
        if drains && !std::mem::replace(&mut self.drains, true) {
            let at = Instant::now() + self.hub.settings.drain.mul_f64(fastrand::f64());
            let at = self.closes_at.map_or(at, |before| before.min(at));
            self.closes_at = Some(at);
            if at < armed_at {
                self.arm(at);
            }
        }
        if let Poll::Ready(step) = self.poll_events(cx, out) {
            self.ping_at = Instant::now() + self.hub.settings.ping;
            return Poll::Ready(step);
        }
        self.poll_timer(cx, out)
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        self.hub.start_dispatching();
        out.extend_from_slice(format!("retry: {}\n", fastrand::u64(RETRY_MS)).as_bytes());
        self.append_id(self.offset, out);
        out.push(b'\n');
        // At different times, also for connections that begin at once.
        let first = self.hub.settings.ping.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.ping_at = Instant::now() + first;
        self.timer = Some(Box::pin(sleep_until(self.due_at().into())));
    }

    fn poll_events(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Step> {
        let (mut shared, before, mut delivered) = (None, out.len(), 0);
        while shared.is_none() && out.len() < STEP_BYTES_MAX {
            match self.subscriber.next(cx.waker()) {
                Next::Event(event) => {
                    delivered += 1;
                    if event.offset > 0 {
                        self.append_id(event.offset, out);
                    }
                    match event.body.len() <= COPIED_BYTES_MAX {
                        true => out.extend_from_slice(&event.body),
                        false => shared = Some(event.body.clone()),
                    }
                }
                Next::Gap(offset) => {
                    self.hub.count_gap();
                    self.append_id(offset, out);
                    out.extend_from_slice(b"event: gap\ndata: \n\n");
                    self.refresh_soon();
                }
                Next::Page(from) => self.hub.want(&self.subscriber, from),
                Next::Nothing => break,
                // What is in the buffer is sent first.
                Next::End if out.len() == before => return Poll::Ready(Step::End),
                Next::End => break,
            }
        }
        if delivered > 0 {
            self.hub.count_delivered(delivered);
        }
        match out.len() == before && shared.is_none() {
            true => Poll::Pending,
            false => Poll::Ready(Step::Send(shared)),
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Step> {
        loop {
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if self.closes_at.is_some_and(|at| at <= now) {
                return Poll::Ready(Step::End);
            }
            if self.refreshes_at.is_some_and(|at| at <= now) {
                self.refreshes_at = None;
                self.arm(self.due_at());
                out.extend_from_slice(REFRESH);
                return Poll::Ready(Step::Send(None));
            }
            let is_due = self.ping_at <= now;
            if is_due {
                self.ping_at = now + self.hub.settings.ping;
            }
            self.arm(self.due_at());
            if is_due {
                self.ping(now, out);
                return Poll::Ready(Step::Send(None));
            }
        }
    }

    fn refresh_soon(&mut self) {
        if self.ticket.refreshes() && self.refreshes_at.is_none() {
            let at = Instant::now() + REFRESHED_WITHIN.mul_f64(fastrand::f64());
            self.refreshes_at = Some(at);
            self.arm(self.due_at());
        }
    }

    /// When the timer has something to do next.
    fn due_at(&self) -> Instant {
        let others = [self.closes_at, self.refreshes_at].into_iter().flatten();
        others.fold(self.ping_at, Instant::min)
    }

    fn ping(&mut self, now: Instant, out: &mut Vec<u8>) {
        // Read before it is known that nothing waits.
        let read = self.hub.read();
        out.extend_from_slice(b":\n");
        let offset = if self.subscriber.is_current() { read.max(self.offset) } else { self.offset };
        if now >= self.renew_at {
            self.append_id(offset, out);
        }
        out.push(b'\n');
    }

    fn arm(&mut self, at: Instant) {
        // Rounded by the clock of the timers.
        let at = at + Duration::from_millis(1);
        if let Some(timer) = &mut self.timer {
            timer.as_mut().reset(at.into());
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.unsubscribe(&self.subscriber);
    }
}

#[cfg(test)]
mod tests {
    use crate::hub::{Client, Wish};
    use crate::position::RequestDigest;
    use crate::settings::Settings;

    use super::*;

    #[test]
    fn comments_give_the_id_again_before_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        let hub = Hub::new(Settings::of_file(dir.path().join("live.db"))).unwrap();
        let client = Client { request: RequestDigest::new([]), address: None };
        let subscribed = hub.subscribe(&["a"], &Wish::default(), client);
        let mut subscription = subscribed.unwrap().unwrap();
        let begin = Instant::now();
        let mut ping = |after_s| {
            let mut out = Vec::new();
            subscription.ping(begin + Duration::from_secs(after_s), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert!(ping(1).starts_with(":\nid: "), "it is due");
        assert_eq!(ping(20), ":\n\n");
        assert!(ping(130).starts_with(":\nid: "));
        hub.stop();
    }
}
