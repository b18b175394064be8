//! One engine driven step by step.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::engine::Engine as _;
use chaton_core::process::scoreboard::{OwnGauges, Scoreboard};
use chaton_core::process::table::Table;

use super::flaky_store::FlakyStore;
use super::stepped_engine::{config, factory, jids, push, queue, SteppedEngine};
use crate::cron::{Cron, CronMemory, CronRecord};
use crate::document::Document;
use crate::engine::config::Config;
use crate::engine::job::Job;
use crate::engine::orphans::{stopped, WorkerDeath};
use crate::engine::Engine;
use crate::outcome::Outcome;
use crate::store::{JobLocation, NewBatch, NewJob, Store, StoreFactory};

#[test]
fn a_job_is_claimed_started_and_acknowledged() {
    let factory = factory("acknowledged");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    assert!(engine.fetch());
    assert_eq!(store.stats().unwrap().in_flight, 1);
    let job = engine.start_one().unwrap();
    assert!(job.is_running() && job.finish(Outcome::Ack));
    assert!(!job.finish(Outcome::Ack), "a job ends once");
    engine.fetch();
    assert_eq!(store.stats().unwrap().in_flight, 0);
    engine.state.chores.lock().heartbeat = true;
    engine.maintenance.round();
    assert_eq!(store.stats().unwrap().processed, 1);
    assert!(engine.state.is_idle());
}

#[test]
fn strict_queues_are_claimed_in_their_order() {
    let factory = factory("strict");
    let mut store = factory.store();
    for (queue, jid) in [("low", "c"), ("high", "a"), ("low", "d"), ("high", "b")] {
        push(&mut *store, queue, jid, "", None);
    }
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    let order: Vec<_> =
        std::iter::from_fn(|| engine.start_one()).map(|j| j.document().jid().to_string()).collect();
    assert_eq!(order, ["a", "b", "c", "d"]);
}

#[test]
fn unstarted_jobs_go_back_when_a_higher_queue_gets_a_job() {
    let factory = factory("preempt");
    let mut store = factory.store();
    for jid in ["a", "b", "c"] {
        push(&mut *store, "low", jid, "", None);
    }
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    let first = engine.start_one().unwrap();
    push(&mut *store, "high", "urgent", "", None);
    *engine.feed.idle.lock() = 1;
    engine.state.inbox.lock().preempt = true;
    engine.fetch();
    engine.fetch();
    assert_eq!(engine.start_one().unwrap().document().jid(), "urgent");
    assert_eq!(jids(&mut *store, &queue("low")), ["b", "c"]);
    first.finish(Outcome::Ack);
}

#[test]
fn malformed_and_expired_jobs_never_reach_a_thread() {
    let factory = factory("broken");
    let mut store = factory.store();
    let broken = crate::store::NewJob {
        queue: "low",
        payload: b"{\"class\":",
        at: None,
        lock: None,
        bid: None,
    };
    store.push(&[broken]).unwrap();
    push(&mut *store, "low", "old", r#","chaton":{"expires_at":1}"#, None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    engine.fetch();
    assert!(engine.start_one().is_none());
    let dead = store.list(&JobLocation::Dead, 0, 10).unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].payload, b"{\"class\":", "unchanged");
    assert_eq!(store.stats().unwrap().in_flight, 0);
    assert!(engine.feed.lines.lock().iter().any(|line| line.contains("dead set")));
}

#[test]
fn a_death_counts_against_started_jobs_only() {
    let factory = factory("blame");
    let mut store = factory.store();
    for jid in ["poison", "innocent"] {
        push(&mut *store, "low", jid, "", None);
    }
    for death in 1..=3 {
        let mut crashed = SteppedEngine::new(&factory, config(), death);
        crashed.fetch();
        let mut running = crashed.start_one().unwrap();
        if death == 3 {
            assert_eq!(running.document().jid(), "innocent", "a suspect waits to be alone");
            running.give_back();
            crashed.fetch();
            crashed.fetch();
            running = crashed.start_one().unwrap();
            assert!(crashed.feed.jobs.lock().is_empty(), "nothing runs beside it");
        }
        assert_eq!(running.document().jid(), "poison", "it was at the front");
        let mut survivor = SteppedEngine::new(&factory, config(), death);
        survivor.state.add_death(WorkerDeath {
            identity: crashed.state.identity.name.clone(),
            cause: Some("SIGSEGV".into()),
            tickets: vec![running.ticket()],
        });
        survivor.maintenance.round();
        // Outcomes from the dead engine are ignored.
        crashed.state.quiet.store(true, Ordering::SeqCst);
        running.finish(Outcome::Ack);
        crashed.fetch();
    }
    let dead = store.list(&JobLocation::Dead, 0, 10).unwrap();
    assert_eq!(jids(&mut *store, &JobLocation::Dead), ["poison"]);
    let text = String::from_utf8_lossy(&dead[0].payload);
    assert!(text.contains("3 times within 72 hours: SIGSEGV at 20"), "{text}");
    assert_eq!(jids(&mut *store, &queue("low")), ["innocent"]);
}

/// Ends a worker at the deadline of its stop.
fn give_up(engine: &mut SteppedEngine) {
    let state = engine.state.clone();
    state.quiet.store(true, Ordering::SeqCst);
    Engine { state, threads: Arc::default() }.give_up();
    engine.fetch();
}

