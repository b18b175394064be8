//! Settings of a store.

use std::time::Duration;

/// Settings of a store. Each has a named option in `jobs { … }`.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The store's address, see [`super::open`].
    pub url: String,
    /// User name for Redis, overriding the URL's.
    pub username: Option<String>,
    /// Password for Redis, overriding the URL's.
    pub password: Option<String>,
    /// PEM file with the authorities that may sign the server's certificate;
    /// `None` for those of the system.
    pub tls_ca_file: Option<String>,
    /// Time to make a connection.
    pub connect_timeout: Duration,
    /// Time for one answer.
    pub answer_timeout: Duration,
    /// SQLite: whether a commit waits for the disk (`synchronous=FULL`).
    pub durable: bool,
    /// SQLite: longest wait for another process's lock.
    pub lock_timeout: Duration,
    /// Generation of Sidekiq's format that is written: 6, 7 or 8.
    pub format: u8,
    /// An owner whose last heartbeat is older is dead.
    pub lease: Duration,
    /// Jobs kept in the dead set.
    pub dead_max: usize,
    /// How long they are kept.
    pub dead_age: Duration,
}

impl StoreOptions {
    /// The defaults for an address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            username: None,
            password: None,
            tls_ca_file: None,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(5),
            durable: true,
            lock_timeout: Duration::from_secs(5),
            format: 7,
            lease: Duration::from_secs(60),
            dead_max: 10_000,
            dead_age: Duration::from_secs(180 * 24 * 3600),
        }
    }
}

/// An address fit for a log: user and password left out.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}"),
        None => url.to_string(),
    }
}
