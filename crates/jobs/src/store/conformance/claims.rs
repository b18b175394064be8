//! Pushed and claimed.

use super::bench::*;
use crate::store::*;

pub(crate) fn first_in_is_first_out(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a", "b"]);
    desk.put("q", &["c"]);
    assert_eq!(desk.listed(&queue("q")), ["a", "b", "c"]);
    assert_eq!(desk.claim_all("me", "q"), ["a", "b", "c"]);
    assert_eq!(desk.listed(&queue("q")), [""; 0]);
}

pub(crate) fn queues_are_emptied_in_the_order_asked(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    for round in ["1", "2"] {
        desk.put("low", &[&format!("l{round}")]);
        desk.put("high", &[&format!("h{round}")]);
        desk.put("mid", &[&format!("m{round}")]);
    }
    let turn = desk.claim("me", &["high", "mid", "low"], 3, 1);
    assert_eq!(jids(&turn.jobs), ["h1", "h2", "m1"]);
    let from: Vec<&str> = turn.jobs.iter().map(|job| &*job.queue).collect();
    assert_eq!(from, ["high", "high", "mid"]);
    let turn = desk.claim("me", &["low", "mid"], 10, 4);
    assert_eq!(jids(&turn.jobs), ["l1", "l2", "m2"]);
}

pub(crate) fn a_claim_takes_no_more_than_asked(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a", "b", "c"]);
    let turn = desk.claim("me", &["q"], 2, 7);
    let claimed = |ticket, jid| ClaimedJob { ticket, queue: "q".into(), payload: doc("q", jid) };
    assert_eq!(turn.jobs, [claimed(7, "a"), claimed(8, "b")]);
    assert_eq!((turn.fenced, turn.drained), (0, false));
    assert_eq!(desk.listed(&queue("q")), ["c"]);
    let nothing = desk.store.ack_and_claim("me", &[], None).unwrap();
    assert!(nothing.jobs.is_empty() && nothing.fenced == 0);
}

pub(crate) fn drained_means_that_nothing_is_left(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert!(desk.claim("me", &["never", "seen"], 5, 1).drained);
    desk.put("a", &["a1"]);
    desk.put("b", &["b1", "b2"]);
    assert!(!desk.claim("me", &["a", "b"], 2, 1).drained, "b2 is left");
    assert!(desk.claim("me", &["a", "b"], 2, 3).drained);
    desk.put("a", &["a2"]);
    assert!(desk.claim("me", &["b"], 2, 4).drained, "a was not asked");
    desk.store.pause("a", true).unwrap();
    assert!(desk.claim("me", &["a", "b"], 2, 4).drained, "paused is as good as empty");
}

pub(crate) fn a_paused_queue_gives_nothing_until_it_is_resumed(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a"]);
    desk.store.pause("q", true).unwrap();
    desk.store.pause("q", true).unwrap();
    desk.put("q", &["b"]);
    desk.put("other", &["c"]);
    let turn = desk.claim("me", &["q", "other"], 5, 1);
    assert_eq!(jids(&turn.jobs), ["c"]);
    assert_eq!(desk.listed(&queue("q")), ["a", "b"], "it still takes jobs in");
    desk.store.pause("q", false).unwrap();
    assert_eq!(desk.claim_all("me", "q"), ["a", "b"]);
}

pub(crate) fn what_is_in_flight_is_listed_by_owner_and_ticket(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert_eq!(desk.store.in_flight("nobody").unwrap(), []);
    desk.put("q", &["a", "b"]);
    desk.put("r", &["c", "d"]);
    // Tickets that would be listed otherwise if they were sorted as words.
    let mine = desk.claim("me", &["q", "r"], 3, 9).jobs;
    let yours = desk.claim("you", &["r"], 3, 9).jobs;
    assert_eq!(desk.store.in_flight("me").unwrap(), mine);
    assert_eq!(desk.store.in_flight("you").unwrap(), yours);
    assert_eq!((jids(&mine), jids(&yours)), (names_of(&["a", "b", "c"]), names_of(&["d"])));
    desk.end("me", &[settle(10, "q", Outcome::Ack)]);
    let left: Vec<u64> = desk.store.in_flight("me").unwrap().iter().map(|job| job.ticket).collect();
    assert_eq!(left, [9, 11]);
}

fn names_of(jids: &[&str]) -> Vec<String> {
    jids.iter().map(|jid| jid.to_string()).collect()
}

pub(crate) fn one_push_goes_to_several_queues_and_the_schedule(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert_eq!(desk.store.push(&[]).unwrap(), []);
    let payloads = [doc("q", "a"), doc("r", "b"), doc("q", "c"), doc("r", "d")];
    let mut jobs = [
        job("q", &payloads[0]),
        job("r", &payloads[1]),
        job("q", &payloads[2]),
        job("r", &payloads[3]),
    ];
    jobs[2].at = Some(1_900_000_000.125);
    assert_eq!(desk.store.push(&jobs).unwrap(), vec![PushResult::Stored; 4]);
    assert_eq!(desk.listed(&queue("q")), ["a"]);
    assert_eq!(desk.listed(&queue("r")), ["b", "d"]);
    let scheduled = desk.all(&JobLocation::Scheduled);
    assert_eq!(scheduled.len(), 1);
    assert_eq!(scheduled[0].score, 1_900_000_000.125);
    assert_eq!(scheduled[0].payload, payloads[2]);
}
