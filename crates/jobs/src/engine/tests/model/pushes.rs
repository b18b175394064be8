//! What clients push, and what people do with entries.

use std::time::Duration;

use super::ledger::{BatchModel, JobModel, CALLBACK};
use super::steps::Op;
use super::world::World;
use crate::document::Extra;
use crate::store::conformance::harness::jid_of;
use crate::store::*;

/// Longer than any run: nothing expires while it is needed.
const LONG: Duration = Duration::from_secs(1_000_000);
/// Longest wait of a scheduled job (s).
const WAIT_S_MAX: u32 = 50;

/// A job to push.
struct PushModel {
    jid: String,
    queue: &'static str,
    at: Option<f64>,
    /// -1, 0 or 1: Redis tells no more apart.
    priority: i8,
    extra: Extra,
    bid: Option<String>,
}

impl PushModel {
    fn payload(&self) -> Vec<u8> {
        let Self { jid, queue, extra, bid, priority, .. } = self;
        let bid = bid.as_ref().map(|bid| format!(r#","bid":"{bid}""#)).unwrap_or_default();
        let json = extra.to_json();
        let extra = match (*priority, &json[1..]) {
            (0, "}") => String::new(),
            (0, _) => format!(r#","chaton":{json}"#),
            (_, "}") => format!(r#","chaton":{{"priority":{priority}}}"#),
            (_, rest) => format!(r#","chaton":{{"priority":{priority},{rest}"#),
        };
        format!(r#"{{"class":"A","args":[],"jid":"{jid}","queue":"{queue}"{bid}{extra}}}"#).into()
    }

    fn model(&self) -> JobModel {
        let limit = self.extra.limits.iter().find(|limit| limit.per.is_none());
        JobModel {
            lock: self.extra.lock.clone().filter(|_| !self.extra.unlocks_at_start()),
            limit: limit.map(|limit| (limit.key.clone(), limit.max as usize)),
            expires_at: self.extra.expires_at,
            crashes: self.extra.deaths,
            ..JobModel::default()
        }
    }
}

impl World<'_> {
    fn plain(&mut self) -> PushModel {
        let jid = self.name("j");
        let queue = ["high", "low"][self.random.usize(..2)];
        let priority = [0, 0, 0, -1, 1][self.random.usize(..5)];
        PushModel { jid, queue, at: None, priority, extra: Extra::default(), bid: None }
    }

    fn later(&mut self) -> f64 {
        self.now_s() + f64::from(self.random.u32(1..WAIT_S_MAX))
    }

    /// A job with what the operation asks for; some have more.
    fn drawn(&mut self, op: Op) -> PushModel {
        let mut job = self.plain();
        if op == Op::In || self.random.u8(..6) == 0 {
            job.at = Some(self.later());
        }
        match op {
            Op::Unique => {
                job.extra.lock = Some(format!("u{}", self.random.u8(..3)));
                job.extra.until = self.random.bool().then(|| "start".to_string());
            }
            Op::Expiring => job.extra.expires_at = Some(self.later()),
            Op::Deadline => job.extra.deadline = Some(0.0),
            Op::Suspect => {
                (job.extra.deaths, job.extra.visits) = (2, self.random.u32(..5));
            }
            _ => {}
        }
        if op == Op::Limited || self.random.u8(..8) == 0 {
            let limits = Extra::parse(&format!(r#"{{"limits":[{}]}}"#, self.limit()));
            job.extra.limits = limits.unwrap().limits;
        }
        job
    }

    /// A limit, as the document has it. Kinds of limits have keys of their own.
    fn limit(&mut self) -> String {
        let (max, hold) = (1 + self.random.u32(..2), LONG.as_secs());
        match self.random.u8(..4) {
            0 => format!(r#"{{"key":"w{max}","max":{max},"per":20}}"#),
            1 => format!(r#"{{"key":"b{max}","max":{max},"per":20,"bucket":true}}"#),
            _ => format!(r#"{{"key":"c{max}","max":{max},"hold":{hold}}}"#),
        }
    }

    pub fn push(&mut self, op: Op) {
        let count = if op == Op::Bulk { 1 + self.random.usize(..5) } else { 1 };
        let jobs: Vec<PushModel> = (0..count).map(|_| self.drawn(op)).collect();
        self.store_all(jobs);
    }

    /// Pushes in one call. A full store takes none.
    fn store_all(&mut self, jobs: Vec<PushModel>) -> Vec<String> {
        let payloads: Vec<Vec<u8>> = jobs.iter().map(PushModel::payload).collect();
        let new = |(job, payload): (&PushModel, &Vec<u8>)| -> String {
            self.note(format!("   {}", String::from_utf8_lossy(payload)));
            *self.ledger.job(&job.jid) = job.model();
            job.jid.clone()
        };
        let jids: Vec<String> = jobs.iter().zip(&payloads).map(new).collect();
        let both = jobs.iter().zip(&payloads);
        let wire: Vec<NewJob<'_>> = both.map(|(job, payload)| new_job(job, payload)).collect();
        match self.store.push(&wire) {
            Ok(results) => {
                let stored = jids.into_iter().zip(results);
                stored.filter(|(_, r)| *r == PushResult::Stored).map(|(jid, _)| jid).collect()
            }
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
                vec![]
            }
        }
    }

    pub fn open_batch(&mut self, parent: Option<String>) {
        let (bid, now_s) = (self.name("b"), self.now_s());
        let events = ["success", "complete", "death"];
        let documents = events.map(|event| {
            format!(r#"{{"class":"B","args":[],"queue":"low","jid":"{CALLBACK}{bid}:{event}"}}"#)
        });
        let callbacks: Vec<(&str, &str, &[u8])> =
            events.iter().zip(&documents).map(|(e, doc)| (*e, "low", doc.as_bytes())).collect();
        let batch = NewBatch {
            bid: &bid,
            parent: parent.as_deref(),
            owner: "",
            description: "",
            callbacks: &callbacks,
            ttl: LONG,
            now_s,
        };
        if self.store.batch_open(&batch).is_ok() {
            self.note(format!("   {bid} in {parent:?}"));
            self.ledger.batches.insert(bid, BatchModel { parent, ..BatchModel::default() });
        }
    }

    /// A batch that still gets jobs. Its pusher makes the batches in it in one step.
    fn open_bid(&mut self) -> Option<String> {
        let open = self.ledger.batches.iter().filter(|(_, b)| !b.closed);
        let open: Vec<String> = open.map(|(bid, _)| bid.clone()).collect();
        let index = self.random.usize(..open.len().max(1));
        open.get(index).cloned()
    }

    pub fn fill_batch(&mut self) {
        if let Some(bid) = self.open_bid() {
            self.fill_one(&bid);
        }
    }

    fn fill_one(&mut self, bid: &str) {
        let count = 1 + self.random.usize(..3);
        let mut jobs = vec![];
        for _ in 0..count {
            let op =
                [Op::Push, Op::In, Op::Unique, Op::Limited, Op::Expiring][self.random.usize(..5)];
            jobs.push(PushModel { bid: Some(bid.to_string()), ..self.drawn(op) });
        }
        let stored = self.store_all(jobs);
        self.ledger.batches.get_mut(bid).unwrap().jids.extend(stored);
    }

    pub fn close_batch(&mut self) {
        if let Some(bid) = self.open_bid() {
            self.close_one(&bid);
        }
    }

    fn close_one(&mut self, bid: &str) {
        self.store.batch_close(bid).unwrap();
        self.note(format!("   {bid} is closed"));
        self.ledger.batches.get_mut(bid).unwrap().closed = true;
    }

    pub fn close_all_batches(&mut self) {
        let all: Vec<String> = self.ledger.batches.keys().cloned().collect();
        for bid in all {
            if !self.ledger.batches[&bid].closed {
                self.close_one(&bid);
            }
        }
    }

    /// A running job of a batch makes a batch in it, pushes its jobs and closes it.
    pub fn nest(&mut self) {
        let jobs = self.nodes.iter().flat_map(|node| &node.running);
        let parents: Vec<String> = jobs
            .filter(|job| !job.is_due())
            .filter_map(|job| job.document().bid().map(Into::into))
            .collect();
        if parents.is_empty() {
            return;
        }
        let parent = parents[self.random.usize(..parents.len())].clone();
        let known = self.ledger.batches.len();
        self.ledger.note_complete();
        self.open_batch(Some(parent.clone()));
        if self.ledger.batches.len() == known {
            return;
        }
        let newest = self.ledger.batches.iter().filter(|(_, b)| b.parent.as_ref() == Some(&parent));
        let bid = newest.map(|(bid, _)| bid.clone()).max_by_key(|bid| bid[1..].parse::<u32>().ok());
        let bid = bid.unwrap();
        self.fill_one(&bid);
        self.close_one(&bid);
    }

    pub fn cancel(&mut self) {
        let jobs: Vec<_> = self.nodes.iter().flat_map(|node| &node.running).collect();
        if jobs.is_empty() {
            return;
        }
        let jid = jobs[self.random.usize(..jobs.len())].document().jid().to_string();
        match self.store.cancel(&jid) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind, StoreErrorKind::Full, "{error}"),
        }
    }

    /// A person removes, kills or enqueues an entry.
    pub fn touch_entry(&mut self) {
        let places = [
            JobLocation::Queue("low".into()),
            JobLocation::Scheduled,
            JobLocation::Retry,
            JobLocation::Dead,
        ];
        let place = &places[self.random.usize(..places.len())];
        let entries = self.store.list(place, 0, 100).unwrap();
        if entries.is_empty() {
            return;
        }
        let entry = &entries[self.random.usize(..entries.len())];
        let (jid, now_s) = (jid_of(&entry.payload), self.now_s());
        if jid.starts_with(CALLBACK) {
            return;
        }
        let what = self.random.u8(..3);
        self.note(format!(
            "   {} {jid} of {place:?}",
            ["removes", "kills", "enqueues"][usize::from(what)]
        ));
        match what {
            0 => {
                assert!(self.store.remove(place, entry).unwrap());
                let job = self.ledger.job(&jid);
                job.removed += 1;
                (job.dropped, job.died) = (true, true);
            }
            1 if *place != JobLocation::Dead => {
                assert!(self.store.kill(place, entry, now_s).unwrap());
                let job = self.ledger.job(&jid);
                // A person needs no reason.
                (job.dropped, job.died) = (true, true);
            }
            1 => {}
            _ => match self.store.enqueue_entry(place, entry, now_s) {
                Ok(done) => assert!(done),
                Err(error) => assert_eq!(error.kind, StoreErrorKind::Full, "{error}"),
            },
        }
    }
}

fn new_job<'a>(job: &'a PushModel, payload: &'a [u8]) -> NewJob<'a> {
    let lock = job.extra.lock.as_deref();
    NewJob {
        queue: job.queue,
        payload,
        at: job.at,
        lock: lock.map(|key| NewLock { key, jid: &job.jid, ttl: LONG }),
        bid: job.bid.as_deref(),
    }
}
