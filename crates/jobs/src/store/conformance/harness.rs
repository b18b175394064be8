//! What the cases share.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::document::Fields;
use crate::store::*;

/// Opens an empty store.
pub(crate) type OpenFresh<'a> = &'a dyn Fn() -> Arc<dyn StoreFactory>;

/// Longest wait for a condition.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A store under test, with one connection.
pub(crate) struct StoreHarness {
    pub factory: Arc<dyn StoreFactory>,
    pub store: Box<dyn Store>,
    /// The next ticket of [`StoreHarness::claim_all`]: an owner uses each once.
    next_ticket: u64,
}

/// A job's document.
pub(crate) fn doc(queue: &str, jid: &str) -> Vec<u8> {
    doc_with(queue, jid, "")
}

/// A job's document with more members: `,"a":1`.
pub(crate) fn doc_with(queue: &str, jid: &str, more: &str) -> Vec<u8> {
    format!(r#"{{"class":"A","args":[1,{{}}],"jid":"{jid}","queue":"{queue}"{more}}}"#).into_bytes()
}

/// A job for a queue, due now.
pub(crate) fn job<'a>(queue: &'a str, payload: &'a [u8]) -> NewJob<'a> {
    NewJob { queue, payload, at: None, lock: None, bid: None }
}

/// The jid in a document; the bytes as text when there is none.
pub(crate) fn jid_of(payload: &[u8]) -> String {
    let jid = Fields::parse(payload).ok().and_then(|fields| fields.text("jid"));
    jid.unwrap_or_else(|| String::from_utf8_lossy(payload).into_owned())
}

/// The jids of claimed jobs, in order.
pub(crate) fn jids(jobs: &[ClaimedJob]) -> Vec<String> {
    jobs.iter().map(|job| jid_of(&job.payload)).collect()
}

/// Names of queues for a claim.
pub(crate) fn names(queues: &[&str]) -> Vec<Arc<str>> {
    queues.iter().map(|name| Arc::from(*name)).collect()
}

/// An acknowledgement without side effects.
pub(crate) fn ack(ticket: u64, queue: &str, outcome: Outcome) -> Ack {
    Ack { ticket, queue: queue.into(), outcome, effects: None }
}

/// An acknowledgement with side effects.
pub(crate) fn ack_with(ticket: u64, queue: &str, outcome: Outcome, effects: SideEffects) -> Ack {
    Ack { ticket, queue: queue.into(), outcome, effects: Some(Box::new(effects)) }
}

/// A request that nothing in a line stands before.
pub(crate) fn request(ticket: u64, limits: &[Limit]) -> LimitRequest<'_> {
    LimitRequest { ticket, jid: "", place: 0.0, limits }
}

/// The answer of a job's only limit when all its slots are held.
pub(crate) const DENIED: Grant = Grant::Behind { limit: 0, at: None };

/// Requeues the job unchanged.
pub(crate) fn back() -> Outcome {
    Outcome::requeue()
}

/// The location of a queue.
pub(crate) fn queue(name: &str) -> JobLocation {
    JobLocation::Queue(name.into())
}

/// Now, in seconds since 1970.
pub(crate) fn now_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TIMEOUT, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs the same in many threads, each with its number; returns their results.
pub(crate) fn in_threads<T: Send>(threads: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let spawn = |index| scope.spawn(move || body(index));
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

impl StoreHarness {
    pub fn new(fresh: OpenFresh<'_>) -> Self {
        let factory = fresh();
        Self { store: factory.store(), factory, next_ticket: 1_000_000 }
    }

    /// Pushes jobs by their jids.
    pub fn put(&mut self, queue: &str, jids: &[&str]) {
        let payloads: Vec<Vec<u8>> = jids.iter().map(|jid| doc(queue, jid)).collect();
        let jobs: Vec<NewJob<'_>> = payloads.iter().map(|payload| job(queue, payload)).collect();
        let stored = vec![PushResult::Stored; jobs.len()];
        assert_eq!(self.store.push(&jobs).unwrap(), stored);
    }

    /// Pushes one document at a time.
    pub fn put_at(&mut self, at: f64, payload: &[u8]) {
        let job = NewJob { at: Some(at), ..job("q", payload) };
        assert_eq!(self.store.push(&[job]).unwrap(), [PushResult::Stored]);
    }

    /// Adds a document to a set, through a claim.
    pub fn put_in(&mut self, location: &JobLocation, at: f64, payload: &[u8]) {
        self.store.push(&[job("by-way", payload)]).unwrap();
        let ticket = self.claim("by-way", &["by-way"], 1, 1).jobs[0].ticket;
        let payload = payload.to_vec();
        let outcome = match location {
            JobLocation::Retry => Outcome::Retry { at, payload },
            JobLocation::Scheduled => Outcome::reschedule(at),
            JobLocation::Dead => Outcome::Dead { payload: None, at },
            JobLocation::Queue(_) => back(),
        };
        assert_eq!(self.end("by-way", &[ack(ticket, "by-way", outcome)]), 0);
    }

    /// Claims.
    pub fn claim(&mut self, owner: &str, queues: &[&str], count: usize, first: u64) -> ClaimReply {
        let queues = names(queues);
        let want = ClaimRequest { queues: &queues, count, first_ticket: first };
        self.store.claim(owner, &want).unwrap()
    }

    /// Claims everything under tickets of its own; returns the jids.
    pub fn claim_all(&mut self, owner: &str, queue: &str) -> Vec<String> {
        let jobs = self.claim(owner, &[queue], 1000, self.next_ticket).jobs;
        self.next_ticket += jobs.len() as u64;
        jids(&jobs)
    }

    /// Acknowledges; returns how many entries were gone.
    pub fn end(&mut self, owner: &str, acks: &[Ack]) -> usize {
        self.store.ack(owner, acks).unwrap()
    }

    /// All entries of a queue or set.
    pub fn all(&mut self, location: &JobLocation) -> Vec<JobEntry> {
        self.store.list(location, 0, 100_000).unwrap()
    }

    /// The jids in a queue or set, in order.
    pub fn listed(&mut self, location: &JobLocation) -> Vec<String> {
        self.all(location).iter().map(|entry| jid_of(&entry.payload)).collect()
    }
}
