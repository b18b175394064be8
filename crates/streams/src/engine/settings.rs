//! Settings of the engine: the section `streams` of the document that the configuration writes.

use std::time::Duration;

use chaton_core::process::scoreboard::OwnGauges;
use chaton_core::settings::{millis, nullable, seconds, seconds_or_off};
use serde::Deserialize;

use super::suspects::BatchSlot;
use crate::log::{self, ErrorKind, LogError};
use crate::settings::GroupSettings;

/// Settings of the whole engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    /// The groups that this process is a member of.
    pub groups: Vec<GroupRoutes>,
    /// Offsets are committed at most this often; the first one at once.
    #[serde(rename = "commit_interval_ms", deserialize_with = "millis")]
    pub commit_interval: Duration,
    /// Batches read ahead per partition, or per key lane of one.
    pub ready_batches: usize,
    /// The longest pause between attempts to join a group.
    #[serde(rename = "group_retry_max_s", deserialize_with = "seconds")]
    pub group_retry_max: Duration,
    /// Kafka: how often clients count their traffic with each broker; `None`: never.
    #[serde(rename = "broker_statistics_s", deserialize_with = "seconds_or_off")]
    pub broker_statistics: Option<Duration>,
    /// It joins no group until [`Engine::resume`](super::Engine::resume), because the process is not
    /// ready yet.
    #[serde(skip)]
    pub begins_held: bool,
    /// Where the threads note the batches that they run; `None` without a supervisor.
    #[serde(skip)]
    pub in_flight: Option<BatchSlot>,
    /// Where it is published how many groups are joined.
    #[serde(skip)]
    pub gauges: Option<OwnGauges>,
}

/// One group and its topics.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRoutes {
    /// The group; its topics are those of the routes.
    pub group: GroupSettings,
    /// One for each topic of the group.
    pub routes: Vec<RouteSettings>,
}

/// How one topic is consumed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSettings {
    /// The topic.
    pub topic: String,
    /// Records in a batch, at most.
    pub batch: usize,
    /// Bytes in a batch, at most; a single record may be larger.
    pub batch_bytes: usize,
    /// Key lanes of a partition that run at the same time; with [`RecordOrder::Key`].
    pub concurrency: usize,
    /// Which records are kept in order.
    pub order: RecordOrder,
    /// Only marked records count as done.
    pub manual: bool,
    /// Attempts until a record goes to the dead-letter topic; `None`: without end.
    #[serde(deserialize_with = "nullable")]
    pub attempts_max: Option<u32>,
    /// Pause before the second attempt; each later one is twice as long.
    #[serde(deserialize_with = "seconds")]
    pub backoff: Duration,
    /// The longest pause.
    #[serde(deserialize_with = "seconds")]
    pub backoff_max: Duration,
    /// The dead-letter topic.
    #[serde(deserialize_with = "nullable")]
    pub dead_letter: Option<String>,
    /// A record is handed out when it is this old.
    #[serde(deserialize_with = "seconds")]
    pub delay: Duration,
    /// A record older than this is skipped; `None`: none is.
    #[serde(deserialize_with = "seconds_or_off")]
    pub expires: Option<Duration>,
    /// When retention has removed records before the group has read them.
    pub on_gap: OnGap,
    /// How fast a partition's records are handed out.
    #[serde(deserialize_with = "nullable")]
    pub throttle: Option<Throttle>,
    /// Records are written and offsets are committed in transactions.
    pub transactional: bool,
    /// Consumers are notified of the end of a partition.
    #[serde(skip)]
    pub eof: bool,
}

/// Which records of a partition are kept in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordOrder {
    /// All records.
    Partition,
    /// Records of one key.
    Key,
}

/// What a partition does at records that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnGap {
    /// It warns, and continues behind them.
    Warn,
    /// It stops until the group's offset is set.
    Stop,
}

/// A rate; what is not used within `per` is saved up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// This many records.
    pub records: u64,
    /// Within this time.
    #[serde(rename = "per_s", deserialize_with = "seconds")]
    pub per: Duration,
}

