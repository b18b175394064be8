//! What has to be true: which jobs there are, what happened to each, and what that means for the store.

use std::collections::{BTreeMap, HashMap};

use super::twin::Event;
use crate::document::Fields;
use crate::outcome::Outcome;
use crate::store::conformance::harness::jid_of;
use crate::store::*;

/// Jids of callbacks begin with this; the store pushes them.
pub const CALLBACK: &str = "cb:";

/// A job, as it was pushed, and what happened to it.
#[derive(Clone, Debug, Default)]
pub struct JobModel {
    /// Its lock, if that ends with its success.
    pub lock: Option<String>,
    /// A limit of jobs at once.
    pub limit: Option<(String, usize)>,
    /// When it expires.
    pub expires_at: Option<f64>,
    /// Copies that were stored; a callback's first one is not counted, which the store itself pushes.
    pub stored: i64,
    /// Copies that left the store.
    pub removed: i64,
    /// It was put back once more, and holds its lock no longer.
    pub restored: bool,
    /// Times that it was started.
    pub runs: u32,
    /// A run of it has ended well.
    pub ran: bool,
    /// Such an end was written.
    pub done: bool,
    /// It failed for good once.
    pub died: bool,
    /// Somebody decided that it need not run.
    pub dropped: bool,
    /// Deaths of workers that had it in flight.
    pub crashes: u32,
    /// Signals from elsewhere to workers that ran it.
    pub signals: u32,
}

/// A batch, as the model knows it.
#[derive(Clone, Debug, Default)]
pub struct BatchModel {
    pub parent: Option<String>,
    pub jids: Vec<String>,
    pub closed: bool,
    /// It was complete before a job of it that runs again has opened a batch in it.
    pub was_complete: bool,
}

/// All jobs and batches.
#[derive(Default)]
pub struct Ledger {
    pub jobs: BTreeMap<String, JobModel>,
    pub batches: BTreeMap<String, BatchModel>,
}

impl Ledger {
    pub fn job(&mut self, jid: &str) -> &mut JobModel {
        self.jobs.entry(jid.to_string()).or_default()
    }

