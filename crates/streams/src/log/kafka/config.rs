//! The librdkafka properties of each kind of handle.

mod property_names;

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;

use super::broker_address::BrokerAddress;
use super::broker_statistics::StatisticsTarget;
use super::raw::{ClientHandle, ClientKind, Conf, ConfError};
use crate::log::{ErrorKind, LogError, Result};
use crate::settings::{GroupSettings, LogSettings, Protocol, Start};

#[derive(Clone)]
pub struct Config {
    pub settings: LogSettings,
    pub address: BrokerAddress,
    pub statistics: StatisticsTarget,
}

/// Names and values in the order in which they are set.
type Properties = Vec<(String, String)>;

/// The bytes of the smallest record in librdkafka: its operation (304 in
/// 2.12.1, 320 from the allocator), its framing in the response and a little
/// content. It limits the number of queued records, so that small records do
/// not exceed the limit on bytes.
const RECORD_BYTES_MIN: usize = 400;

/// How many times its bytes a response with records of 100 bytes needs in librdkafka.
const RESPONSE_GROWTH: usize = 5;

/// The SASL mechanisms of this build of librdkafka.
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// The largest record that is sent; a property with the same name changes it.
const MESSAGE_BYTES_MAX: usize = 1_048_588;

/// The time after which the broker aborts a transaction.
const TRANSACTION_MS: u64 = 60_000;

/// The minimum in librdkafka.
const TRANSACTION_MS_MIN: u64 = 1_000;

/// With fewer queued records, fetching would stall.
const RECORDS_QUEUED_MIN: usize = 2_000;

/// The group of admin clients, see [`Config::admin`].
const ADMIN_GROUP: &str = "chaton-admin";

