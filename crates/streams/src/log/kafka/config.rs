//! The properties of each kind of handle.

mod property_names;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::{ErrorKind, LogError, Result};
use super::broker_address::BrokerAddress;
use super::raw::{ClientHandle, ClientKind, Conf, ConfError};
use crate::settings::{GroupSettings, LogSettings, Protocol, Start};

/// What is known of a log before anything connects.
#[derive(Clone)]
pub struct Config {
    /// As they were given.
    pub settings: LogSettings,
    /// Where the brokers are.
    pub address: BrokerAddress,
}

/// A handle's properties, in the order they are set.
type Properties = Vec<(String, String)>;

/// Bytes the smallest record takes in librdkafka: its operation (304 in 2.12.1,
/// 320 of the allocator's), its framing in the answer and a little content.
/// The bound on records is made from it, so that small ones do not outgrow the
/// bound on bytes.
const RECORD_BYTES_MIN: usize = 400;

/// Times the bytes of an answer with records of 100 bytes that they take in
/// librdkafka, at most.
const ANSWER_GROWS: usize = 5;

/// Of SASL, as librdkafka is built here.
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// How long a transaction may take before the broker aborts it.
const TRANSACTION_MS: u64 = 60_000;

/// The least that librdkafka takes.
const TRANSACTION_MS_MIN: u64 = 1_000;

/// A bound on records below which fetching would stutter.
const RECORDS_QUEUED_MIN: usize = 2_000;

impl Config {
    /// Checks all properties that were given.
    ///
    /// # Errors
    /// `Refused`, naming the property.
    pub fn new(settings: &LogSettings) -> Result<Self> {
        let address = BrokerAddress::parse(&settings.broker)?;
        let config = Self { settings: settings.clone(), address };
        if settings.password.is_some() != settings.username.is_some() {
            let message = "username and password go together; set both or neither";
            return Err(LogError::new(ErrorKind::Refused, message));
        }
        if let Some(mechanism) = &settings.mechanism {
            if !MECHANISMS.contains(&mechanism.as_str()) {
                let known = MECHANISMS.join(", ");
                let message = format!("mechanism {mechanism:?} is not known; there are {known}");
                return Err(LogError::new(ErrorKind::Refused, message));
            }
        }
        property_names::check(&settings.properties)?;
        property_names::check(&settings.producer_properties)?;
        config.conf(config.for_producer())?;
        config.conf(config.for_reader())?;
        Ok(config)
    }

    /// Of a member of a group.
    ///
    /// # Errors
    /// `Refused`, naming the property.
    pub fn member(&self, group: &GroupSettings) -> Result<Conf> {
        let mut properties = self.for_reader();
        let session_ms = group.session_timeout_ms.min(group.max_poll_interval_ms);
        set(&mut properties, "group.id", &group.name);
        set(&mut properties, "max.poll.interval.ms", group.max_poll_interval_ms);
        match group.protocol {
            Protocol::Classic => {
                set(&mut properties, "partition.assignment.strategy", "cooperative-sticky");
                set(&mut properties, "session.timeout.ms", session_ms);
                set(&mut properties, "heartbeat.interval.ms", (session_ms / 3).clamp(1, 3000));
            }
            Protocol::Consumer => set(&mut properties, "group.protocol", "consumer"),
        }
        if let Some(id) = &group.instance_id {
            set(&mut properties, "group.instance.id", id);
        }
        set(
            &mut properties,
            "auto.offset.reset",
            match group.start {
                Start::Earliest => "earliest",
                Start::Latest => "latest",
            },
        );
        set(&mut properties, "enable.partition.eof", group.eof);
        let level = if group.read_committed { "read_committed" } else { "read_uncommitted" };
        set(&mut properties, "isolation.level", level);
        add(&mut properties, &group.properties)?;
        self.conf(properties)
    }

    /// Of a reader without a group.
    ///
    /// # Errors
    /// `Refused`, naming the property.
    pub fn reader(&self) -> Result<Conf> {
        self.conf(self.for_reader())
    }

    /// Of a producer.
    ///
    /// # Errors
    /// `Refused`, naming the property.
    pub fn producer(&self) -> Result<Conf> {
        self.conf(self.for_producer())
    }

    /// Of a producer of transactions.
    ///
    /// # Errors
    /// `Refused`, naming the property.
    pub fn transactional_producer(&self, id: &str) -> Result<Conf> {
        let mut properties = self.for_producer();
        set(&mut properties, "transactional.id", id);
        // No record may take longer, so neither need a transaction: the broker
        // aborts what a process that died has left, and until then nobody reads
        // on behind it.
        let ms = self.settings.delivery_timeout_ms.clamp(TRANSACTION_MS_MIN, TRANSACTION_MS);
        set(&mut properties, "delivery.timeout.ms", ms);
        set(&mut properties, "transaction.timeout.ms", ms);
        self.conf(properties)
    }

