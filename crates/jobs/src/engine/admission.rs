//! Admission of claimed jobs to the work queue: malformed ones go to the dead
//! set, expired ones are dropped, limits are acquired, suspects wait to run
//! alone. A suspect is a job that ran in several workers when they died.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock;
use chaton_core::work::Work;

use super::hand::{Ended, Suspect};
use super::job::Job;
use super::orphans;
use super::put_back;
use super::state::EngineState;
use crate::document::{Document, Malformed};
use crate::limit::Limit;
use crate::outcome::{Ack, Outcome, Wait};
use crate::store::line::APART_S;
use crate::store::{ClaimedJob, Grant, LimitRequest, Result, Store};

/// Longest wait of a suspect for the other jobs to end. Nothing is claimed
/// meanwhile; after it the suspect is rescheduled.
const SUSPECT_WAIT: Duration = Duration::from_secs(1);
/// The same for one whose turn it is: longer than most jobs.
const TURN_WAIT: Duration = Duration::from_secs(600);
/// Delay of a suspect that is rescheduled, least and most.
const SUSPECT_AGAIN_S: (f64, f64) = (5.0, 10.0);
/// The same after its turn, so that the others get at least as much time.
const TURN_AGAIN_S: (f64, f64) = (600.0, 1200.0);
/// Seconds between two lines of the log about jobs of a newer format.
const NEWER_LOG_S: f64 = 60.0;
/// Time after which a job in a line asks again though nobody has called it (s). Only when a line was lost.
const UNCALLED_S: f64 = 3600.0;

/// Claimed jobs after which a thread is woken before the others are admitted.
const FLUSH_AFTER: usize = 16;

/// Admits the jobs that one thread of the engine claims.
pub(super) struct Admission {
    state: Arc<EngineState>,
    /// When a job of a newer format was logged last (s).
    newer_logged_s: f64,
}

impl Admission {
    pub fn new(state: &Arc<EngineState>) -> Self {
        Self { state: state.clone(), newer_logged_s: 0.0 }
    }

    /// Admits claimed jobs. When the limiters fail, all jobs under limits go back to their queues.
    pub fn admit(&mut self, store: &mut dyn Store, claimed: Vec<ClaimedJob>) -> Result<()> {
        let mut limited = Vec::new();
        let mut any = false;
        for (index, one) in claimed.into_iter().enumerate() {
            // The others follow while a thread begins with these.
            if index == FLUSH_AFTER && std::mem::take(&mut any) {
                self.state.feed.flush();
            }
            let Some(job) = self.read(one) else { continue };
            if self.put_back_newer(&job) || self.drop_expired(&job) {
                continue;
            }
            let extra = job.document().extra();
            if !job.is_due() && extra.is_some_and(|extra| extra.is_limited()) {
                limited.push(job);
            } else {
                any |= self.route(job);
            }
        }
        let asked =
            if limited.is_empty() { Ok(()) } else { self.acquire(store, limited, &mut any) };
        if any {
            self.state.feed.flush();
        }
        asked
    }

    /// Submits a job, or lets it wait among the suspects. Whether it was submitted.
    fn route(&self, job: Arc<Job>) -> bool {
        if job.is_due() || !orphans::is_suspect(job.document()) {
            return self.submit(job);
        }
        let until_ns = |wait: Duration| clock::now_ns() + wait.as_nanos() as u64;
        let has_turn = has_turn(&job);
        let until_ns = until_ns(if has_turn { TURN_WAIT } else { SUSPECT_WAIT });
        let suspect = Suspect { job: job.clone(), until_ns };
        self.state.tell_fetcher(|inbox| inbox.suspects.push((suspect, has_turn)));
        if !has_turn {
            return false;
        }
        self.state.feed.warn(&format!(
            "jobs: {} has to run alone, because it ran each time that a worker died; it waits for the other jobs \
             to end, and this process claims none until it has run, for at most {} s",
            job.describe(),
            TURN_WAIT.as_secs()
        ));
        false
    }

