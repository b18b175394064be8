//! Counts what librdkafka does with each broker, from the statistics that it reports.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chaton_core::process::counters::BrokerCounters;
use chaton_core::process::scoreboard::OwnGauges;
use rdkafka_sys as sys;
use serde::Deserialize;

use super::raw::{Conf, QueueEvent};

/// Where all clients of a log count, and how often they report (see
/// [`RecordLog::count_brokers`](crate::log::RecordLog::count_brokers)).
pub type StatisticsTarget = Arc<OnceLock<(OwnGauges, Duration)>>;

/// The statistics of one client, whose totals begin with it.
pub struct BrokerStatistics {
    gauges: OwnGauges,
    /// By broker: requests, errors, timeouts and connects, as last reported. A report has all brokers.
    before: HashMap<String, [u64; 4]>,
}

#[derive(Deserialize)]
struct BrokersReport {
    #[serde(default)]
    brokers: HashMap<String, BrokerReport>,
}

/// Fields of librdkafka's STATISTICS.md.
#[derive(Deserialize)]
struct BrokerReport {
    nodeid: i64,
    #[serde(default)]
    source: String,
    #[serde(default)]
    tx: u64,
    #[serde(default)]
    txerrs: u64,
    #[serde(default)]
    rxerrs: u64,
    #[serde(default)]
    req_timeouts: u64,
    #[serde(default)]
    connects: u64,
    #[serde(default)]
    rtt: RoundTrips,
}

/// Since the report before.
#[derive(Default, Deserialize)]
struct RoundTrips {
    #[serde(default)]
    sum: u64,
    #[serde(default)]
    cnt: u64,
}

impl BrokerReport {
    /// The number of a broker does not tell its address. A connection to an address of the
    /// configuration, and that to the coordinator of a group, have no number.
    fn name(&self) -> String {
        match self.nodeid {
            0.. => self.nodeid.to_string(),
            _ if self.source == "logical" => "coordinator".to_owned(),
            _ => "bootstrap".to_owned(),
        }
    }
}

impl BrokerStatistics {
    /// Has a new client report, if that is asked for. Returns the kind of event to be delivered, and what
    /// takes it.
    pub fn enable(target: &StatisticsTarget, conf: &mut Conf) -> (i32, Option<Self>) {
        let Some((gauges, interval)) = target.get() else { return (0, None) };
        let interval_ms = interval.as_millis().to_string();
        // The name is librdkafka's, and the value within its bounds.
        let set = conf.set("statistics.interval.ms", &interval_ms);
        debug_assert_eq!(set, Ok(()));
        let statistics = Self { gauges: gauges.clone(), before: HashMap::new() };
        (sys::RD_KAFKA_EVENT_STATS, Some(statistics))
    }

    /// Takes an event with statistics.
    pub fn take(&mut self, event: &QueueEvent) {
        self.count(event.statistics());
    }

    /// What cannot be read is left out.
    fn count(&mut self, json: &[u8]) {
        let Ok(report) = serde_json::from_slice::<BrokersReport>(json) else { return };
        let last = mem::take(&mut self.before);
        for (key, broker) in report.brokers {
            let counters = self.gauges.named::<BrokerCounters>(&broker.name(), "");
            let errors = broker.txerrs + broker.rxerrs;
            let totals = [broker.tx, errors, broker.req_timeouts, broker.connects];
            let targets =
                [&counters.requests, &counters.errors, &counters.timeouts, &counters.connects];
            let before = last.get(&key).copied().unwrap_or_default();
            for ((target, total), before) in targets.into_iter().zip(totals).zip(before) {
                add(target, total.saturating_sub(before));
            }
            add(&counters.round_trips, broker.rtt.cnt);
            add(&counters.round_trips_us, broker.rtt.sum);
            self.before.insert(key, totals);
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use chaton_core::process::scoreboard::Scoreboard;

    #[test]
    fn totals_are_counted_once_and_round_trips_each_time() {
        let scoreboard = Arc::new(Scoreboard::new(1).unwrap());
        let gauges = OwnGauges::new(scoreboard.clone(), 0);
        let mut one = BrokerStatistics { gauges: gauges.clone(), before: HashMap::new() };
        let mut other = BrokerStatistics { gauges: gauges.clone(), before: HashMap::new() };
        let report = |requests: u64| {
            format!(
                r#"{{"type":"consumer","brokers":{{
                    "secret.example:9092/1":{{"nodeid":1,"source":"learned","tx":{requests},"txerrs":1,
                      "rxerrs":2,"req_timeouts":3,"connects":4,"state":"UP","rtt":{{"avg":5,"sum":70,"cnt":7}}}},
                    "secret.example:9092/bootstrap":{{"nodeid":-1,"source":"configured","connects":1}},
                    "GroupCoordinator":{{"nodeid":-1,"source":"logical","tx":9}}}}}}"#
            )
        };
        one.count(report(10).as_bytes());
        one.count(report(15).as_bytes());
        other.count(report(100).as_bytes());
        other.count(b"no JSON");
        let of = |name: &str| {
            let counters = gauges.named::<BrokerCounters>(name, "");
            let all = [
                &counters.requests,
                &counters.errors,
                &counters.timeouts,
                &counters.connects,
                &counters.round_trips,
                &counters.round_trips_us,
            ];
            all.map(|counter| counter.load(Ordering::Relaxed))
        };
        assert_eq!(of("1"), [115, 6, 6, 8, 21, 210]);
        assert_eq!(of("bootstrap"), [0, 0, 0, 2, 0, 0]);
        assert_eq!(of("coordinator"), [18, 0, 0, 0, 0, 0]);
        let names = (0..4).filter_map(|index| scoreboard.names::<BrokerCounters>().get(index));
        assert!(names.map(|(name, _)| name).all(|name| !name.contains("secret")));
    }
    #[test]
    fn totals_of_very_many_brokers_are_counted_once() {
        let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
        let mut one = BrokerStatistics { gauges: gauges.clone(), before: HashMap::new() };
        let broker = |id: usize| format!(r#""host{id}/{id}":{{"nodeid":{id},"tx":10}}"#);
        let brokers: Vec<_> = (0..1_500).map(broker).collect();
        let report = format!(r#"{{"brokers":{{{}}}}}"#, brokers.join(","));
        (0..3).for_each(|_| one.count(report.as_bytes()));
        let brokers = gauges.counters().brokers.iter();
        let requests: u64 = brokers.map(|one| one.requests.load(Ordering::Relaxed)).sum();
        assert_eq!(requests, 15_000);
    }
}
