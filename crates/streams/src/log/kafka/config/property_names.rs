//! Names of librdkafka's properties: those that users may not set, and
//! suggestions for unknown ones.

use std::collections::BTreeMap;

use crate::log::kafka::raw::Conf;
use crate::log::{ErrorKind, LogError, Result};

/// Properties that would break a guarantee, and what to do instead.
const RESERVED: [(&str, &str); 18] = [
    ("auto.commit.enable", "records are committed after they are processed"),
    ("auto.offset.reset", "set `start` of the topic"),
    ("bootstrap.servers", "set `broker`"),
    ("enable.auto.commit", "records are committed after they are processed"),
    ("enable.auto.offset.store", "records are committed after they are processed"),
    ("enable.partition.eof", "it is set for consumers with a hook `eof`"),
    ("enabled_events", "events are read by Chaton alone"),
    ("group.id", "set `group` of the topic"),
    ("group.instance.id", "set `instance_id` of the group"),
    ("group.protocol", "set `protocol` of the topic"),
    ("isolation.level", "set `read_committed`"),
    ("max.poll.interval.ms", "set `max_poll_interval_s`"),
    ("metadata.broker.list", "set `broker`"),
    ("offset.store.method", "offsets are kept by the brokers"),
    ("partitioner", "all writers must agree on the partition of a key"),
    ("session.timeout.ms", "set `session_timeout_s`"),
    ("statistics.interval.ms", "nobody reads librdkafka's statistics here"),
    ("transactional.id", "each transactional consumer gets one of its own"),
];

/// Aliases that librdkafka's list leaves out.
const ALIASES: [&str; 7] = [
    "acks",
    "batch.size",
    "bootstrap.servers",
    "delivery.timeout.ms",
    "linger.ms",
    "max.partition.fetch.bytes",
    "sasl.mechanism",
];

/// Refuses reserved properties.
pub fn check(given: &BTreeMap<String, String>) -> Result<()> {
    for (name, instead) in RESERVED {
        if given.contains_key(name) {
            let message = format!("property {name:?} of Kafka cannot be set: {instead}");
            return Err(LogError::new(ErrorKind::Refused, message));
        }
    }
    Ok(())
}

/// The error for an unknown property, with a suggestion.
pub fn unknown(name: &str) -> LogError {
    let mut known = Conf::names();
    known.extend(ALIASES.map(str::to_owned));
    let nearest = known.iter().map(|one| (strsim::levenshtein(name, one), one)).min();
    let hint = match nearest {
        Some((steps, one)) if steps <= name.len() / 2 => format!("; did you mean {one:?}?"),
        _ => "; see librdkafka's CONFIGURATION.md".to_owned(),
    };
    LogError::new(ErrorKind::Refused, format!("property {name:?} of Kafka is not known{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        for (wrong, right) in [
            ("socket.keepalive.enabled", "socket.keepalive.enable"),
            ("fetch.wait.max.m", "fetch.wait.max.ms"),
            ("batch_size", "batch.size"),
        ] {
            let error = unknown(wrong);
            assert!(error.message.contains(&format!("did you mean {right:?}")), "{error}");
        }
        assert!(unknown("zzz").message.contains("CONFIGURATION"));
    }

    #[test]
    fn a_reserved_property_is_refused_with_the_reason() {
        let given = BTreeMap::from([("enable.auto.commit".to_owned(), "true".to_owned())]);
        let error = check(&given).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.message.contains("after they are processed"), "{error}");
    }
}
