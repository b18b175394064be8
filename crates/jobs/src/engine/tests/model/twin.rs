//! Two stores that get the same calls: the one under test, and the store in memory as its oracle. Replies have to be the
//! same. Calls of engines may lose their request or their reply, and the clock of both is the model's.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::outcome::{Ack, Outcome};
use crate::store::conformance::harness::jid_of;
use crate::store::*;

/// Times of entries are made distinct by so much (s): the stores order equal ones differently.
const DISTINCT_S: f64 = 1e-5;
/// Tries of a person's call whose connection was cut.
const TRIES: usize = 5;

/// What happens to a call of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never reaches the store.
    RequestLost,
    /// It is executed, and nobody learns of it.
    ReplyLost,
}

/// What happened in the store.
#[derive(Clone, Debug)]
pub enum Event {
    /// A job was stored.
    Stored(String),
    /// A job that had ended was put back, since the reply to its acknowledgement was lost and it was gone meanwhile.
    Restored(String),
    /// An acknowledgement was applied. `due`: of a job that waits for client middleware.
    Ended { jid: String, outcome: Outcome, due: bool },
}

/// What the model and its stores share.
#[derive(Default)]
pub struct Control {
    /// How far the clock of the store is ahead of this machine's (s).
    pub ahead_s: f64,
    /// Happens to the next call of an engine.
    pub fault: Option<Fault>,
    /// The store takes no more jobs, and says so itself.
    pub full: bool,
    /// The twin says so, for a store that cannot be filled from outside.
    pub refuses: bool,
    /// The server was killed and started again: connections are cut.
    pub restarted: bool,
    /// Owners whose process is gone without a supervisor that tells.
    pub gone: HashSet<String>,
    /// What happened since the model last looked.
    pub events: Vec<Event>,
    /// How often each tick of a cron was pushed.
    pub ticks: HashMap<String, usize>,
    times: u64,
}

impl Control {
    fn distinct(&mut self, at: f64) -> f64 {
        self.times += 1;
        at + self.times as f64 * DISTINCT_S
    }
}

/// Opens twins.
pub struct TwinFactory {
    pub real: Arc<dyn StoreFactory>,
    pub oracle: Arc<dyn StoreFactory>,
    pub control: Arc<Mutex<Control>>,
}

impl TwinFactory {
    fn twin(&self, of_engine: bool) -> TwinStore {
        let (real, oracle) = (self.real.store(), self.oracle.store());
        TwinStore { real, oracle, control: self.control.clone(), of_engine }
    }

    /// A connection of a client or a person, whose calls reach the store.
    pub fn person(&self) -> Box<dyn Store> {
        Box::new(self.twin(false))
    }
}

impl StoreFactory for TwinFactory {
    fn store(&self) -> Box<dyn Store> {
        Box::new(self.twin(true))
    }

    fn watch(&self) -> Box<dyn StoreWatch> {
        self.real.watch()
    }

    fn address(&self) -> &str {
        self.real.address()
    }
}

struct TwinStore {
    real: Box<dyn Store>,
    oracle: Box<dyn Store>,
    control: Arc<Mutex<Control>>,
    of_engine: bool,
}

impl TwinStore {
    /// Calls both, and compares what `seen` leaves of the replies.
    fn both<R, S: PartialEq + Debug>(
        &mut self,
        what: &str,
        seen: impl Fn(&R) -> S,
        call: impl Fn(&mut dyn Store) -> Result<R>,
    ) -> Result<R> {
        let fault = self.control.lock().fault.take_if(|_| self.of_engine);
        if fault == Some(Fault::RequestLost) {
            return Err(StoreError::unavailable(format!("{what}: the request was lost")));
        }
        let real = self.ask(what, &call)?;
        let oracle = call(&mut *self.oracle).unwrap_or_else(|e| panic!("{what}: the model: {e}"));
        assert_eq!(
            seen(&real),
            seen(&oracle),
            "{what}: the store is at the left, the model at the right"
        );
        if fault == Some(Fault::ReplyLost) {
            return Err(StoreError::unavailable(format!("{what}: the reply was lost")));
        }
        Ok(real)
    }