    /// Takes in what happened in the store.
    pub fn absorb(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Stored(jid) => self.job(&jid).stored += 1,
                Event::Restored(jid) => {
                    let job = self.job(&jid);
                    (job.stored, job.restored) = (job.stored + 1, true);
                }
                Event::Ended { jid, outcome, due } => {
                    let job = self.job(&jid);
                    job.removed += i64::from(outcome.is_removal());
                    // For its batch a job is done that client middleware has stopped.
                    job.done |= (outcome == Outcome::Ack) != due && outcome.is_removal();
                    job.dropped |= outcome == Outcome::Discard;
                    // A job that was pushed twice, as the reply was lost, counts once: as the first copy ended.
                    job.died |= !job.done
                        && (matches!(outcome, Outcome::Dead { .. })
                            || outcome == Outcome::Discard && !due);
                }
            }
        }
    }

    /// All batches in it, and itself.
    fn within<'a>(&'a self, bid: &'a str) -> Vec<&'a str> {
        let mut all = vec![bid];
        let mut at = 0;
        while at < all.len() {
            let of = all[at];
            let children = self.batches.iter().filter(|(_, b)| b.parent.as_deref() == Some(of));
            all.extend(children.map(|(bid, _)| bid.as_str()));
            at += 1;
        }
        all
    }

    fn all_jobs(&self, bid: &str, mut test: impl FnMut(&JobModel) -> bool) -> bool {
        self.within(bid).into_iter().all(|bid| {
            let batch = &self.batches[bid];
            batch.closed && batch.jids.iter().all(|jid| test(&self.jobs[jid]))
        })
    }

    /// Whether all jobs of a batch and of those in it are done.
    pub fn has_succeeded(&self, bid: &str) -> bool {
        self.all_jobs(bid, |job| job.done)
    }

    /// Whether they have run once, or need not.
    pub fn is_complete(&self, bid: &str) -> bool {
        self.all_jobs(bid, |job| job.runs > 0 || job.done || job.died)
    }

    fn has_died(&self, bid: &str) -> bool {
        self.batches[bid].jids.iter().any(|jid| self.jobs[jid].died)
    }

    /// Notes which batches are complete, before another one is opened in one of them.
    pub fn note_complete(&mut self) {
        for bid in self.batches.keys().cloned().collect::<Vec<_>>() {
            let is_complete = self.is_complete(&bid);
            self.batches.get_mut(&bid).unwrap().was_complete |= is_complete;
        }
    }

    /// Whether a callback may run now: its event is true.
    pub fn check_callback(&self, jid: &str) {
        let Some((bid, event)) = jid.strip_prefix(CALLBACK).and_then(|rest| rest.split_once(':'))
        else {
            return;
        };
        let is_true = match event {
            "success" => self.has_succeeded(bid),
            "complete" => self.batches[bid].was_complete || self.is_complete(bid),
            _ => self.has_died(bid),
        };
        assert!(is_true, "the callback {jid} runs, and the batch is {:?}", self.batches[bid]);
    }

    /// The copies of each job in the store, by place, are those that were stored and did not leave it.
    pub fn check_presence(&self, present: &Present) {
        for (jid, job) in &self.jobs {
            let places = present.of(jid);
            let there = places.len() as i64;
            if jid.starts_with(CALLBACK) {
                let pushed = there + job.removed - job.stored;
                assert!(pushed <= 1, "{jid} is there twice: {places:?}, {job:?}");
            } else {
                assert_eq!(there, job.stored - job.removed, "{jid} is at {places:?}: {job:?}");
            }
        }
        for (jid, places) in &present.places {
            let is_callback = jid.starts_with(CALLBACK) && places.len() == 1;
            assert!(is_callback || self.jobs.contains_key(jid), "{jid}: {places:?}");
        }
    }

    /// A lock that ends with success has one holder. A job that was pushed twice, as the reply was lost, has given it up
    /// when the first copy has succeeded.
    pub fn check_locks(&self, present: &Present) {
        let mut holders: HashMap<&str, &str> = HashMap::new();
        for (jid, job) in
            self.jobs.iter().filter(|(_, job)| !job.died && !job.restored && !job.done)
        {
            let lives = present.of(jid).iter().any(|place| *place != JobLocation::Dead);
            let Some(lock) = job.lock.as_deref().filter(|_| lives) else { continue };
            let other = holders.insert(lock, jid);
            assert!(other.is_none(), "{jid} and {other:?} hold the lock {lock}");
        }
    }

    /// At the end each job is done, or dead with its reason, and each callback that is due has run once.
    pub fn check_end(&self, present: &Present) {
        for (jid, job) in &self.jobs {
            let dead = present.documents.get(jid);
            let lives = present.of(jid).iter().any(|place| *place != JobLocation::Dead);
            assert!(!lives, "{jid} is at {:?}", present.of(jid));
            if job.stored == 0 && !jid.starts_with(CALLBACK) {
                continue;
            }
            let over = job.done || job.dropped || dead.is_some();
            assert!(over, "{jid} is neither done nor dead: {job:?}");
            let unrun = job.done && !job.ran && !job.dropped && job.expires_at.is_none();
            assert!(!unrun, "{jid} was acknowledged and has not run: {job:?}");
            if let Some(document) = dead.filter(|_| !job.dropped) {
                check_reason(jid, job, document);
            }
        }
        for (bid, batch) in self.batches.iter().filter(|(_, batch)| batch.closed) {
            let expected = [
                ("success", self.has_succeeded(bid)),
                ("complete", self.is_complete(bid)),
                ("death", self.has_died(bid)),
            ];
            for (event, expected) in expected {
                let jid = format!("{CALLBACK}{bid}:{event}");
                let left = self.jobs.get(&jid).map_or(0, |job| job.removed - job.stored);
                let calls = left + present.of(&jid).len() as i64;
                assert_eq!(calls, i64::from(expected), "calls of {jid}: {batch:?}");
            }
        }
    }
}

/// A dead job says why it died, and died of its workers' deaths only after three of them.
fn check_reason(jid: &str, job: &JobModel, document: &[u8]) {
    let fields = Fields::parse(document).unwrap();
    let class = fields.text("error_class");
    assert!(
        class.is_some(),
        "{jid} is dead without a reason: {}",
        String::from_utf8_lossy(document)
    );
    if class.as_deref() == Some("Chaton::Jobs::Poison") {
        let (crashes, signals) = (job.crashes, job.signals);
        assert!(crashes >= 3 || signals >= 6, "{jid} died of {crashes} crashes, {signals} signals");
    }
}

/// Where jobs are.
#[derive(Default)]
pub struct Present {
    places: HashMap<String, Vec<JobLocation>>,
    /// The documents of the dead.
    documents: HashMap<String, Vec<u8>>,
}

impl Present {
    /// Reads the oracle, which has the same as the store under test.
    pub fn read(store: &mut dyn Store) -> Self {
        let mut present = Self::default();
        let queues = ["high", "low"].map(|name| JobLocation::Queue(name.into()));
        let sets = [JobLocation::Scheduled, JobLocation::Retry, JobLocation::Dead];
        for place in queues.into_iter().chain(sets) {
            for entry in store.list(&place, 0, usize::MAX).unwrap() {
                let jid = jid_of(&entry.payload);
                if place == JobLocation::Dead {
                    present.documents.insert(jid.clone(), entry.payload);
                }
                present.places.entry(jid).or_default().push(place.clone());
            }
        }
        for owner in store.owners().unwrap() {
            for job in store.in_flight(&owner.identity).unwrap() {
                let place = JobLocation::Queue(format!("in flight of {}", owner.identity));
                present.places.entry(jid_of(&job.payload)).or_default().push(place);
            }
        }
        present
    }

    fn of(&self, jid: &str) -> &[JobLocation] {
        self.places.get(jid).map_or(&[], |places| places)
    }
}
