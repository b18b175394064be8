//! How a claimed job ends: the same enum from Ruby to the store.

use std::sync::Arc;

use crate::document::{Document, Fields};
use crate::limit::Limit;

/// How a claimed job ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It ran, or need not run any more.
    Ack,
    /// It failed, is not tried again and is not kept.
    Discard,
    /// It failed and is tried again: into the retry set.
    Retry {
        /// When it is due (s since 1970).
        at: f64,
        /// The document to store.
        payload: Vec<u8>,
    },
    /// It failed for good and is kept: into the dead set.
    Dead {
        /// Time of death (s since 1970).
        at: f64,
        /// The document to store; `None`: as it was claimed.
        payload: Option<Vec<u8>>,
    },
    /// It runs later (limited, snoozed): into the schedule. Not a failure.
    Reschedule {
        /// When it is due (s since 1970).
        at: f64,
        /// The document to store; `None`: as it was claimed.
        payload: Option<Vec<u8>>,
    },
    /// A limit denied it: into the schedule and the line of the limit, unless it can be called at once.
    Wait(Box<Wait>),
    /// Back to the front of its queue; not a failure. Several of one call keep
    /// their order: the lowest ticket is claimed first.
    Requeue {
        /// The document to store; `None`: as it was claimed.
        payload: Option<Vec<u8>>,
        /// The queue of a job that was not claimed from one ([`Ack::queue`] is empty).
        queue: Option<Arc<str>>,
    },
}

/// A job that waits behind a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// When it asks again though nobody has called it (s since 1970).
    pub at: f64,
    /// The document to store, with its place.
    pub payload: Vec<u8>,
    /// Its id.
    pub jid: String,
    /// What it waits for.
    pub behind: Limit,
    /// When it was first denied (s since 1970): jobs are called in this order.
    pub place: f64,
    /// It was never denied before, so that its rule is newer than the one of those that wait.
    pub is_new: bool,
    /// Now.
    pub now_s: f64,
}

impl Outcome {
    /// Back to the front of its queue, unchanged.
    pub fn requeue() -> Self {
        Self::Requeue { payload: None, queue: None }
    }

    /// Into the schedule, unchanged.
    pub fn reschedule(at: f64) -> Self {
        Self::Reschedule { at, payload: None }
    }

    /// Back to the set that a due job was claimed from: the retry set if it has failed before.
    pub fn back_to_set(doc: &Document, payload: Option<Vec<u8>>, at: f64) -> Self {
        let has_failed = Fields::parse(doc.payload()).is_ok_and(|f| f.get("retry_count").is_some());
        if has_failed {
            return Self::Retry { at, payload: payload.unwrap_or_else(|| doc.payload().to_vec()) };
        }
        Self::Reschedule { at, payload }
    }

    /// Whether it counts as a failed run.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Retry { .. } | Self::Dead { .. } | Self::Discard)
    }

    /// Whether it counts as a run; a job that only waits again does not.
    pub fn counts_as_run(&self) -> bool {
        self.is_failure() || *self == Self::Ack
    }

    /// Whether the job leaves the store.
    pub fn is_removal(&self) -> bool {
        matches!(self, Self::Ack | Self::Discard)
    }

    /// What it means for the job's batch; `None`: the job only waits again.
    pub fn batch_event(&self) -> Option<BatchEvent> {
        match self {
            Self::Ack => Some(BatchEvent::Done),
            Self::Retry { .. } => Some(BatchEvent::Failed),
            Self::Dead { .. } | Self::Discard => Some(BatchEvent::Died),
            Self::Reschedule { .. } | Self::Wait(_) | Self::Requeue { .. } => None,
        }
    }
}

/// The end of one claimed job, and what it releases.
#[derive(Clone, Debug, PartialEq)]
pub struct Ack {
    /// Its number in the owner's in-flight set.
    pub ticket: u64,
    /// The queue it was claimed from; empty when it came from the schedule or the retry set.
    pub queue: Arc<str>,
    /// How it ended.
    pub outcome: Outcome,
    /// `None` for nearly all jobs.
    pub effects: Option<Box<SideEffects>>,
}

impl Ack {
    /// Whether the job had a slot of a limit.
    pub(crate) fn releases_slot(&self) -> bool {
        self.effects.as_ref().is_some_and(|effects| !effects.release.is_empty())
    }

    /// Acknowledgements that only remove their jobs, and the others in the order in which stores apply them: as the jobs
    /// ended, so that this is the order of the callbacks of their batches; last those that go back, the lowest ticket at
    /// the end, which is the front of its queue then.
    pub(crate) fn in_order(acks: &[Self]) -> (Vec<&Self>, Vec<&Self>) {
        let is_plain = |ack: &&Self| ack.outcome.is_removal() && ack.effects.is_none();
        let (plain, mut others): (Vec<_>, Vec<_>) = acks.iter().partition(is_plain);
        others.sort_by_key(|ack| {
            matches!(ack.outcome, Outcome::Requeue { .. }).then_some(u64::MAX - ack.ticket)
        });
        (plain, others)
    }
}

/// What a job's end releases. Applied only if the in-flight entry still exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideEffects {
    /// A lock (key, jid) to give up.
    pub unlock: Option<(String, String)>,
    /// Concurrency limits of which it held a slot, or was called to take one.
    pub release: Vec<String>,
    /// The id of the job that releases them.
    pub jid: String,
    /// When (s since 1970).
    pub now_s: f64,
    /// The change of its batch's counts.
    pub batch: Option<BatchUpdate>,
}

impl SideEffects {
    /// What the end of this job releases. `granted_s`: it may hold slots of its concurrency limits, and ends now.
    pub fn of(
        doc: &Document,
        event: Option<BatchEvent>,
        granted_s: Option<f64>,
    ) -> Option<Box<Self>> {
        if doc.extra().is_none() && doc.bid().is_none() {
            return None;
        }
        let over = matches!(event, Some(BatchEvent::Done | BatchEvent::Died));
        let lock = doc.extra().filter(|_| over).and_then(|extra| extra.lock.clone());
        let limits = doc.extra().filter(|_| granted_s.is_some()).map(|extra| extra.limits());
        let limits = limits.unwrap_or_default().into_iter();
        let slots = limits.filter(|limit| limit.rule.is_concurrent());
        let release: Vec<String> = slots.map(|limit| limit.key).collect();
        let releases = !release.is_empty();
        let effects = Self {
            unlock: lock.map(|key| (key, doc.jid().to_string())),
            release,
            jid: if releases { doc.jid().to_string() } else { String::new() },
            now_s: granted_s.filter(|_| releases).unwrap_or_default(),
            batch: doc.bid().zip(event).map(|(bid, event)| BatchUpdate {
                bid: bid.to_string(),
                jid: doc.jid().to_string(),
                event,
            }),
        };
        (effects != Self::default()).then(|| Box::new(effects))
    }
}

/// A change of a batch's counts, caused by one of its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchUpdate {
    /// The batch.
    pub bid: String,
    /// The job.
    pub jid: String,
    /// What happened to the job.
    pub event: BatchEvent,
}

/// What happened to a job of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEvent {
    /// It succeeded (or was discarded by its own rule): no longer pending.
    Done,
    /// It failed and will be tried again.
    Failed,
    /// It failed for good.
    Died,
}
