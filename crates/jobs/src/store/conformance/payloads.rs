//! Documents come out as the bytes that went in.

use super::bench::*;
use crate::store::*;

pub(crate) fn any_bytes_survive_every_step(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let all: Vec<u8> = (0..=255).collect();
    let payloads: [&[u8]; 6] = [
        b"\xff\xfe not \xc3\x28 UTF-8",
        b"with \0 in it \r\n$5\r\n",
        b"",
        br#"{"a": 1.50 ,"b":{},"c":[],"d":12345678901234567890123}"#,
        "{\"é\":\"\\u00e9 '' \\\"\"}".as_bytes(),
        &all,
    ];
    for payload in payloads {
        every_step(&mut desk, payload);
    }
}

pub(crate) fn a_megabyte_survives_every_step(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let mut seed = 1u32;
    let mut byte = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    let payload: Vec<u8> = (0..1 << 20).map(|_| byte()).collect();
    every_step(&mut desk, &payload);
}

/// Through the queue, in flight, back, and into each set.
fn every_step(desk: &mut Desk, payload: &[u8]) {
    // No assert_eq: a megabyte in a message helps nobody.
    let same = |what: &str, entries: &[JobEntry]| {
        let ok = entries.len() == 1 && entries[0].payload == payload;
        assert!(ok, "{what} changed {:?}…", &payload[..payload.len().min(40)]);
    };
    desk.store.push(&[job("q", payload)]).unwrap();
    same("the queue", &desk.all(&queue("q")));
    let claimed = desk.claim("me", &["q"], 1, 1).jobs;
    assert!(claimed.len() == 1 && claimed[0].payload == payload, "the claim changed it");
    assert!(desk.store.in_flight("me").unwrap() == claimed, "the flight changed it");
    desk.end("me", &[settle(1, "q", back())]);
    same("the way back", &desk.all(&queue("q")));
    let now = now_s();
    let given = || Some(payload.to_vec());
    let ends = [
        (JobLocation::Scheduled, Outcome::Reschedule { at: now }),
        (JobLocation::Retry, Outcome::Retry { at: now, payload: payload.to_vec() }),
        (JobLocation::Dead, Outcome::Dead { at: now, payload: None }),
        (JobLocation::Dead, Outcome::Dead { at: now, payload: given() }),
        (queue("q"), Outcome::Requeue { payload: given(), queue: None }),
    ];
    for (place, end) in ends {
        desk.claim("me", &["q"], 1, 1);
        desk.end("me", &[settle(1, "q", end)]);
        let entries = desk.all(&place);
        same("the set", &entries);
        assert!(desk.store.remove(&place, &entries[0]).unwrap(), "{place:?}: not removed");
        desk.store.push(&[job("q", payload)]).unwrap();
    }
    desk.put_at(now, payload);
    same("the push to the schedule", &desk.all(&JobLocation::Scheduled));
    for place in [JobLocation::Scheduled, queue("q")] {
        assert_eq!(desk.store.clear(&place, 0).unwrap(), 1);
    }
}

pub(crate) fn any_name_will_do_for_a_queue(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let queues = ["a:b:c", "with space", "Füße", "it's \"it\"", "%00", "x*?[", "12"];
    for name in queues {
        desk.store.push(&[job(name, &doc("other", "a"))]).unwrap();
        let turn = desk.claim("host:1:abc", &[name], 5, 1);
        assert_eq!(&*turn.jobs[0].queue, name);
        assert_eq!(&*desk.store.in_flight("host:1:abc").unwrap()[0].queue, name);
        desk.end("host:1:abc", &[settle(1, name, back())]);
        assert_eq!(desk.listed(&queue(name)), ["a"]);
    }
    let seen: Vec<String> =
        desk.store.queues().unwrap().into_iter().map(|seen| seen.name).collect();
    assert!(queues.iter().all(|name| seen.iter().any(|seen| seen == name)), "{seen:?}");
}
