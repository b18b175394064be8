//! What is counted and logged at the end of a request, whatever version of HTTP it came by.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use crate::access_log::AccessLogEntry;
use crate::error_response::ErrorResponse;
use crate::exchange::Exchange;
use crate::forwarded::Peer;
use crate::server_state::ServerState;
use crate::stats::add;

use super::refusal::Refusal;

/// Of requests whose clients left before the response began, as nginx counts them: the server has not
/// failed.
pub(super) const CLIENT_LEFT: u16 = 499;

/// Counts and logs a request that was refused before anybody could read its head.
pub(super) fn count_unread(shared: &ServerState, remote: &str, status: u16) {
    add(&shared.counters.refused, 1);
    shared.counters.responded(status);
    if let Some(counters) = shared.config.own_counters() {
        counters.responded(status);
    }
    if status == 431 {
        let max = shared.config.limits.header_bytes_max;
        let what = format!("the head is larger than header_bytes_max, {max}");
        shared.report_too_long(remote, status, &what);
    }
    if shared.log.is_on() {
        let (head, request_id, took) = (None, None, Duration::ZERO);
        shared.log.add(&AccessLogEntry { remote, head, request_id, status, sent: 0, took });
    }
}

pub(super) struct RequestEnd<'a> {
    pub shared: &'a ServerState,
    pub exchange: &'a Exchange,
    pub remote: &'a Peer,
    /// When it was complete, or began to arrive.
    pub since: Instant,
    /// When its response was sent.
    pub until: Instant,
    /// A refused request has no beginning: the connection may have idled before.
    pub was_handed_over: bool,
}

impl RequestEnd<'_> {
    /// Counts and logs a response of the application, of whose body so many bytes were sent.
    pub fn answered(&self, status: u16, sent: u64) {
        if !self.exchange.was_left_out() {
            self.shared.counters.responded(status);
        }
        self.count(status, true);
        self.log(status, sent, true);
    }

    /// Counts a response of the engine, before it is sent.
    pub fn refused(&self, refusal: &Refusal) {
        add(&self.shared.counters.refused, 1);
        self.shared.counters.responded(refusal.response.status);
        self.count(refusal.response.status, false);
    }

    /// Adds a line for that to the access log.
    pub fn log_refused(&self, refusal: &Refusal) {
        let ErrorResponse { status, text, .. } = refusal.response;
        self.log(status, text.len() as u64 + 1, refusal.has_head);
    }

    /// Counts a response for the metrics; `has_waited`: it came from a thread of the pool.
    pub fn count(&self, status: u16, has_waited: bool) {
        let Some(counters) = self.shared.config.own_counters() else { return };
        if self.exchange.was_left_out() {
            return;
        }
        counters.responded(if self.exchange.was_aborted() { CLIENT_LEFT } else { status });
        let took = self.took();
        if self.was_handed_over {
            counters.duration.add_alone(took.as_nanos() as u64);
        }
        if let Some(waited) = self.exchange.waited().filter(|_| has_waited) {
            let proxied = self.exchange.waited_before(took);
            counters.queue_time.add_alone((proxied + waited).as_nanos() as u64);
        }
    }

    /// Adds a line to the access log, if there is one.
    pub fn log(&self, status: u16, sent: u64, has_head: bool) {
        if !self.shared.log.is_on() {
            return;
        }
        let remote = match has_head {
            true => self.exchange.remote_addr(),
            false => Cow::Borrowed(&*self.remote.address),
        };
        self.shared.log.add(&AccessLogEntry {
            remote: &remote,
            head: has_head.then(|| self.exchange.head()),
            request_id: (has_head && self.shared.log.has_ids()).then(|| self.exchange.request_id()),
            status,
            sent,
            took: self.took(),
        });
    }

    fn took(&self) -> Duration {
        self.until.saturating_duration_since(self.since)
    }
}
