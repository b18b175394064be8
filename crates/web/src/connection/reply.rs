//! Handing a request over and sending its answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::access_log::Entry;
use crate::answer::Look;

use super::{Connection, End, Refusal};

/// What the answer calls for.
enum Turn {
    /// Send what is in `sending`; with `last` nothing comes after it.
    Send { last: bool },
    /// Everything was sent.
    Done,
}

impl Connection {
    /// Hands the complete request over.
    pub(super) fn dispatch(&mut self) {
        let now = Instant::now();
        let id = self.shared.next_id();
        self.served += 1;
        self.sent = 0;
        self.since = now;
        let requests_max = self.shared.config.limits.requests_per_connection_max;
        let another = requests_max == 0 || self.served < requests_max;
        self.set_request_deadline();
        let unread = std::mem::take(&mut self.unread);
        let waker = self.waker.clone();
        let exchange = self.exchange_mut();
        let may_keep_alive = another && exchange.head.keep_alive;
        exchange.dispatch(id, now, may_keep_alive, &waker);
        exchange.answer_mut().set_unread(unread);
        self.used = true;
        self.shared.submit(Arc::clone(&self.exchange));
    }

    /// The answer must begin by then.
    fn set_request_deadline(&mut self) {
        match self.shared.config.timeouts.request {
            Some(time) => self.wire.set_deadline(self.since + time),
            None => self.wire.clear_deadline(),
        }
    }

    /// Sends the answer as it is given.
    pub(super) async fn send_answer(&mut self) -> Result<(), End> {
        let mut gathering = false;
        loop {
            match poll_fn(|cx| self.poll_answer(cx, &mut gathering)).await? {
                Turn::Send { last } => {
                    let mut sent = self.send().await?;
                    if last {
                        return Ok(());
                    }
                    self.report(&mut sent);
                    gathering = self.after_part();
                }
                Turn::Done => return Ok(()),
            }
        }
    }

    /// What the next look waits for; answers whether small writes are gathered.
    fn after_part(&mut self) -> bool {
        if self.exchange.answer().lock().is_waiting() {
            // That was an interim response: the answer is still to begin.
            self.set_request_deadline();
            return false;
        }
        let gather = self.shared.config.gather;
        if !gather.is_zero() {
            self.wire.set_timeout(gather);
        }
        !gather.is_zero()
    }

    fn poll_answer(&mut self, cx: &mut Context, gathering: &mut bool) -> Poll<Result<Turn, End>> {
        self.shared.amid_turn();
        loop {
            let look = self.exchange.answer().lock().look(&mut self.sending, *gathering);
            let streaming = match look {
                Look::Send { last } => return Poll::Ready(Ok(Turn::Send { last })),
                Look::Done => return Poll::Ready(Ok(Turn::Done)),
                // The socket is closed here but lives on in its duplicate.
                Look::Hijacked => return Poll::Ready(Err(End::Close)),
                Look::Nothing { streaming } => streaming,
            };
            if self.wire.poll_hung_up(cx) {
                return Poll::Ready(Err(End::Close));
            }
            if !self.wire.poll_expired(cx) {
                return Poll::Pending;
            }
            if streaming {
                *gathering = false;
                self.wire.clear_deadline();
            } else if self.exchange.answer().lock().give_up() {
                return Poll::Ready(Err(self.late()));
            }
        }
    }

    /// The request timeout has passed: the client is told, the thread goes on.
    fn late(&mut self) -> End {
        self.shared.counters.late.add(1);
        self.shared.sink.late(&self.exchange);
        End::Refuse(Refusal {
            status: 503,
            text: "The request took too long; try again.",
            retry_after_s: Some(self.shared.config.retry_after_s),
            has_head: true,
        })
    }

    /// After the answer: counts it, and decides whether there is a next request.
    pub(super) fn conclude(&mut self) -> Result<(), End> {
        let mut answer = self.exchange.answer().lock();
        let (status, keep_alive) = (answer.status(), answer.keep_alive());
        let head_bytes = answer.head_bytes() as u64;
        self.unread = answer.take_unread();
        answer.set_spare(std::mem::take(&mut self.recycled));
        drop(answer);
        self.shared.counters.responded(status);
        if self.shared.log.is_on() {
            self.log(status, self.sent.saturating_sub(head_bytes), true);
        }
        if keep_alive {
            return Ok(());
        }
        let client_goes = !self.exchange.head().keep_alive && self.unread.is_empty();
        Err(if client_goes { End::Close } else { End::Linger })
    }

    /// Adds a line to the access log.
    pub(super) fn log(&self, status: u16, sent: u64, has_head: bool) {
        self.shared.log.add(&Entry {
            remote: &self.remote,
            head: has_head.then(|| self.exchange.head()),
            status,
            sent,
            took: self.since.elapsed(),
        });
    }
}
