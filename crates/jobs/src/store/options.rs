//! Settings of a store.

use std::time::Duration;

use chaton_core::settings::{nullable, seconds};
use serde::de::{Deserializer, Error};
use serde::Deserialize;

/// Settings of a store: the part `store` of the section `jobs`. Each has an
/// option in `jobs { … }`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreOptions {
    /// The store's address, see [`super::open`].
    pub url: String,
    /// User name for Redis, overriding the URL's.
    #[serde(deserialize_with = "nullable")]
    pub username: Option<String>,
    /// Password for Redis, overriding the URL's.
    #[serde(deserialize_with = "nullable")]
    pub password: Option<String>,
    /// User name for the sentinels.
    #[serde(deserialize_with = "nullable")]
    pub sentinel_username: Option<String>,
    /// Password for the sentinels.
    #[serde(deserialize_with = "nullable")]
    pub sentinel_password: Option<String>,
    /// PEM file with the authorities that may sign the server's certificate;
    /// `None` for those of the system.
    #[serde(deserialize_with = "nullable")]
    pub tls_ca_file: Option<String>,
    /// PEM file with the client's certificate, and those that lead to its authority.
    #[serde(deserialize_with = "nullable")]
    pub tls_cert_file: Option<String>,
    /// PEM file with its key.
    #[serde(deserialize_with = "nullable")]
    pub tls_key_file: Option<String>,
    /// Whether the server's certificate is checked.
    pub tls_verify: bool,
    /// Time to make a connection.
    #[serde(rename = "connect_timeout_s", deserialize_with = "seconds")]
    pub connect_timeout: Duration,
    /// Time for one answer.
    #[serde(rename = "answer_timeout_s", deserialize_with = "seconds")]
    pub answer_timeout: Duration,
    /// Redis and PostgreSQL: bytes of pushes that a client keeps in memory while the server cannot be reached; `None`: it
    /// keeps none.
    #[serde(deserialize_with = "nullable")]
    pub reliable_push: Option<usize>,
    /// How long the end of a process waits until they are sent.
    #[serde(rename = "reliable_push_timeout_s", deserialize_with = "seconds")]
    pub reliable_push_timeout: Duration,
    /// PostgreSQL: the address for a connection that listens where `url` is a bouncer's; `off`: changes are
    /// polled. `None`: `url` itself.
    #[serde(deserialize_with = "nullable")]
    pub listen: Option<String>,
    /// SQLite: whether a commit waits for the disk (`synchronous=FULL`).
    pub durable: bool,
    /// SQLite: longest wait for another process's lock.
    #[serde(rename = "lock_timeout_s", deserialize_with = "seconds")]
    pub lock_timeout: Duration,
    /// Generation of Sidekiq's format that is written: 6, 7 or 8.
    #[serde(deserialize_with = "format")]
    pub format: u8,
    /// An owner whose last heartbeat is older is dead.
    #[serde(rename = "lease_s", deserialize_with = "seconds")]
    pub lease: Duration,
    /// Jobs kept in the dead set.
    pub dead_max: usize,
    /// How long they are kept.
    #[serde(rename = "dead_age_s", deserialize_with = "seconds")]
    pub dead_age: Duration,
    /// Whether this process forks workers: it gets no thread that listens to a sentinel. No setting.
    #[serde(default)]
    pub forks: bool,
}

fn format<'de, D: Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    match u8::deserialize(from)? {
        format @ 6..=8 => Ok(format),
        format => Err(D::Error::custom(format_args!("{format} is none of 6, 7, 8"))),
    }
}

#[cfg(any(test, feature = "test-support"))]
impl StoreOptions {
    /// The settings of tests, for a store at this address.
    pub fn for_tests(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..chaton_core::default_settings!("jobs", "store") }
    }
}
