//! Handing a request over and sending its response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::error_response::ErrorResponse;
use crate::pending_response::NextOutput;
use crate::read_buffer::ReadBuffer;
use crate::request_body::RequestBody;
use crate::stats::add;

use super::request_end::{RequestEnd, CLIENT_LEFT};
use super::{Closing, Connection};

/// How long small writes of a streamed response are gathered after the first one
/// was sent.
const GATHER: Duration = Duration::from_millis(1);

impl Connection {
    /// Hands the request over.
    pub(super) fn dispatch(&mut self) {
        let now = Instant::now();
        let id = self.shared.next_id();
        self.served += 1;
        self.sent = 0;
        self.since = now;
        let requests_max = self.shared.config.limits.requests_per_connection_max;
        let moves = self.shared.should_move_connection(now);
        let another = requests_max == 0 || self.served < requests_max;
        self.set_request_deadline();
        let unread = match self.exchange.body() {
            // They belong to the body, or to the next request.
            RequestBody::Streamed(_) => ReadBuffer::default(),
            _ => std::mem::take(&mut self.unread),
        };
        let waker = self.waker.clone();
        let exchange = self.exchange_mut();
        let may_keep_alive = another && exchange.head.keep_alive && !moves;
        exchange.dispatch(id, now, may_keep_alive, &waker);
        exchange.response_mut().set_unread(unread);
        self.used = true;
        self.shared.submit(Arc::clone(&self.exchange));
    }

    /// Sets the time by which the response must begin.
    fn set_request_deadline(&mut self) {
        match self.shared.config.timeouts.request {
            Some(time) => self.socket.set_deadline(self.since + time),
            None => self.socket.clear_deadline(),
        }
    }

    /// Of a request whose body is streamed the time begins anew with each part that arrives.
    pub(super) fn postpone_request_deadline(&mut self) {
        if let Some(time) = self.shared.config.timeouts.request {
            if self.exchange.response().lock().is_waiting() {
                self.socket.set_timeout(time);
            }
        }
    }

    /// Sends the response as it is produced.
    pub(super) async fn send_response(&mut self) -> Result<(), Closing> {
        let mut gathering = false;
        loop {
            match poll_fn(|cx| self.poll_response(cx, &mut gathering)).await? {
                NextOutput::Send { last } => {
                    if !self.guard.served && !self.exchange.response().lock().is_waiting() {
                        self.guard.served();
                    }
                    let mut sent = self.send().await?;
                    if last {
                        return Ok(());
                    }
                    self.report_sent(&mut sent);
                    gathering = self.after_part();
                }
                _ => return Ok(()),
            }
        }
    }

    /// Sets the deadline for the next output; true when small writes are gathered.
    fn after_part(&mut self) -> bool {
        if self.exchange.response().lock().is_waiting() {
            // That was an interim response: the final one has not begun.
            self.set_request_deadline();
            return false;
        }
        self.socket.set_timeout(GATHER);
        true
    }

    /// Ready with [`NextOutput::Send`] or [`NextOutput::Done`].
    fn poll_response(
        &mut self,
        cx: &mut Context,
        gathering: &mut bool,
    ) -> Poll<Result<NextOutput, Closing>> {
        self.shared.exchanges.wake_ready_if_any();
        loop {
            let reading = self.poll_upload(cx);
            let next = self.exchange.response().lock().next_output(&mut self.sending, *gathering);
            let streaming = match next {
                NextOutput::Pending { streaming } => streaming,
                NextOutput::Hijacked => return Poll::Ready(Err(Closing::Hijacked)),
                next => return Poll::Ready(Ok(next)),
            };
            if !streaming
                && self.shared.is_giving_up()
                && self.exchange.response().lock().time_out()
            {
                return Poll::Ready(Err(self.unavailable("The server is stopping; try again.")));
            }
            // Both take the same events of the socket.
            if !reading && self.socket.poll_hung_up(cx) {
                return Poll::Ready(Err(Closing::Now));
            }
            if self.socket.has_ended() {
                self.exchange.note_client_left();
            }
            if !self.socket.poll_expired(cx) {
                return Poll::Pending;
            }
            if streaming {
                *gathering = false;
                self.socket.clear_deadline();
            } else if self.exchange.response().lock().time_out() {
                return Poll::Ready(Err(self.request_timed_out()));
            }
        }
    }

    /// Answers 503 after the request timeout; the Ruby thread goes on.
    fn request_timed_out(&mut self) -> Closing {
        add(&self.shared.counters.late, 1);
        self.shared.feed.report_late(self.exchange.id());
        self.unavailable("The request took too long; try again.")
    }

    pub(super) fn unavailable(&self, text: &'static str) -> Closing {
        let retry_after_s = self.shared.config.retry_after_s;
        let response = ErrorResponse::new(503, text).retry_after(retry_after_s);
        Closing::Error { response, has_head: true }
    }

    /// Counts the response and decides whether the connection stays open.
    pub(super) fn finish_request(&mut self) -> Result<(), Closing> {
        self.end_upload();
        let streamed = matches!(self.exchange.body(), RequestBody::Streamed(_));
        let mut response = self.exchange.response().lock();
        let (status, keep_alive) = (response.status(), response.keep_alive());
        let head_bytes = response.head_bytes();
        if response.is_cut() {
            self.socket.mark_cut();
        }
        if !streamed {
            self.unread = response.take_unread();
        }
        response.set_spare(std::mem::take(&mut self.recycled));
        if response.settle() {
            self.exchange.notify_capacity();
        }
        drop(response);
        self.count_and_log(status, head_bytes);
        if keep_alive {
            return Ok(());
        }
        let client_closes = !self.exchange.head().keep_alive
            && self.unread.is_empty()
            && self.exchange.body().is_complete();
        Err(if client_closes { Closing::Now } else { Closing::Linger })
    }

    /// Counts a request whose response was not sent to its end, and decides how the connection ends.
    pub(super) fn end_unfinished(&mut self, closing: &Closing) {
        let response = self.exchange.response().lock();
        let (status, head_bytes) = (response.status(), response.head_bytes());
        drop(response);
        match closing {
            Closing::Now => {
                self.socket.mark_cut();
                self.count_and_log(if status == 0 { CLIENT_LEFT } else { status }, head_bytes);
            }
            // The status of a full hijack is known to the application alone.
            Closing::Hijacked if status != 0 => self.count_and_log(status, head_bytes),
            _ => {}
        }
    }

    /// Of a response by the application.
    fn count_and_log(&self, status: u16, head_bytes: usize) {
        self.shared.counters.responded(status);
        self.count_response(status, true);
        if self.shared.log.is_on() {
            self.log(status, self.sent.saturating_sub(head_bytes as u64), true);
        }
    }

    /// Counts a response for the metrics; see [`RequestEnd::count`].
    pub(super) fn count_response(&self, status: u16, has_waited: bool) {
        self.request_end().count(status, has_waited);
    }

    /// Adds a line to the access log.
    pub(super) fn log(&self, status: u16, sent: u64, has_head: bool) {
        self.request_end().log(status, sent, has_head);
    }

    fn request_end(&self) -> RequestEnd<'_> {
        RequestEnd {
            shared: &self.shared,
            exchange: &self.exchange,
            remote: &self.remote,
            since: self.since,
            was_handed_over: self.used,
        }
    }
}
