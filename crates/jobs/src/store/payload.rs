//! What the stores read in a job's document.

use super::error::StoreError;
use super::traits::Result;
use super::types::{JobEntry, JobLocation};
use crate::document::{stamped, Document, Fields};

/// The lock and the batch that a document names.
#[derive(Default)]
pub(super) struct JobResources {
    pub jid: String,
    pub lock: Option<String>,
    pub bid: Option<String>,
}

impl JobResources {
    /// Nothing for what is no job document.
    pub fn of(payload: &[u8]) -> Self {
        let Ok(job) = Document::parse(payload.into()) else { return Self::default() };
        Self {
            jid: job.jid().into(),
            lock: job.extra().and_then(|extra| extra.lock.clone()),
            bid: job.bid().map(Into::into),
        }
    }
}

/// The jid in a document; empty when there is none.
pub(super) fn jid_of(payload: &[u8]) -> String {
    Fields::parse(payload).ok().and_then(|fields| fields.text("jid")).unwrap_or_default()
}

/// Whether this is the document of that job.
pub(super) fn has_jid(payload: &[u8], jid: &str) -> bool {
    // Searching the text first is much faster than reading every document.
    let named = !jid.is_empty() && payload.windows(jid.len()).any(|part| part == jid.as_bytes());
    named && Fields::parse(payload).is_ok_and(|f| f.text("jid").as_deref() == Some(jid))
}

/// The queue that a document names, `default` where it names none.
pub(super) fn named_queue(payload: &[u8]) -> String {
    let named = Fields::parse(payload).ok().and_then(|fields| fields.text("queue"));
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".into())
}

/// # Errors
/// When it is a queue, whose jobs have no time.
pub(super) fn set_only(location: &JobLocation) -> Result<()> {
    match location {
        JobLocation::Queue(_) => {
            Err(StoreError::refused("jobs of a queue have no time: use scheduled, retry or dead"))
        }
        _ => Ok(()),
    }
}

/// Queue and new document of an entry that is requeued by hand.
///
/// # Errors
/// When it names no queue and came from none.
pub(super) fn requeued(
    from: &JobLocation,
    entry: &JobEntry,
    now_s: f64,
    format: u8,
) -> Result<(String, Vec<u8>)> {
    match (stamped(&entry.payload, now_s, format, *from == JobLocation::Retry), from) {
        (Some((_, payload)), JobLocation::Queue(queue)) => Ok((queue.clone(), payload)),
        (Some(requeued), _) => Ok(requeued),
        (None, JobLocation::Queue(queue)) => Ok((queue.clone(), entry.payload.clone())),
        (None, _) => Err(StoreError::refused(
            "this entry is no job document with a queue: it can only be removed",
        )),
    }
}