#[test]
fn a_job_whose_worker_gets_signals_from_elsewhere_goes_behind_the_others_and_ends_dead() {
    let factory = factory("unasked");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
    let settings = || Config { supervised: true, gauges: Some(gauges.clone()), ..config() };
    for stop in 1..=7u32 {
        let mut engine = SteppedEngine::new(&factory, settings(), stop.into());
        engine.fetch();
        engine.fetch();
        let job = engine.start_one().unwrap();
        // The supervisor asks for the fourth stop.
        gauges.end();
        (stop == 4).then(|| gauges.note_stop(false));
        give_up(&mut engine);
        assert!(!job.is_open());
        let unasked = stop - u32::from(stop >= 4);
        let place = match stop {
            1 | 2 | 4 => queue("low"),
            7 => JobLocation::Dead,
            _ => JobLocation::Scheduled,
        };
        let found = store.list(&place, 0, 10).unwrap();
        assert_eq!(found.len(), 1, "stop {stop}");
        let text = String::from_utf8_lossy(&found[0].payload).into_owned();
        let counts = format!(r#""chaton":{{"stops":{stop},"unasked":{unasked}}}"#);
        assert!(text.contains(&counts), "{text}");
        if place == JobLocation::Scheduled {
            assert!(found[0].score <= engine.state.now_s(), "it is due");
            assert!(store.enqueue_entry(&place, &found[0], 0.0).unwrap());
            push(&mut *store, "low", "innocent", "", None);
            let mut other = SteppedEngine::new(&factory, config(), 1);
            assert!(other.start_one().is_none() && other.fetch());
            let beside = other.start_one().unwrap();
            assert_eq!(beside.document().jid(), "innocent", "the other one waits to be alone");
            beside.finish(Outcome::Ack);
            give_up(&mut other);
        }
        if stop == 7 {
            assert!(text.contains("got a signal to stop while it ran this job, 6 times"), "{text}");
            let lines = engine.feed.lines.lock();
            assert!(lines.iter().any(|line| line.ends_with("it is in the dead set")), "{lines:?}");
        }
    }
}

#[test]
fn stops_are_noted_and_never_fatal() {
    let factory = factory("stops");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    for stop in 1..=10u64 {
        let mut stopped = SteppedEngine::new(&factory, config(), stop);
        stopped.fetch();
        let running = stopped.start_one().unwrap();
        if stop % 2 == 0 {
            // The supervisor killed it because it did not exit in time.
            let mut survivor = SteppedEngine::new(&factory, config(), stop);
            let identity = stopped.state.identity.name.clone();
            let tickets = vec![running.ticket()];
            survivor.state.add_death(WorkerDeath { identity, cause: None, tickets });
            survivor.maintenance.round();
        } else {
            give_up(&mut stopped);
        }
        let waiting = store.list(&queue("low"), 0, 10).unwrap();
        let text = String::from_utf8_lossy(&waiting[0].payload).into_owned();
        assert!(text.contains(&format!(r#""chaton":{{"stops":{stop}}}"#)), "{text}");
    }
}

#[test]
fn a_running_job_that_is_left_stays_in_flight_to_be_counted() {
    let factory = factory("left");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    let job = engine.start_one().unwrap();
    job.leave();
    assert!(!job.finish(Outcome::Ack), "its outcome is ignored");
    engine.fetch();
    assert!(engine.state.is_idle(), "the engine can stop");
    assert_eq!(store.in_flight(&engine.state.identity.name).unwrap().len(), 1);
    assert!(!store.forget(&engine.state.identity.name).unwrap());
}

#[test]
fn an_engine_that_begins_quiet_claims_nothing() {
    let factory = factory("begins-quiet");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let settings = crate::engine::Config { begins_quiet: true, ..config() };
    let mut engine = SteppedEngine::new(&factory, settings, 1);
    engine.fetch();
    assert!(engine.start_one().is_none());
    engine.state.quiet.store(false, Ordering::SeqCst);
    engine.fetch();
    assert!(engine.start_one().is_some());
}

#[test]
fn the_round_that_releases_a_slot_claims_the_next_job_of_the_line() {
    let factory = factory("limits");
    let mut store = factory.store();
    let limit = r#","enqueued_at":5.25,"chaton":{"limits":[{"key":"api","max":1}]}"#;
    for jid in ["a", "b", "c"] {
        push(&mut *store, "low", jid, limit, None);
    }
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    let first = engine.start_one().unwrap();
    assert!(engine.start_one().is_none());
    engine.fetch();
    assert_eq!(jids(&mut *store, &JobLocation::Scheduled), ["b", "c"]);
    assert!(!engine.fetcher.round(), "nothing to do");
    let trips = |engine: &SteppedEngine| engine.state.counters.read().round_trips;
    let before = trips(&engine);
    first.finish(Outcome::Ack);
    // Though the queues were empty at the last look.
    assert!(engine.fetcher.round());
    assert_eq!(trips(&engine), before + 1);
    let second = engine.start_one().unwrap();
    assert_eq!(second.document().jid(), "b");
    assert_eq!(second.document().enqueued_at_s(), Some(5.25));
    assert_eq!(second.document().extra().unwrap().since, None, "a retry has waited anew");
    second.finish(Outcome::Retry { at: 0.0, payload: second.document().payload().to_vec() });
    assert!(engine.fetcher.round());
    assert_eq!(engine.start_one().unwrap().document().jid(), "c");
}

#[test]
fn acks_of_an_owner_that_was_reclaimed_do_nothing() {
    let factory = factory("fenced");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let gauges = OwnGauges::new(Arc::new(Scoreboard::new(1).unwrap()), 0);
    let config_with_gauges = Config { gauges: Some(gauges.clone()), ..config() };
    let mut engine = SteppedEngine::new(&factory, config_with_gauges, 1);
    engine.fetch();
    let job = engine.start_one().unwrap();
    let mut survivor = SteppedEngine::new(&factory, config(), 2);
    let identity = engine.state.identity.name.clone();
    survivor.state.add_death(WorkerDeath { identity, ..WorkerDeath::default() });
    survivor.maintenance.round();
    assert_eq!(jids(&mut *store, &queue("low")), ["a"]);
    job.finish(Outcome::Retry { at: 1.0, payload: b"{}".to_vec() });
    engine.state.quiet.store(true, Ordering::SeqCst);
    engine.fetch();
    assert_eq!(engine.state.counters.read().fenced, 1);
    assert_eq!(gauges.counters().jobs.fenced.load(Ordering::Relaxed), 1);
    assert_eq!(store.stats().unwrap().retries, 0);
    assert_eq!(jids(&mut *store, &queue("low")), ["a"]);
}

#[test]
fn a_suspect_that_cannot_run_alone_is_rescheduled() {
    let factory = factory("suspect-waits");
    let mut store = factory.store();
    push(&mut *store, "high", "long", "", None);
    push(&mut *store, "low", "suspect", r#","chaton":{"deaths":2}"#, None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    let long = engine.start_one().unwrap();
    assert!(engine.start_one().is_none());
    push(&mut *store, "low", "innocent", "", None);
    engine.fetch();
    assert!(engine.start_one().is_none(), "nothing is claimed while a suspect waits");
    engine.state.hand.write().suspects[0].until_ns = 0;
    engine.fetch();
    assert_eq!(jids(&mut *store, &JobLocation::Scheduled), ["suspect"]);
    engine.fetch();
    assert_eq!(engine.start_one().unwrap().document().jid(), "innocent");
    long.finish(Outcome::Ack);
}

/// An engine that runs `long` while a suspect that has waited three times waits for its turn.
fn with_turn(factory: &Arc<dyn StoreFactory>) -> (SteppedEngine, Arc<Job>) {
    let mut store = factory.store();
    push(&mut *store, "high", "long", "", None);
    push(&mut *store, "low", "suspect", r#","chaton":{"deaths":2,"visits":3}"#, None);
    let mut engine = SteppedEngine::new(factory, config(), 1);
    engine.fetch();
    let long = engine.start_one().unwrap();
    (engine, long)
}

#[test]
fn a_suspect_that_has_waited_three_times_gets_its_turn() {
    let factory = factory("suspect-turn");
    let mut store = factory.store();
    push(&mut *store, "high", "long", "", None);
    push(&mut *store, "low", "suspect", r#","chaton":{"deaths":2}"#, None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    for visits in 1..=3 {
        engine.fetch();
        engine.start_one();
        engine.state.hand.write().suspects[0].until_ns = 0;
        engine.fetch();
        let waiting = store.list(&JobLocation::Scheduled, 0, 1).unwrap();
        let text = String::from_utf8_lossy(&waiting[0].payload).into_owned();
        assert!(text.contains(&format!(r#""chaton":{{"deaths":2,"visits":{visits}}}"#)), "{text}");
        assert!(store.enqueue_entry(&JobLocation::Scheduled, &waiting[0], 0.0).unwrap());
    }
    let long = engine.state.hand.read().jobs.values().next().unwrap().clone();
    engine.fetch();
    push(&mut *store, "low", "innocent", "", None);
    let wait_ns = engine.state.hand.read().suspects[0].until_ns - chaton_core::clock::now_ns();
    assert!(wait_ns > 590_000_000_000, "it waits for {wait_ns} ns");
    engine.fetch();
    assert!(engine.start_one().is_none(), "nothing is claimed until it has run");
    long.finish(Outcome::Ack);
    engine.fetch();
    let suspect = engine.start_one().unwrap();
    assert_eq!(suspect.document().jid(), "suspect");
    engine.fetch();
    assert!(engine.start_one().is_none(), "it runs alone");
    suspect.finish(Outcome::Ack);
    engine.fetch();
    assert_eq!(engine.start_one().unwrap().document().jid(), "innocent");
    let lines = std::mem::take(&mut *engine.feed.lines.lock());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("A jid=suspect queue=low has to run alone"), "{lines:?}");
    assert!(lines[1].contains("A jid=suspect queue=low runs alone now, after 0."), "{lines:?}");
}

#[test]
fn one_process_at_a_time_waits_for_a_suspect() {
    let factory = factory("suspect-one");
    let (mut first, long) = with_turn(&factory);
    let (mut second, other) = with_turn(&factory);
    let mut store = factory.store();
    second.fetch();
    assert_eq!(jids(&mut *store, &JobLocation::Scheduled), ["suspect"], "the first one has it");
    push(&mut *store, "low", "innocent", "", None);
    second.fetch();
    assert_eq!(second.start_one().unwrap().document().jid(), "innocent");
    other.finish(Outcome::Ack);
    // The process that waits for its suspect dies.
    let identity = first.state.identity.name.clone();
    second.state.add_death(WorkerDeath { identity, ..WorkerDeath::default() });
    second.maintenance.round();
    second.fetch();
    assert_eq!(second.state.hand.read().suspects.len(), 1, "it has the turn now");
    long.finish(Outcome::Ack);
    first.fetch();
}

#[test]
fn a_turn_ends_when_the_other_jobs_do_not() {
    let factory = factory("suspect-late");
    let (mut engine, long) = with_turn(&factory);
    let mut store = factory.store();
    engine.state.hand.write().suspects[0].until_ns = 0;
    engine.fetch();
    let later = store.list(&JobLocation::Scheduled, 0, 1).unwrap();
    let pause_s = later[0].score - engine.state.now_s();
    assert!((590.0..=1200.0).contains(&pause_s), "the others get as much time: {pause_s} s");
    push(&mut *store, "low", "innocent", "", None);
    engine.fetch();
    assert_eq!(engine.start_one().unwrap().document().jid(), "innocent");
    long.finish(Outcome::Ack);
}

#[test]
fn a_job_claimed_before_quiet_is_not_started_after_it() {
    let factory = factory("quiet-claim");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    let claimed = {
        let queues = ["low".into()];
        let want = crate::store::ClaimRequest { queues: &queues, count: 1, first_ticket: 1 };
        store.claim(&engine.state.identity.name, &want).unwrap().jobs
    };
    engine.state.quiet.store(true, Ordering::SeqCst);
    let mut admission = crate::engine::admission::Admission::new(&engine.state);
    admission.admit(&mut *store, claimed).unwrap();
    assert!(engine.feed.jobs.lock().is_empty());
    engine.fetch();
    assert_eq!(jids(&mut *store, &queue("low")), ["a"]);
}

#[test]
fn a_lost_claim_of_due_jobs_is_adopted() {
    let factory = factory("lost-due");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", Some(1.0));
    let settings = || crate::engine::Config { claim_due: true, ..config() };
    let mut engine = SteppedEngine::new(&factory, settings(), 1);
    // The first round of the maintenance thread admitted it; pretend it did not.
    let job = engine.start_one().unwrap();
    let ticket = job.ticket();
    engine.state.inbox.lock().claimed.clear();
    engine.state.inbox.lock().doubts.note_lost_claim(ticket);
    engine.state.inbox.lock().due_claim = Some((ticket, ticket + 1));
    engine.fetch();
    assert!(engine.start_one().is_none(), "the maintenance thread is about to admit it");
    engine.state.inbox.lock().due_claim = None;
    engine.state.inbox.lock().doubts.note_lost_claim(ticket);
    engine.fetch();
    let found = engine.start_one().unwrap();
    assert!(found.is_due() && found.ticket() == ticket);
    found.finish(Outcome::Ack);
}

#[test]
fn what_the_fetcher_was_not_told_yet_counts_all_the_same() {
    let factory = factory("untold");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", Some(1.0));
    let settings = crate::engine::Config { claim_due: true, ..config() };
    let mut engine = SteppedEngine::new(&factory, settings, 1);
    // The maintenance thread has claimed it, and a thread runs it, while the fetcher waits for the store.
    let job = engine.start_one().unwrap();
    assert_eq!(engine.state.running_jobs().len(), 1, "it can be given up");
    assert!(job.finish(Outcome::Ack));
    assert!(!engine.state.is_idle(), "its end is not written");
    engine.fetch();
    assert!(engine.state.is_idle() && engine.state.running_jobs().is_empty());
}

#[test]
fn a_store_that_answers_again_ends_the_pause() {
    let factory = factory("pause");
    let config = Config { retry_max: Duration::from_secs(3600), ..config() };
    let store = Box::new(FlakyStore::over(factory.store(), 1));
    let mut engine = SteppedEngine::with_store(store, &factory, config, 1);
    while engine.fetch() {}
    engine.state.end_pauses();
    assert!(engine.fetch(), "it waits for the end of its pause");
}

#[test]
fn a_quiet_keeper_rests() {
    let factory = factory("quiet-maintenance");
    let mut store = factory.store();
    let settings = crate::engine::Config { claim_due: true, ..config() };
    let mut engine = SteppedEngine::new(&factory, settings, 1);
    engine.state.quiet.store(true, Ordering::SeqCst);
    push(&mut *store, "low", "a", "", Some(1.0));
    engine.state.chores.lock().due = Some(Some(1.0));
    let until = engine.maintenance.round();
    assert!(
        until > chaton_core::clock::wall_s(),
        "a due job that may not be moved does not keep it busy"
    );
}

#[test]
fn an_outcome_that_is_not_written_is_logged_while_the_lease_is_held() {
    let factory = factory("fenced");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    let job = engine.start_one().unwrap();
    let gone = crate::store::Ack {
        ticket: job.ticket(),
        queue: "low".into(),
        outcome: Outcome::Ack,
        effects: None,
    };
    assert_eq!(store.ack(&engine.state.identity.name, &[gone]).unwrap(), 0);
    job.finish(Outcome::Dead { at: 1.0, payload: None });
    engine.fetch();
    let lines = engine.feed.lines.lock();
    assert!(
        lines.iter().any(|line| line.contains("outcomes of 1 jobs were not written")),
        "{lines:?}"
    );
}

#[test]
fn a_job_that_was_left_running_stays_in_flight() {
    let factory = factory("left");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    engine.start_one().unwrap().leave();
    engine.state.inbox.lock().doubts.compare = true;
    engine.fetch();
    assert_eq!(store.in_flight(&engine.state.identity.name).unwrap().len(), 1);
}

#[test]
fn a_job_of_a_newer_format_waits_for_a_newer_process() {
    let factory = factory("newer-format");
    let mut store = factory.store();
    let newer = r#","later":1.50,"chaton":{"format":2,"limits":{"a":1},"lock":"k"}"#;
    push(&mut *store, "low", "newer", newer, None);
    push(&mut *store, "low", "next", "", None);
    let old = r#","chaton":{"format":2,"unknown_since":1.0}"#;
    push(&mut *store, "low", "old", old, None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    assert_eq!(engine.start_one().unwrap().document().jid(), "next", "the others go on");
    assert!(engine.start_one().is_none());
    engine.fetch();
    let entry = store.list(&JobLocation::Scheduled, 0, 2).unwrap().remove(0);
    assert!(entry.score > chaton_core::clock::wall_s() + 2.0, "it waits");
    let text = String::from_utf8(entry.payload).unwrap();
    let kept = r#","later":1.50,"chaton":{"format":2,"limits":{"a":1},"lock":"k","unknown_since":"#;
    assert!(text.contains(kept), "{text}");
    let dead = store.list(&JobLocation::Dead, 0, 2).unwrap().remove(0);
    let text = String::from_utf8(dead.payload).unwrap();
    assert!(
        text.contains(r#""jid":"old""#) && text.contains("Chaton::Jobs::NewerFormat"),
        "{text}"
    );
    let counters = engine.state.counters.read();
    assert_eq!((counters.put_back, counters.malformed), (1, 0));
    let lines = engine.feed.lines.lock();
    assert_eq!(lines.iter().filter(|line| line.contains("later version of Chaton")).count(), 1);
}

#[test]
fn members_of_a_later_version_are_kept_when_a_document_is_rewritten() {
    let factory = factory("later-members");
    let mut store = factory.store();
    let later = r#","later":[1.50],"chaton":{"deadline":5.0,"later":{"x":1}}"#;
    push(&mut *store, "low", "a", later, None);
    let mut engine = SteppedEngine::new(&factory, config(), 1);
    engine.fetch();
    let job = engine.start_one().unwrap();
    let cause = Some("SIGSEGV".into());
    let death = WorkerDeath {
        identity: engine.state.identity.name.clone(),
        cause,
        tickets: vec![job.ticket()],
    };
    crate::engine::orphans::reclaim(&mut *store, &death, 7.0).unwrap();
    let text =
        String::from_utf8(store.list(&queue("low"), 0, 1).unwrap().remove(0).payload).unwrap();
    let kept = r#","later":[1.50],"chaton":{"deadline":5.0,"later":{"x":1},"deaths":1,"died":[[7.0,"SIGSEGV"]]}"#;
    assert!(text.contains(kept), "{text}");
    let Outcome::Requeue { payload: Some(payload), .. } = stopped(job.document(), true, 7.0) else {
        panic!("not put back");
    };
    let text = String::from_utf8(payload).unwrap();
    assert!(text.contains(r#""later":{"x":1},"stops":1"#), "{text}");
    job.finish(Outcome::Ack);
}

#[test]
fn a_due_retry_that_could_not_be_pushed_is_a_retry_again() {
    let factory = factory("retry-push-fails");
    let mut store = factory.store();
    let at = chaton_core::clock::wall_s() - 1.0;
    let doc = br#"{"class":"A","args":[],"jid":"a","queue":"low","retry_count":1}"#;
    store.add_entry(&JobLocation::Retry, at, doc).unwrap();
    let mut engine = SteppedEngine::new(&factory, Config { claim_due: true, ..config() }, 1);
    rounds_until(&mut engine, "the claim", || factory.store().stats().unwrap().in_flight == 1);
    engine.start_one().unwrap().finish(Outcome::reschedule(at + 60.0));
    engine.fetch();
    let stats = store.stats().unwrap();
    assert_eq!((stats.retries, stats.scheduled, stats.in_flight), (1, 0, 0));
    assert_eq!(engine.state.counters.failed.load(Ordering::Relaxed), 0);
}

/// A daily cron whose last tick was at most a minute before `now_s`.
fn daily(now_s: f64) -> Cron {
    let (hour, minute) = ((now_s / 3600.0) as u64 % 24, (now_s / 60.0) as u64 % 60);
    let head = r#"{"class":"A","args":[],"queue":"low""#;
    Cron::new("daily", &format!("{minute} {hour} * * *"), "UTC", "low", head).unwrap()
}

/// Boots engines and returns how many jobs their crons enqueued after each.
fn boots(
    factory: &std::sync::Arc<dyn crate::store::StoreFactory>,
    known_since: Option<&str>,
    catch_up_s: u64,
) -> [u64; 2] {
    let mut store = factory.store();
    let cron = daily(chaton_core::clock::wall_s());
    if let Some(since) = known_since {
        let record = CronRecord::new(&cron, since.parse().unwrap(), 0);
        let record = serde_json::to_vec(&record).unwrap();
        store
            .save("chaton:cron:", &[("daily", &record)], std::time::Duration::from_secs(60))
            .unwrap();
    }
    [1, 2].map(|seed| {
        let catch_up = std::time::Duration::from_secs(catch_up_s);
        let settings = crate::engine::Config { catch_up, crons: vec![cron.clone()], ..config() };
        SteppedEngine::new(factory, settings, seed);
        store.stats().unwrap().enqueued
    })
}

#[test]
fn a_tick_missed_while_no_process_ran_is_enqueued_once_after_boot() {
    let dir = tempfile::tempdir().unwrap();
    let sqlite = |name: &str| {
        let url = format!("sqlite://{}", dir.path().join(name).display());
        crate::store::open(&crate::store::StoreOptions::for_tests(url)).unwrap()
    };
    assert_eq!(boots(&factory("missed"), Some("0"), 600), [1, 1]);
    assert_eq!(boots(&sqlite("missed"), Some("0"), 600), [1, 1]);
    assert_eq!(boots(&factory("off"), Some("0"), 0), [0, 0], "off");
    assert_eq!(boots(&factory("new"), None, 600), [0, 0], "a new entry begins now");
    assert_eq!(boots(&sqlite("new"), None, 600), [0, 0]);
    let recent = format!("{:.3}", chaton_core::clock::wall_s() + 120.0);
    assert_eq!(boots(&factory("recent"), Some(&recent), 600), [0, 0], "newer than the tick");
}

/// A cron with a tick each second whose jobs are unique.
fn each_second(name: &str) -> Cron {
    let head = r#"{"class":"A","args":[],"queue":"low""#;
    let cron = Cron::new(name, "* * * * * *", "UTC", "low", head).unwrap();
    let lock_ttl = Some(std::time::Duration::from_secs(600));
    cron.with_options(r#"{"lock":"A:1","expires_at":60.0}"#, lock_ttl).unwrap()
}

/// Does rounds until a condition holds.
fn rounds_until(engine: &mut SteppedEngine, what: &str, mut is: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(std::time::Instant::now() < end, "{what} did not happen");
        engine.maintenance.round();
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_batch_that_a_dead_process_left_open_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    for factory in [factory("left-batch"), sqlite(&dir)] {
        let mut store = factory.store();
        let mut settings = config();
        settings.store.lease = Duration::from_secs(1);
        settings.heartbeat = Duration::from_millis(100);
        let mut engine = SteppedEngine::new(&factory, settings, 1);
        let (now_s, ttl) = (chaton_core::clock::wall_s(), Duration::from_secs(600));
        let ours = engine.state.identity.name.clone();
        for (bid, owner) in [("left", "gone"), ("open", &*ours), ("web", "")] {
            let batch = NewBatch {
                bid,
                parent: None,
                owner,
                description: "an import",
                callbacks: &[],
                ttl,
                now_s,
            };
            store.batch_open(&batch).unwrap();
        }
        rounds_until(&mut engine, "its removal", || store.batch("left").unwrap().is_none());
        let lines = engine.feed.lines.lock().clone();
        assert!(
            lines.iter().any(|line| line.contains("left \"an import\" was left open")),
            "{lines:?}"
        );
        for bid in ["open", "web"] {
            assert!(factory.store().batch(bid).unwrap().is_some(), "{bid}");
        }
    }
}

fn sqlite(dir: &tempfile::TempDir) -> Arc<dyn crate::store::StoreFactory> {
    let url = format!("sqlite://{}", dir.path().join("jobs.db").display());
    crate::store::open(&crate::store::StoreOptions::for_tests(url)).unwrap()
}

#[test]
fn a_tick_of_a_unique_job_waits_for_the_end_of_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    for factory in [factory("unique-ticks"), sqlite(&dir)] {
        let mut store = factory.store();
        let settings = Config { crons: vec![each_second("tick")], ..config() };
        let mut engine = SteppedEngine::new(&factory, settings, 1);
        let memory = |last: f64| {
            let mut store = factory.store();
            let memory = CronMemory::load(&mut *store, "").unwrap();
            memory.last_tick("tick").is_some_and(|at| at > last)
        };
        rounds_until(&mut engine, "the first tick", || memory(0.0));
        let began_s = chaton_core::clock::wall_s();
        engine.fetch();
        let job = engine.start_one().unwrap();
        let expires_at = job.document().extra().unwrap().expires_at.unwrap();
        assert!((expires_at - began_s - 60.0).abs() < 2.0, "{expires_at} at {began_s}");
        rounds_until(&mut engine, "two more ticks", || {
            chaton_core::clock::wall_s() > began_s + 2.2
        });
        assert_eq!(store.stats().unwrap().enqueued, 0, "an equal job runs");
        assert!(!memory(began_s), "what was not enqueued is no last tick");
        job.finish(Outcome::Ack);
        engine.fetch();
        rounds_until(&mut engine, "the next tick", || {
            factory.store().stats().unwrap().enqueued == 1
        });
        let next = store.list(&queue("low"), 0, 1).unwrap().remove(0);
        let doc = Document::parse(next.payload.into()).unwrap();
        assert!(doc.enqueued_at_s().is_some());
    }
}

#[test]
fn a_tick_goes_through_the_schedule_where_client_middleware_waits_for_it() {
    let factory = factory("ticks-through-ruby");
    let mut store = factory.store();
    let settings = Config { claim_due: true, crons: vec![each_second("tick")], ..config() };
    let mut engine = SteppedEngine::new(&factory, settings, 1);
    rounds_until(&mut engine, "the first tick", || factory.store().stats().unwrap().in_flight == 1);
    let job = engine.start_one().unwrap();
    assert!(job.is_due() && job.document().enqueued_at_s().is_none());
    assert_eq!(store.stats().unwrap().enqueued, 0);
    job.finish(Outcome::Discard);
}

#[test]
fn two_applications_with_equal_names_have_their_own_ticks() {
    let factory = factory("two-applications");
    let plain = |queue: &str, class: &str| {
        let head = format!(r#"{{"class":"{class}","args":[],"queue":"{queue}""#);
        Cron::new("nightly", "* * * * * *", "UTC", queue, &head).unwrap()
    };
    let engine = |application: &str, cron| {
        let settings = Config { crons: vec![cron], application: application.into(), ..config() };
        SteppedEngine::new(&factory, settings, 1)
    };
    let rows = [("a", "q1", "A"), ("b", "q1", "A"), ("a", "q2", "A"), ("a", "q3", "B")];
    let mut engines = rows.map(|(tag, queue, class)| engine(tag, plain(queue, class)));
    let begin_s = chaton_core::clock::wall_s();
    rounds_until(&mut engines[0], "the first tick", || {
        factory.store().stats().unwrap().enqueued == 1
    });
    // The others look for the same tick, and perhaps one more.
    let ticks = |engines: &mut [SteppedEngine]| {
        for engine in engines.iter_mut() {
            engine.maintenance.round();
        }
        let counts =
            engines.iter().map(|engine| engine.state.counters.cron_pushed.load(Ordering::Relaxed));
        counts.min().unwrap()
    };
    while ticks(&mut engines) == 0 {
        assert!(chaton_core::clock::wall_s() < begin_s + 20.0, "an application has no tick");
    }
}

#[test]
fn ticks_of_a_clock_that_was_ahead_are_forgotten_once() {
    let dir = tempfile::tempdir().unwrap();
    for factory in [factory("ahead"), sqlite(&dir)] {
        let mut store = factory.store();
        let now_s = chaton_core::clock::wall_s();
        let crons = vec![each_second("tick"), daily(now_s)];
        note_future_ticks(&mut *store, &crons, now_s);
        let settings = || Config { crons: crons.clone(), ..config() };
        let mut first = SteppedEngine::new(&factory, settings(), 1);
        let second = SteppedEngine::new(&factory, settings(), 2);
        rounds_until(&mut first, "a tick", || factory.store().stats().unwrap().enqueued > 120);
        let ticks = store.list(&queue("low"), 0, 10).unwrap();
        let mut docs = ticks.into_iter().map(|one| Document::parse(one.payload.into()).unwrap());
        assert!(docs.all(|doc| doc.extra().is_some()), "one was caught up");
        let lines = |engine: &SteppedEngine| {
            let lines = engine.feed.lines.lock().clone();
            lines.iter().filter(|line| line.contains("because the clock was ahead")).count()
        };
        assert_eq!((lines(&first), lines(&second)), (1, 0));
    }
}

/// What a clock leaves behind that was ahead by a minute: of the first entry all ticks of this time.
fn note_future_ticks(store: &mut dyn Store, crons: &[Cron], now_s: f64) {
    let hour = Duration::from_secs(3600);
    let records: Vec<_> =
        crons.iter().map(|cron| CronRecord::new(cron, now_s - 9000.0, 0)).collect();
    for ahead in -60..60 {
        let key = records[0].tick_key("", &crons[0].name, now_s + f64::from(ahead));
        let doc = br#"{"class":"A","args":[],"jid":"x"}"#;
        let job = NewJob { queue: "ahead", payload: doc, at: None, lock: None, bid: None };
        assert!(store.push_once(&key, hour, &job).unwrap());
    }
    let last = format!("{:.0}", now_s + 59.0);
    for (cron, record) in crons.iter().zip(&records) {
        let record = serde_json::to_vec(record).unwrap();
        let last_field = crate::cron::last_field(&cron.name);
        let fields: [(&str, &[u8]); 2] = [(&cron.name, &record), (&last_field, last.as_bytes())];
        store.save("chaton:cron:", &fields, hour).unwrap();
    }
}

#[test]
fn a_slow_answer_does_not_move_the_clock() {
    let engine = SteppedEngine::new(&factory("slow-clock"), config(), 1);
    let seconds = 1_000_000_000;
    let (now, wall) = (chaton_core::clock::boot_ns(), chaton_core::clock::wall_s());
    // Read as soon as it was asked for, or just before the answer came.
    for store_s in [wall - 3.0, wall] {
        engine.state.note_clock(store_s, now - 3 * seconds, now);
        let ahead_s = engine.state.now_s() - chaton_core::clock::wall_s();
        assert!(ahead_s.abs() < 0.1, "{ahead_s}");
    }
    engine.state.note_clock(wall + 60.0, now - seconds, now);
    let ahead_s = engine.state.now_s() - chaton_core::clock::wall_s();
    assert!((59.9..61.5).contains(&ahead_s), "{ahead_s}");
}

/// An engine whose store has another clock than this machine.
fn with_other_clock(
    factory: &std::sync::Arc<dyn crate::store::StoreFactory>,
    ahead_s: f64,
) -> SteppedEngine {
    let mut engine = SteppedEngine::new(factory, config(), 1);
    let store = super::flaky_store::OtherClock { inner: factory.store(), ahead_s };
    engine.maintenance =
        crate::engine::maintenance::Maintenance::new(&engine.state, Box::new(store), false);
    engine.maintenance.round();
    engine
}

#[test]
fn due_times_and_limits_follow_the_clock_of_the_store() {
    let wall = chaton_core::clock::wall_s();
    for (name, ahead_s, moved) in [("ahead", 3600.0, 2), ("behind", -3600.0, 0)] {
        let factory = factory(name);
        let mut store = factory.store();
        let mut engine = with_other_clock(&factory, ahead_s);
        push(&mut *store, "high", "in half an hour", "", Some(wall + 1800.0));
        push(&mut *store, "high", "now", "", Some(wall - 1.0));
        engine.state.chores.lock().due = Some(Some(0.0));
        engine.maintenance.round();
        assert_eq!(jids(&mut *store, &queue("high")).len(), moved, "{name}");
        let limit = r#","chaton":{"limits":[{"key":"api","max":1,"per":60}]}"#;
        push(&mut *store, "low", "first", limit, None);
        push(&mut *store, "low", "second", limit, None);
        engine.fetch();
        engine.fetch();
        let scheduled = store.list(&JobLocation::Scheduled, 0, 9).unwrap();
        let scores = scheduled.iter().map(|entry| entry.score - wall - ahead_s);
        assert_eq!(
            scores.filter(|s| (0.0..1700.0).contains(s)).count(),
            1,
            "{name}: the second waits a minute"
        );
        let job = engine.start_one().unwrap();
        let retry_at = job.store_time(chaton_core::clock::wall_s()) - wall - ahead_s;
        assert!((-1.0..1700.0).contains(&retry_at), "{name}: {retry_at}");
    }
}

#[test]
fn due_jobs_that_are_given_back_return_to_their_sets() {
    let factory = factory("due-back");
    let mut store = factory.store();
    let settings = || crate::engine::Config { claim_due: true, ..config() };
    push(&mut *store, "low", "new", "", Some(1.0));
    push(&mut *store, "low", "failed", r#","retry_count":0"#, Some(1.0));
    let mut engine = SteppedEngine::new(&factory, settings(), 1);
    for job in engine.feed.jobs.lock().drain(..) {
        assert!(job.is_due());
        job.give_back();
    }
    engine.fetch();
    assert_eq!(jids(&mut *store, &JobLocation::Scheduled), ["new"]);
    assert_eq!(jids(&mut *store, &JobLocation::Retry), ["failed"]);
    assert_eq!(store.stats().unwrap().enqueued, 0, "the client middleware has not run");
}

#[test]
fn due_jobs_of_a_dead_owner_return_to_their_sets() {
    let factory = factory("due-orphans");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", Some(1.0));
    let settings = crate::engine::Config { claim_due: true, ..config() };
    let dead = SteppedEngine::new(&factory, settings, 1);
    assert_eq!(store.stats().unwrap().in_flight, 1);
    let mut survivor = SteppedEngine::new(&factory, config(), 2);
    survivor.state.chores.lock().due = Some(None);
    survivor.state.add_death(WorkerDeath {
        identity: dead.state.identity.name.clone(),
        ..WorkerDeath::default()
    });
    survivor.maintenance.round();
    assert_eq!(jids(&mut *store, &JobLocation::Scheduled), ["a"]);
}

/// An engine with client middleware, and many jobs that are due.
fn with_backlog(name: &str) -> (SteppedEngine, Box<dyn crate::store::Store>) {
    let factory = factory(name);
    let mut store = factory.store();
    let heartbeat = Duration::ZERO;
    let settings = Config { claim_due: true, heartbeat, ..config() };
    let engine = SteppedEngine::new(&factory, settings, 1);
    let payload = |n: usize| format!(r#"{{"class":"A","args":[],"jid":"{n}","queue":"low"}}"#);
    let payloads: Vec<String> = (0..3_000).map(payload).collect();
    let mut jobs = vec![];
    for payload in &payloads {
        let (queue, payload, at) = ("low", payload.as_bytes(), Some(1.0));
        jobs.push(crate::store::NewJob { queue, payload, at, lock: None, bid: None });
    }
    store.push(&jobs).unwrap();
    engine.state.chores.lock().due = Some(Some(1.0));
    (engine, store)
}

#[test]
fn a_due_backlog_is_claimed_while_there_is_room_and_heartbeats_go_on() {
    let (mut engine, _) = with_backlog("due-room");
    let most = crate::engine::state::DUE_AHEAD;
    for round in 2..10 {
        engine.maintenance.round();
        let counters = engine.state.counters.read();
        assert_eq!((counters.heartbeats, engine.feed.jobs.lock().len()), (round, most));
    }
    let mut pushed = 0;
    while engine.feed.jobs.lock().len() + pushed < 3_000 {
        let next = |_| engine.start_one().map(|job| assert!(job.finish(Outcome::Ack)));
        pushed += (0..most).filter_map(next).count();
        engine.fetch();
        engine.maintenance.round();
    }
    assert!(pushed > 2_000);
}

#[test]
fn due_jobs_that_the_pool_refuses_are_not_claimed_again_at_once() {
    let (mut engine, mut store) = with_backlog("due-refused");
    *engine.feed.room.lock() = Some(10);
    *engine.feed.idle.lock() = 0;
    for _ in 0..9 {
        engine.maintenance.round();
        engine.fetch();
    }
    assert_eq!(engine.state.counters.read().due_moved as usize, crate::engine::state::DUE_AHEAD);
    assert_eq!((store.stats().unwrap().in_flight, engine.feed.jobs.lock().len()), (10, 10));
    // A job that ends makes room.
    engine.start_one().unwrap().finish(Outcome::Ack);
    engine.fetch();
    assert!(engine.state.due_room() > 0);
}

#[test]
fn due_jobs_do_not_take_the_room_of_queues() {
    let (mut engine, mut store) = with_backlog("due-beside");
    engine.maintenance.round();
    push(&mut *store, "high", "urgent", "", None);
    assert!(engine.fetch());
    let waiting = engine.feed.jobs.lock();
    assert!(waiting.iter().any(|job| !job.is_due()), "it is claimed beside the due ones");
}
