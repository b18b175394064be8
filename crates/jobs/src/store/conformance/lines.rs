//! Lines of jobs behind limits.

use super::harness::*;
use crate::document::{Document, Fields};
use crate::outcome::Wait;
use crate::store::*;

/// When a waiting job asks again at the latest, after now (s).
const UNCALLED_S: f64 = 3600.0;

fn at_once(max: u32) -> Limit {
    Limit { key: "api".into(), rule: LimitRule::Concurrent { max, hold_s: 600.0 } }
}

/// A worker: an owner that claims and asks.
struct Worker {
    harness: StoreHarness,
    limit: Limit,
    now_s: f64,
    next: u64,
}

impl Worker {
    fn new(fresh: OpenFresh<'_>, limit: Limit) -> Self {
        Self { harness: StoreHarness::new(fresh), limit, now_s: now_s(), next: 1 }
    }

    /// Pushes these jobs, claims them and lets them ask; returns the jids of those that may start.
    fn push(&mut self, queue: &str, jids: &[&str]) -> Vec<(u64, String)> {
        let limit = format!(
            r#","enqueued_at":5.25,"chaton":{{"limits":[{{"key":"{}","max":1}}]}}"#,
            self.limit.key
        );
        let payloads: Vec<_> = jids.iter().map(|jid| doc_with(queue, jid, &limit)).collect();
        let jobs: Vec<_> = payloads.iter().map(|payload| job(queue, payload)).collect();
        self.harness.store.push(&jobs).unwrap();
        self.claim(&[queue])
    }

    /// Claims what is in the queues and lets it ask.
    fn claim(&mut self, queues: &[&str]) -> Vec<(u64, String)> {
        let claimed = self.harness.claim("me", queues, 1000, self.next).jobs;
        self.next += claimed.len() as u64;
        let mut started = vec![];
        for one in claimed {
            self.now_s += 1e-3;
            started.extend(self.ask(&one).then(|| (one.ticket, jid_of(&one.payload))));
        }
        started
    }

    /// Asks for a claimed job, which waits if it is denied.
    fn ask(&mut self, one: &ClaimedJob) -> bool {
        let doc = Document::parse(one.payload.as_slice().into()).unwrap();
        let since = doc.extra().unwrap().since;
        let place = since.unwrap_or(self.now_s);
        let limits = std::slice::from_ref(&self.limit);
        let asks = [LimitRequest { ticket: one.ticket, jid: doc.jid(), place, limits }];
        if self.harness.store.acquire("me", &asks, self.now_s).unwrap() == [Grant::Now] {
            return true;
        }
        let wait = Wait {
            at: self.now_s + UNCALLED_S,
            payload: doc.waiting(Some(place)).unwrap_or_else(|| one.payload.clone()),
            jid: doc.jid().into(),
            behind: self.limit.clone(),
            place,
            is_new: since.is_none(),
            now_s: self.now_s,
        };
        let ack = ack(one.ticket, &one.queue, Outcome::Wait(Box::new(wait)));
        assert_eq!(self.harness.end("me", &[ack]), 0);
        false
    }

    /// A job ends, and releases its slot.
    fn end(&mut self, (ticket, jid): &(u64, String)) {
        let effects = SideEffects {
            release: vec![self.limit.key.clone()],
            jid: jid.clone(),
            now_s: self.now_s,
            ..SideEffects::default()
        };
        let in_flight = self.harness.store.in_flight("me").unwrap();
        let queue = &in_flight.iter().find(|one| one.ticket == *ticket).unwrap().queue;
        assert_eq!(self.harness.end("me", &[ack_with(*ticket, queue, Outcome::Ack, effects)]), 0);
    }

    /// A heartbeat, which looks at lines whose time has come.
    fn beat(&mut self) {
        let report = ProcessReport { now_s: self.now_s, ..super::processes::report("beating") };
        self.harness.store.heartbeat(&report).unwrap();
    }

    fn queued(&mut self) -> Vec<String> {
        self.harness.listed(&queue("q"))
    }

    fn scheduled(&mut self) -> Vec<String> {
        self.harness.listed(&JobLocation::Scheduled)
    }

    fn entry(&mut self, jid: &str) -> JobEntry {
        let all = self.harness.all(&JobLocation::Scheduled);
        all.into_iter().find(|entry| jid_of(&entry.payload) == jid).unwrap()
    }
}

fn jids_of(started: &[(u64, String)]) -> Vec<&str> {
    started.iter().map(|(_, jid)| jid.as_str()).collect()
}

