//! The report of one rate.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{json, Value};

use crate::client_connection::{RequestFailure, ScheduledRequest};

/// Latencies are kept in microseconds up to an hour, with three digits.
const MICROSECONDS_MAX: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// Counts and latencies of the requests that were due in the window between
/// the warm-up and the end of the schedule.
#[derive(Debug)]
pub struct LoadReport {
    rate: f64,
    seconds: f64,
    window_ns: (u64, u64),
    offered: u64,
    answered: u64,
    /// Answered after the window had ended.
    late: u64,
    failures: BTreeMap<RequestFailure, u64>,
    latencies: Histogram<u64>,
    /// How far the generator itself was behind its schedule.
    lags: Histogram<u64>,
    connections_peak: usize,
    waiting_peak: usize,
    resent: u64,
}

impl LoadReport {
    /// For `rate` requests a second, of which those count that are due
    /// `window_ns` after the start.
    pub fn new(rate: f64, window_ns: (u64, u64)) -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, MICROSECONDS_MAX, DIGITS).expect("bounds are constants")
        };
        Self {
            rate,
            seconds: (window_ns.1 - window_ns.0) as f64 / 1e9,
            window_ns,
            offered: 0,
            answered: 0,
            late: 0,
            failures: BTreeMap::new(),
            latencies: histogram(),
            lags: histogram(),
            connections_peak: 0,
            waiting_peak: 0,
            resent: 0,
        }
    }

    fn counts(&self, request: ScheduledRequest) -> bool {
        request.due_ns >= self.window_ns.0
    }

    /// Counts a due request that the generator handled at `now_ns`.
    pub fn offered(&mut self, request: ScheduledRequest, now_ns: u64) {
        if self.counts(request) {
            self.offered += 1;
            self.lags.saturating_record((now_ns - request.due_ns) / 1000);
        }
    }

    /// Counts a complete response.
    pub fn answered(&mut self, request: ScheduledRequest, status: u16, now_ns: u64) {
        if !(200..400).contains(&status) {
            return self.failed(request, RequestFailure::Status(status), now_ns);
        }
        if self.counts(request) {
            self.answered += 1;
            self.late += u64::from(now_ns > self.window_ns.1);
            self.latencies.saturating_record((now_ns - request.due_ns) / 1000);
        }
    }

    /// Counts a request without a response. A timeout enters the latencies with
    /// the time waited, which is less than the response would have taken;
    /// otherwise a server that never responds would look fast.
    pub fn failed(&mut self, request: ScheduledRequest, failure: RequestFailure, now_ns: u64) {
        if !self.counts(request) {
            return;
        }
        *self.failures.entry(failure).or_default() += 1;
        if matches!(failure, RequestFailure::Timeout | RequestFailure::Unsent) {
            self.latencies.saturating_record((now_ns - request.due_ns) / 1000);
        }
    }

    /// Counts a request that was sent again on another connection.
    pub fn resent(&mut self, request: ScheduledRequest) {
        self.resent += u64::from(self.counts(request));
    }

    /// Records the open connections and the requests that wait for one.
    pub fn pressure(&mut self, connections: usize, waiting: usize) {
        self.connections_peak = self.connections_peak.max(connections);
        self.waiting_peak = self.waiting_peak.max(waiting);
    }

    /// Requests that were due in the window.
    pub fn offered_count(&self) -> u64 {
        self.offered
    }

    /// Requests with a good response.
    pub fn answered_count(&self) -> u64 {
        self.answered
    }

    /// Requests without a response or with an error.
    pub fn failed_count(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Requests without a response when the window ended.
    pub fn late_count(&self) -> u64 {
        let never = |failure: &RequestFailure| {
            matches!(failure, RequestFailure::Timeout | RequestFailure::Unsent)
        };
        self.late
            + self.failures.iter().filter(|(kind, _)| never(kind)).map(|(_, n)| n).sum::<u64>()
    }

    /// The latency (ms) that this share of requests did not exceed.
    pub fn latency_ms(&self, share: f64) -> f64 {
        self.latencies.value_at_quantile(share) as f64 / 1000.0
    }

    /// The whole report.
    pub fn to_json(&self) -> Value {
        let errors: BTreeMap<String, u64> =
            self.failures.iter().map(|(kind, count)| (kind.name(), *count)).collect();
        json!({
            "rate": self.rate,
            "seconds": self.seconds,
            "offered": self.offered,
            "answered": self.answered,
            "achieved_rate": (self.answered - self.late) as f64 / self.seconds,
            "late": self.late_count(),
            "errors": errors,
            "p50_ms": self.latency_ms(0.5),
            "p90_ms": self.latency_ms(0.9),
            "p99_ms": self.latency_ms(0.99),
            "p999_ms": self.latency_ms(0.999),
            "max_ms": self.latencies.max() as f64 / 1000.0,
            "mean_ms": self.latencies.mean() / 1000.0,
            "lag_p99_ms": self.lags.value_at_quantile(0.99) as f64 / 1000.0,
            "connections_peak": self.connections_peak,
            "waiting_peak": self.waiting_peak,
            "resent": self.resent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(due_ns: u64) -> ScheduledRequest {
        ScheduledRequest { number: 0, due_ns, resent: false }
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let mut report = LoadReport::new(10.0, (1_000, 2_000_000_000));
        report.offered(due(999), 999);
        report.answered(due(999), 200, 5_000);
        report.offered(due(1_000), 1_000);
        report.answered(due(1_000), 200, 3_001_000);
        assert_eq!((report.offered_count(), report.answered_count()), (1, 1));
        assert!((report.latency_ms(0.5) - 3.0).abs() < 0.01);
    }

    #[test]
    fn a_response_after_the_end_is_late_but_answered() {
        let mut report = LoadReport::new(10.0, (0, 1_000_000_000));
        report.answered(due(10), 200, 1_000_000_001);
        report.failed(due(20), RequestFailure::Timeout, 4_000_000_020);
        report.failed(due(30), RequestFailure::Read, 40);
        assert_eq!(
            (report.answered_count(), report.late_count(), report.failed_count()),
            (1, 2, 2)
        );
        assert!(report.latency_ms(1.0) >= 4_000.0, "what was waited in vain is a latency");
        assert_eq!(report.to_json()["achieved_rate"], 0.0);
    }

    #[test]
    fn an_error_status_is_a_failure() {
        let mut report = LoadReport::new(10.0, (0, 1_000_000_000));
        report.answered(due(10), 503, 20);
        report.answered(due(10), 302, 20);
        assert_eq!(report.answered_count(), 1);
        assert_eq!(report.to_json()["errors"], serde_json::json!({"status_503": 1}));
    }
}
