//! Owners and processes.

use std::sync::Arc;
use std::time::Duration;

use super::harness::*;
use crate::store::*;

pub(crate) fn report(identity: &str) -> ProcessReport<'_> {
    ProcessReport {
        identity,
        process_key: "boot ns 1 2",
        info: r#"{"hostname":"h","queues":["q"]}"#,
        concurrency: 5,
        busy: 0,
        quiet: false,
        rss_kb: 1000,
        rtt_us: 10,
        work: &[],
        processed: 0,
        failed: 0,
        now_s: now_s(),
    }
}

fn owners(harness: &mut StoreHarness) -> Vec<String> {
    let mut names: Vec<String> =
        harness.store.owners().unwrap().into_iter().map(|owner| owner.identity).collect();
    names.sort();
    names
}

pub(crate) fn a_first_heartbeat_is_new(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(harness.store.owners().unwrap(), []);
    assert!(harness.store.heartbeat(&report("a")).unwrap().is_new);
    assert!(!harness.store.heartbeat(&report("a")).unwrap().is_new);
    let other = ProcessReport { process_key: "elsewhere", ..report("b") };
    assert!(harness.factory.store().heartbeat(&other).unwrap().is_new);
    let mut seen = harness.store.owners().unwrap();
    seen.sort_by(|a, b| a.identity.cmp(&b.identity));
    let short: Vec<_> = seen.iter().map(|one| (&*one.identity, &*one.process_key)).collect();
    assert_eq!(short, [("a", "boot ns 1 2"), ("b", "elsewhere")]);
    assert!(seen.iter().all(|owner| owner.heartbeat_age < TIMEOUT), "{seen:?}");
    assert!(harness.store.forget("a").unwrap());
    assert_eq!(owners(&mut harness), ["b"]);
    assert!(harness.store.heartbeat(&report("a")).unwrap().is_new, "it had been given up");
}

pub(crate) fn the_age_of_a_heartbeat_is_known(fresh: OpenFresh<'_>) {
    const SILENCE: Duration = Duration::from_millis(200);
    let mut harness = StoreHarness::new(fresh);
    // The store's own clock counts, whatever the caller's says.
    harness.store.heartbeat(&ProcessReport { now_s: 1.0, ..report("a") }).unwrap();
    let age = |harness: &mut StoreHarness| harness.store.owners().unwrap()[0].heartbeat_age;
    until("it is silent for a while", || age(&mut harness) > SILENCE);
    let before = age(&mut harness);
    assert!(before < TIMEOUT, "{before:?}");
    harness.store.heartbeat(&report("a")).unwrap();
    assert!(age(&mut harness) < before, "a heartbeat resets the age");
}

pub(crate) fn a_process_is_described(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert_eq!(harness.store.processes().unwrap(), []);
    let work = [("t1", "q", "a"), ("t2", "r:s", "b")].map(|(tid, queue, jid)| RunningJob {
        tid: tid.into(),
        queue: queue.into(),
        payload: Arc::from(doc(queue, jid)),
        run_at: 1_700_000_000,
    });
    let busy = ProcessReport { busy: 2, work: &work, ..report("a") };
    harness.store.heartbeat(&busy).unwrap();
    let seen = harness.store.processes().unwrap();
    assert_eq!(seen.len(), 1);
    assert!((seen[0].heartbeat_at - busy.now_s).abs() < 0.001);
    let expected = ProcessStatus {
        identity: "a".into(),
        info: busy.info.into(),
        busy: 2,
        quiet: false,
        rss_kb: 1000,
        heartbeat_at: seen[0].heartbeat_at,
        work: work.to_vec(),
    };
    assert_eq!(seen[0], expected);
    let now = ProcessReport { busy: 1, quiet: true, rss_kb: 2000, work: &work[1..], ..report("a") };
    harness.store.heartbeat(&now).unwrap();
    let seen = harness.store.processes().unwrap().remove(0);
    assert_eq!((seen.busy, seen.quiet, seen.rss_kb), (1, true, 2000));
    assert_eq!(seen.work, expected.work[1..], "only what runs now");
    assert_eq!(harness.store.stats().unwrap().processes, 1);
    harness.store.forget("a").unwrap();
    assert_eq!(harness.store.processes().unwrap(), []);
    assert_eq!(harness.store.stats().unwrap().processes, 0);
}

pub(crate) fn heartbeats_add_up_their_counts(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    for (identity, processed, failed) in [("a", 5, 1), ("a", 0, 0), ("a", 2, 2), ("b", 10, 0)] {
        harness.store.heartbeat(&ProcessReport { processed, failed, ..report(identity) }).unwrap();
    }
    let expected = Stats { processed: 17, failed: 3, processes: 2, ..Stats::default() };
    assert_eq!(harness.store.stats().unwrap(), expected);
    harness.store.forget("a").unwrap();
    let left = harness.store.stats().unwrap();
    assert_eq!((left.processed, left.failed, left.processes), (17, 3, 1));
}

pub(crate) fn a_counter_is_reset(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.store.heartbeat(&ProcessReport { processed: 5, failed: 1, ..report("a") }).unwrap();
    harness.store.reset_counter("failed").unwrap();
    let left = harness.store.stats().unwrap();
    assert_eq!((left.processed, left.failed), (5, 0));
    harness.store.heartbeat(&ProcessReport { processed: 1, failed: 2, ..report("a") }).unwrap();
    let left = harness.store.stats().unwrap();
    assert_eq!((left.processed, left.failed), (6, 2));
    assert_eq!(harness.store.daily_counts(&["2012-12-24".into()]).unwrap(), [(0, 0)]);
}

pub(crate) fn an_owner_with_jobs_is_not_forgotten(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a", "b"]);
    harness.store.heartbeat(&report("me")).unwrap();
    harness.claim("me", &["q"], 2, 1);
    assert!(!harness.store.forget("me").unwrap());
    harness.end("me", &[ack(1, "q", Outcome::Ack)]);
    assert!(!harness.factory.store().forget("me").unwrap());
    assert_eq!(owners(&mut harness), ["me"]);
    assert_eq!(harness.store.in_flight("me").unwrap().len(), 1);
    harness.end("me", &[ack(2, "q", back())]);
    assert!(harness.store.forget("me").unwrap());
    assert_eq!(owners(&mut harness), [""; 0]);
    assert!(harness.store.forget("me").unwrap(), "there is nothing against it");
}

pub(crate) fn a_claiming_owner_is_known(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.put("q", &["a"]);
    harness.put_at(1.0, &doc("q", "b"));
    harness.claim("silent", &["q"], 1, 1);
    harness.store.claim_due("quiet", 1, now_s(), 5).unwrap();
    assert_eq!(owners(&mut harness), ["quiet", "silent"], "else nobody would recover them");
    assert_eq!(harness.store.processes().unwrap(), [], "they said nothing of themselves");
    assert!(harness.store.heartbeat(&report("silent")).unwrap().is_new);
}

pub(crate) fn signals_are_delivered_at_a_heartbeat(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.store.heartbeat(&report("a")).unwrap();
    for signal in ["TSTP", "TTIN", "TERM"] {
        harness.store.signal("a", signal).unwrap();
    }
    harness.store.signal("b", "TERM").unwrap();
    assert_eq!(harness.store.heartbeat(&report("a")).unwrap().signals, ["TSTP", "TTIN", "TERM"]);
    assert_eq!(harness.store.heartbeat(&report("a")).unwrap().signals, [""; 0]);
    assert_eq!(harness.store.heartbeat(&report("b")).unwrap().signals, ["TERM"]);
}
