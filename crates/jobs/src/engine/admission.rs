//! What happens to a job between its claim and the queue: broken ones go to
//! the dead set, expired ones are dropped, limits are asked, suspects wait to
//! run alone.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::clock;

use super::job::Job;
use super::state::EngineState;
use crate::document::{Document, Malformed};
use crate::limit::Limit;
use crate::outcome::{Ack, Outcome};
use crate::store::{ClaimedJob, Grant, LimitRequest, Result, Store};
use chaton_core::random::Random;

/// A job that was running in so many workers when they died runs alone.
pub(super) const SUSPECT_DEATHS: u32 = 2;
/// Longest wait of a suspect for the others to end: until then nothing is
/// claimed. After it others may find a better moment.
pub(super) const SUSPECT_WAIT: Duration = Duration::from_secs(1);
/// When a suspect that waited in vain comes again, at the earliest and latest.
const SUSPECT_AGAIN_S: (f64, f64) = (5.0, 10.0);
/// Jobs over a limit that may come back in one `limit_retry`; later ones are
/// spread behind them.
const RETRY_GROUP: u32 = 100;
/// Keys of limits whose waiting jobs are spread.
const KEYS_MAX: usize = 10_000;

/// The way in.
pub(super) struct Admission {
    shared: Arc<EngineState>,
    random: Random,
    /// Limit → jobs sent away lately, and since when (s).
    denied: HashMap<String, (u32, f64)>,
}

impl Admission {
    pub fn new(shared: &Arc<EngineState>) -> Self {
        Self { shared: shared.clone(), random: Random::new(), denied: HashMap::new() }
    }

    /// Takes claimed jobs in. On an error of the limiters all jobs that asked
    /// go back to their queues.
    pub fn admit(&mut self, store: &mut dyn Store, claimed: Vec<ClaimedJob>) -> Result<()> {
        let mut limited = Vec::new();
        let mut any = false;
        for one in claimed {
            let Some(job) = self.read(one) else { continue };
            if !self.is_wanted(&job) {
                continue;
            }
            let extra = job.document().extra();
            if !job.is_due() && extra.is_some_and(|extra| !extra.limits.is_empty()) {
                limited.push(job);
            } else {
                any |= self.route(job);
            }
        }
        let asked = if limited.is_empty() { Ok(()) } else { self.ask(store, limited, &mut any) };
        if any {
            self.shared.sink.flush();
        }
        asked
    }

    /// Into the queue, or among the suspects.
    fn route(&self, job: Arc<Job>) -> bool {
        let deaths = job.document().extra().map_or(0, |extra| extra.deaths);
        if job.is_due() || deaths < SUSPECT_DEATHS {
            return self.submit(job);
        }
        self.shared.locked.lock().suspects.push_back((job, clock::now_ns()));
        false
    }

    /// Lets the first suspect run when nothing else does, and sends it away
    /// when that does not come.
    pub fn start_suspect(&self) {
        let mut locked = self.shared.locked.lock();
        let waiting = locked.suspects.len();
        let Some((_, since_ns)) = locked.suspects.front() else { return };
        if locked.alone.is_some() || locked.jobs.len() > waiting {
            if clock::now_ns() - since_ns < SUSPECT_WAIT.as_nanos() as u64 {
                return;
            }
            let late: Vec<_> = locked.suspects.drain(..).collect();
            drop(locked);
            late.into_iter().for_each(|(job, _)| self.postpone(&job));
            return;
        }
        let Some((job, _)) = locked.suspects.pop_front() else { return };
        locked.alone = Some(job.ticket());
        drop(locked);
        if self.submit(job) {
            self.shared.sink.flush();
        }
    }

    fn postpone(&self, job: &Job) {
        // Spread by the clock's last digits: that is enough.
        let (from, to) = SUSPECT_AGAIN_S;
        let share = (clock::now_ns() % 1_000_000) as f64 / 1e6;
        let at = self.shared.wall_s() + from + (to - from) * share;
        job.finish(Outcome::Reschedule { at });
    }

