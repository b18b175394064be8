//! Jobs in the store: lists of them, and what a person does with them.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;

/// How long a request waits for the store.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A job of a list. Its arguments, which may be secret, are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoredJob {
    /// Its id.
    pub jid: String,
    /// Its class.
    pub class: String,
    /// Its queue.
    pub queue: String,
    /// When it is due, or died (s since 1970); 0 in a queue.
    pub at: f64,
    /// When it was enqueued (s since 1970).
    pub enqueued_at: Option<f64>,
    /// How often it has failed.
    pub failures: Option<u64>,
    /// Its last error.
    pub error: Option<String>,
}

/// What is done with stored jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    /// They go back to their queues.
    Retry,
    /// They are removed.
    Delete,
}

/// A connection to the store. A call may block for as long as the store's own time limits allow. Places are
/// `queue:NAME`, `scheduled`, `retry` and `dead`; errors are for people.
pub trait JobSource: Send {
    /// A page of a place.
    ///
    /// # Errors
    /// Why the store gives none.
    fn list(&mut self, place: &str, offset: usize, count: usize) -> Result<Vec<StoredJob>, String>;

    /// Acts on one job, which stood at about `offset`; false: it is gone.
    ///
    /// # Errors
    /// Why the store does not.
    fn act(
        &mut self,
        action: JobAction,
        place: &str,
        jid: &str,
        offset: usize,
    ) -> Result<bool, String>;

    /// Acts on the first jobs of a place, on `count` at most and for a few seconds at most; returns on how many.
    ///
    /// # Errors
    /// Why the store does not.
    fn act_on_all(&mut self, action: JobAction, place: &str, count: usize)
        -> Result<usize, String>;

    /// Stops or resumes the claiming of a queue's jobs.
    ///
    /// # Errors
    /// Why the store does not.
    fn pause(&mut self, queue: &str, paused: bool) -> Result<(), String>;
}

/// Makes calls to a [`JobSource`], one at a time.
#[derive(Clone)]
pub(crate) struct StoredJobs(Arc<Mutex<Box<dyn JobSource>>>);

impl StoredJobs {
    pub fn new(source: Box<dyn JobSource>) -> Self {
        Self(Arc::new(Mutex::new(source)))
    }

    /// A call that lasts too long goes on, and the next one waits for it.
    pub async fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn JobSource) -> Result<R, String> + Send + 'static,
    ) -> Result<R, String> {
        let source = self.0.clone();
        let called = async move {
            let mut source = source.lock_owned().await;
            tokio::task::spawn_blocking(move || call(source.as_mut())).await
        };
        let seconds = ANSWER_MAX.as_secs();
        match tokio::time::timeout(ANSWER_MAX, called).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the call to the store has failed".to_owned()),
            Err(_) => Err(format!("the store has not answered within {seconds} s")),
        }
    }
}
