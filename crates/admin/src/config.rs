//! Settings of the admin endpoint.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::time::Duration;

use chaton_core::settings::{nullable, seconds, seconds_or_off};
use serde::{Deserialize, Serialize};

/// A listening socket. Its descriptor stays the caller's, who closes it after the endpoint has ended.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminListener {
    /// The descriptor.
    pub fd: RawFd,
    /// Whether it is a Unix socket, which no web page can reach.
    pub unix: bool,
    /// The host it is bound to, as written; empty for a Unix socket.
    pub host: String,
    /// Whether only this machine, or the owner of the socket's file, reaches it, so that metrics need no
    /// token.
    pub open: bool,
}

/// The settings, as the supervisor sends them. It has defaults for none: each option has its own.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where it listens.
    pub listeners: Vec<AdminListener>,
    /// What opens metrics to other machines.
    #[serde(deserialize_with = "nullable")]
    pub token: Option<String>,
    /// Names besides `localhost` that a request may have in `Host`.
    pub hosts: Vec<String>,
    /// Requests answered at once, besides probes; further ones wait.
    pub connections_max: usize,
    /// How long a client may take to send a request, and to read the response.
    #[serde(rename = "timeout_s", deserialize_with = "seconds")]
    pub timeout: Duration,
    /// A supervisor that reports nothing for longer counts as hung; `None`: never.
    #[serde(rename = "alive_timeout_s", deserialize_with = "seconds_or_off")]
    pub alive_timeout: Option<Duration>,
    /// Age of a request from which on a worker's queue is too old.
    #[serde(rename = "queue_age_s", deserialize_with = "seconds")]
    pub queue_age: Duration,
    /// Records that are not done, of one topic and group in one worker, beyond which it is not ready.
    #[serde(deserialize_with = "nullable")]
    pub lag_max: Option<u64>,
    /// Where metrics are sent.
    #[serde(deserialize_with = "nullable")]
    pub statsd: Option<StatsdConfig>,
    /// The roles that run in the server.
    pub roles: Vec<String>,
    /// Settings of the page.
    pub dashboard: DashboardConfig,
    /// Settings of the store of jobs, for the [`QueueSource`](crate::queues::QueueSource); null: none is
    /// read.
    #[serde(default)]
    pub store: serde_json::Value,
}

/// Where metrics are sent.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatsdConfig {
    /// Host and port.
    pub address: String,
    /// How often.
    #[serde(rename = "interval_s", deserialize_with = "seconds")]
    pub interval: Duration,
    /// Whether labels are sent as tags in the form of DogStatsD, or else as parts of the name.
    pub tags: bool,
}

/// Settings of the page.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DashboardConfig {
    /// Path of the main process's control socket; `None`: it is off, and so are some actions.
    #[serde(deserialize_with = "nullable")]
    pub control_socket: Option<String>,
    /// What does not change, such as the version, in words.
    pub facts: BTreeMap<String, String>,
    /// The entries of `cron` in the configuration, and the application by whose name the store remembers their ticks.
    pub crons: Vec<CronEntry>,
    #[allow(missing_docs)]
    pub application: String,
    /// How long a one-time link is valid.
    #[serde(rename = "link_s", deserialize_with = "seconds")]
    pub link: Duration,
    /// How long the session is that it begins.
    #[serde(rename = "session_s", deserialize_with = "seconds")]
    pub session: Duration,
}

/// An entry of `cron` in the configuration.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CronEntry {
    /// Its name.
    pub name: String,
    /// The class of its jobs.
    pub class: String,
    /// The expression.
    pub schedule: String,
    /// The time zone of the expression.
    pub zone: String,
    /// The queue, if the class does not say it.
    #[serde(deserialize_with = "nullable")]
    pub queue: Option<String>,
}