    /// Calls the store under test. It fails only when it is full, or a connection was cut between two calls.
    fn ask<R>(&mut self, what: &str, call: impl Fn(&mut dyn Store) -> Result<R>) -> Result<R> {
        for _ in 0..TRIES {
            let error = match call(&mut *self.real) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let control = self.control.lock();
            let expected = match error.kind {
                StoreErrorKind::Full => control.full,
                StoreErrorKind::Unavailable => control.restarted,
                _ => false,
            };
            assert!(expected, "{what}: {error}");
            if self.of_engine || error.kind == StoreErrorKind::Full {
                return Err(error);
            }
        }
        panic!("{what}: no connection in {TRIES} tries");
    }

    fn adds(&self, what: &str) -> Result<()> {
        if self.control.lock().refuses {
            return Err(StoreError::new(StoreErrorKind::Full, format!("{what}: full")));
        }
        Ok(())
    }

    /// The acknowledgements that will be applied, since their jobs are in flight.
    fn effective(&mut self, owner: &str, acks: &[Ack]) -> Vec<Event> {
        let in_flight = self.oracle.in_flight(owner).unwrap();
        let find = |ack: &Ack| in_flight.iter().find(|job| job.ticket == ack.ticket);
        let event = |ack: &Ack| {
            let (job, outcome) = (find(ack)?, ack.outcome.clone());
            Some(Event::Ended { jid: jid_of(&job.payload), outcome, due: job.queue.is_empty() })
        };
        acks.iter().filter_map(event).collect()
    }

    /// Gives due entries other times if two have the same: two lines may promise tokens at the same time.
    fn untie(&mut self, now_s: f64) -> Result<()> {
        let place = JobLocation::Scheduled;
        let mut real = self.ask("list", |store| store.list(&place, 0, usize::MAX))?;
        let mut known = self.oracle.list(&place, 0, usize::MAX)?;
        real.retain(|entry| entry.score <= now_s);
        known.retain(|entry| entry.score <= now_s);
        if known.windows(2).all(|two| two[1].score - two[0].score > DISTINCT_S / 2.0) {
            return Ok(());
        }
        known.sort_by(|a, b| a.score.total_cmp(&b.score).then(a.payload.cmp(&b.payload)));
        for (index, entry) in known.iter().rev().enumerate() {
            let at = now_s - (index + 1) as f64 * DISTINCT_S;
            let twin = real.iter().position(|other| other.payload == entry.payload);
            // One that was pushed twice is there twice.
            let twin = real.remove(twin.unwrap_or_else(|| panic!("not in the store: {entry:?}")));
            assert!(self.ask("reschedule", |store| store.reschedule_entry(&place, &twin, at))?);
            assert!(self.oracle.reschedule_entry(&place, entry, at)?);
        }
        Ok(())
    }

    /// Processes of the model end when it says so.
    fn end_owners(&self, owners: &mut [OwnerStatus]) {
        owners.sort_by(|a, b| a.identity.cmp(&b.identity));
        let control = self.control.lock();
        let place =
            owners.iter().map(|owner| owner.process_key.clone()).find(|key| !key.is_empty());
        for owner in owners.iter_mut().filter(|owner| control.gone.contains(&owner.identity)) {
            // It was taken for dead, and has claimed again since: only its lease, by the real clock, tells that it died.
            if owner.process_key.is_empty() {
                owner.process_key = place.clone().unwrap_or_default();
            }
            let mut parts: Vec<&str> = owner.process_key.split(' ').collect();
            if parts.len() > 3 {
                // Another process has its pid now.
                parts[3] = "1";
            }
            owner.process_key = parts.join(" ");
        }
        owners.iter_mut().for_each(|owner| owner.ended = false);
    }

    fn spread(&self, acks: &[Ack]) -> Vec<Ack> {
        let mut control = self.control.lock();
        let mut acks = acks.to_vec();
        for ack in &mut acks {
            if let Outcome::Retry { at, .. }
            | Outcome::Dead { at, .. }
            | Outcome::Reschedule { at, .. } = &mut ack.outcome
            {
                *at = control.distinct(*at);
            }
            if let Outcome::Wait(wait) = &mut ack.outcome {
                wait.at = control.distinct(wait.at);
            }
        }
        acks
    }
}

