//! The configuration of a topic: the log's settings, overridden by the
//! topic's own under Kafka's names.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{errors, frames};
use crate::log::Result;
use crate::record::NewRecord;
use crate::settings::LogSettings;

/// The default of Kafka's `max.message.bytes`.
const MESSAGE_BYTES_MAX: u64 = 1_048_588;

/// Topic settings of Kafka that have no effect here. They are accepted, kept
/// and shown, so that one declaration works for both logs.
const IGNORED_SETTINGS: &[&str] = &[
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.storage.enable",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
];
const SUPPORTED_SETTINGS: &[&str] = &["max.message.bytes", "retention.bytes", "retention.ms"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicConfig {
    pub retention_bytes: Option<u64>,
    pub retention_ms: Option<u64>,
    /// The size of the largest record.
    pub message_bytes_max: u64,
    /// The longest wait for the log's lock.
    pub lock_wait: Duration,
}

impl TopicConfig {
    pub fn of(log: &LogSettings, settings: &BTreeMap<String, String>) -> Result<Self> {
        for (name, value) in settings {
            check(name, value)?;
        }
        let number = |name: &str| settings.get(name).and_then(|text| text.parse::<i64>().ok());
        // A negative number means no limit, as with Kafka.
        let limit = |name: &str, default: Option<u64>| {
            number(name).map_or(default, |number| u64::try_from(number).ok())
        };
        Ok(Self {
            retention_bytes: limit("retention.bytes", log.retention_bytes),
            retention_ms: limit("retention.ms", log.retention.map(|age| age.as_millis() as u64)),
            message_bytes_max: limit("max.message.bytes", None)
                .unwrap_or(MESSAGE_BYTES_MAX)
                .min(frames::BYTES_MAX as u64),
            lock_wait: log.delivery_timeout,
        })
    }

    /// Checks the encoded size of a record.
    pub fn check_size(&self, record: &NewRecord<'_>, size: usize) -> Result<()> {
        let max = self.message_bytes_max;
        if size as u64 <= max {
            return Ok(());
        }
        Err(errors::invalid(format!(
            "a record of {size} bytes is larger than topic {:?} takes ({max}, its \
             max.message.bytes)",
            record.topic
        )))
    }
}

fn check(name: &str, value: &str) -> Result<()> {
    if IGNORED_SETTINGS.contains(&name) {
        return Ok(());
    }
    if !SUPPORTED_SETTINGS.contains(&name) {
        let known = SUPPORTED_SETTINGS.join(", ");
        return Err(errors::invalid(format!(
            "setting {name:?} of a topic is not known; the local log heeds {known}"
        )));
    }
    match value.parse::<i64>() {
        Ok(number) if number >= -1 => Ok(()),
        _ => Err(errors::invalid(format!(
            "setting {name} of a topic must be a number, or -1 for no limit; it is {value:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::ErrorKind;

    fn config(settings: &[(&str, &str)]) -> Result<TopicConfig> {
        let settings =
            settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let mut log = LogSettings::for_tests("log:///tmp/x");
        log.retention = Some(Duration::from_secs(4));
        TopicConfig::of(&log, &settings)
    }

    #[test]
    fn the_settings_of_a_topic_override_those_of_the_log() {
        let plain = config(&[]).unwrap();
        assert_eq!((plain.retention_ms, plain.retention_bytes), (Some(4000), None));
        let own = config(&[("retention.ms", "-1"), ("retention.bytes", "7")]).unwrap();
        assert_eq!((own.retention_ms, own.retention_bytes), (None, Some(7)));
    }

    #[test]
    fn an_unknown_setting_is_named() {
        for (name, value) in
            [("retention.mss", "1"), ("retention.ms", "a day"), ("retention.bytes", "-2")]
        {
            let error = config(&[(name, value)]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.contains(name), "{error}");
        }
        assert!(config(&[("compression.type", "zstd"), ("segment.bytes", "9")]).is_ok());
    }
}