impl EngineSettings {
    /// What tests use with these groups.
    #[cfg(any(test, feature = "test-support"))]
    pub fn for_tests(groups: Vec<GroupRoutes>) -> Self {
        Self { groups, ..chaton_core::default_settings!("streams") }
    }

    /// Consumers of these routes, counted through all groups, are notified of the end of a
    /// partition.
    pub fn notify_eof(&mut self, routes: &[usize]) {
        let mut numbers = 0..;
        for group in &mut self.groups {
            for (route, number) in group.routes.iter_mut().zip(&mut numbers) {
                route.eof = routes.contains(&number);
                group.group.eof |= route.eof;
            }
        }
    }

    /// Refuses settings that contradict each other.
    pub(super) fn check(&self) -> log::Result<()> {
        if self.ready_batches == 0 {
            return Err(invalid("ready_batches must be 1 or more".into()));
        }
        for GroupRoutes { group, routes } in &self.groups {
            let mut own: Vec<&str> = routes.iter().map(|route| &*route.topic).collect();
            let mut topics: Vec<&str> = group.topics.iter().map(|topic| &**topic).collect();
            own.sort_unstable();
            topics.sort_unstable();
            if own != topics || own.windows(2).any(|pair| pair[0] == pair[1]) {
                let what = format!(
                    "group {}: its topics are {topics:?}, its routes name {own:?}",
                    group.name
                );
                return Err(invalid(format!("{what}; each topic needs one route")));
            }
            routes.iter().try_for_each(RouteSettings::check)?;
        }
        Ok(())
    }
}

fn invalid(message: String) -> LogError {
    LogError::new(ErrorKind::Invalid, message)
}

impl RouteSettings {
    fn check(&self) -> log::Result<()> {
        let wrong = [
            (self.batch == 0, "batch must be 1 or more"),
            (self.batch_bytes == 0, "batch_bytes must be 1 or more"),
            (self.concurrency == 0, "concurrency must be 1 or more"),
            (self.attempts_max == Some(0), "attempts_max must be 1 or more"),
            (self.throttle.is_some_and(|t| t.records == 0), "throttle needs 1 record or more"),
            (
                self.concurrency > 1 && self.order == RecordOrder::Partition,
                "concurrency above 1 needs order key: with all records of a partition in order, \
                 one batch runs at a time",
            ),
        ];
        let found = wrong.iter().find(|(is_wrong, _)| *is_wrong);
        found.map_or(Ok(()), |(_, why)| Err(invalid(format!("topic {}: {why}", self.topic))))
    }

    /// What tests use with this topic.
    #[cfg(any(test, feature = "test-support"))]
    pub fn for_tests(topic: &str) -> Self {
        Self { topic: topic.into(), ..chaton_core::default_settings!("route") }
    }

    /// Key lanes of each partition.
    pub(super) fn lanes(&self) -> usize {
        match self.order {
            RecordOrder::Partition => 1,
            RecordOrder::Key => self.concurrency.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_counted_through_all_groups() {
        let group = |topics: &[&str]| GroupRoutes {
            group: GroupSettings::for_tests(topics[0], topics),
            routes: topics.iter().map(|topic| RouteSettings::for_tests(topic)).collect(),
        };
        let mut settings = EngineSettings::for_tests(vec![group(&["a", "b"]), group(&["c", "d"])]);
        settings.notify_eof(&[3]);
        let of_groups: Vec<_> = settings.groups.iter().map(|group| group.group.eof).collect();
        let routes = settings.groups.iter().flat_map(|group| &group.routes);
        assert_eq!(of_groups, [false, true]);
        assert_eq!(routes.map(|route| route.eof).collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn a_partition_kept_in_order_has_one_lane() {
        let route = RouteSettings { concurrency: 4, ..RouteSettings::for_tests("events") };
        assert_eq!(route.lanes(), 1);
    }
}
