//! A state machine of engine and store: random steps of clients, engines, people and accidents on a real store, against
//! a model. The store in memory gets the same calls and has to give the same replies. At the end each job is done at least
//! once, or dead with its reason; each callback was called once; and no lock, slot, count or key is left over.
//!
//! One fixed seed runs with the other tests. With `CHATON_MODEL_SECONDS` more are tried for so long, from
//! `CHATON_MODEL_SEED` on (else a fresh one). A seed that failed becomes a test with a name, by its steps, which the
//! failure prints.

mod deaths;
mod ledger;
mod pushes;
#[allow(dead_code, reason = "the tests of servers use more of it")]
#[path = "../../../tests/integration/redis_server/mod.rs"]
mod redis_server;
mod runs;
mod shrink;
mod steps;
mod stores;
mod twin;
mod world;

use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use steps::{steps, Op, Step};
use stores::RealStore;
use world::World;

/// Steps of one seed.
const STEPS: usize = 300;
/// The seed that every run begins with.
const FIXED_SEED: u64 = 1;

/// Runs steps on an empty store; returns what was done, and the message of the failure.
fn run(store: &Mutex<RealStore>, steps: &[Step]) -> Result<(), String> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let name = format!("model-{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let mut real = store.lock();
    let mut log = vec![];
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(&mut real, &name);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            for (index, step) in steps.iter().enumerate() {
                world.step(index, *step);
            }
            world.finish();
        }));
        log = std::mem::take(&mut world.log);
        ended
    }));
    let Err(panic) = result.and_then(|ended| ended) else { return Ok(()) };
    // The server may be full.
    real.fill(false);
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
    Err(format!("{}\n{}", log.join("\n"), text.unwrap_or_default()))
}