    /// Of a handle for questions.
    ///
    /// # Errors
    /// `Refused`, naming the property.
    pub fn admin(&self) -> Result<Conf> {
        let mut properties = self.base();
        add(&mut properties, &self.settings.properties)?;
        self.conf(properties)
    }

    /// A handle; librdkafka may still find that properties do not go together.
    ///
    /// # Errors
    /// `Refused`, with what it says.
    pub fn open(&self, kind: ClientKind, conf: Conf) -> Result<Arc<ClientHandle>> {
        ClientHandle::new(kind, conf).map_err(|why| {
            let message = format!("the settings for {} do not work: {why}", self.address.url());
            LogError::new(ErrorKind::Refused, message)
        })
    }

    fn conf(&self, properties: Properties) -> Result<Conf> {
        let mut conf = Conf::new();
        for (name, value) in properties {
            match conf.set(&name, &value) {
                Ok(()) => {}
                Err(ConfError::Unknown) => return Err(property_names::unknown(&name)),
                Err(ConfError::Invalid(why)) => {
                    let message = format!("property {name:?} of Kafka is wrong: {why}");
                    return Err(LogError::new(ErrorKind::Refused, message));
                }
            }
        }
        Ok(conf)
    }

    fn base(&self) -> Properties {
        let settings = &self.settings;
        let mut properties = Vec::new();
        let all = &mut properties;
        set(all, "bootstrap.servers", &self.address.brokers);
        set(all, "client.id", &settings.client_id);
        let sasl = settings.username.is_some() || settings.mechanism.is_some();
        set(
            all,
            "security.protocol",
            match (sasl, self.address.tls) {
                (false, false) => "plaintext",
                (false, true) => "ssl",
                (true, false) => "sasl_plaintext",
                (true, true) => "sasl_ssl",
            },
        );
        if sasl {
            set(all, "sasl.mechanisms", settings.mechanism.as_deref().unwrap_or("PLAIN"));
        }
        if let (Some(username), Some(password)) = (&settings.username, &settings.password) {
            set(all, "sasl.username", username);
            set(all, "sasl.password", password);
        }
        if let Some(file) = &settings.tls_ca_file {
            set(all, "ssl.ca.location", file);
        }
        // A broker that comes back is found within a second.
        set(all, "reconnect.backoff.max.ms", 1000);
        // New topics and partitions are, within five.
        set(all, "topic.metadata.refresh.interval.ms", 5000);
        set(all, "socket.connection.setup.timeout.ms", 10_000);
        set(all, "socket.keepalive.enable", true);
        set(all, "enable.metrics.push", false);
        properties
    }

    fn for_reader(&self) -> Properties {
        let mut properties = self.base();
        let all = &mut properties;
        let buffer = self.settings.buffer_bytes;
        set(all, "enable.auto.commit", false);
        set(all, "enable.auto.offset.store", false);
        set(all, "queued.max.messages.kbytes", (buffer / 1024).clamp(1, 2_097_151));
        // Fetching goes on below the bounds, so one answer may overshoot them: room
        // is left for it, which takes the more memory the smaller its records are.
        let answer = (buffer / 16).clamp(64 << 10, 4 << 20);
        set(all, "max.partition.fetch.bytes", answer);
        let room = buffer.saturating_sub(answer * ANSWER_GROWS);
        let records = (room / RECORD_BYTES_MIN).clamp(RECORDS_QUEUED_MIN, 10_000_000);
        set(all, "queued.min.messages", records);
        set(all, "fetch.min.bytes", 1);
        // A connection has one fetch under way: what it waits, a partition waits
        // that has just been got.
        set(all, "fetch.wait.max.ms", 100);
        // 1000 by default, which makes draining a lag stutter by the second.
        set(all, "fetch.queue.backoff.ms", 10);
        let given = &self.settings.properties;
        properties.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
        properties
    }

    fn for_producer(&self) -> Properties {
        let settings = &self.settings;
        let mut properties = self.base();
        let all = &mut properties;
        set(all, "enable.idempotence", true);
        set(all, "acks", "all");
        set(all, "linger.ms", settings.linger_ms);
        set(all, "delivery.timeout.ms", settings.delivery_timeout_ms);
        set(all, "queue.buffering.max.messages", settings.produce_buffer_records);
        let kbytes = (settings.produce_buffer_bytes / 1024).max(1);
        set(all, "queue.buffering.max.kbytes", kbytes);
        // As Kafka's own clients, so that all writers agree on a key's partition.
        set(all, "partitioner", "murmur2_random");
        // A topic that nobody has is told within this time.
        set(all, "topic.metadata.propagation.max.ms", 5000);
        if let Some(codec) = &settings.compression {
            set(all, "compression.codec", codec);
        }
        for given in [&settings.properties, &settings.producer_properties] {
            properties.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        properties
    }
}

fn set(properties: &mut Properties, name: &str, value: impl ToString) {
    properties.push((name.to_owned(), value.to_string()));
}

fn add(properties: &mut Properties, given: &BTreeMap<String, String>) -> Result<()> {
    property_names::check(given)?;
    properties.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
    Ok(())
}
