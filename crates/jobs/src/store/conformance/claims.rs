//! Pushing and claiming.

use super::harness::*;
use crate::store::*;

pub(crate) fn first_in_is_first_out(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b"]);
    harness.put("q", &["c"]);
    assert_eq!(harness.listed(&queue("q")), ["a", "b", "c"]);
    assert_eq!(harness.claim_all("me", "q"), ["a", "b", "c"]);
    assert_eq!(harness.listed(&queue("q")), [""; 0]);
}

pub(crate) fn queues_are_emptied_in_the_requested_order(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    for round in ["1", "2"] {
        harness.put("low", &[&format!("l{round}")]);
        harness.put("high", &[&format!("h{round}")]);
        harness.put("mid", &[&format!("m{round}")]);
    }
    let turn = harness.claim("me", &["high", "mid", "low"], 3, 1);
    assert_eq!(jids(&turn.jobs), ["h1", "h2", "m1"]);
    let from: Vec<&str> = turn.jobs.iter().map(|job| &*job.queue).collect();
    assert_eq!(from, ["high", "high", "mid"]);
    let turn = harness.claim("me", &["low", "mid"], 10, 4);
    assert_eq!(jids(&turn.jobs), ["l1", "l2", "m2"]);
}

pub(crate) fn a_claim_takes_no_more_than_requested(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b", "c"]);
    let turn = harness.claim("me", &["q"], 2, 7);
    let claimed = |ticket, jid| ClaimedJob { ticket, queue: "q".into(), payload: doc("q", jid) };
    assert_eq!(turn.jobs, [claimed(7, "a"), claimed(8, "b")]);
    assert_eq!((turn.fenced, turn.drained), (0, false));
    assert_eq!(harness.listed(&queue("q")), ["c"]);
    let nothing = harness.store.ack_and_claim("me", &[], None).unwrap();
    assert!(nothing.jobs.is_empty() && nothing.fenced == 0);
}

pub(crate) fn drained_means_that_nothing_is_left(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert!(harness.claim("me", &["never", "seen"], 5, 1).drained);
    harness.put("a", &["a1"]);
    harness.put("b", &["b1", "b2"]);
    assert!(!harness.claim("me", &["a", "b"], 2, 1).drained, "b2 is left");
    assert!(harness.claim("me", &["a", "b"], 2, 3).drained);
    harness.put("a", &["a2"]);
    assert!(harness.claim("me", &["b"], 2, 4).drained, "a was not asked");
    harness.store.pause("a", true).unwrap();
    assert!(harness.claim("me", &["a", "b"], 2, 4).drained, "paused is as good as empty");
}

pub(crate) fn a_paused_queue_gives_nothing_until_it_is_resumed(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a"]);
    harness.store.pause("q", true).unwrap();
    harness.store.pause("q", true).unwrap();
    harness.put("q", &["b"]);
    harness.put("other", &["c"]);
    let turn = harness.claim("me", &["q", "other"], 5, 1);
    assert_eq!(jids(&turn.jobs), ["c"]);
    assert_eq!(harness.listed(&queue("q")), ["a", "b"], "it still takes jobs in");
    harness.store.pause("q", false).unwrap();
    assert_eq!(harness.claim_all("me", "q"), ["a", "b"]);
}

pub(crate) fn jobs_in_flight_are_listed_by_owner_and_ticket(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(harness.store.in_flight("nobody").unwrap(), []);
    harness.put("q", &["a", "b"]);
    harness.put("r", &["c", "d"]);
    // Tickets whose order as words would differ.
    let mine = harness.claim("me", &["q", "r"], 3, 9).jobs;
    let yours = harness.claim("you", &["r"], 3, 9).jobs;
    assert_eq!(harness.store.in_flight("me").unwrap(), mine);
    assert_eq!(harness.store.in_flight("you").unwrap(), yours);
    assert_eq!((jids(&mine), jids(&yours)), (names_of(&["a", "b", "c"]), names_of(&["d"])));
    harness.end("me", &[ack(10, "q", Outcome::Ack)]);
    let left: Vec<u64> =
        harness.store.in_flight("me").unwrap().iter().map(|job| job.ticket).collect();
    assert_eq!(left, [9, 11]);
}

fn names_of(jids: &[&str]) -> Vec<String> {
    jids.iter().map(|jid| jid.to_string()).collect()
}

pub(crate) fn one_push_goes_to_several_queues_and_the_schedule(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(harness.store.push(&[]).unwrap(), []);
    let payloads = [doc("q", "a"), doc("r", "b"), doc("q", "c"), doc("r", "d")];
    let mut jobs = [
        job("q", &payloads[0]),
        job("r", &payloads[1]),
        job("q", &payloads[2]),
        job("r", &payloads[3]),
    ];
    jobs[2].at = Some(1_900_000_000.125);
    assert_eq!(harness.store.push(&jobs).unwrap(), vec![PushResult::Stored; 4]);
    assert_eq!(harness.listed(&queue("q")), ["a"]);
    assert_eq!(harness.listed(&queue("r")), ["b", "d"]);
    let scheduled = harness.all(&JobLocation::Scheduled);
    assert_eq!(scheduled.len(), 1);
    assert_eq!(scheduled[0].score, 1_900_000_000.125);
    assert_eq!(scheduled[0].payload, payloads[2]);
}