/// A time to a tenth of a millisecond: stores write different numbers of digits.
#[derive(Clone, Copy, Debug)]
struct Rough(f64);

impl PartialEq for Rough {
    fn eq(&self, other: &Self) -> bool {
        (self.0 - other.0).abs() < 1e-4
    }
}

fn rough_due(due: &DueSummary) -> (usize, Option<Rough>) {
    (due.moved, due.next_at.map(Rough))
}

fn without_row(entry: &JobEntry) -> (String, Rough) {
    (String::from_utf8_lossy(&entry.payload).into_owned(), Rough(entry.score))
}

/// What is the same in both stores.
#[derive(Debug, PartialEq)]
enum Seen {
    Answer(Answer),
    Names(BTreeSet<String>),
    Entries(Vec<(Option<JobLocation>, String, Rough)>),
}

fn seen(answer: &Answer, in_order: bool) -> Seen {
    match answer.clone() {
        Answer::Owners(owners) => Seen::Names(owners.into_iter().map(|one| one.identity).collect()),
        Answer::Batches(batches) => Seen::Names(batches.into_iter().map(|one| one.bid).collect()),
        Answer::Entries(found) => {
            let found = found.iter().map(without_row);
            let mut found: Vec<_> = found.map(|(payload, at)| (None, payload, at)).collect();
            // Entries of a set whose times are the same have no order.
            if !in_order {
                found.sort_by(|(_, a, at), (_, b, other)| a.cmp(b).then(at.0.total_cmp(&other.0)));
            }
            Seen::Entries(found)
        }
        Answer::Found(found) => Seen::Entries(Vec::from_iter(found.map(|(place, entry)| {
            let (payload, at) = without_row(&entry);
            (Some(place), payload, at)
        }))),
        Answer::Batch(Some(mut status)) => {
            status.failed_jids.sort();
            status.created_at = 0.0;
            Seen::Answer(Some(status).into())
        }
        Answer::Fields(mut fields) => {
            fields.sort();
            Seen::Answer(fields.into())
        }
        Answer::Stats(stats) => Seen::Answer(Stats { processes: 0, ..stats }.into()),
        same => Seen::Answer(same),
    }
}

impl Store for TwinStore {
    fn push(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        self.adds("push")?;
        let mut jobs = jobs.to_vec();
        for job in &mut jobs {
            job.at = job.at.map(|at| self.control.lock().distinct(at));
        }
        let results = self.both("push", Clone::clone, |store| store.push(&jobs))?;
        let stored = jobs.iter().zip(&results).filter(|(_, result)| **result == PushResult::Stored);
        let events = stored.map(|(job, _)| Event::Stored(jid_of(job.payload)));
        self.control.lock().events.extend(events);
        Ok(results)
    }

    fn push_once(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        self.adds("push_once")?;
        let (control, of_engine) = (self.control.clone(), self.of_engine);
        // Asked here, so that the push of a lost reply is known.
        let fault = control.lock().fault.take_if(|_| of_engine);
        if fault == Some(Fault::RequestLost) {
            return Err(StoreError::unavailable("push_once: the request was lost"));
        }
        let at = job.at.map(|at| control.lock().distinct(at));
        let job = &NewJob { at, ..*job };
        let pushed = self.both("push_once", |yes| *yes, |store| store.push_once(key, ttl, job))?;
        if pushed {
            let mut control = control.lock();
            control.events.push(Event::Stored(jid_of(job.payload)));
            *control.ticks.entry(key.to_string()).or_default() += 1;
        }
        match fault {
            Some(_) => Err(StoreError::unavailable("push_once: the reply was lost")),
            None => Ok(pushed),
        }
    }

