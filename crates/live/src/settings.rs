//! The settings of a log and its hub.

use std::path::PathBuf;
use std::time::Duration;

use chaton_core::settings::seconds;
use serde::Deserialize;

/// What happens to a client that does not read fast enough.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SlowClient {
    /// It catches up from the log, and is told of a gap if the log has deleted what it missed.
    Gap,
    /// Its connection is closed.
    Close,
}

/// The settings, as Ruby gives them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The file of the log, or of what waits for a server.
    pub path: PathBuf,
    /// The server of the log, if it is not the file.
    pub redis: Option<RedisSettings>,
    /// Messages that the log keeps.
    pub history_messages: u64,
    /// Bytes of messages that the log keeps.
    pub history_bytes: u64,
    /// Time for which it keeps them.
    #[serde(rename = "history_s", deserialize_with = "seconds")]
    pub history_age: Duration,
    /// Time without a message after which a connection is sent a comment.
    #[serde(rename = "ping_s", deserialize_with = "seconds")]
    pub ping: Duration,
    /// What happens to a client that does not read fast enough.
    pub slow_client: SlowClient,
    /// Open streams of one client in a process.
    pub client_streams_max: usize,
    /// Time over which the connections of a process that stops are closed.
    #[serde(rename = "drain_s", deserialize_with = "seconds")]
    pub drain: Duration,
}

/// How to reach a Redis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisSettings {
    /// Its address.
    pub url: String,
    /// User name and password, overriding the address's.
    pub user: [Option<String>; 2],
    /// The same for sentinels.
    pub sentinel_user: [Option<String>; 2],
    /// Authorities, certificate and key.
    pub tls_files: [Option<String>; 3],
    /// Whether its certificate is checked.
    pub tls_verify: bool,
    /// Seconds to make a connection, and for one reply.
    pub timeouts_s: [f64; 2],
}

#[cfg(test)]
impl Settings {
    /// A file at this path, and the defaults of the rest.
    pub fn of_file(path: PathBuf) -> Self {
        Self {
            path,
            redis: None,
            history_messages: 10_000,
            history_bytes: 64 << 20,
            history_age: Duration::from_secs(3600),
            ping: Duration::from_secs(20),
            slow_client: SlowClient::Gap,
            client_streams_max: 1000,
            drain: Duration::from_secs(5),
        }
    }
}