pub(crate) fn jobs_are_called_in_the_order_of_their_places(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(2));
    let mut running = worker.push("q", &["a", "b", "c", "d", "e"]);
    assert_eq!(jids_of(&running), ["a", "b"]);
    assert_eq!(worker.scheduled(), ["c", "d", "e"]);
    // Work of the queue does not go before what is called.
    worker.harness.put("q", &["other"]);
    worker.end(&running.remove(1));
    assert_eq!(worker.queued(), ["c", "other"]);
    let entry = worker.harness.all(&queue("q")).remove(0);
    let fields = Fields::parse(&entry.payload).unwrap();
    assert_eq!(fields.number("enqueued_at"), Some(5.25), "the first time counts");
    let other = worker.harness.all(&queue("q")).remove(1);
    assert!(worker.harness.store.remove(&queue("q"), &other).unwrap());
    running.extend(worker.claim(&["q"]));
    assert_eq!(jids_of(&running), ["a", "c"]);
    for expected in [vec!["c", "d"], vec!["d", "e"], vec!["e"], vec![]] {
        worker.end(&running.remove(0));
        running.extend(worker.claim(&["q"]));
        assert_eq!(jids_of(&running), expected);
    }
    assert!(worker.scheduled().is_empty());
}

pub(crate) fn a_called_job_has_its_slot(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let running = worker.push("q", &["a", "b"]);
    worker.end(&running[0]);
    assert_eq!(worker.queued(), ["b"]);
    assert!(worker.push("other", &["new"]).is_empty(), "the slot is for b");
    let running = worker.claim(&["q"]);
    assert_eq!(jids_of(&running), ["b"]);
    assert_eq!(worker.scheduled(), ["new"]);
    worker.end(&running[0]);
    assert_eq!(jids_of(&worker.claim(&["other"])), ["new"]);
}

pub(crate) fn a_called_job_that_does_not_come_loses_its_slot(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let running = worker.push("q", &["a", "b", "c", "d"]);
    worker.end(&running[0]);
    assert_eq!(worker.queued(), ["b"]);
    worker.now_s += 9.0;
    worker.beat();
    assert_eq!(worker.queued(), ["b"], "it has ten seconds");
    worker.now_s += 1.5;
    worker.beat();
    assert_eq!(worker.queued(), ["c", "b"]);
    // It comes late, before the others by its place; the slot is for the one that was called.
    let running = worker.claim(&["q"]);
    assert_eq!(jids_of(&running), ["c"]);
    worker.end(&running[0]);
    assert_eq!(jids_of(&worker.claim(&["q"])), ["b"], "it kept its place before d");
}

pub(crate) fn entries_that_are_gone_are_skipped(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let running = worker.push("q", &["a", "b", "c", "d", "e"]);
    let (removed, killed, later) = (worker.entry("b"), worker.entry("c"), worker.entry("d"));
    let (now, place) = (worker.now_s, JobLocation::Scheduled);
    let store = &mut worker.harness.store;
    assert!(store.remove(&place, &removed).unwrap());
    assert!(store.kill(&place, &killed, now).unwrap());
    assert!(store.reschedule_entry(&place, &later, now + 9e6).unwrap());
    worker.end(&running[0]);
    let running = worker.claim(&["q"]);
    assert_eq!(jids_of(&running), ["e"]);
    worker.end(&running[0]);
    assert_eq!(worker.scheduled(), ["d"], "somebody gave it another time");
    assert!(worker.queued().is_empty());
    let running = worker.push("q", &["f", "g"]);
    assert_eq!(jids_of(&running), ["f"], "nothing stands in the line");
    assert_eq!(worker.harness.store.clear(&place, 0).unwrap(), 2);
    worker.end(&running[0]);
    assert_eq!(jids_of(&worker.push("q", &["h"])), ["h"]);
}

pub(crate) fn a_paused_queue_holds_no_line_up(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let running = worker.push("q", &["a", "b", "c"]);
    assert!(worker.push("other", &["d", "e"]).is_empty());
    worker.harness.store.pause("q", true).unwrap();
    worker.end(&running[0]);
    assert_eq!(worker.queued(), ["b", "c"], "in their order");
    let running = worker.claim(&["q", "other"]);
    assert_eq!(jids_of(&running), ["d"]);
    worker.harness.store.pause("q", false).unwrap();
    assert!(worker.claim(&["q"]).is_empty());
    worker.end(&running[0]);
    assert_eq!(jids_of(&worker.claim(&["q", "other"])), ["b"], "it came before e");
}

