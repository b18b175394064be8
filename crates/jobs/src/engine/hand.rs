//! What the fetcher has in hand, and the messages by which it learns what others did.
//!
//! Jobs, the other threads of the engine and its callers add to the [`Inbox`]. Only the fetcher takes from it, into its
//! [`Hand`], which all may read. Where both are locked, the hand is first, so that no message is seen in neither.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use super::job::{Job, Run};
use crate::outcome::Outcome;
use crate::store::Ack;

/// Jobs that ended without an acknowledgement and are remembered.
const UNACKNOWLEDGED_MAX: usize = 10_000;

/// A job that ended, or a malformed one that never was one.
pub(super) struct Ended {
    pub ack: Ack,
    /// `None`: it was not started.
    pub run: Option<Run>,
    /// The store has the acknowledgement.
    pub written: bool,
}

/// A suspect that waits until it can run alone.
pub(super) struct Suspect {
    pub job: Arc<Job>,
    /// When it is rescheduled (ns).
    pub until_ns: u64,
}

/// Messages to the fetcher. Each claimed job leaves at most three, so that they are bounded as those are.
#[derive(Default)]
pub(super) struct Inbox {
    /// Claimed jobs.
    pub claimed: Vec<Arc<Job>>,
    /// Suspects among them, and whether it is their turn.
    pub suspects: Vec<(Suspect, bool)>,
    /// What ended, in this order.
    pub ended: Vec<Ended>,
    /// Tickets of jobs that stay in flight though the engine has given them up.
    pub left: Vec<u64>,
    /// Locks (key, jid) to give up because their job started.
    pub unlocks: Vec<(String, String)>,
    /// Claim again though the queues were empty.
    pub look: bool,
    /// A queue got a job that comes before those of the claimed jobs.
    pub preempt: bool,
    pub doubts: Doubts,
    /// Tickets, first and one past the last, under which the maintenance thread claims due jobs now.
    pub due_claim: Option<(u64, u64)>,
}

impl Inbox {
    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        let told = self.look || self.preempt || self.doubts.compare;
        let jobs = self.claimed.is_empty() && self.ended.is_empty() && self.left.is_empty();
        !told && jobs && self.suspects.is_empty() && self.unlocks.is_empty()
    }
}

/// Why the in-flight set in the store may differ from the jobs in hand.
#[derive(Clone, Copy, Default)]
pub(super) struct Doubts {
    /// Compare them before the next call: a call had no reply, or the store may have lost its last writes.
    pub compare: bool,
    /// The first ticket of the claims whose reply was lost.
    pub lost_from: Option<u64>,
}

impl Doubts {
    /// Notes that the reply to a claim with this first ticket was lost.
    pub fn note_lost_claim(&mut self, ticket: u64) {
        self.add(Self { compare: true, lost_from: Some(ticket) });
    }

    pub fn add(&mut self, other: Self) {
        self.compare |= other.compare;
        self.lost_from = self.lost_from.into_iter().chain(other.lost_from).min();
    }
}

/// What the fetcher knows.
#[derive(Default)]
pub(super) struct Hand {
    /// Claimed and not ended, by ticket.
    pub jobs: FxHashMap<u64, Arc<Job>>,
    /// Ended and not yet acknowledged to the store.
    pub acks: Vec<Ack>,
    /// When the first of them ended (ns).
    pub acks_since_ns: u64,
    /// Acknowledgements in the call that runs now.
    pub acks_in_write: usize,
    /// Locks (key, jid) to give up because their job started.
    pub unlocks: Vec<(String, String)>,
    /// They wait until they can run alone.
    pub suspects: VecDeque<Suspect>,
    /// Ticket of the suspect that runs alone.
    pub running_alone: Option<u64>,
    /// The store has a note about a suspect that ran alone.
    pub has_note: bool,
    /// A claim has no reply yet.
    pub claims: bool,
    /// See [`Inbox::due_claim`].
    pub due_claim: Option<(u64, u64)>,
    pub doubts: Doubts,
    /// Jobs that ran when the engine gave them up, by ticket: they stay in flight.
    pub left: HashSet<u64>,
    /// Jobs that ended in another way than [`Outcome::Ack`], by ticket.
    unacknowledged: BTreeSet<u64>,
    /// The first ticket from which `unacknowledged` is complete.
    remembered_from: u64,
    /// Mean time of a run in ns; 0 while unknown.
    pub service_ns: f64,
    /// A slot of a limit was released, and the first job of its line may be in its queue now.
    pub slot_released: bool,
    /// The last claim found all queues empty.
    pub queues_empty: bool,
    /// Under strict order, the queues before the lowest one that claimed jobs came from.
    pub higher_queues: Vec<Arc<str>>,
    /// One of `higher_queues` got a job.
    pub preempt: bool,
}

/// The fetcher's hand. All may read it.
#[derive(Default)]
pub(super) struct HandCell(Mutex<Hand>);

impl HandCell {
    /// To read.
    pub fn read(&self) -> impl Deref<Target = Hand> + '_ {
        self.0.lock()
    }

    /// Only for the fetcher, and for the maintenance thread once that has ended.
    pub fn write(&self) -> MutexGuard<'_, Hand> {
        self.0.lock()
    }
}

impl Hand {
    /// Adds an acknowledgement to write, of what ended at this time (ns).
    pub fn push_ack(&mut self, ack: Ack, ended_ns: u64) {
        if self.acks.is_empty() {
            self.acks_since_ns = ended_ns;
        }
        if ack.outcome != Outcome::Ack {
            self.unacknowledged.insert(ack.ticket);
        }
        if self.unacknowledged.len() > UNACKNOWLEDGED_MAX {
            self.remembered_from = self.unacknowledged.pop_first().map_or(0, |first| first + 1);
        }
        self.acks.push(ack);
    }

    /// Whether a job that is not in hand any more has ended with [`Outcome::Ack`].
    pub fn was_acknowledged(&self, ticket: u64) -> bool {
        ticket >= self.remembered_from && !self.unacknowledged.contains(&ticket)
    }

    /// Whether no suspect waits or runs.
    pub fn has_no_suspect(&self) -> bool {
        self.suspects.is_empty() && self.running_alone.is_none()
    }

    /// Takes acknowledgements back, to be written before the others.
    pub fn return_acks(&mut self, acks: Vec<Ack>) {
        let newer = std::mem::replace(&mut self.acks, acks);
        self.acks.extend(newer);
    }

    /// Whether nothing is claimed, running or unwritten.
    pub fn is_idle(&self) -> bool {
        let written = self.acks.is_empty() && self.acks_in_write == 0;
        self.jobs.is_empty() && !self.claims && written
    }
}
