//! Nested batches.

use super::batches::{calls, counts, fill, open, update};
use super::harness::*;
use crate::store::*;

const NONE: [&str; 0] = [];

/// A closed batch with one job each, the second within the first.
fn two(fresh: OpenFresh<'_>) -> StoreHarness {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "up", None);
    fill(&mut harness, "up", &["u"]);
    open(&mut harness, "in", Some("up"));
    fill(&mut harness, "in", &["i"]);
    harness.store.batch_close("in").unwrap();
    harness.store.batch_close("up").unwrap();
    harness.claim("me", &["q"], 9, 1);
    harness
}

fn children(harness: &mut StoreHarness, bid: &str) -> u64 {
    harness.store.batch(bid).unwrap().unwrap().children_pending
}

pub(crate) fn a_parent_waits_for_its_child(fresh: OpenFresh<'_>) {
    let mut harness = two(fresh);
    assert_eq!(harness.store.batch("in").unwrap().unwrap().parent.as_deref(), Some("up"));
    assert_eq!(children(&mut harness, "up"), 1);
    harness.end("me", &[update(1, "up", "u", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "up"), (1, 0, 0, false, false, false));
    assert_eq!(calls(&mut harness), NONE);
    harness.end("me", &[update(2, "in", "i", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "up"), (1, 0, 0, true, true, false));
    assert_eq!(children(&mut harness, "up"), 0);
    assert_eq!(calls(&mut harness), ["in complete", "in success", "up complete", "up success"]);
}

pub(crate) fn a_failed_child_completes_its_parent(fresh: OpenFresh<'_>) {
    let mut harness = two(fresh);
    harness.end("me", &[update(2, "in", "i", BatchEvent::Failed)]);
    assert_eq!(calls(&mut harness), ["in complete"]);
    harness.end("me", &[update(1, "up", "u", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "up"), (1, 0, 0, true, false, false));
    assert_eq!(
        (children(&mut harness, "up"), calls(&mut harness)),
        (1, vec!["up complete".into()])
    );
    harness.store.move_due(now_s() + 1.0, 9).unwrap();
    harness.claim("me", &["q"], 9, 3);
    harness.end("me", &[update(3, "in", "i", BatchEvent::Done)]);
    assert_eq!(counts(&mut harness, "up"), (1, 0, 0, true, true, false));
    assert_eq!(calls(&mut harness), ["in success", "up success"]);
}

pub(crate) fn success_reaches_all_parents(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "a", None);
    open(&mut harness, "b", Some("a"));
    open(&mut harness, "c", Some("b"));
    open(&mut harness, "d", Some("b"));
    fill(&mut harness, "c", &["c1"]);
    fill(&mut harness, "d", &["d1"]);
    for bid in ["c", "d", "b", "a"] {
        harness.store.batch_close(bid).unwrap();
    }
    // Closed again: its parent counts it once all the same.
    harness.store.batch_close("d").unwrap();
    assert_eq!((children(&mut harness, "a"), children(&mut harness, "b")), (1, 2));
    harness.claim("me", &["q"], 9, 1);
    harness.end("me", &[update(1, "c", "c1", BatchEvent::Done)]);
    assert_eq!(calls(&mut harness), ["c complete", "c success"]);
    harness.end("me", &[update(2, "d", "d1", BatchEvent::Died)]);
    assert_eq!(calls(&mut harness), ["a complete", "b complete", "d complete", "d death"]);
    let dead = harness.all(&JobLocation::Dead);
    harness.store.enqueue_entry(&JobLocation::Dead, &dead[0], now_s()).unwrap();
    harness.claim("me", &["q"], 9, 3);
    harness.end("me", &[update(3, "d", "d1", BatchEvent::Done)]);
    assert_eq!(calls(&mut harness), ["a success", "b success", "d success"]);
    assert_eq!((children(&mut harness, "a"), children(&mut harness, "b")), (0, 0));
}

pub(crate) fn a_parent_waits_for_closed_children_only(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    open(&mut harness, "up", None);
    fill(&mut harness, "up", &["u"]);
    harness.store.batch_close("up").unwrap();
    // The first run of the job ends in its block, and so does the second; the third closes its batch.
    for bid in ["left", "removed", "in"] {
        open(&mut harness, bid, Some("up"));
        fill(&mut harness, bid, &[bid]);
        assert_eq!(children(&mut harness, "up"), 0, "{bid} is open");
    }
    harness.store.remove_open(Some("removed")).unwrap();
    harness.store.batch_close("in").unwrap();
    assert_eq!(children(&mut harness, "up"), 1);
    harness.claim("me", &["q"], 9, 1);
    harness.end("me", &[update(1, "up", "u", BatchEvent::Done)]);
    assert_eq!(calls(&mut harness), NONE);
    harness.end("me", &[update(3, "removed", "removed", BatchEvent::Done)]);
    harness.end("me", &[update(4, "in", "in", BatchEvent::Done)]);
    assert_eq!(calls(&mut harness), ["in complete", "in success", "up complete", "up success"]);
}
