//! Posts spans to a collector over OTLP/HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use rustls::crypto::ring;
use ureq::http::header::{HeaderName, HeaderValue, CONTENT_TYPE, RETRY_AFTER};
use ureq::http::HeaderMap;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::Agent;

use crate::config::Config;
use crate::otlp::TracesResponse;

/// A longer answer is not read.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// Characters of the collector's reason in the log.
const REASON_MAX: usize = 500;

/// What came of a post.
pub enum CollectorAnswer {
    /// The collector took the spans, but for some.
    Taken {
        /// How many it did not take.
        rejected: usize,
        /// Why; empty when it took all.
        reason: String,
    },
    /// It will never take them.
    Refused {
        /// Why.
        reason: String,
    },
    /// It may take them later.
    Later {
        /// Why not now.
        reason: String,
        /// When, if it says so.
        after: Option<Duration>,
    },
}

/// A client of one collector, with its connection.
pub struct CollectorClient {
    agent: Agent,
    endpoint: String,
    headers: HeaderMap,
}

impl CollectorClient {
    /// A client; it connects with the first post.
    ///
    /// # Errors
    /// Naming a header that cannot be sent.
    pub fn new(config: &Config) -> io::Result<Self> {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let name = HeaderName::try_from(name).map_err(|_| invalid(name))?;
            let value = HeaderValue::try_from(value).map_err(|_| invalid(name.as_str()))?;
            headers.insert(name, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(format!("chaton/{}", config.version))
            .tls_config(tls(config.endpoint.starts_with("https:")))
            .build();
        Ok(Self { agent: agent.into(), endpoint: config.endpoint.clone(), headers })
    }

    /// Posts a batch, for at most `timeout`.
    pub fn post(&self, body: &[u8], timeout: Duration) -> CollectorAnswer {
        let mut request = self.agent.post(&self.endpoint);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.config().timeout_global(Some(timeout)).build();
        match request.send(body) {
            Ok(mut response) => {
                let status = response.status().as_u16();
                let after = response.headers().get(RETRY_AFTER).and_then(seconds);
                let read = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
                answer(status, after, &read.unwrap_or_default())
            }
            Err(error) => CollectorAnswer::Later { reason: error.to_string(), after: None },
        }
    }
}

fn invalid(name: &str) -> io::Error {
    let message = format!("the header {name:?} of traces cannot be sent");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// The system's certificates are read only where they are needed.
fn tls(needed: bool) -> TlsConfig {
    let own = if needed { rustls_native_certs::load_native_certs().certs } else { vec![] };
    let roots: Vec<_> = own.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(RootCerts::from(roots))
        .build()
}

fn seconds(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The standard names the statuses after which a client tries again.
fn answer(status: u16, after: Option<Duration>, body: &[u8]) -> CollectorAnswer {
    let reason = format!("it answered {status}");
    match status {
        200..=299 => {
            let decoded = TracesResponse::decode(body).ok();
            let partial = decoded.and_then(|response| response.partial_success);
            partial.map_or(
                CollectorAnswer::Taken { rejected: 0, reason: String::new() },
                |partial| CollectorAnswer::Taken {
                    rejected: usize::try_from(partial.rejected_spans).unwrap_or(0),
                    reason: partial.error_message.chars().take(REASON_MAX).collect(),
                },
            )
        }
        429 | 502 | 503 | 504 => CollectorAnswer::Later { reason, after },
        _ => CollectorAnswer::Refused { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::PartialSuccess;

    #[test]
    fn what_an_answer_means() {
        let later = |status| matches!(answer(status, None, b""), CollectorAnswer::Later { .. });
        let refused = |status| matches!(answer(status, None, b""), CollectorAnswer::Refused { .. });
        assert!([429, 502, 503, 504].into_iter().all(later));
        assert!([301, 400, 401, 404, 413, 500].into_iter().all(refused));
        assert!(matches!(answer(200, None, b"\xff"), CollectorAnswer::Taken { rejected: 0, .. }));
        let partial_success =
            Some(PartialSuccess { rejected_spans: 3, error_message: "no".into() });
        let body = TracesResponse { partial_success }.encode_to_vec();
        let rejected = answer(200, None, &body);
        assert!(
            matches!(rejected, CollectorAnswer::Taken { rejected: 3, reason } if reason == "no")
        );
    }

    #[test]
    fn a_long_reason_of_the_collector_is_cut() {
        let partial_success =
            Some(PartialSuccess { rejected_spans: 1, error_message: "ä".repeat(20_000) });
        let body = TracesResponse { partial_success }.encode_to_vec();
        let CollectorAnswer::Taken { reason, .. } = answer(200, None, &body) else { panic!() };
        assert_eq!(reason, "ä".repeat(500));
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_named() {
        let headers = vec![("authorization".into(), "a\nb".into())];
        let config = Config { headers, ..crate::span_queue::tests::config(1, 1) };
        let error = CollectorClient::new(&config).err().unwrap().to_string();
        assert!(error.contains("\"authorization\"") && !error.contains("a\nb"), "{error}");
    }
}
