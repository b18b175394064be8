//! Batches in batches.

use super::batches::{calls, counts, fill, open, told};
use super::bench::*;
use crate::store::*;

const NONE: [&str; 0] = [];

/// A closed batch with one job each, the second within the first.
fn two(fresh: Fresh<'_>) -> Desk {
    let mut desk = Desk::new(fresh);
    open(&mut desk, "up", None);
    fill(&mut desk, "up", &["u"]);
    open(&mut desk, "in", Some("up"));
    fill(&mut desk, "in", &["i"]);
    desk.store.batch_close("in").unwrap();
    desk.store.batch_close("up").unwrap();
    desk.claim("me", &["q"], 9, 1);
    desk
}

fn children(desk: &mut Desk, bid: &str) -> u64 {
    desk.store.batch(bid).unwrap().unwrap().children_pending
}

pub(crate) fn a_parent_waits_for_its_child(fresh: Fresh<'_>) {
    let mut desk = two(fresh);
    assert_eq!(desk.store.batch("in").unwrap().unwrap().parent.as_deref(), Some("up"));
    assert_eq!(children(&mut desk, "up"), 1);
    desk.end("me", &[told(1, "up", "u", BatchEvent::Done)]);
    assert_eq!(counts(&mut desk, "up"), (1, 0, 0, false, false, false));
    assert_eq!(calls(&mut desk), NONE);
    desk.end("me", &[told(2, "in", "i", BatchEvent::Done)]);
    assert_eq!(counts(&mut desk, "up"), (1, 0, 0, true, true, false));
    assert_eq!(children(&mut desk, "up"), 0);
    assert_eq!(calls(&mut desk), ["in complete", "in success", "up complete", "up success"]);
}

pub(crate) fn a_failed_child_completes_its_parent(fresh: Fresh<'_>) {
    let mut desk = two(fresh);
    desk.end("me", &[told(2, "in", "i", BatchEvent::Failed)]);
    assert_eq!(calls(&mut desk), ["in complete"]);
    desk.end("me", &[told(1, "up", "u", BatchEvent::Done)]);
    assert_eq!(counts(&mut desk, "up"), (1, 0, 0, true, false, false));
    assert_eq!((children(&mut desk, "up"), calls(&mut desk)), (1, vec!["up complete".into()]));
    desk.store.move_due(now_s() + 1.0, 9).unwrap();
    desk.claim("me", &["q"], 9, 3);
    desk.end("me", &[told(3, "in", "i", BatchEvent::Done)]);
    assert_eq!(counts(&mut desk, "up"), (1, 0, 0, true, true, false));
    assert_eq!(calls(&mut desk), ["in success", "up success"]);
}

pub(crate) fn success_climbs_up(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    open(&mut desk, "a", None);
    open(&mut desk, "b", Some("a"));
    open(&mut desk, "c", Some("b"));
    open(&mut desk, "d", Some("b"));
    fill(&mut desk, "c", &["c1"]);
    fill(&mut desk, "d", &["d1"]);
    // Opened again: it is nested once all the same.
    open(&mut desk, "d", Some("b"));
    for bid in ["a", "b", "c", "d"] {
        desk.store.batch_close(bid).unwrap();
    }
    assert_eq!((children(&mut desk, "a"), children(&mut desk, "b")), (1, 2));
    desk.claim("me", &["q"], 9, 1);
    desk.end("me", &[told(1, "c", "c1", BatchEvent::Done)]);
    assert_eq!(calls(&mut desk), ["c complete", "c success"]);
    desk.end("me", &[told(2, "d", "d1", BatchEvent::Died)]);
    assert_eq!(calls(&mut desk), ["a complete", "b complete", "d complete", "d death"]);
    let dead = desk.all(&JobLocation::Dead);
    desk.store.requeue(&JobLocation::Dead, &dead[0], now_s()).unwrap();
    desk.claim("me", &["q"], 9, 3);
    desk.end("me", &[told(3, "d", "d1", BatchEvent::Done)]);
    assert_eq!(calls(&mut desk), ["a success", "b success", "d success"]);
    assert_eq!((children(&mut desk, "a"), children(&mut desk, "b")), (0, 0));
}
