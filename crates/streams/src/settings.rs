//! Settings of logs and consumer groups, as JSON from the configuration. Unknown names are refused.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Settings of a log and its producer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// `log:///absolute/path`, `kafka://host:port,host:port`, or `kafka+ssl://…` for TLS.
    pub broker: String,
    /// SASL user; with `password`.
    #[serde(default)]
    pub username: Option<String>,
    /// SASL password.
    #[serde(default)]
    pub password: Option<String>,
    /// SASL mechanism, as PLAIN or SCRAM-SHA-512.
    #[serde(default)]
    pub mechanism: Option<String>,
    /// File of the certificate authority for TLS.
    #[serde(default)]
    pub tls_ca_file: Option<String>,
    /// Properties of librdkafka for every handle.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Properties of librdkafka for producers.
    #[serde(default)]
    pub producer_properties: BTreeMap<String, String>,
    /// The name of this client.
    #[serde(default = "client_id")]
    pub client_id: String,
    /// Bytes fetched in advance per partition.
    #[serde(default = "buffer_bytes")]
    pub buffer_bytes: usize,
    /// Bytes in a producer's buffer, at most.
    #[serde(default = "produce_buffer_bytes")]
    pub produce_buffer_bytes: usize,
    /// Records in a producer's buffer, at most.
    #[serde(default = "produce_buffer_records")]
    pub produce_buffer_records: usize,
    /// A record that is not durable after this time has failed, in ms.
    #[serde(default = "delivery_timeout_ms")]
    pub delivery_timeout_ms: u64,
    /// The longest wait for an answer of the log, in ms.
    #[serde(default = "answer_timeout_ms")]
    pub answer_timeout_ms: u64,
    /// How long a producer collects records before it sends them, in ms.
    #[serde(default = "linger_ms")]
    pub linger_ms: f64,
    /// none, gzip, snappy, lz4 or zstd (Kafka).
    #[serde(default)]
    pub compression: Option<String>,
    /// Local log: a record is durable when it is on the disk, rather than in
    /// the operating system's cache.
    #[serde(default = "yes")]
    pub durable: bool,
    /// Local log: partitions of a topic that is created by its first record.
    #[serde(default = "partitions")]
    pub partitions: i32,
    /// Local log: the same for declared topics; takes precedence over `partitions`.
    #[serde(default)]
    pub topics: BTreeMap<String, i32>,
    /// Local log: bytes after which a new segment starts.
    #[serde(default = "segment_bytes")]
    pub segment_bytes: u64,
    /// Local log: bytes of a partition past which its oldest segments are deleted; `None` keeps
    /// all.
    #[serde(default)]
    pub retention_bytes: Option<u64>,
    /// Local log: age in ms past which segments are deleted; `None` keeps all.
    #[serde(default)]
    pub retention_ms: Option<u64>,
}

fn client_id() -> String {
    "chaton".into()
}

fn buffer_bytes() -> usize {
    8 << 20
}

fn produce_buffer_bytes() -> usize {
    64 << 20
}

fn produce_buffer_records() -> usize {
    100_000
}

fn delivery_timeout_ms() -> u64 {
    120_000
}

fn answer_timeout_ms() -> u64 {
    10_000
}

fn linger_ms() -> f64 {
    5.0
}

fn yes() -> bool {
    true
}

fn partitions() -> i32 {
    4
}

fn segment_bytes() -> u64 {
    64 << 20
}

impl LogSettings {
    /// The defaults for this address.
    pub fn new(broker: &str) -> Self {
        serde_json::from_value(serde_json::json!({ "broker": broker }))
            .unwrap_or_else(|_| unreachable!("every other field has a default"))
    }
}

/// Which protocol keeps a group together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Cooperative-sticky assignment, which every broker knows.
    #[default]
    Classic,
    /// KIP-848, which Kafka 4 knows.
    Consumer,
}

/// Where a group starts that has committed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// With the oldest record.
    #[default]
    Earliest,
    /// With records written from now on.
    Latest,
}

/// Settings of one consumer group.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    /// Its name.
    pub name: String,
    /// The topics that its members read.
    pub topics: Vec<String>,
    /// How its partitions are assigned.
    #[serde(default)]
    pub protocol: Protocol,
    /// Where it starts.
    #[serde(default)]
    pub start: Start,
    /// Static membership: the name of this member across restarts.
    #[serde(default)]
    pub instance_id: Option<String>,
    /// A member without a heartbeat for this long is dead, in ms.
    #[serde(default = "session_timeout_ms")]
    pub session_timeout_ms: u64,
    /// A member that does not poll for this long is dead, in ms. Batches of a revoked partition may
    /// run for half of it.
    #[serde(default = "max_poll_interval_ms")]
    pub max_poll_interval_ms: u64,
    /// The end of a partition is reported (`MemberEvent::PartitionEof`).
    #[serde(default)]
    pub eof: bool,
    /// Only records of committed transactions are read.
    #[serde(default = "yes")]
    pub read_committed: bool,
    /// Properties of librdkafka for this group.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

fn session_timeout_ms() -> u64 {
    45_000
}

fn max_poll_interval_ms() -> u64 {
    300_000
}

impl GroupSettings {
    /// The defaults, with a group that reads these topics.
    pub fn new(name: &str, topics: &[&str]) -> Self {
        serde_json::from_value(serde_json::json!({ "name": name, "topics": topics }))
            .unwrap_or_else(|_| unreachable!("every other field has a default"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_setting_is_refused() {
        let text = r#"{"broker":"log:///tmp/x","brokr":1}"#;
        let error = serde_json::from_str::<LogSettings>(text).unwrap_err().to_string();
        assert!(error.contains("brokr"), "{error}");
    }

    #[test]
    fn everything_but_names_has_a_default() {
        let log = LogSettings::new("kafka://127.0.0.1:9092");
        assert_eq!((log.buffer_bytes, log.durable), (8 << 20, true));
        let group = GroupSettings::new("app", &["events"]);
        assert_eq!((group.protocol, group.start), (Protocol::Classic, Start::Earliest));
    }
}