    fn read(&self, claimed: ClaimedJob) -> Option<Arc<Job>> {
        let ClaimedJob { ticket, queue, payload } = claimed;
        let payload: Arc<[u8]> = payload.into();
        match Document::parse(payload) {
            Ok(doc) => {
                let due = queue.is_empty();
                let queue = if due { Arc::from(doc.queue()) } else { queue };
                let job = Job::new(doc, ticket, queue, due, &self.shared);
                self.shared.locked.lock().jobs.insert(ticket, job.clone());
                self.shared.unstarted.fetch_add(1, Ordering::AcqRel);
                Some(job)
            }
            Err(malformed) => {
                self.move_to_dead(ticket, queue, &malformed);
                None
            }
        }
    }

    /// A broken document goes to the dead set as it is.
    fn move_to_dead(&self, ticket: u64, queue: Arc<str>, malformed: &Malformed) {
        self.shared.counters.malformed.fetch_add(1, Ordering::Relaxed);
        self.shared
            .sink
            .warn(&format!("jobs: {} (queue {queue}); it is in the dead set, whole", malformed.0));
        let outcome = Outcome::Dead { payload: None, at: self.shared.wall_s() };
        let ack = Ack { ticket, queue, outcome, effects: None };
        let mut locked = self.shared.locked.lock();
        if locked.acks.is_empty() {
            locked.acks_since_ns = clock::now_ns();
        }
        locked.acks.push(ack);
    }

    fn is_wanted(&self, job: &Arc<Job>) -> bool {
        let expires_at = job.document().extra().and_then(|extra| extra.expires_at);
        if job.is_due() || expires_at.is_none_or(|at| at > self.shared.wall_s()) {
            return true;
        }
        self.shared.counters.expired.fetch_add(1, Ordering::Relaxed);
        job.finish(Outcome::Ack);
        false
    }

    fn submit(&self, job: Arc<Job>) -> bool {
        // Claimed before somebody said quiet: it is not started any more.
        let locked = self.shared.locked.lock();
        let taken = !locked.quiet && !locked.stopping;
        drop(locked);
        if !taken {
            job.abandon();
            return false;
        }
        match self.shared.sink.submit(job) {
            Ok(()) => true,
            Err(job) => {
                job.abandon();
                self.shared.counters.given_back.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    fn ask(&mut self, store: &mut dyn Store, jobs: Vec<Arc<Job>>, any: &mut bool) -> Result<()> {
        let now_s = self.shared.wall_s();
        let limits: Vec<Vec<Limit>> = jobs.iter().map(|job| job.limits()).collect();
        let asks: Vec<LimitRequest<'_>> = jobs
            .iter()
            .zip(&limits)
            .map(|(job, limits)| LimitRequest { ticket: job.ticket(), limits })
            .collect();
        let grants = match store.acquire(&self.shared.identity.name, &asks, now_s) {
            Ok(grants) => grants,
            Err(error) => {
                // The answer may be lost, not the slots: they are given back too.
                jobs.iter().for_each(|job| {
                    job.grant();
                    job.abandon();
                });
                return Err(error);
            }
        };
        for ((job, limits), grant) in jobs.into_iter().zip(&limits).zip(grants) {
            match grant {
                Grant::Now => {
                    job.grant();
                    *any |= self.route(job);
                }
                Grant::At(at) => {
                    self.shared.counters.limited.fetch_add(1, Ordering::Relaxed);
                    let at = at.unwrap_or_else(|| self.next_try_s(limits, now_s));
                    job.finish(Outcome::Reschedule { at });
                }
            }
        }
        Ok(())
    }

    /// When a job asks again whose slot nobody can foretell: the more were
    /// sent away lately, the later, so that they do not come all at once.
    fn next_try_s(&mut self, limits: &[Limit], now_s: f64) -> f64 {
        let pause = self.shared.config.limit_retry.as_secs_f64();
        if self.denied.len() > KEYS_MAX {
            self.denied.clear();
        }
        let key = limits.first().map(|limit| limit.key.clone()).unwrap_or_default();
        let (count, since) = self.denied.entry(key).or_insert((0, now_s));
        if now_s - *since > pause {
            (*count, *since) = (0, now_s);
        }
        *count += 1;
        now_s + pause * (1.0 + f64::from(*count / RETRY_GROUP) + self.random.unit())
    }
}
