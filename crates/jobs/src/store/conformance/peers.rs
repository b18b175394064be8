//! Who is there.

use std::sync::Arc;
use std::time::Duration;

use super::bench::*;
use crate::store::*;

fn report(identity: &str) -> ProcessReport<'_> {
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

fn owners(desk: &mut Desk) -> Vec<String> {
    let mut names: Vec<String> =
        desk.store.owners().unwrap().into_iter().map(|owner| owner.identity).collect();
    names.sort();
    names
}

pub(crate) fn a_first_beat_is_new(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert_eq!(desk.store.owners().unwrap(), []);
    assert!(desk.store.heartbeat(&report("a")).unwrap().is_new);
    assert!(!desk.store.heartbeat(&report("a")).unwrap().is_new);
    let other = ProcessReport { process_key: "elsewhere", ..report("b") };
    assert!(desk.factory.store().heartbeat(&other).unwrap().is_new);
    let mut seen = desk.store.owners().unwrap();
    seen.sort_by(|a, b| a.identity.cmp(&b.identity));
    let short: Vec<_> = seen.iter().map(|one| (&*one.identity, &*one.process_key)).collect();
    assert_eq!(short, [("a", "boot ns 1 2"), ("b", "elsewhere")]);
    assert!(seen.iter().all(|owner| owner.heartbeat_age < PATIENCE), "{seen:?}");
    assert!(desk.store.forget("a").unwrap());
    assert_eq!(owners(&mut desk), ["b"]);
    assert!(desk.store.heartbeat(&report("a")).unwrap().is_new, "it had been given up");
}

pub(crate) fn silence_has_a_length(fresh: Fresh<'_>) {
    const SILENCE: Duration = Duration::from_millis(200);
    let mut desk = Desk::new(fresh);
    // The store's own clock counts, whatever the caller's says.
    desk.store.heartbeat(&ProcessReport { now_s: 1.0, ..report("a") }).unwrap();
    let age = |desk: &mut Desk| desk.store.owners().unwrap()[0].heartbeat_age;
    until("it is silent for a while", || age(&mut desk) > SILENCE);
    let before = age(&mut desk);
    assert!(before < PATIENCE, "{before:?}");
    desk.store.heartbeat(&report("a")).unwrap();
    assert!(age(&mut desk) < before, "a beat ends the silence");
}

pub(crate) fn a_process_is_described(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert_eq!(desk.store.processes().unwrap(), []);
    let work = [("t1", "q", "a"), ("t2", "r:s", "b")].map(|(tid, queue, jid)| RunningJob {
        tid: tid.into(),
        queue: queue.into(),
        payload: Arc::from(doc(queue, jid)),
        run_at: 1_700_000_000,
    });
    let busy = ProcessReport { busy: 2, work: &work, ..report("a") };
    desk.store.heartbeat(&busy).unwrap();
    let mut seen = desk.store.processes().unwrap();
    assert_eq!(seen.len(), 1);
    assert!((seen[0].heartbeat_at - busy.now_s).abs() < 0.001);
    seen[0].work.sort();
    let expected = ProcessStatus {
        identity: "a".into(),
        info: busy.info.into(),
        busy: 2,
        quiet: false,
        rss_kb: 1000,
        heartbeat_at: seen[0].heartbeat_at,
        work: vec![
            ("t1".into(), "q".into(), doc("q", "a"), 1_700_000_000),
            ("t2".into(), "r:s".into(), doc("r:s", "b"), 1_700_000_000),
        ],
    };
    assert_eq!(seen[0], expected);
    let now = ProcessReport { busy: 1, quiet: true, rss_kb: 2000, work: &work[1..], ..report("a") };
    desk.store.heartbeat(&now).unwrap();
    let seen = desk.store.processes().unwrap().remove(0);
    assert_eq!((seen.busy, seen.quiet, seen.rss_kb), (1, true, 2000));
    assert_eq!(seen.work, expected.work[1..], "only what runs now");
    assert_eq!(desk.store.stats().unwrap().processes, 1);
    desk.store.forget("a").unwrap();
    assert_eq!(desk.store.processes().unwrap(), []);
    assert_eq!(desk.store.stats().unwrap().processes, 0);
}

pub(crate) fn beats_add_up(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    for (identity, processed, failed) in [("a", 5, 1), ("a", 0, 0), ("a", 2, 2), ("b", 10, 0)] {
        desk.store.heartbeat(&ProcessReport { processed, failed, ..report(identity) }).unwrap();
    }
    let expected = Stats { processed: 17, failed: 3, processes: 2, ..Stats::default() };
    assert_eq!(desk.store.stats().unwrap(), expected);
    desk.store.forget("a").unwrap();
    let left = desk.store.stats().unwrap();
    assert_eq!((left.processed, left.failed, left.processes), (17, 3, 1));
}

pub(crate) fn an_owner_with_jobs_is_not_forgotten(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a", "b"]);
    desk.store.heartbeat(&report("me")).unwrap();
    desk.claim("me", &["q"], 2, 1);
    assert!(!desk.store.forget("me").unwrap());
    desk.end("me", &[settle(1, "q", Outcome::Ack)]);
    assert!(!desk.factory.store().forget("me").unwrap());
    assert_eq!(owners(&mut desk), ["me"]);
    assert_eq!(desk.store.in_flight("me").unwrap().len(), 1);
    desk.end("me", &[settle(2, "q", back())]);
    assert!(desk.store.forget("me").unwrap());
    assert_eq!(owners(&mut desk), [""; 0]);
    assert!(desk.store.forget("me").unwrap(), "there is nothing against it");
}

pub(crate) fn whoever_claims_is_known(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.put("q", &["a"]);
    desk.put_at(1.0, &doc("q", "b"));
    desk.claim("silent", &["q"], 1, 1);
    desk.store.claim_due("quiet", 1, now_s(), 5).unwrap();
    assert_eq!(owners(&mut desk), ["quiet", "silent"], "else nobody would recover them");
    assert_eq!(desk.store.processes().unwrap(), [], "they said nothing of themselves");
    assert!(desk.store.heartbeat(&report("silent")).unwrap().is_new);
}

pub(crate) fn signals_wait_for_their_process(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.store.heartbeat(&report("a")).unwrap();
    for signal in ["TSTP", "TTIN", "TERM"] {
        desk.store.signal("a", signal).unwrap();
    }
    desk.store.signal("b", "TERM").unwrap();
    assert_eq!(desk.store.heartbeat(&report("a")).unwrap().signals, ["TSTP", "TTIN", "TERM"]);
    assert_eq!(desk.store.heartbeat(&report("a")).unwrap().signals, [""; 0]);
    assert_eq!(desk.store.heartbeat(&report("b")).unwrap().signals, ["TERM"]);
}