impl Config {
    /// Checks all given properties.
    ///
    /// # Errors
    /// `Refused`, naming the property.
    pub fn new(settings: &LogSettings) -> Result<Self> {
        let address = BrokerAddress::parse(&settings.broker)?;
        let statistics = StatisticsTarget::default();
        let config = Self { settings: settings.clone(), address, statistics };
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

    /// The properties of a group member.
    ///
    /// # Errors
    /// `Refused`, naming the property, as with the other kinds.
    pub fn member(&self, group: &GroupSettings) -> Result<Conf> {
        let mut properties = self.for_reader();
        let session_ms = group.session_timeout.min(group.max_poll_interval).as_millis();
        set(&mut properties, "group.id", &group.name);
        set(&mut properties, "max.poll.interval.ms", group.max_poll_interval.as_millis());
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
        let start = if group.start == Start::Latest { "latest" } else { "earliest" };
        set(&mut properties, "auto.offset.reset", start);
        set(&mut properties, "enable.partition.eof", group.eof);
        let level = if group.read_committed { "read_committed" } else { "read_uncommitted" };
        set(&mut properties, "isolation.level", level);
        property_names::check(&group.properties)?;
        add(&mut properties, &group.properties);
        self.conf(properties)
    }

    pub fn reader(&self) -> Result<Conf> {
        self.conf(self.for_reader())
    }

    pub fn producer(&self) -> Result<Conf> {
        self.conf(self.for_producer())
    }

    pub fn transactional_producer(&self, id: &str) -> Result<Conf> {
        let mut properties = self.for_producer();
        set(&mut properties, "transactional.id", id);
        let ms = self.transaction_timeout_ms();
        set(&mut properties, "delivery.timeout.ms", ms);
        set(&mut properties, "transaction.timeout.ms", ms);
        self.conf(properties)
    }

    /// A transaction needs no longer than its records may take. Until the broker aborts the
    /// transaction of a dead process, readers cannot read past it.
    pub fn transaction_timeout_ms(&self) -> u64 {
        (self.settings.delivery_timeout.as_millis() as u64)
            .clamp(TRANSACTION_MS_MIN, TRANSACTION_MS)
    }

    /// The properties of an admin client. It names a group that it never joins: when the coordinator of
    /// another group is not ready, `rd_kafka_handle_OffsetFetch` (rdkafka_request.c) asks the handle's own
    /// group to look for its coordinator, and crashes where there is none.
    pub fn admin(&self) -> Result<Conf> {
        let mut properties = self.base();
        add(&mut properties, &self.settings.properties);
        set(&mut properties, "group.id", ADMIN_GROUP);
        self.conf(properties)
    }

    /// Creates a handle.
    ///
    /// # Errors
    /// `Refused` if librdkafka finds that properties contradict each other.
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
        let protocol = match (sasl, self.address.tls) {
            (false, false) => "plaintext",
            (false, true) => "ssl",
            (true, false) => "sasl_plaintext",
            (true, true) => "sasl_ssl",
        };
        set(all, "security.protocol", protocol);
        if sasl {
            set(all, "sasl.mechanisms", settings.mechanism.as_deref().unwrap_or("PLAIN"));
        }
        if let (Some(username), Some(password)) = (&settings.username, &settings.password) {
            set(all, "sasl.username", username);
            set(all, "sasl.password", password);
        }
        if let Some(file) = &settings.tls_ca_file {
            set(all, "ssl.ca.location", file);
        } else if cfg!(feature = "vendored")
            && !["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| env::var_os(name).is_some())
        {
            // An OpenSSL that is linked in does not know this system's directory, so librdkafka looks in the usual ones.
            set(all, "ssl.ca.location", "probe");
        }
        // A broker that comes back is found within a second,
        set(all, "reconnect.backoff.max.ms", 1000);
        // new topics and partitions within five.
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
        // Fetching continues below the limits, so one response may exceed them.
        // It needs the more memory the smaller its records are.
        let response = (buffer / 16).clamp(64 << 10, 4 << 20);
        set(all, "max.partition.fetch.bytes", response);
        let room = buffer.saturating_sub(response * RESPONSE_GROWTH);
        let records = (room / RECORD_BYTES_MIN).clamp(RECORDS_QUEUED_MIN, 10_000_000);
        set(all, "queued.min.messages", records);
        set(all, "fetch.min.bytes", 1);
        // A connection has one fetch in flight. A newly assigned partition waits
        // until that fetch has ended.
        set(all, "fetch.wait.max.ms", 100);
        // The default of 1000 stalls catching up for a second at a time.
        set(all, "fetch.queue.backoff.ms", 10);
        add(&mut properties, &self.settings.properties);
        properties
    }

    fn for_producer(&self) -> Properties {
        let settings = &self.settings;
        let mut properties = self.base();
        let all = &mut properties;
        set(all, "enable.idempotence", true);
        set(all, "acks", "all");
        set(all, "linger.ms", settings.linger.as_secs_f64() * 1e3);
        set(all, "delivery.timeout.ms", settings.delivery_timeout.as_millis());
        set(all, "queue.buffering.max.messages", settings.produce_buffer_records);
        let kbytes = (settings.produce_buffer_bytes / 1024).max(1);
        set(all, "queue.buffering.max.kbytes", kbytes);
        // As in Kafka's Java client, so that all writers agree on the partition of a key.
        set(all, "partitioner", "murmur2_random");
        // An unknown topic is reported within this time.
        set(all, "topic.metadata.propagation.max.ms", 5000);
        // As much as brokers take (`message.max.bytes` of Kafka 4.1: 1 MiB and 12 bytes for a batch's length and
        // offset); librdkafka's own limit is 1,000,000.
        set(all, "message.max.bytes", MESSAGE_BYTES_MAX);
        if let Some(codec) = &settings.compression {
            set(all, "compression.codec", codec);
        }
        add(&mut properties, &settings.properties);
        add(&mut properties, &settings.producer_properties);
        properties
    }
}

fn set(properties: &mut Properties, name: &str, value: impl ToString) {
    properties.push((name.to_owned(), value.to_string()));
}

fn add(properties: &mut Properties, given: &BTreeMap<String, String>) {
    properties.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
}
