//! When one broker refuses the credentials or TLS, finds out whether another one accepts them.

use std::sync::mpsc::{self, Receiver};
use std::sync::Arc;
use std::time::Duration;

use super::config::Config;
use super::raw::{requests, ClientHandle, ErrorCode, KafkaError};

/// Whether a broker refuses this client.
pub fn is_refusal(error: &KafkaError) -> bool {
    matches!(error.code, ErrorCode::Authentication | ErrorCode::SSL) && !error.fatal
}

/// Asks the brokers, one question at a time. It does so on another thread, because librdkafka waits
/// for the answer.
pub struct RefusalCheck {
    handle: Arc<ClientHandle>,
    timeout: Duration,
    pending: Option<(KafkaError, Receiver<bool>)>,
}

impl RefusalCheck {
    pub fn new(handle: &Arc<ClientHandle>, config: &Config) -> Self {
        let timeout = config.settings.refused_timeout;
        Self { handle: handle.clone(), timeout, pending: None }
    }

    /// Begins, unless a question is under way. `notify` is called when there is an answer.
    pub fn start(&mut self, refusal: &KafkaError, notify: impl FnOnce() + Send + 'static) {
        if self.pending.is_some() {
            return;
        }
        let (sender, receiver) = mpsc::channel();
        let (handle, timeout) = (self.handle.clone(), self.timeout);
        let ask = move || {
            let _ = sender.send(requests::is_answered(&handle, timeout));
            notify();
        };
        // Without a thread the next refusal tries again.
        if chaton_core::thread::spawn("chaton-kafka-ask", ask).is_ok() {
            self.pending = Some((refusal.clone(), receiver));
        }
    }

    /// The refusal, and whether another broker accepts this client, once that is known.
    pub fn answer(&mut self) -> Option<(KafkaError, bool)> {
        let accepted = self.pending.as_ref()?.1.try_recv().ok()?;
        self.pending.take().map(|(refusal, _)| (refusal, accepted))
    }
}
