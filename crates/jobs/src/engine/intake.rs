//! How the fetcher takes its messages.

use chaton_core::clock::now_ns;
use chaton_core::process::counters::add;

use super::hand::{Ended, Hand, Inbox};
use super::job::Run;
use super::job_log::JobLog;
use super::state::EngineState;

/// Weight of the newest run in the mean time of a job.
const SERVICE_WEIGHT: f64 = 0.05;

/// Takes messages out of the [`Inbox`], into the [`Hand`].
pub(super) struct Intake {
    /// Those that were taken last, of which only the memory is left.
    taken: Inbox,
    /// The lines about ended jobs that are not written yet.
    pub log: JobLog,
}

impl Intake {
    pub fn new(state: &EngineState) -> Self {
        Self { taken: Inbox::default(), log: JobLog::new(state.config.log) }
    }

    /// Takes all messages.
    pub fn take(&mut self, state: &EngineState) {
        let mut hand = state.hand.write();
        let mut inbox = state.inbox.lock();
        // That claim goes on.
        let due_claim = inbox.due_claim;
        std::mem::swap(&mut *inbox, &mut self.taken);
        inbox.due_claim = due_claim;
        drop(inbox);
        hand.due_claim = due_claim;
        self.apply(&mut hand, state);
        let has_suspect = !hand.has_no_suspect();
        drop(hand);
        state.show_suspect(has_suspect);
        state.idle_wait.changed();
    }

    fn apply(&mut self, hand: &mut Hand, state: &EngineState) {
        let Self { taken, log } = self;
        hand.jobs.extend(taken.claimed.drain(..).map(|job| (job.ticket(), job)));
        for (suspect, has_turn) in taken.suspects.drain(..) {
            match has_turn {
                true => hand.suspects.push_front(suspect),
                false => hand.suspects.push_back(suspect),
            }
        }
        taken.ended.drain(..).for_each(|ended| end(hand, ended, log, state));
        for ticket in taken.left.drain(..) {
            hand.jobs.remove(&ticket);
            hand.left.insert(ticket);
        }
        hand.unlocks.append(&mut taken.unlocks);
        hand.queues_empty &= !std::mem::take(&mut taken.look);
        hand.preempt |= std::mem::take(&mut taken.preempt);
        hand.doubts.add(std::mem::take(&mut taken.doubts));
    }
}

/// Takes in that a job has ended.
fn end(hand: &mut Hand, ended: Ended, log: &mut JobLog, state: &EngineState) {
    let Ended { ack, run, written } = ended;
    if let Some(job) = hand.jobs.remove(&ack.ticket) {
        let due = ack.queue.is_empty();
        let (runs, fails) = (!due && ack.outcome.counts_as_run(), ack.outcome.is_failure());
        if runs {
            add(&state.counters.processed, 1);
            add(&state.counters.failed, u64::from(fails));
        }
        if job.failed_without_line() {
            log.add_failed();
        }
        if let Some(run) = run.filter(|_| !due) {
            if job.ran_well(&ack.outcome) {
                log.add_done(&job, run);
            }
            if runs {
                state.count_run(&job, run, fails);
            }
        }
    }
    if hand.running_alone == Some(ack.ticket) {
        hand.running_alone = None;
    }
    hand.slot_released |= ack.releases_slot();
    if let Some(Run { ran_ns, .. }) = run {
        let ran = ran_ns as f64;
        let old = if hand.service_ns == 0.0 { ran } else { hand.service_ns };
        hand.service_ns = old + SERVICE_WEIGHT * (ran - old);
    }
    if !written {
        hand.push_ack(ack, run.map_or_else(now_ns, |run| run.ended_ns));
    }
}