/// Tries seeds for some time. A failure is shown by the fewest steps that fail.
fn explore(real: RealStore, kind: &str) {
    let store = Mutex::new(real);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = number("CHATON_MODEL_SECONDS").map(Duration::from_secs);
    let fresh = number("CHATON_MODEL_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    let _ = writeln!(std::io::stderr(), "model on {kind}: CHATON_MODEL_SEED={fresh}");
    let (began, mut tried) = (Instant::now(), 0);
    for seed in std::iter::once(FIXED_SEED).chain(fresh..) {
        let drawn = steps(seed, STEPS);
        if let Err(first) = run(&store, &drawn) {
            let fewest = shrink::shrink(drawn, |some| run(&store, some).is_err());
            let report = run(&store, &fewest).err();
            let report =
                report.unwrap_or_else(|| format!("these steps passed again; before:\n{first}"));
            panic!("CHATON_MODEL_SEED={seed} on {kind}: {fewest:?}\n{report}");
        }
        tried += 1;
        if time.is_none_or(|time| began.elapsed() > time) {
            break;
        }
    }
    let _ = writeln!(std::io::stderr(), "model on {kind}: {tried} seeds");
}

#[test]
fn jobs_on_sqlite_behave_as_the_model() {
    explore(RealStore::sqlite(), "sqlite");
}

#[test]
fn jobs_on_redis_behave_as_the_model() {
    explore(RealStore::redis(), "redis");
}

#[test]
fn jobs_on_postgres_behave_as_the_model() {
    explore(RealStore::postgres(), "postgres");
}

/// Runs steps that failed once on each kind of store.
fn run_again(steps: &[Step]) {
    for real in [RealStore::sqlite(), RealStore::redis(), RealStore::postgres()] {
        if let Err(report) = run(&Mutex::new(real), steps) {
            panic!("{report}");
        }
    }
}

#[test]
fn a_job_that_was_pushed_twice_gives_its_lock_up_with_the_first_copy() {
    run_again(&[
        Step(Op::Maintain, 3409689908),
        Step(Op::Unique, 2901876894),
        Step(Op::End, 995931436),
        Step(Op::In, 505818397),
        Step(Op::Fetch, 1035449095),
        Step(Op::Start, 2651470023),
        Step(Op::Limited, 1666190971),
        Step(Op::Fetch, 2338192452),
        Step(Op::Nest, 1142071948),
        Step(Op::Fetch, 1484599739),
        Step(Op::Bulk, 3394906965),
        Step(Op::End, 2637900589),
        Step(Op::KillInAck, 2399611771),
        Step(Op::Cancel, 4198042765),
        Step(Op::Discard, 888650393),
        Step(Op::Start, 3606026881),
        Step(Op::Raise, 3257680746),
        Step(Op::Fetch, 1624346118),
        Step(Op::Start, 802553510),
        Step(Op::Start, 487341031),
        Step(Op::Tick, 604095387),
        Step(Op::Maintain, 2397133758),
        Step(Op::Fetch, 698493315),
        Step(Op::Tick, 730771386),
        Step(Op::Fetch, 1993971712),
        Step(Op::Fetch, 700322921),
        Step(Op::Maintain, 862545474),
        Step(Op::Fetch, 2717165869),
        Step(Op::Start, 2386079914),
        Step(Op::Start, 3187918764),
        Step(Op::Start, 3051021073),
        Step(Op::Limited, 3296932010),
        Step(Op::Fetch, 1300209664),
        Step(Op::Maintain, 263674503),
        Step(Op::Raise, 4115913077),
        Step(Op::Snooze, 4145172133),
        Step(Op::End, 2789935017),
        Step(Op::Raise, 3613392214),
        Step(Op::Fetch, 3840205210),
        Step(Op::Fetch, 1409169533),
        Step(Op::Start, 620971651),
        Step(Op::End, 3947241821),
        Step(Op::End, 1361367297),
        Step(Op::Maintain, 1916293188),
        Step(Op::Start, 3617490085),
        Step(Op::Fetch, 2194696616),
        Step(Op::Discard, 1291066416),
        Step(Op::Raise, 1982085514),
        Step(Op::Bulk, 3976054317),
        Step(Op::Unique, 3295195971),
    ]);
}

#[test]
fn a_complete_batch_stays_so_though_a_retry_opens_another_one_in_it() {
    run_again(&[
        Step(Op::KillInAck, 3156643114),
        Step(Op::Unique, 381887636),
        Step(Op::BatchOpen, 3549705827),
        Step(Op::BatchFill, 349151711),
        Step(Op::BatchFill, 1994125410),
        Step(Op::Bulk, 3929265156),
        Step(Op::Push, 4152434588),
        Step(Op::Tick, 906252033),
        Step(Op::Push, 4080754925),
        Step(Op::Push, 2432655477),
        Step(Op::BatchClose, 1830475178),
        Step(Op::KillInAck, 699501270),
        Step(Op::Fetch, 370361657),
        Step(Op::Fetch, 1265824604),
        Step(Op::Start, 1306853354),
        Step(Op::Start, 2408000616),
        Step(Op::Start, 732716369),
        Step(Op::Fetch, 3626415956),
        Step(Op::Start, 3103996533),
        Step(Op::Start, 2368974125),
        Step(Op::Raise, 4037446062),
        Step(Op::Fetch, 3590972558),
        Step(Op::Fetch, 247585813),
        Step(Op::Tick, 2020879467),
        Step(Op::Recover, 2607354031),
        Step(Op::Fetch, 2504813636),
        Step(Op::KillInAck, 1386208613),
        Step(Op::Start, 4189445778),
        Step(Op::Nest, 4030906529),
    ]);
}

#[test]
fn one_look_reclaims_the_jobs_of_several_dead_processes() {
    run_again(&[
        Step(Op::Tick, 3414182691),
        Step(Op::Kill, 1864399125),
        Step(Op::Fetch, 1365554175),
        Step(Op::Kill, 3611710743),
        Step(Op::Fetch, 3936699785),
        Step(Op::Kill, 2450693412),
        Step(Op::Fetch, 2685769236),
        Step(Op::Fetch, 2612308951),
        Step(Op::Kill, 109147854),
    ]);
}

#[test]
fn a_rate_is_the_same_for_processes_with_different_clocks() {
    run_again(&[
        Step(Op::Push, 1259471784),
        Step(Op::Expiring, 1961040112),
        Step(Op::KillInAck, 243293942),
        Step(Op::Bulk, 2034753139),
        Step(Op::Limited, 1825249463),
        Step(Op::Recover, 4069836095),
        Step(Op::Fetch, 2450747973),
        Step(Op::Kill, 108610846),
        Step(Op::Recover, 2215929130),
        Step(Op::Fetch, 3715246889),
        Step(Op::Limited, 2637419731),
        Step(Op::Maintain, 673663912),
        Step(Op::Fetch, 3745982595),
    ]);
}

#[test]
fn nothing_is_left_of_a_line_whose_last_job_has_started() {
    run_again(&[
        Step(Op::Limited, 2174539175),
        Step(Op::Limited, 3745392212),
        Step(Op::Fetch, 1837183937),
        Step(Op::Fetch, 160198056),
        Step(Op::KillInAck, 2211197630),
    ]);
}

#[test]
fn entries_of_one_time_have_no_order() {
    run_again(&[
        Step(Op::BatchOpen, 318697597),
        Step(Op::End, 1598495725),
        Step(Op::In, 2827660903),
        Step(Op::Start, 975465009),
        Step(Op::End, 1023959497),
        Step(Op::Limited, 3491996243),
        Step(Op::Push, 1037245299),
        Step(Op::End, 423543424),
        Step(Op::MiddlewareStops, 3539570721),
        Step(Op::End, 2314793306),
        Step(Op::Shutdown, 3710135636),
        Step(Op::Start, 3078460815),
        Step(Op::Fetch, 4033008137),
        Step(Op::Suspect, 2921282173),
        Step(Op::Maintain, 1276930636),
        Step(Op::Fetch, 2944057410),
        Step(Op::Stall, 346849921),
        Step(Op::End, 829804804),
        Step(Op::BatchFill, 3442255620),
        Step(Op::Fetch, 836848525),
        Step(Op::Fetch, 1089853269),
        Step(Op::ReplyLost, 3051251666),
        Step(Op::BatchOpen, 2800376229),
        Step(Op::End, 3346872275),
        Step(Op::Fetch, 3729055333),
        Step(Op::Fetch, 2199092346),
        Step(Op::Fetch, 838476089),
        Step(Op::Fetch, 1488287070),
        Step(Op::Fetch, 742197010),
        Step(Op::Raise, 3744449531),
        Step(Op::Signal, 1899263050),
        Step(Op::In, 2064720689),
        Step(Op::Fetch, 895576812),
        Step(Op::End, 1569456936),
        Step(Op::Fetch, 2718562566),
        Step(Op::Limited, 3256830347),
        Step(Op::Stall, 502699078),
        Step(Op::Fetch, 4234607460),
        Step(Op::Fetch, 3702530998),
        Step(Op::Maintain, 2573395552),
        Step(Op::Start, 2914008425),
        Step(Op::Fetch, 1955904493),
        Step(Op::Fetch, 1657532627),
    ]);
}

#[test]
fn a_process_without_a_lease_notes_no_suspect() {
    run_again(&[
        Step(Op::Limited, 1530547879),
        Step(Op::Unique, 4060698626),
        Step(Op::Kill, 519013966),
        Step(Op::Tick, 218616978),
        Step(Op::Kill, 3614981263),
        Step(Op::Suspect, 620032482),
        Step(Op::Push, 3735135544),
        Step(Op::Fetch, 2244293118),
        Step(Op::Fetch, 3425137048),
        Step(Op::Stall, 2547948888),
        Step(Op::KillInAck, 2101953253),
    ]);
}

#[test]
fn an_expired_job_leaves_its_line_at_the_next_look() {
    run_again(&[
        Step(Op::Limited, 1224464741),
        Step(Op::Limited, 3605362860),
        Step(Op::BatchOpen, 291633621),
        Step(Op::Push, 2933207794),
        Step(Op::BatchOpen, 1792220012),
        Step(Op::Unique, 1765926742),
        Step(Op::BatchFill, 3002086747),
        Step(Op::Shutdown, 1612596560),
        Step(Op::KillInAck, 1487244610),
        Step(Op::BatchFill, 70225857),
        Step(Op::Tick, 3782756670),
        Step(Op::Maintain, 2586634774),
        Step(Op::Push, 457103591),
        Step(Op::BatchFill, 101797353),
        Step(Op::ClockStep, 1556006958),
        Step(Op::Start, 2152964063),
        Step(Op::Tick, 3566249040),
    ]);
}

#[test]
fn a_due_callback_is_there_twice_while_client_middleware_passes_it_on() {
    run_again(&steps(2095, STEPS));
}

#[test]
fn a_retry_without_a_reply_is_put_back_though_another_process_has_run_it() {
    run_again(&[
        Step(Op::Unique, 2601515554),
        Step(Op::Fetch, 460748543),
        Step(Op::Shutdown, 422841862),
        Step(Op::Start, 1243418023),
        Step(Op::Raise, 2768074073),
        Step(Op::ReplyLost, 855798661),
        Step(Op::Fetch, 109943739),
    ]);
}

#[test]
fn processes_agree_on_the_ticks_of_a_clock_that_was_ahead() {
    run_again(&[
        Step(Op::Suspect, 3630528014),
        Step(Op::Start, 3417248342),
        Step(Op::Fetch, 2329652606),
        Step(Op::Fetch, 341934533),
        Step(Op::Tick, 1412238856),
        Step(Op::BatchFill, 3879943703),
        Step(Op::In, 3804467456),
        Step(Op::Cancel, 1184655015),
        Step(Op::End, 1608079295),
        Step(Op::End, 3135549407),
        Step(Op::Start, 3866783724),
        Step(Op::Push, 1818760801),
        Step(Op::BatchOpen, 3909442972),
        Step(Op::Maintain, 2066299809),
        Step(Op::Maintain, 1822727270),
        Step(Op::Start, 854047434),
        Step(Op::BatchOpen, 3683903222),
        Step(Op::ClockStep, 1879980544),
        Step(Op::Unique, 2903325677),
        Step(Op::Cancel, 3601602081),
        Step(Op::Cancel, 3722437537),
        Step(Op::Start, 1040522360),
        Step(Op::Signal, 2635262637),
        Step(Op::Fetch, 953355360),
        Step(Op::Maintain, 856719514),
        Step(Op::Fetch, 2770112948),
        Step(Op::Fetch, 2671096732),
        Step(Op::End, 420204819),
        Step(Op::End, 1641772564),
        Step(Op::ClockStep, 2304787588),
        Step(Op::End, 2947679520),
        Step(Op::Pause, 1332035039),
    ]);
}

#[test]
fn jobs_of_a_process_that_was_taken_for_dead_and_dies_are_reclaimed_again() {
    run_again(&[
        Step(Op::Kill, 2345743209),
        Step(Op::Kill, 3169213663),
        Step(Op::Fetch, 2848994340),
        Step(Op::RequestLost, 2243540593),
        Step(Op::Unique, 3484237410),
        Step(Op::Stall, 2207711352),
        Step(Op::Recover, 2024312082),
        Step(Op::Recover, 2067756471),
        Step(Op::Fetch, 343313443),
        Step(Op::KillInAck, 9818997),
    ]);
}
