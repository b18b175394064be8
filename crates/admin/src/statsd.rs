//! Sends the metrics to a StatsD server over UDP, as one form of what `/metrics` shows.
//!
//! Counters and the counts and sums of histograms are sent as what has come since the last time, gauges
//! as they are. Buckets are left out.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;

use tokio::net::{lookup_host, UdpSocket};
use tokio::time::{interval, timeout, MissedTickBehavior};

use chaton_core::process::table::Kind;

use crate::config::StatsdConfig;
use crate::metrics::{Family, Labels, Value};
use crate::state::State;

/// Bytes of a datagram at most: what an Ethernet frame holds with IPv6 and some room for a tunnel.
const DATAGRAM_BYTES_MAX: usize = 1432;

/// Sends for as long as the runtime lives. What was counted before belongs to an earlier process of the
/// endpoint, unless this is the first one.
pub(crate) async fn run(config: &StatsdConfig, state: &State, first: bool) {
    let mut lines = StatsdLines::new(config.tags);
    if !first {
        // A report has counts, too.
        state.reported.notified().await;
        lines.read(&state.metrics().await.0);
    }
    let mut ticks = interval(config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let datagrams = datagrams(lines.read(&state.metrics().await.0));
        match timeout(config.interval, send(&config.address, &datagrams)).await {
            Ok(Ok(sent)) => {
                state.statsd.sent.fetch_add(sent, Relaxed);
                state.statsd.failed.fetch_add(datagrams.len() as u64 - sent, Relaxed);
            }
            Ok(Err(_)) | Err(_) => {
                state.statsd.failed.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Returns how many the system has taken. The name is resolved each time, because a server may move.
async fn send(address: &str, datagrams: &[String]) -> io::Result<u64> {
    let to = lookup_host(address).await?.next().ok_or(io::ErrorKind::NotFound)?;
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(to).await?;
    let mut sent = 0;
    for datagram in datagrams {
        // A server that is not there answers the datagram before this one with an error.
        sent += u64::from(socket.send(datagram.as_bytes()).await.is_ok());
    }
    Ok(sent)
}

/// Puts lines together.
fn datagrams(lines: Vec<String>) -> Vec<String> {
    let mut datagrams: Vec<String> = Vec::new();
    for line in lines.into_iter().filter(|line| line.len() <= DATAGRAM_BYTES_MAX) {
        match datagrams.last_mut() {
            Some(last) if last.len() + 1 + line.len() <= DATAGRAM_BYTES_MAX => {
                last.push('\n');
                last.push_str(&line);
            }
            _ => datagrams.push(line),
        }
    }
    datagrams
}

/// Makes lines of StatsD.
struct StatsdLines {
    tags: bool,
    /// Values of counters at the last time, by name and labels. Series are bounded, and so is this.
    before: HashMap<String, f64>,
}

impl StatsdLines {
    fn new(tags: bool) -> Self {
        Self { tags, before: HashMap::new() }
    }

    fn read(&mut self, metrics: &[Family]) -> Vec<String> {
        let mut lines = Vec::new();
        for family in metrics {
            let under = if family.unit.is_empty() { "" } else { "_" };
            let name = format!("chaton.{}{under}{}", family.name, family.unit);
            for (labels, value) in &family.series {
                let samples = match value {
                    Value::Number(number) => vec![(name.clone(), *number)],
                    Value::Times(times) => vec![
                        (format!("{name}.sum"), times.sum_ns as f64 / 1e9),
                        (format!("{name}.count"), times.count() as f64),
                    ],
                };
                for (name, value) in samples {
                    lines.extend(self.sample(&name, labels, value, family.kind != Kind::Gauge));
                }
            }
        }
        lines
    }

    /// `counts`: it only grows.
    fn sample(&mut self, name: &str, labels: &Labels, value: f64, counts: bool) -> Option<String> {
        let sent = if counts { self.since(format!("{name}{labels:?}"), value) } else { value };
        // A gauge with a sign would be added to the one before.
        let said = sent > 0.0 || !counts && sent == 0.0;
        said.then(|| self.line(name, labels, sent, if counts { "c" } else { "g" }))
    }

    /// What has come since the last time. A counter of a worker begins anew with the next one.
    fn since(&mut self, series: String, value: f64) -> f64 {
        let before = self.before.insert(series, value).unwrap_or(0.0);
        if value < before {
            value
        } else {
            value - before
        }
    }

    fn line(&self, name: &str, labels: &Labels, value: f64, kind: &str) -> String {
        if self.tags {
            let tags: Vec<_> =
                labels.iter().map(|(name, value)| format!("{name}:{}", tag(value))).collect();
            let tags =
                if tags.is_empty() { String::new() } else { format!("|#{}", tags.join(",")) };
            return format!("{name}:{value}|{kind}{tags}");
        }
        let labels = labels.iter().map(|(name, value)| format!(".{name}.{}", part(value)));
        format!("{name}{}:{value}|{kind}", labels.collect::<String>())
    }
}

/// A value of a tag, without what means something in a line.
fn tag(value: &str) -> String {
    value.replace(|c: char| c.is_control() || matches!(c, '|' | ',' | '#' | '@'), "_")
}

/// A part of a name: points would divide it.
fn part(value: &str) -> String {
    let keep = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '_' };
    value.chars().map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chaton_core::process::counters::TimeTotals;

    fn first() -> Vec<Family> {
        let family = |name, kind, unit, series| Family { name, kind, unit, help: "", series };
        let ended = vec![
            ("class", "A::B".to_owned()),
            ("queue", "lo|w, \"x\"\n".to_owned()),
            ("result", "done".to_owned()),
        ];
        let mut times = TimeTotals { sum_ns: 1_500_000_000, ..TimeTotals::default() };
        times.buckets[9] = 2;
        let ran = vec![(vec![("class", "A".to_owned())], Value::Times(times))];
        let queued = [("0", 7.0), ("1", 0.0)]
            .map(|(worker, number)| (vec![("worker", worker.to_owned())], Value::Number(number)));
        vec![
            family("jobs", Kind::Counter, "", vec![(ended, Value::Number(3.0))]),
            family("requests_shed", Kind::Counter, "", vec![(vec![], Value::Number(0.0))]),
            family("job_run_time", Kind::Histogram, "seconds", ran),
            family("queued", Kind::Gauge, "", queued.into()),
        ]
    }

    #[test]
    fn counters_are_sent_as_what_has_come_since() {
        let mut lines = StatsdLines::new(true);
        let sent = [
            "chaton.jobs:3|c|#class:A::B,queue:lo_w_ \"x\"_,result:done",
            "chaton.job_run_time_seconds.sum:1.5|c|#class:A",
            "chaton.job_run_time_seconds.count:2|c|#class:A",
            "chaton.queued:7|g|#worker:0",
            "chaton.queued:0|g|#worker:1",
        ];
        assert_eq!(lines.read(&first()), sent);
        assert_eq!(lines.read(&first()), sent[3..], "nothing has come");
        let mut more = first();
        if let Value::Times(times) = &mut more[2].series[0].1 {
            times.sum_ns += 250_000_000;
        }
        assert_eq!(lines.read(&more)[0], "chaton.job_run_time_seconds.sum:0.25|c|#class:A");
        more[0].series[0].1 = Value::Number(2.0);
        assert!(lines.read(&more)[0].starts_with("chaton.jobs:2|c"), "another worker counts");
    }

    #[test]
    fn without_tags_labels_are_parts_of_the_name() {
        let lines = StatsdLines::new(false).read(&first());
        assert_eq!(lines[0], "chaton.jobs.class.A__B.queue.lo_w___x__.result.done:3|c");
        assert_eq!(lines[3], "chaton.queued.worker.0:7|g");
    }

    #[test]
    fn datagrams_are_full_and_not_too_long() {
        let lines: Vec<_> = (0..1000).map(|number| format!("chaton.jobs:{number}|c")).collect();
        let all = datagrams([vec!["x".repeat(DATAGRAM_BYTES_MAX + 1)], lines.clone()].concat());
        assert!(all.iter().all(|one| one.len() <= DATAGRAM_BYTES_MAX));
        let full = all[..all.len() - 1].iter().all(|one| one.len() > DATAGRAM_BYTES_MAX - 20);
        assert!(full, "{:?}", all.iter().map(String::len).collect::<Vec<_>>());
        let sent: Vec<_> = all.iter().flat_map(|one| one.split('\n')).collect();
        assert_eq!(sent, lines);
    }

    #[test]
    fn every_metric_can_be_sent() {
        let text = crate::metrics::sample().unwrap();
        let lines = StatsdLines::new(true).read(&crate::metrics::sample_metrics().unwrap().0);
        for gauge in
            text.lines().filter(|line| line.starts_with("# TYPE ") && line.ends_with(" gauge"))
        {
            let name = gauge.split(' ').nth(2).unwrap().replacen("chaton_", "chaton.", 1);
            assert!(lines.iter().any(|line| line.starts_with(&format!("{name}:"))), "{name}");
        }
    }
}