    fn ack_and_claim(
        &mut self,
        owner: &str,
        acks: &[Ack],
        request: Option<&ClaimRequest<'_>>,
    ) -> Result<ClaimReply> {
        let (effective, acks) = (self.effective(owner, acks), self.spread(acks));
        let seen = |reply: &ClaimReply| (reply.jobs.clone(), reply.fenced);
        let reply =
            self.both("ack_and_claim", seen, |store| store.ack_and_claim(owner, &acks, request));
        let lost = reply.as_ref().is_err_and(|error| error.message.ends_with("the reply was lost"));
        if reply.is_ok() || lost {
            self.control.lock().events.extend(effective);
        }
        reply
    }

    fn acquire(
        &mut self,
        owner: &str,
        asks: &[LimitRequest<'_>],
        now_s: f64,
    ) -> Result<Vec<Grant>> {
        let one = |grant: &Grant| match grant {
            Grant::Now => None,
            Grant::Behind { limit, at } => Some((*limit, at.map(Rough))),
        };
        let seen = |grants: &Vec<Grant>| grants.iter().map(one).collect::<Vec<_>>();
        self.both("acquire", seen, |store| store.acquire(owner, asks, now_s))
    }

    fn heartbeat(&mut self, report: &ProcessReport<'_>) -> Result<HeartbeatReply> {
        let seen = |reply: &HeartbeatReply| (reply.is_new, reply.processes, reply.signals.clone());
        let reply = self.both("heartbeat", seen, |store| store.heartbeat(report))?;
        Ok(HeartbeatReply { now_s: reply.now_s + self.control.lock().ahead_s, ..reply })
    }

    fn restore(&mut self, owner: &str, jobs: &[ClaimedJob]) -> Result<usize> {
        let restored = self.ask("restore", |store| store.restore(owner, jobs))?;
        if restored > 0 {
            let before = self.oracle.in_flight(owner).unwrap();
            assert_eq!(self.oracle.restore(owner, jobs).unwrap(), restored, "restore");
            let mut after = self.oracle.in_flight(owner).unwrap();
            after.retain(|job| !before.contains(job));
            let events = after.iter().map(|job| Event::Restored(jid_of(&job.payload)));
            self.control.lock().events.extend(events);
        }
        Ok(restored)
    }

    fn claim_due(
        &mut self,
        owner: &str,
        first: u64,
        now_s: f64,
        max: usize,
    ) -> Result<(Vec<ClaimedJob>, DueSummary)> {
        self.untie(now_s)?;
        let seen = |(jobs, due): &(Vec<ClaimedJob>, DueSummary)| (jobs.clone(), rough_due(due));
        self.both("claim_due", seen, |store| store.claim_due(owner, first, now_s, max))
    }

    fn move_due(&mut self, now_s: f64, max: usize) -> Result<DueSummary> {
        self.untie(now_s)?;
        self.both("move_due", rough_due, |store| store.move_due(now_s, max))
    }

    fn connect(&mut self) -> Result<()> {
        self.ask("connect", |store| store.connect())
    }

    fn connections(&self) -> u64 {
        self.real.connections()
    }

    fn backup(&mut self, path: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.real.backup(path, progress)
    }

    fn query(&mut self, query: Query<'_>) -> Result<Answer> {
        use Query::{
            Advice, Batches, DailyCounts, List, Outbox, Processes, Queues, SidekiqProcesses,
        };
        match query {
            Processes() | Queues() | Batches(_) | DailyCounts(_) | SidekiqProcesses()
            | Advice() | Outbox() => {
                return self.real.query(query);
            }
            _ => {}
        }
        let in_order = matches!(query, List(JobLocation::Queue(_), ..));
        let what = format!("{query:?}");
        let seen = |answer: &Answer| seen(answer, in_order);
        let mut answer = self.both(&what, seen, |store| store.query(query))?;
        if let Answer::Owners(owners) = &mut answer {
            self.end_owners(owners);
        }
        Ok(answer)
    }

    fn change(&mut self, change: Change<'_>) -> Result<Answer> {
        if matches!(change, Change::BatchOpen(_)) {
            self.adds("batch_open")?;
        }
        let seen = |answer: &Answer| seen(answer, true);
        self.both(&format!("{change:?}"), seen, |store| store.change(change))
    }
}