pub(crate) fn a_raised_limit_calls_more(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let running = worker.push("q", &["a", "b", "c", "d", "e"]);
    assert_eq!(jids_of(&running), ["a"]);
    worker.limit = at_once(3);
    assert!(worker.push("q", &["new"]).is_empty(), "others came before it");
    let more = worker.claim(&["q"]);
    assert_eq!(jids_of(&more), ["b", "c"]);
    assert!(worker.claim(&["q"]).is_empty());
    // An older job does not lower it again.
    worker.end(&running[0]);
    let d = worker.claim(&["q"]);
    worker.limit = at_once(1);
    worker.end(&d[0]);
    assert_eq!(jids_of(&worker.claim(&["q"])), ["e"]);
}

pub(crate) fn a_hold_that_ends_calls_the_next(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    worker.push("q", &["a", "b"]);
    worker.now_s += 599.0;
    worker.beat();
    assert!(worker.queued().is_empty());
    worker.now_s += 2.0;
    worker.beat();
    assert_eq!(worker.queued(), ["b"]);
}

pub(crate) fn the_death_of_an_owner_calls_the_next(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    worker.push("q", &["a", "b"]);
    // What its heir does: the job goes back, and its slot is free.
    let dead = worker.harness.store.in_flight("me").unwrap();
    let effects = SideEffects {
        release: vec!["api".into()],
        jid: "a".into(),
        now_s: worker.now_s,
        ..SideEffects::default()
    };
    worker.harness.end("me", &[ack_with(dead[0].ticket, "q", back(), effects)]);
    assert_eq!(worker.queued(), ["b", "a"]);
    let running = worker.claim(&["q"]);
    assert_eq!(jids_of(&running), ["b"]);
    assert_eq!(worker.scheduled(), ["a"]);
}

pub(crate) fn an_expired_job_passes_its_slot_on(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let running = worker.push("q", &["a", "b", "c"]);
    worker.end(&running[0]);
    let expired = worker.harness.claim("me", &["q"], 1, 900).jobs;
    assert_eq!(jids(&expired), ["b"]);
    // It is not started any more, and has not asked.
    worker.end(&(900, "b".into()));
    assert_eq!(jids_of(&worker.claim(&["q"])), ["c"]);
}

pub(crate) fn a_job_keeps_its_place_behind_another_limit(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let running = worker.push("q", &["a", "b"]);
    let other = Limit { key: "db".into(), rule: LimitRule::Concurrent { max: 1, hold_s: 600.0 } };
    let held =
        LimitRequest { ticket: 7, jid: "z", place: 0.0, limits: std::slice::from_ref(&other) };
    assert_eq!(worker.harness.store.acquire("you", &[held], worker.now_s).unwrap(), [Grant::Now]);
    worker.end(&running[0]);
    // It is called by one limit and denied by the other.
    let b = worker.harness.claim("me", &["q"], 1, 900).jobs.remove(0);
    let doc = Document::parse(b.payload.as_slice().into()).unwrap();
    let place = doc.extra().unwrap().since.unwrap();
    let limits = [at_once(1), other.clone()];
    let asks = [LimitRequest { ticket: 900, jid: "b", place, limits: &limits }];
    let denied = worker.harness.store.acquire("me", &asks, worker.now_s).unwrap();
    assert_eq!(denied, [Grant::Behind { limit: 1, at: None }]);
    let wait = Wait {
        at: worker.now_s + UNCALLED_S,
        payload: b.payload.clone(),
        jid: "b".into(),
        behind: other,
        place,
        is_new: false,
        now_s: worker.now_s,
    };
    let effects = SideEffects {
        release: vec!["api".into(), "db".into()],
        jid: "b".into(),
        now_s: worker.now_s,
        ..SideEffects::default()
    };
    let outcome = Outcome::Wait(Box::new(wait));
    assert_eq!(worker.harness.end("me", &[ack_with(900, "q", outcome, effects)]), 0);
    assert_eq!(jids_of(&worker.push("q", &["c"])), ["c"], "b does not hold the slot meanwhile");
}