    /// Starts the first suspect when no other job runs, and reschedules all of
    /// them when that takes too long. The store knows first which one it is.
    pub fn start_suspect(&self, store: &mut dyn Store) -> Result<()> {
        let mut hand = self.state.hand.write();
        let waiting = hand.suspects.len();
        let Some(&Suspect { until_ns, .. }) = hand.suspects.front() else { return Ok(()) };
        // Without the lease they are another's by now: a note about them would outlive this owner.
        if !self.state.holds_lease() || self.state.is_closing() {
            let left = std::mem::take(&mut hand.suspects);
            drop(hand);
            left.into_iter().for_each(|suspect| suspect.job.give_back());
            return Ok(());
        }
        if hand.running_alone.is_some() || hand.jobs.len() > waiting {
            if clock::now_ns() < until_ns {
                return Ok(());
            }
            let late = std::mem::take(&mut hand.suspects);
            drop(hand);
            late.into_iter().for_each(|suspect| self.reschedule(&suspect.job));
            return Ok(());
        }
        let Some(Suspect { job, until_ns }) = hand.suspects.pop_front() else { return Ok(()) };
        hand.running_alone = Some(job.ticket());
        hand.has_note = true;
        drop(hand);
        let turn = has_turn(&job).then(|| {
            let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
            let waited_s = TURN_WAIT.saturating_sub(left).as_secs_f64();
            format!("jobs: {} runs alone now, after {waited_s:.1} s", job.describe())
        });
        let noted = orphans::note_alone(store, &self.state.identity.name, job.ticket());
        if noted.is_err() {
            let mut hand = self.state.hand.write();
            hand.running_alone = None;
            hand.suspects.push_front(Suspect { job, until_ns });
        } else if self.submit(job) {
            self.state.warn(turn);
            self.state.feed.flush();
        }
        noted
    }

    /// Reschedules a suspect that found no moment to run alone, and counts that in its document.
    fn reschedule(&self, job: &Job) {
        let (from, to) = if has_turn(job) { TURN_AGAIN_S } else { SUSPECT_AGAIN_S };
        let at = self.state.now_s() + between(from, to);
        job.finish(Outcome::Reschedule { at, payload: orphans::visited(job.document()) });
    }

    fn read(&self, claimed: ClaimedJob) -> Option<Arc<Job>> {
        let ClaimedJob { ticket, queue, payload } = claimed;
        let payload: Arc<[u8]> = payload.into();
        match Document::parse(payload) {
            Ok(doc) => {
                let due = queue.is_empty();
                let queue = if due { Arc::from(doc.queue()) } else { queue };
                let job = Job::new(doc, ticket, queue, due, self.state.clone());
                self.state.inbox.lock().claimed.push(job.clone());
                self.state.unstarted_of(due).fetch_add(1, Ordering::AcqRel);
                Some(job)
            }
            Err(malformed) => {
                self.move_to_dead(ticket, queue, &malformed);
                None
            }
        }
    }

    /// Sends a malformed document to the dead set unchanged.
    fn move_to_dead(&self, ticket: u64, queue: Arc<str>, malformed: &Malformed) {
        self.state.counters.malformed.fetch_add(1, Ordering::Relaxed);
        let line =
            format!("jobs: {} (queue {queue}); it is in the dead set unchanged", malformed.0);
        self.state.feed.warn(&line);
        let outcome = Outcome::Dead { payload: None, at: self.state.now_s() };
        let ack = Ack { ticket, queue, outcome, effects: None };
        self.state.inbox.lock().ended.push(Ended { ack, run: None, written: false });
    }

