//! Settings of the engine, as they come from the configuration.

use serde::Deserialize;

use crate::log::{self, ErrorKind, LogError};
use crate::settings::GroupSettings;

/// Of the whole engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    /// The groups whose member this process is.
    pub groups: Vec<GroupRoutes>,
    /// Offsets are committed at most this often, in ms; the first one at once.
    #[serde(default = "commit_interval_ms")]
    pub commit_interval_ms: u64,
    /// Batches read ahead per partition, or per strand of one.
    #[serde(default = "ready_batches")]
    pub ready_batches: usize,
    /// Longest pause in ms between tries to become a group's member again.
    #[serde(default = "group_retry_max_ms")]
    pub group_retry_max_ms: u64,
}

/// One group and what is done with its topics.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRoutes {
    /// The group; its topics are those of the routes.
    pub group: GroupSettings,
    /// One for each topic.
    pub routes: Vec<RouteSettings>,
}

/// What is done with one topic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSettings {
    /// The topic.
    pub topic: String,
    /// Records handed out at once, at most.
    #[serde(default = "batch")]
    pub batch: usize,
    /// Bytes of them; one record may be larger.
    #[serde(default = "batch_bytes")]
    pub batch_bytes: usize,
    /// Strands of a partition that run at the same time; with [`Order::Key`].
    #[serde(default = "one")]
    pub concurrency: usize,
    /// What is kept in order.
    #[serde(default)]
    pub order: Order,
    /// Only what is marked counts as done.
    #[serde(default)]
    pub manual: bool,
    /// Tries until a record goes to the dead letters; `None`: no end of them.
    #[serde(default)]
    pub attempts_max: Option<u32>,
    /// Pause before the second try in ms; each later one is twice as long.
    #[serde(default = "backoff_ms")]
    pub backoff_ms: u64,
    /// The longest pause in ms.
    #[serde(default = "backoff_max_ms")]
    pub backoff_max_ms: u64,
    /// Topic of records that failed too often.
    #[serde(default)]
    pub dead_letter: Option<String>,
    /// A record is handed out when it is this old, in ms.
    #[serde(default)]
    pub delay_ms: u64,
    /// A record older than this is not handed out, in ms; 0: each is.
    #[serde(default)]
    pub expires_ms: u64,
    /// How fast a partition's records are handed out.
    #[serde(default)]
    pub throttle: Option<Throttle>,
    /// Records are written and offsets committed in transactions.
    #[serde(default)]
    pub transactional: bool,
    /// The end of a partition is told ([`super::Kind::End`]).
    #[serde(default)]
    pub eof: bool,
}

/// What is kept in order within a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// All records.
    #[default]
    Partition,
    /// Records of one key.
    Key,
}

/// A rate, with as much as comes in one `per_ms` saved up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// So many records
    pub records: u64,
    /// in so many ms.
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
    /// The defaults for these groups.
    pub fn new(groups: Vec<GroupRoutes>) -> Self {
        Self {
            groups,
            commit_interval_ms: commit_interval_ms(),
            ready_batches: ready_batches(),
            group_retry_max_ms: group_retry_max_ms(),
        }
    }
}

impl EngineSettings {
    /// What no engine could work with.
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
                let what = format!("group {}: it reads {topics:?}, its routes {own:?}", group.name);
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
                self.concurrency > 1 && self.order == Order::Partition,
                "concurrency above 1 needs order key: all records of a partition in order leave \
                 nothing to do at the same time",
            ),
        ];
        let found = wrong.iter().find(|(is_wrong, _)| *is_wrong);
        found.map_or(Ok(()), |(_, why)| Err(invalid(format!("topic {}: {why}", self.topic))))
    }

    /// The defaults for this topic.
    pub fn new(topic: &str) -> Self {
        serde_json::from_value(serde_json::json!({ "topic": topic }))
            .unwrap_or_else(|_| unreachable!("every other field has a default"))
    }

    /// Strands of each partition.
    pub(super) fn strands(&self) -> usize {
        match self.order {
            Order::Partition => 1,
            Order::Key => self.concurrency.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_with_only_the_names_gives_the_defaults() {
        let text = r#"{"groups":[{"group":{"name":"app","topics":["events"]},
            "routes":[{"topic":"events","order":"key","concurrency":4,
                       "throttle":{"records":10,"per_ms":1000}}]}]}"#;
        let settings: EngineSettings = serde_json::from_str(text).unwrap();
        assert_eq!((settings.commit_interval_ms, settings.ready_batches), (100, 2));
        let route = &settings.groups[0].routes[0];
        assert_eq!((route.batch, route.order, route.strands()), (500, Order::Key, 4));
        assert_eq!(route.throttle, Some(Throttle { records: 10, per_ms: 1000 }));
    }

    #[test]
    fn a_name_that_is_not_known_is_refused() {
        let text = r#"{"topic":"events","bach":1}"#;
        let error = serde_json::from_str::<RouteSettings>(text).unwrap_err().to_string();
        assert!(error.contains("bach"), "{error}");
    }

    #[test]
    fn a_partition_kept_in_order_has_one_strand() {
        let route = RouteSettings { concurrency: 4, ..RouteSettings::new("events") };
        assert_eq!(route.strands(), 1);
    }
}
