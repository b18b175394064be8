//! Settings of the traces.

use std::time::Duration;

use chaton_core::settings::seconds;
use serde::Deserialize;

/// The section `traces` of the document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// URL to which spans are posted.
    pub endpoint: String,
    /// Headers of each post; they may hold a password.
    pub headers: Vec<(String, String)>,
    /// Which part of the traces that begin here is recorded: 0 to 1.
    pub sample: f64,
    /// Whether a trace that began elsewhere is recorded just when it is recorded there.
    pub follow_parent: bool,
    /// Whether spans of requests have their query strings.
    pub query: bool,
    /// Attributes of the process.
    pub resource: Vec<(String, String)>,
    /// Chaton's version.
    pub version: String,
    /// Spans that wait to be sent, at most.
    pub queue_max: usize,
    /// Spans in one post, at most.
    pub batch_max: usize,
    /// How long a span waits for others.
    #[serde(rename = "interval_s", deserialize_with = "seconds")]
    pub interval: Duration,
    /// Time for one post.
    #[serde(rename = "timeout_s", deserialize_with = "seconds")]
    pub timeout: Duration,
}