    /// Puts back a job whose document a later version wrote. Whether it did.
    fn put_back_newer(&mut self, job: &Arc<Job>) -> bool {
        let doc = job.document();
        if job.is_due() || !doc.is_newer() {
            return false;
        }
        let now_s = self.state.now_s();
        if !job.put_back() {
            job.finish(put_back::bury(doc, now_s));
        }
        if now_s - self.newer_logged_s >= NEWER_LOG_S {
            self.newer_logged_s = now_s;
            self.state.feed.warn(&format!(
                "jobs: {} jid={} has a document of a later version of Chaton (format {}); such jobs are put back, for a \
                 day at most, for a process of that version",
                doc.class(),
                doc.jid(),
                doc.extra().map_or(0, |extra| extra.format)
            ));
        }
        true
    }

    /// Acknowledges a job that has expired. Whether it had.
    fn drop_expired(&self, job: &Arc<Job>) -> bool {
        let expires_at = job.document().extra().and_then(|extra| extra.expires_at);
        let expired = !job.is_due() && expires_at.is_some_and(|at| at <= self.state.now_s());
        if expired {
            self.state.counters.expired.fetch_add(1, Ordering::Relaxed);
            job.finish(Outcome::Ack);
        }
        expired
    }

    fn submit(&self, job: Arc<Job>) -> bool {
        // It was claimed before the engine became quiet.
        if self.state.is_closing() {
            job.give_back();
            return false;
        }
        match self.state.feed.submit(job) {
            Ok(()) => true,
            Err(job) => {
                if job.is_due() {
                    self.state.refuse_due();
                }
                job.give_back();
                self.state.counters.given_back.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    fn acquire(&self, store: &mut dyn Store, jobs: Vec<Arc<Job>>, any: &mut bool) -> Result<()> {
        let now_s = self.state.now_s();
        let limits: Vec<Vec<Limit>> = jobs.iter().map(|job| job.limits()).collect();
        // Those that were never denied go in the order of their claims.
        let place = |index, job: &Job| job.since_s().unwrap_or(now_s + index as f64 * APART_S);
        let asks: Vec<LimitRequest<'_>> = jobs
            .iter()
            .zip(&limits)
            .enumerate()
            .map(|(index, (job, limits))| LimitRequest {
                ticket: job.ticket(),
                jid: job.document().jid(),
                place: place(index, job),
                limits,
            })
            .collect();
        let grants = match store.acquire(&self.state.identity.name, &asks, now_s) {
            Ok(grants) => grants,
            Err(error) => {
                // The limiters may have granted slots though the reply was lost.
                jobs.iter().for_each(|job| {
                    job.grant();
                    job.give_back();
                });
                return Err(error);
            }
        };
        let places: Vec<f64> = asks.iter().map(|ask| ask.place).collect();
        for (index, (job, grant)) in jobs.into_iter().zip(grants).enumerate() {
            match grant {
                Grant::Now => {
                    job.grant();
                    *any |= self.route(job);
                }
                Grant::Behind { limit, .. } => {
                    self.state.counters.limited.fetch_add(1, Ordering::Relaxed);
                    let doc = job.document();
                    let payload = doc.waiting(Some(places[index]));
                    job.finish(Outcome::Wait(Box::new(Wait {
                        at: now_s + UNCALLED_S + index as f64 * APART_S,
                        payload: payload.unwrap_or_else(|| doc.payload().to_vec()),
                        jid: doc.jid().to_string(),
                        behind: limits[index][limit].clone(),
                        place: places[index],
                        is_new: job.since_s().is_none(),
                        now_s,
                    })));
                }
            }
        }
        Ok(())
    }
}

/// Whether it is the turn of a suspect: see [`Extra::has_turn`](crate::document::Extra::has_turn).
fn has_turn(job: &Job) -> bool {
    job.document().extra().is_some_and(|extra| extra.has_turn())
}

/// A time between two others (s).
fn between(from_s: f64, to_s: f64) -> f64 {
    // The clock's last digits are random enough.
    from_s + (to_s - from_s) * (clock::now_ns() % 1_000_000) as f64 / 1e6
}
