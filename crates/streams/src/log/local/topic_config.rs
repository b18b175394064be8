//! What is kept and how, per topic: the log's settings, and over them the
//! topic's own under Kafka's names.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{errors, record_frame};
use crate::log::Result;
use crate::settings::LogSettings;

/// As Kafka's `max.message.bytes`.
const MESSAGE_BYTES_MAX: u64 = 1_048_588;

/// Kafka's settings of topics that mean nothing here: taken, kept and shown,
/// so that one declaration serves both logs.
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
    "segment.index.bytes",
    "segment.jitter.ms",
    "unclean.leader.election.enable",
];
const SUPPORTED_SETTINGS: &[&str] =
    &["max.message.bytes", "retention.bytes", "retention.ms", "segment.bytes", "segment.ms"];

/// Of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicConfig {
    /// Synced before it is acknowledged.
    pub durable: bool,
    /// A segment of this size is followed by the next.
    pub segment_bytes: u64,
    /// And one of this age.
    pub segment_ms: Option<u64>,
    /// A partition keeps no more.
    pub retention_bytes: Option<u64>,
    /// Nor for longer.
    pub retention_ms: Option<u64>,
    /// One record is not larger.
    pub message_bytes_max: u64,
    /// Longest wait for the lock of a partition.
    pub lock_wait: Duration,
}

impl TopicConfig {
    /// Of a topic with these settings.
    pub fn of(log: &LogSettings, settings: &BTreeMap<String, String>) -> Result<Self> {
        for (name, value) in settings {
            check(name, value)?;
        }
        let number = |name: &str| settings.get(name).and_then(|text| text.parse::<i64>().ok());
        // Below zero: no limit, as with Kafka.
        let limit = |name: &str, default: Option<u64>| {
            number(name).map_or(default, |number| u64::try_from(number).ok())
        };
        let retention_ms = limit("retention.ms", log.retention_ms);
        Ok(Self {
            durable: log.durable,
            segment_bytes: limit("segment.bytes", None).unwrap_or(log.segment_bytes).max(1),
            // Only what is behind the current segment can go: it ends soon
            // enough that nothing is kept for much longer than told.
            segment_ms: limit("segment.ms", retention_ms.map(|ms| ms / 4)),
            retention_bytes: limit("retention.bytes", log.retention_bytes),
            retention_ms,
            message_bytes_max: limit("max.message.bytes", None)
                .unwrap_or(MESSAGE_BYTES_MAX)
                .min(record_frame::BYTES_MAX as u64),
            lock_wait: Duration::from_millis(log.delivery_timeout_ms),
        })
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
        let mut log = LogSettings::new("log:///tmp/x");
        log.retention_ms = Some(4000);
        TopicConfig::of(&log, &settings)
    }

    #[test]
    fn a_topic_s_own_settings_come_first() {
        let plain = config(&[]).unwrap();
        assert_eq!((plain.retention_ms, plain.segment_ms), (Some(4000), Some(1000)));
        assert_eq!((plain.retention_bytes, plain.segment_bytes), (None, 64 << 20));
        let own =
            config(&[("retention.ms", "-1"), ("retention.bytes", "7"), ("segment.bytes", "9")]);
        let own = own.unwrap();
        assert_eq!((own.retention_ms, own.segment_ms), (None, None));
        assert_eq!((own.retention_bytes, own.segment_bytes), (Some(7), 9));
    }

    #[test]
    fn a_setting_that_is_none_is_named() {
        for (name, value) in
            [("retention.mss", "1"), ("retention.ms", "a day"), ("segment.ms", "-2")]
        {
            let error = config(&[(name, value)]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.contains(name), "{error}");
        }
        assert!(config(&[("compression.type", "zstd")]).is_ok());
    }
}
