//! What one engine does with one job.

use std::time::Duration;

use super::stepped_engine::{config, factory, jids, push, queue, SteppedEngine};
use crate::engine::orphans::WorkerDeath;
use crate::outcome::Outcome;
use crate::store::JobLocation;

#[test]
fn a_job_is_claimed_started_and_acknowledged() {
    let factory = factory("acknowledged");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let mut node = SteppedEngine::new(&factory, config(), 1);
    assert!(node.fetch());
    assert_eq!(store.stats().unwrap().in_flight, 1);
    let job = node.start_one().unwrap();
    assert!(job.is_running() && job.finish(Outcome::Ack));
    assert!(!job.finish(Outcome::Ack), "a job ends once");
    node.fetch();
    assert_eq!(store.stats().unwrap().in_flight, 0);
    node.state.locked.lock().heartbeat_now = true;
    node.maintenance.round();
    assert_eq!(store.stats().unwrap().processed, 1);
    assert!(node.state.wait_idle(Duration::ZERO));
}

#[test]
fn strict_queues_come_in_their_order() {
    let factory = factory("strict");
    let mut store = factory.store();
    for (queue, jid) in [("low", "c"), ("high", "a"), ("low", "d"), ("high", "b")] {
        push(&mut *store, queue, jid, "", None);
    }
    let mut node = SteppedEngine::new(&factory, config(), 1);
    node.fetch();
    let order: Vec<_> =
        std::iter::from_fn(|| node.start_one()).map(|j| j.document().jid().to_string()).collect();
    assert_eq!(order, ["a", "b", "c", "d"]);
}

#[test]
fn what_was_not_started_goes_back_when_a_higher_queue_fills() {
    let factory = factory("preempt");
    let mut store = factory.store();
    for jid in ["a", "b", "c"] {
        push(&mut *store, "low", jid, "", None);
    }
    let mut node = SteppedEngine::new(&factory, config(), 1);
    node.fetch();
    let first = node.start_one().unwrap();
    push(&mut *store, "high", "urgent", "", None);
    *node.sink.idle.lock() = 1;
    node.state.locked.lock().preempt = true;
    node.fetch();
    node.fetch();
    assert_eq!(node.start_one().unwrap().document().jid(), "urgent");
    assert_eq!(jids(&mut *store, &queue("low")), ["b", "c"]);
    first.finish(Outcome::Ack);
}

#[test]
fn broken_and_expired_jobs_never_reach_a_thread() {
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
    let mut node = SteppedEngine::new(&factory, config(), 1);
    node.fetch();
    node.fetch();
    assert!(node.start_one().is_none());
    let dead = store.list(&JobLocation::Dead, 0, 10).unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].payload, b"{\"class\":", "whole");
    assert_eq!(store.stats().unwrap().in_flight, 0);
    assert!(node.sink.lines.lock().iter().any(|line| line.contains("dead set")));
}

#[test]
fn only_started_jobs_are_blamed_for_a_death() {
    let factory = factory("blame");
    let mut store = factory.store();
    for jid in ["poison", "innocent"] {
        push(&mut *store, "low", jid, "", None);
    }
    for death in 1..=3 {
        let mut victim = SteppedEngine::new(&factory, config(), death);
        victim.fetch();
        let mut running = victim.start_one().unwrap();
        if death == 3 {
            assert_eq!(running.document().jid(), "innocent", "a suspect waits to be alone");
            running.abandon();
            victim.fetch();
            victim.fetch();
            running = victim.start_one().unwrap();
            assert!(victim.sink.jobs.lock().is_empty(), "nothing runs beside it");
        }
        assert_eq!(running.document().jid(), "poison", "it was at the front");
        let mut heir = SteppedEngine::new(&factory, config(), death);
        heir.state.add_death(WorkerDeath {
            identity: victim.state.identity.name.clone(),
            cause: Some("SIGSEGV".into()),
            tickets: vec![running.ticket()],
        });
        heir.maintenance.round();
        // The dead one speaks once more: too late.
        victim.state.locked.lock().quiet = true;
        running.finish(Outcome::Ack);
        victim.fetch();
    }
    let dead = store.list(&JobLocation::Dead, 0, 10).unwrap();
    assert_eq!(jids(&mut *store, &JobLocation::Dead), ["poison"]);
    assert!(String::from_utf8_lossy(&dead[0].payload).contains("SIGSEGV"));
    assert_eq!(jids(&mut *store, &queue("low")), ["innocent"]);
}