pub(crate) fn the_first_jobs_get_the_times_of_tokens(fresh: OpenFresh<'_>) {
    for rule in
        [LimitRule::Window { max: 1, per_s: 100.0 }, LimitRule::Bucket { max: 1, per_s: 100.0 }]
    {
        let mut worker = Worker::new(fresh, Limit { key: "api".into(), rule });
        let start_s = worker.now_s;
        assert_eq!(jids_of(&worker.push("q", &["a", "b", "c", "d"])), ["a"]);
        let near = |at: f64, expected: f64| (at - expected).abs() < 0.1;
        for (jid, next, after_s) in [("b", "c", 100.0), ("c", "d", 200.0)] {
            let due = start_s + after_s;
            let (first, second) = (worker.entry(jid).score, worker.entry(next).score);
            assert!(near(first, due), "{jid} is due at {first}, {due} is expected");
            assert!(second > due + 1000.0, "{next} waits for {jid}");
            worker.now_s = first + 0.01;
            assert_eq!(worker.harness.store.move_due(worker.now_s, 100).unwrap().moved, 1);
            assert!(worker.push("q", &[]).len() == 1, "{jid} may start");
        }
        // The next one is gone: the one behind it gets its time at the next look.
        worker.push("q", &["e"]);
        let (d, e) = (worker.entry("d"), worker.entry("e"));
        assert!(e.score > d.score + 1000.0);
        worker.harness.store.remove(&JobLocation::Scheduled, &d).unwrap();
        worker.now_s = start_s + 311.0;
        worker.beat();
        let score = worker.entry("e").score;
        assert!(score < worker.now_s + 0.1, "e is due at {score}, it is {}", worker.now_s);
    }
}

pub(crate) fn an_uncalled_job_asks_again_with_its_place(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let start_s = worker.now_s;
    let running = worker.push("q", &["a", "b", "c"]);
    worker.now_s += UNCALLED_S - 1.0;
    worker.limit.rule = LimitRule::Concurrent { max: 1, hold_s: 9e3 };
    assert_eq!(worker.harness.store.move_due(worker.now_s, 100).unwrap().moved, 0);
    // Its slot is held for longer.
    let limits = [worker.limit.clone()];
    let again = [LimitRequest { jid: "a", ..request(running[0].0, &limits) }];
    assert_eq!(worker.harness.store.acquire("me", &again, start_s).unwrap(), [Grant::Now]);
    worker.now_s += 2.0;
    assert_eq!(worker.harness.store.move_due(worker.now_s, 100).unwrap().moved, 2);
    for entry in worker.harness.all(&queue("q")) {
        let stamp = Fields::parse(&entry.payload).unwrap().number("enqueued_at");
        assert_eq!(stamp, Some(5.25), "its wait is not over");
    }
    assert!(worker.claim(&["q"]).is_empty());
    assert!(worker.push("other", &["d"]).is_empty());
    worker.end(&running[0]);
    assert_eq!(jids_of(&worker.claim(&["q", "other"])), ["b"]);
}

pub(crate) fn a_long_line_is_called_one_by_one(fresh: OpenFresh<'_>) {
    let mut worker = Worker::new(fresh, at_once(1));
    let names: Vec<String> = (0..300).map(|number| format!("job-{number:03}")).collect();
    let jids: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut running = worker.push("q", &jids);
    for name in &names {
        assert_eq!(jids_of(&running), [name]);
        worker.end(&running[0]);
        running = worker.claim(&["q"]);
    }
    assert!(running.is_empty() && worker.scheduled().is_empty());
}

pub(crate) fn a_clock_that_is_set_back_holds_no_rate_up(fresh: OpenFresh<'_>) {
    for rule in
        [LimitRule::Window { max: 1, per_s: 100.0 }, LimitRule::Bucket { max: 1, per_s: 100.0 }]
    {
        // It is set back while a job waits, or before one does.
        for waits in [true, false] {
            let mut worker = Worker::new(fresh, Limit { key: "api".into(), rule });
            assert_eq!(jids_of(&worker.push("q", &["a"])), ["a"]);
            let jids: &[&str] = &["b", "c"];
            assert!(worker.push("q", if waits { jids } else { &[] }).is_empty());
            worker.now_s -= 5000.0;
            let later = if waits { &[] } else { jids };
            assert!(worker.push("q", later).is_empty(), "the rate is not exceeded");
            // The line was looked at.
            worker.now_s += if waits { 0.0 } else { 61.0 };
            let set_s = worker.now_s;
            worker.beat();
            for (jid, after_s) in [("b", 100.0), ("c", 200.0)] {
                let due = worker.entry(jid).score;
                assert!((due - set_s - after_s).abs() < 0.1, "{jid} is due after {}", due - set_s);
                worker.now_s = due + 0.01;
                assert_eq!(worker.harness.store.move_due(worker.now_s, 100).unwrap().moved, 1);
                assert_eq!(jids_of(&worker.claim(&["q"])), [jid]);
            }
        }
    }
}
