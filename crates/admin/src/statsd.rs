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

use crate::config::StatsdConfig;
use crate::state::State;

/// Bytes of a datagram at most: what an Ethernet frame holds with IPv6 and some room for a tunnel.
const DATAGRAM_BYTES_MAX: usize = 1432;
/// The prefix of all metrics, which StatsD writes with a point.
const PREFIX: &str = "chaton_";

/// Sends for as long as the runtime lives. What was counted before belongs to an earlier process of the
/// endpoint, unless this is the first one.
pub(crate) async fn run(config: &StatsdConfig, state: &State, first: bool) {
    let mut lines = StatsdLines::new(config.tags);
    if !first {
        // A report has counts, too.
        state.reported.notified().await;
        lines.read(&state.metrics().await);
    }
    let mut ticks = interval(config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let datagrams = datagrams(lines.read(&state.metrics().await));
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

/// Makes lines of StatsD from the text of a scrape.
struct StatsdLines {
    tags: bool,
    /// Values of counters at the last time, by name and labels. Series are bounded, and so is this.
    before: HashMap<String, f64>,
}

impl StatsdLines {
    fn new(tags: bool) -> Self {
        Self { tags, before: HashMap::new() }
    }

    fn read(&mut self, text: &str) -> Vec<String> {
        let (mut kind, mut lines) = ("", Vec::new());
        for line in text.lines() {
            if let Some(typed) = line.strip_prefix("# TYPE ") {
                kind = typed.rsplit(' ').next().unwrap_or_default();
            } else if let Some(sample) = Sample::parse(line, kind) {
                let Sample { series, name, labels, counts, value } = sample;
                let sent = if counts { self.since(series, value) } else { value };
                // A gauge with a sign would be added to the one before.
                if sent > 0.0 || !counts && sent == 0.0 {
                    lines.push(self.line(&name, &labels, sent, if counts { "c" } else { "g" }));
                }
            }
        }
        lines
    }

    /// What has come since the last time. A counter of a worker begins anew with the next one.
    fn since(&mut self, series: &str, value: f64) -> f64 {
        let Some(before) = self.before.get_mut(series) else {
            self.before.insert(series.to_owned(), value);
            return value;
        };
        let before = std::mem::replace(before, value);
        if value < before {
            value
        } else {
            value - before
        }
    }

    fn line(&self, name: &str, labels: &[(&str, String)], value: f64, kind: &str) -> String {
        if self.tags {
            let tags: Vec<_> =
                labels.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            let tags =
                if tags.is_empty() { String::new() } else { format!("|#{}", tags.join(",")) };
            return format!("{name}:{value}|{kind}{tags}");
        }
        let labels = labels.iter().map(|(name, value)| format!(".{name}.{}", part(value)));
        format!("{name}{}:{value}|{kind}", labels.collect::<String>())
    }
}

/// A part of a name: points would divide it.
fn part(value: &str) -> String {
    let keep = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '_' };
    value.chars().map(keep).collect()
}

/// One line of a scrape.
struct Sample<'a> {
    /// Name and labels as they were.
    series: &'a str,
    /// As StatsD has it.
    name: String,
    /// The values without what means something in a line of StatsD.
    labels: Vec<(&'a str, String)>,
    /// Whether it only grows.
    counts: bool,
    value: f64,
}

impl<'a> Sample<'a> {
    /// `None` for a comment and a bucket.
    fn parse(line: &'a str, kind: &str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
        let (full, labels) = series.split_once('{').unwrap_or((series, ""));
        let name = full.strip_prefix(PREFIX)?;
        let name = match kind {
            "histogram" => match name.rsplit_once('_')? {
                (name, end @ ("count" | "sum")) => format!("{name}.{end}"),
                _ => return None,
            },
            _ => name.strip_suffix("_total").unwrap_or(name).to_owned(),
        };
        let (name, value) = (format!("chaton.{name}"), value.parse().ok()?);
        Some(Self { series, name, labels: parse_labels(labels), counts: kind != "gauge", value })
    }
}

/// The labels of `name="value",…}`, whose values have escaped quotes, backslashes and line ends.
fn parse_labels(mut rest: &str) -> Vec<(&str, String)> {
    let mut labels = Vec::new();
    while let Some((name, after)) = rest.split_once("=\"") {
        let (mut value, mut escaped, mut end) = (String::new(), false, after.len());
        for (at, c) in after.char_indices() {
            match c {
                '"' if !escaped => {
                    end = at + 1;
                    break;
                }
                '\\' if !escaped => escaped = true,
                _ => {
                    let newline = escaped && c == 'n';
                    let means = c.is_control() || matches!(c, '|' | ',' | '#' | '@');
                    value.push(if newline || means { '_' } else { c });
                    escaped = false;
                }
            }
        }
        labels.push((name.trim_start_matches(','), value));
        rest = &after[end..];
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "# HELP chaton_jobs Runs.\n# TYPE chaton_jobs counter\n\
        chaton_jobs_total{class=\"A::B\",queue=\"lo|w, \\\"x\\\"\\n\",result=\"done\"} 3\n\
        # TYPE chaton_requests_shed counter\nchaton_requests_shed_total 0\n\
        # TYPE chaton_job_run_time_seconds histogram\n\
        chaton_job_run_time_seconds_sum{class=\"A\"} 1.5\n\
        chaton_job_run_time_seconds_count{class=\"A\"} 2\n\
        chaton_job_run_time_seconds_bucket{le=\"1.0\",class=\"A\"} 2\n\
        # TYPE chaton_queued gauge\nchaton_queued{worker=\"0\"} 7\nchaton_queued{worker=\"1\"} 0\n# EOF\n";

    #[test]
    fn counters_are_sent_as_what_has_come_since() {
        let mut lines = StatsdLines::new(true);
        let first = [
            "chaton.jobs:3|c|#class:A::B,queue:lo_w_ \"x\"_,result:done",
            "chaton.job_run_time_seconds.sum:1.5|c|#class:A",
            "chaton.job_run_time_seconds.count:2|c|#class:A",
            "chaton.queued:7|g|#worker:0",
            "chaton.queued:0|g|#worker:1",
        ];
        assert_eq!(lines.read(FIRST), first);
        assert_eq!(lines.read(FIRST), first[3..], "nothing has come");
        let more = FIRST.replace("_sum{class=\"A\"} 1.5", "_sum{class=\"A\"} 1.75");
        assert_eq!(lines.read(&more)[0], "chaton.job_run_time_seconds.sum:0.25|c|#class:A");
        let anew = more.replace("} 3\n", "} 2\n");
        assert!(lines.read(&anew)[0].starts_with("chaton.jobs:2|c"), "another worker counts");
    }

    #[test]
    fn without_tags_labels_are_parts_of_the_name() {
        let lines = StatsdLines::new(false).read(FIRST);
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
        let lines = StatsdLines::new(true).read(&text);
        for gauge in
            text.lines().filter(|line| line.starts_with("# TYPE ") && line.ends_with(" gauge"))
        {
            let name = gauge.split(' ').nth(2).unwrap().replacen("chaton_", "chaton.", 1);
            assert!(lines.iter().any(|line| line.starts_with(&format!("{name}:"))), "{name}");
        }
    }
}
