//! Settings of logs and consumer groups, as JSON from the configuration, which has their defaults.
//! Unknown names are refused.

use std::collections::BTreeMap;
use std::time::Duration;

use chaton_core::settings::{millis, nullable, seconds, seconds_or_off};
use serde::Deserialize;

/// Settings of a log and its producer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// `sqlite:///absolute/file`, `log:///absolute/folder`, `kafka://host:port,host:port`, or `kafka+ssl://…` for TLS.
    pub broker: String,
    /// SASL user; with `password`.
    #[serde(deserialize_with = "nullable")]
    pub username: Option<String>,
    /// SASL password.
    #[serde(deserialize_with = "nullable")]
    pub password: Option<String>,
    /// SASL mechanism, as PLAIN or SCRAM-SHA-512.
    #[serde(deserialize_with = "nullable")]
    pub mechanism: Option<String>,
    /// File of the certificate authority for TLS.
    #[serde(deserialize_with = "nullable")]
    pub tls_ca_file: Option<String>,
    /// Properties of librdkafka for every handle.
    pub properties: BTreeMap<String, String>,
    /// Properties of librdkafka for producers.
    pub producer_properties: BTreeMap<String, String>,
    /// The name of this client.
    pub client_id: String,
    /// Bytes fetched in advance per partition.
    pub buffer_bytes: usize,
    /// Bytes in a producer's buffer, at most.
    pub produce_buffer_bytes: usize,
    /// Records in a producer's buffer, at most.
    pub produce_buffer_records: usize,
    /// A record that is not durable after this time has failed.
    #[serde(rename = "delivery_timeout_s", deserialize_with = "seconds")]
    pub delivery_timeout: Duration,
    /// The longest wait for an answer of the log.
    #[serde(rename = "answer_timeout_s", deserialize_with = "seconds")]
    pub answer_timeout: Duration,
    /// Kafka: while a broker refuses the credentials or TLS, another one may accept them within this time.
    #[serde(rename = "refused_timeout_s", deserialize_with = "seconds")]
    pub refused_timeout: Duration,
    /// How long a producer collects records before it sends them.
    #[serde(rename = "linger_ms", deserialize_with = "millis")]
    pub linger: Duration,
    /// none, gzip, snappy, lz4 or zstd (Kafka).
    #[serde(deserialize_with = "nullable")]
    pub compression: Option<String>,
    /// Local log: a record is durable when it is on the disk, rather than in
    /// the operating system's cache.
    pub durable: bool,
    /// Local log: partitions of a topic that is created by its first record.
    pub partitions: i32,
    /// Local log: declared topics.
    pub topics: BTreeMap<String, DeclaredTopic>,
    /// Local log: bytes of a partition past which its oldest records are deleted; `None` keeps
    /// all.
    #[serde(deserialize_with = "nullable")]
    pub retention_bytes: Option<u64>,
    /// Local log: age past which records are deleted; `None` keeps all.
    #[serde(rename = "retention_s", deserialize_with = "seconds_or_off")]
    pub retention: Option<Duration>,
}

/// How a topic is to be created.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredTopic {
    /// Its partitions; takes precedence over `partitions` of the log.
    #[serde(deserialize_with = "nullable")]
    pub partitions: Option<i32>,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
}

#[cfg(any(test, feature = "test-support"))]
impl LogSettings {
    /// What tests use at this address.
    pub fn for_tests(broker: &str) -> Self {
        let refused_timeout = Duration::from_secs(1);
        Self { broker: broker.into(), refused_timeout, ..chaton_core::default_settings!("log") }
    }
}

/// Which protocol keeps a group together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Cooperative-sticky assignment, which every broker knows.
    Classic,
    /// KIP-848, which Kafka 4 knows.
    Consumer,
}

/// Where a group starts that has committed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// With the oldest record.
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
    pub protocol: Protocol,
    /// Where it starts.
    pub start: Start,
    /// Static membership: the name of this member across restarts.
    #[serde(deserialize_with = "nullable")]
    pub instance_id: Option<String>,
    /// A member without a heartbeat for this long is dead.
    #[serde(rename = "session_timeout_s", deserialize_with = "seconds")]
    pub session_timeout: Duration,
    /// A member that does not poll for this long is dead. Batches of a revoked partition may run for half of it.
    #[serde(rename = "max_poll_interval_s", deserialize_with = "seconds")]
    pub max_poll_interval: Duration,
    /// The end of a partition is reported (`MemberEvent::PartitionEof`): one of its routes has it.
    #[serde(skip)]
    pub eof: bool,
    /// Only records of committed transactions are read.
    pub read_committed: bool,
    /// Properties of librdkafka for this group.
    pub properties: BTreeMap<String, String>,
}

#[cfg(any(test, feature = "test-support"))]
impl GroupSettings {
    /// What tests use for a group that reads these topics.
    pub fn for_tests(name: &str, topics: &[&str]) -> Self {
        let topics = topics.iter().map(|topic| (*topic).into()).collect();
        Self { name: name.into(), topics, ..chaton_core::default_settings!("group") }
    }
}
