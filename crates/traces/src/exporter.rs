//! The thread that sends spans to the collector.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chaton_core::backoff::Backoff;
use chaton_core::log::{self, FieldValue};
use chaton_core::thread;
use prost::Message;

use crate::collector_client::{CollectorAnswer, CollectorClient};
use crate::config::Config;
use crate::otlp::{
    Attribute, ProcessResource, ResourceSpans, ScopeSpans, Span, SpanScope, TracesRequest,
    TypedValue,
};
use crate::span_queue::SpanQueue;

/// Pauses while the collector is away.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Lines in the log about spans that are lost: one in this time.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The running thread. It ends with [`SpanQueue::stop`].
pub struct Exporter {
    _thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the operating system gives none, or a header cannot be sent.
    pub fn start(config: Config, queue: Arc<SpanQueue>) -> io::Result<Self> {
        let sender = Sender {
            client: CollectorClient::new(&config)?,
            endpoint: config.endpoint,
            timeout: config.timeout,
            resource: resource(&config.resource),
            scope: SpanScope { name: "chaton".into(), version: config.version },
            queue,
            reported_at: None,
        };
        let thread = thread::spawn("chaton-traces", move || sender.run())?;
        Ok(Self { _thread: Some(thread) })
    }

    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self { _thread: None }
    }
}

struct Sender {
    client: CollectorClient,
    endpoint: String,
    timeout: Duration,
    resource: ProcessResource,
    scope: SpanScope,
    queue: Arc<SpanQueue>,
    reported_at: Option<Instant>,
}

impl Sender {
    fn run(mut self) {
        while let Some(batch) = self.queue.next_batch() {
            let body = self.encode(batch);
            self.send(&body);
        }
        self.queue.ended();
    }

    fn encode(&self, batch: Vec<Span>) -> Vec<u8> {
        let scope_spans = vec![ScopeSpans { scope: Some(self.scope.clone()), spans: batch }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans }];
        TracesRequest { resource_spans }.encode_to_vec()
    }

    /// Tries until the collector has taken or refused the batch, or the time of a stop has passed.
    fn send(&mut self, body: &[u8]) {
        let mut backoff = Backoff::new(PAUSE_FIRST, PAUSE_MAX);
        loop {
            let left = self.queue.time_left();
            if left.is_some_and(|left| left.is_zero()) {
                return self.queue.give_up();
            }
            match self.client.post(body, left.map_or(self.timeout, |left| left.min(self.timeout))) {
                CollectorAnswer::Taken { rejected, reason } => {
                    self.queue.sent(rejected);
                    return self.report(&reason);
                }
                CollectorAnswer::Refused { reason } => {
                    self.queue.give_up();
                    return self.report(&reason);
                }
                CollectorAnswer::Later { reason, after } => {
                    self.report(&reason);
                    let (pause, _) = backoff.failed(&reason);
                    self.queue.pause(after.unwrap_or_default().clamp(pause, PAUSE_MAX));
                    if left.is_some() {
                        // It was tried once more.
                        return self.queue.give_up();
                    }
                }
            }
        }
    }

    /// Writes a line about spans that were lost, if it is time for one.
    fn report(&mut self, reason: &str) {
        if self.reported_at.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        let dropped = self.queue.take_unreported();
        if dropped == 0 && reason.is_empty() {
            return;
        }
        self.reported_at = Some(Instant::now());
        let reason = if reason.is_empty() { "the queue was full" } else { reason };
        log::warn_with(
            "spans did not reach the collector of traces",
            &[
                ("endpoint", FieldValue::Text(&self.endpoint)),
                ("dropped", FieldValue::Count(dropped as u64)),
                ("reason", FieldValue::Text(reason)),
            ],
        );
    }
}

fn resource(attributes: &[(String, String)]) -> ProcessResource {
    let attribute =
        |(key, value): &(String, String)| Attribute::new(key, TypedValue::Text(value.clone()));
    ProcessResource { attributes: attributes.iter().map(attribute).collect() }
}
