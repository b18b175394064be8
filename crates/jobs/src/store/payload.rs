//! What the stores read in a job's document.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::traits::Result;
use super::types::{JobEntry, JobLocation};
use super::StoreError;
use crate::document::{stamped, Document, Fields};

/// Priorities go from minus this to this; what lies beyond counts as one of these.
pub(super) const PRIORITY_MAX: i16 = 255;

/// The place of a job among those of its queue, the smallest number first: `{"chaton":{"priority":-5}}`. Most documents
/// have none, which a search for the two names shows: it costs 20 ns.
pub(super) fn priority_of(payload: &[u8]) -> i16 {
    static NAMES: LazyLock<[Finder<'_>; 2]> =
        LazyLock::new(|| ["\"chaton\":", "\"priority\":"].map(Finder::new));
    if NAMES.iter().any(|name| name.find(payload).is_none()) {
        return 0;
    }
    let fields = Fields::parse(payload).ok();
    let extra = fields.as_ref().and_then(|fields| fields.get("chaton"));
    let number = extra.and_then(|extra| Fields::parse(extra.as_bytes()).ok()?.number("priority"));
    let max = f64::from(PRIORITY_MAX);
    number.map_or(0, |number| number.clamp(-max, max) as i16)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_member_of_chaton_gives_a_priority() {
        let of = |json: &str| priority_of(json.as_bytes());
        assert_eq!(of(r#"{"args":[],"chaton":{"limits":[],"priority":-5}}"#), -5);
        assert_eq!(of(r#"{"chaton" : {"priority": 7}}"#), 0, "written by nobody like this");
        assert_eq!(of(r#"{"chaton": {"priority": 7}}"#), 7);
        assert_eq!(of(r#"{"chaton":{"priority":9999}}"#), 255);
        assert_eq!(of(r#"{"chaton":{"priority":-1e300}}"#), -255);
        for none in [
            r#"{"args":[{"priority":3,"chaton":{"priority":3}}],"priority":3}"#,
            r#"{"args":[{"priority":3}],"chaton":{"lock":"k"}}"#,
            r#"{"chaton":{"priority":null}}"#,
            r#"{"chaton":{"priority":"3"}}"#,
            r#"{"chaton":"priority","priority":3}"#,
            r#""chaton":{"priority":3}"#,
            "",
        ] {
            assert_eq!(of(none), 0, "{none}");
        }
    }
}
