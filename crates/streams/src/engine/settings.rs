//! Settings of the engine, as they come from the configuration.

use serde::Deserialize;

use crate::log::{self, ErrorKind, LogError};
use crate::settings::GroupSettings;

/// Settings of the whole engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    /// The groups that this process is a member of.
    pub groups: Vec<GroupRoutes>,
    /// Offsets are committed at most this often, in ms; the first one at once.
    #[serde(default = "commit_interval_ms")]
    pub commit_interval_ms: u64,
    /// Batches read ahead per partition, or per key lane of one.
    #[serde(default = "ready_batches")]
    pub ready_batches: usize,
    /// The longest pause in ms between attempts to join a group.
    #[serde(default = "group_retry_max_ms")]
    pub group_retry_max_ms: u64,
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
    #[serde(default = "batch")]
    pub batch: usize,
    /// Bytes in a batch, at most; a single record may be larger.
    #[serde(default = "batch_bytes")]
    pub batch_bytes: usize,
    /// Key lanes of a partition that run at the same time; with [`RecordOrder::Key`].
    #[serde(default = "one")]
    pub concurrency: usize,
    /// Which records are kept in order.
    #[serde(default)]
    pub order: RecordOrder,
    /// Only marked records count as done.
    #[serde(default)]
    pub manual: bool,
    /// Attempts until a record goes to the dead-letter topic; `None`: without end.
    #[serde(default)]
    pub attempts_max: Option<u32>,
    /// Pause before the second attempt in ms; each later one is twice as long.
    #[serde(default = "backoff_ms")]
    pub backoff_ms: u64,
    /// The longest pause in ms.
    #[serde(default = "backoff_max_ms")]
    pub backoff_max_ms: u64,
    /// The dead-letter topic.
    #[serde(default)]
    pub dead_letter: Option<String>,
    /// A record is handed out when it is this old, in ms.
    #[serde(default)]
    pub delay_ms: u64,
    /// A record older than this is skipped, in ms; 0: none is.
    #[serde(default)]
    pub expires_ms: u64,
    /// How fast a partition's records are handed out.
    #[serde(default)]
    pub throttle: Option<Throttle>,
    /// Records are written and offsets are committed in transactions.
    #[serde(default)]
    pub transactional: bool,
    /// Consumers are notified of the end of a partition.
    #[serde(default)]
    pub eof: bool,
}

/// Which records of a partition are kept in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordOrder {
    /// All records.
    #[default]
    Partition,
    /// Records of one key.
    Key,
}

/// A rate; what is not used within `per_ms` is saved up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// This many records.
    pub records: u64,
    /// Within this many ms.
    pub per_ms: u64,
}

fn commit_interval_ms() -> u64 {
    100
}

fn ready_batches() -> usize {
    2
}

fn group_retry_max_ms() -> u64 {
    30_000
}

fn batch() -> usize {
    500
}

fn batch_bytes() -> usize {
    1 << 20
}

fn one() -> usize {
    1
}

fn backoff_ms() -> u64 {
    1_000
}

fn backoff_max_ms() -> u64 {
    60_000
}

impl EngineSettings {
    /// The defaults, with these groups.
    pub fn new(groups: Vec<GroupRoutes>) -> Self {
        Self {
            groups,
            commit_interval_ms: commit_interval_ms(),
            ready_batches: ready_batches(),
            group_retry_max_ms: group_retry_max_ms(),
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

    /// The defaults, with this topic.
    pub fn new(topic: &str) -> Self {
        serde_json::from_value(serde_json::json!({ "topic": topic }))
            .unwrap_or_else(|_| unreachable!("every other field has a default"))
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
    fn settings_that_are_not_given_have_defaults() {
        let text = r#"{"groups":[{"group":{"name":"app","topics":["events"]},
            "routes":[{"topic":"events","order":"key","concurrency":4,
                       "throttle":{"records":10,"per_ms":1000}}]}]}"#;
        let settings: EngineSettings = serde_json::from_str(text).unwrap();
        assert_eq!((settings.commit_interval_ms, settings.ready_batches), (100, 2));
        let route = &settings.groups[0].routes[0];
        assert_eq!((route.batch, route.order, route.lanes()), (500, RecordOrder::Key, 4));
        assert_eq!(route.throttle, Some(Throttle { records: 10, per_ms: 1000 }));
    }

    #[test]
    fn an_unknown_setting_is_refused() {
        let text = r#"{"topic":"events","bach":1}"#;
        let error = serde_json::from_str::<RouteSettings>(text).unwrap_err().to_string();
        assert!(error.contains("bach"), "{error}");
    }

    #[test]
    fn a_partition_kept_in_order_has_one_lane() {
        let route = RouteSettings { concurrency: 4, ..RouteSettings::new("events") };
        assert_eq!(route.lanes(), 1);
    }
}
