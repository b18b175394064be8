//! Documents come out as the bytes that went in.

use super::harness::*;
use crate::store::*;

pub(crate) fn any_bytes_survive_every_step(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
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
        every_step(&mut harness, payload);
    }
}

pub(crate) fn a_megabyte_survives_every_step(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let mut seed = 1u32;
    let mut byte = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    let payload: Vec<u8> = (0..1 << 20).map(|_| byte()).collect();
    every_step(&mut harness, &payload);
}

/// Through the queue, in flight, back, and into each set.
fn every_step(harness: &mut StoreHarness, payload: &[u8]) {
    // No assert_eq: a megabyte in a message helps nobody.
    let same = |what: &str, entries: &[JobEntry]| {
        let ok = entries.len() == 1 && entries[0].payload == payload;
        assert!(ok, "{what} changed {:?}…", &payload[..payload.len().min(40)]);
    };
    harness.store.push(&[job("q", payload)]).unwrap();
    same("the queue", &harness.all(&queue("q")));
    let claimed = harness.claim("me", &["q"], 1, 1).jobs;
    assert!(claimed.len() == 1 && claimed[0].payload == payload, "the claim changed it");
    assert!(harness.store.in_flight("me").unwrap() == claimed, "the flight changed it");
    harness.end("me", &[ack(1, "q", back())]);
    same("the way back", &harness.all(&queue("q")));
    let now = now_s();
    let given = || Some(payload.to_vec());
    let ends = [
        (JobLocation::Scheduled, Outcome::reschedule(now)),
        (JobLocation::Retry, Outcome::Retry { at: now, payload: payload.to_vec() }),
        (JobLocation::Dead, Outcome::Dead { at: now, payload: None }),
        (JobLocation::Dead, Outcome::Dead { at: now, payload: given() }),
        (queue("q"), Outcome::Requeue { payload: given(), queue: None }),
    ];
    for (location, end) in ends {
        harness.claim("me", &["q"], 1, 1);
        harness.end("me", &[ack(1, "q", end)]);
        let entries = harness.all(&location);
        same("the set", &entries);
        assert!(harness.store.remove(&location, &entries[0]).unwrap(), "{location:?}: not removed");
        harness.store.push(&[job("q", payload)]).unwrap();
    }
    harness.put_at(now, payload);
    same("the push to the schedule", &harness.all(&JobLocation::Scheduled));
    for location in [JobLocation::Scheduled, queue("q")] {
        assert_eq!(harness.store.clear(&location, 0).unwrap(), 1);
    }
}

pub(crate) fn any_name_is_allowed_for_a_queue(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let queues = ["a:b:c", "with space", "Füße", "it's \"it\"", "%00", "x*?[", "12"];
    for name in queues {
        harness.store.push(&[job(name, &doc("other", "a"))]).unwrap();
        let turn = harness.claim("host:1:abc", &[name], 5, 1);
        assert_eq!(&*turn.jobs[0].queue, name);
        assert_eq!(&*harness.store.in_flight("host:1:abc").unwrap()[0].queue, name);
        harness.end("host:1:abc", &[ack(1, name, back())]);
        assert_eq!(harness.listed(&queue(name)), ["a"]);
    }
    let seen: Vec<String> =
        harness.store.queues().unwrap().into_iter().map(|seen| seen.name).collect();
    assert!(queues.iter().all(|name| seen.iter().any(|seen| seen == name)), "{seen:?}");
}