#[test]
fn limits_hold_jobs_back_and_let_them_go() {
    let factory = factory("limits");
    let mut store = factory.store();
    let limit = r#","chaton":{"limits":[{"key":"api","max":1}]}"#;
    for jid in ["a", "b"] {
        push(&mut *store, "low", jid, limit, None);
    }
    let mut node = SteppedEngine::new(&factory, config(), 1);
    node.fetch();
    let first = node.start_one().unwrap();
    assert!(node.start_one().is_none());
    node.fetch();
    assert_eq!(store.stats().unwrap().scheduled, 1);
    first.finish(Outcome::Ack);
    node.fetch();
    let waiting = store.list(&JobLocation::Scheduled, 0, 1).unwrap();
    assert!(store.requeue(&JobLocation::Scheduled, &waiting[0], 0.0).unwrap());
    node.fetch();
    assert_eq!(node.start_one().unwrap().document().jid(), "b");
}

#[test]
fn an_owner_that_was_taken_for_dead_changes_nothing() {
    let factory = factory("fenced");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let mut node = SteppedEngine::new(&factory, config(), 1);
    node.fetch();
    let job = node.start_one().unwrap();
    let mut heir = SteppedEngine::new(&factory, config(), 2);
    let identity = node.state.identity.name.clone();
    heir.state.add_death(WorkerDeath { identity, ..WorkerDeath::default() });
    heir.maintenance.round();
    assert_eq!(jids(&mut *store, &queue("low")), ["a"]);
    job.finish(Outcome::Retry { at: 1.0, payload: b"{}".to_vec() });
    node.state.locked.lock().quiet = true;
    node.fetch();
    assert_eq!(node.state.counters.read().fenced, 1);
    assert_eq!(store.stats().unwrap().retries, 0);
    assert_eq!(jids(&mut *store, &queue("low")), ["a"]);
}

#[test]
fn a_suspect_that_cannot_be_alone_is_sent_away() {
    let factory = factory("suspect-waits");
    let mut store = factory.store();
    push(&mut *store, "high", "long", "", None);
    push(&mut *store, "low", "suspect", r#","chaton":{"deaths":2}"#, None);
    let mut node = SteppedEngine::new(&factory, config(), 1);
    node.fetch();
    let long = node.start_one().unwrap();
    assert!(node.start_one().is_none());
    push(&mut *store, "low", "innocent", "", None);
    node.fetch();
    assert!(node.start_one().is_none(), "nothing is claimed while a suspect waits");
    node.state.locked.lock().suspects[0].1 = 0;
    node.fetch();
    assert_eq!(jids(&mut *store, &JobLocation::Scheduled), ["suspect"]);
    node.fetch();
    assert_eq!(node.start_one().unwrap().document().jid(), "innocent");
    long.finish(Outcome::Ack);
}

#[test]
fn what_was_claimed_before_quiet_is_not_started_after_it() {
    let factory = factory("quiet-claim");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", None);
    let mut node = SteppedEngine::new(&factory, config(), 1);
    let claimed = {
        let queues = ["low".into()];
        let want = crate::store::ClaimRequest { queues: &queues, count: 1, first_ticket: 1 };
        store.ack_and_claim(&node.state.identity.name, &[], Some(&want)).unwrap().jobs
    };
    node.state.locked.lock().quiet = true;
    let mut admission = crate::engine::admission::Admission::new(&node.state);
    admission.admit(&mut *store, claimed).unwrap();
    assert!(node.sink.jobs.lock().is_empty());
    node.fetch();
    assert_eq!(jids(&mut *store, &queue("low")), ["a"]);
}

#[test]
fn a_lost_claim_of_due_jobs_is_found_again() {
    let factory = factory("lost-due");
    let mut store = factory.store();
    push(&mut *store, "low", "a", "", Some(1.0));
    let settings = || crate::engine::Config { claim_due: true, ..config() };
    let mut node = SteppedEngine::new(&factory, settings(), 1);
    // The maintenance's first round took it in; as if that had been lost:
    let job = node.start_one().unwrap();
    let ticket = job.ticket();
    node.state.locked.lock().jobs.clear();
    node.state.locked.lock().reconcile = true;
    node.state.locked.lock().reserved_tickets = Some((ticket, ticket + 1));
    node.fetch();
    assert!(node.start_one().is_none(), "the maintenance is about to take it in itself");
    node.state.locked.lock().reserved_tickets = None;
    node.state.locked.lock().reconcile = true;
    node.fetch();
    let found = node.start_one().unwrap();
    assert!(found.is_due() && found.ticket() == ticket);
    found.finish(Outcome::Ack);
}

#[test]
fn a_quiet_keeper_rests() {
    let factory = factory("quiet-maintenance");
    let mut store = factory.store();
    let settings = crate::engine::Config { claim_due: true, ..config() };
    let mut node = SteppedEngine::new(&factory, settings, 1);
    node.state.locked.lock().quiet = true;
    push(&mut *store, "low", "a", "", Some(1.0));
    node.state.locked.lock().due_at = Some(1.0);
    let until = node.maintenance.round();
    assert!(
        until > crate::engine::state::wall_s(),
        "a due job that may not be moved is no reason to go on"
    );
}
