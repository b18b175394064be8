//! The decision as a table.

use super::*;

const MS: u64 = 1_000_000;

fn busy() -> Facts {
    Facts {
        waiting: 10,
        interactive_waiting: true,
        awake: 1,
        idle: 4,
        width: 1,
        max: 32,
        ..times()
    }
}

fn times() -> Facts {
    let (starved_after_ns, quantum_ns, narrow_ns) = (MS / 10, 5 * MS, 50 * MS);
    Facts { starved_after_ns, quantum_ns, narrow_ns, ..Facts::default() }
}

fn keep(width: usize) -> Decision {
    Decision { width, ..Decision::default() }
}

fn check(cases: &[(&str, Facts, Decision)]) {
    for (name, facts, expected) in cases {
        assert_eq!(decide(facts), *expected, "{name}");
    }
}

#[test]
fn a_starved_pool_becomes_wider() {
    let starved = Facts { blocked_ns: MS / 10, ..busy() };
    let wider = |width| Decision { rule: Rule::Starved, ..keep(width) };
    check(&[
        ("nothing waits", Facts { waiting: 0, ..starved }, keep(1)),
        ("a thread runs", busy(), keep(1)),
        ("a short block", Facts { blocked_ns: MS / 10 - 1, ..busy() }, keep(1)),
        ("one is woken", starved, Decision { wake: 1, ..wider(2) }),
        (
            "twice as many after eight times each, started where none is parked",
            Facts { starved_before: 24, ..starved },
            Decision { wake: 4, spawn: 4, ..wider(9) },
        ),
        (
            "never more than wait",
            Facts { starved_before: 24, waiting: 2, ..starved },
            Decision { wake: 2, ..wider(3) },
        ),
        (
            "never over the maximum",
            Facts { starved_before: 24, max: 3, idle: 0, ..starved },
            Decision { spawn: 2, ..wider(3) },
        ),
        (
            "threads already asked for count",
            Facts { max: 3, idle: 0, spawning: 2, ..starved },
            wider(1),
        ),
    ]);
}

#[test]
fn work_that_used_its_quantum_makes_place() {
    let hogged = Facts { turn_ns: 5 * MS, since_change_ns: 5 * MS, ..busy() };
    let switch = |width| Decision { rule: Rule::Hogged, ..keep(width) };
    let admit = |width| Decision { wake: 1, rule: Rule::Admitted, ..switch(width) };
    let outside = Facts { waiting: 0, outsider_waiting: true, ..hogged };
    check(&[
        ("not yet", Facts { turn_ns: 5 * MS - 1, ..hogged }, keep(1)),
        ("a request begins beside it", hogged, admit(2)),
        ("another thread is quick", Facts { one_is_quick: true, awake: 2, ..hogged }, switch(1)),
        ("another thread is waking", Facts { waking: 1, awake: 2, ..hogged }, switch(1)),
        ("another thread is starting", Facts { spawning: 1, ..hogged }, switch(1)),
        (
            "a thread was woken just now",
            Facts { turn_ns: 0, waking: 1, awake: 2, since_change_ns: MS, ..hogged },
            keep(1),
        ),
        (
            "a woken thread cannot take work",
            Facts { turn_ns: 0, blocked_ns: MS, waking: 1, awake: 2, ..hogged },
            switch(1),
        ),
        (
            "all threads are awake",
            Facts { awake: 32, width: 32, ..hogged },
            Decision { wake: 0, ..admit(32) },
        ),
        ("a thread outside the pool waits", outside, switch(1)),
        ("nobody waits", Facts { outsider_waiting: false, ..outside }, keep(1)),
        ("the turn is not over", Facts { turn_ns: MS, ..outside }, keep(1)),
    ]);
}

#[test]
fn each_further_job_waits_longer_beside_computing_ones() {
    let computing = |awake, since_admit_ms: u64| Facts {
        interactive_waiting: false,
        turn_ns: 5 * MS,
        since_change_ns: 5 * MS,
        since_admit_ns: since_admit_ms * MS,
        awake,
        width: awake,
        ..busy()
    };
    let switch = |width| Decision { rule: Rule::Hogged, ..keep(width) };
    let admit = |width| Decision { wake: 1, rule: Rule::Admitted, ..switch(width) };
    check(&[
        ("a second one", computing(1, 5), admit(2)),
        ("not yet", computing(2, 9), switch(2)),
        ("a third one", computing(2, 10), admit(3)),
        ("a fourth one", computing(3, 15), admit(4)),
        ("many wait long", computing(20, 99), switch(20)),
        ("the wait has a bound", Facts { max: 512, ..computing(400, 800) }, admit(401)),
        (
            "a request does not wait",
            Facts { interactive_waiting: true, ..computing(20, 0) },
            admit(21),
        ),
    ]);
}

#[test]
fn calm_reduces_the_width() {
    let calm = |width| Facts { width, max: 512, calm_ns: 50 * MS, ..busy() };
    let job = Facts { interactive_waiting: false, ..calm(4) };
    let narrower = |width| Decision { rule: Rule::Calm, ..keep(width) };
    check(&[
        ("by one", calm(4), narrower(3)),
        ("a wide pool faster", calm(300), narrower(263)),
        ("never below one", Facts { calm_ns: u64::MAX, ..calm(1) }, keep(1)),
        ("also while threads are woken for requests", Facts { waking: 1, ..calm(4) }, narrower(3)),
        ("not while one is woken for a job", Facts { waking: 1, ..job }, keep(4)),
        ("not while one is started for a job", Facts { spawning: 1, ..job }, keep(4)),
    ]);
}

#[test]
fn decisions_stay_within_their_bounds() {
    for case in 0..4_usize * 5 * 4 * 9 * 5 * 2 {
        let mut rest = case;
        let mut next = |n: usize| {
            let digit = rest % n;
            rest /= n;
            digit
        };
        let (waiting, awake, idle, row, max) = (next(4), next(5), next(4), next(9), 1 + next(5));
        let now = Facts {
            waiting,
            blocked_ns: if row > 0 { MS } else { 0 },
            starved_before: row as u32,
            turn_ns: if next(2) == 0 { 5 * MS } else { 0 },
            awake,
            idle,
            width: awake.max(1).min(max),
            max,
            ..times()
        };
        let d = decide(&now);
        assert!(d.width >= 1 && d.width <= max, "{now:?} {d:?}");
        assert!(d.wake <= idle && d.wake + d.spawn <= waiting, "{now:?} {d:?}");
        assert!(awake >= max || awake + d.wake + d.spawn <= max, "{now:?}");
    }
}
