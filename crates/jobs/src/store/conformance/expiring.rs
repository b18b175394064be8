//! Cancels and small hashes.

use std::time::Duration;

use super::harness::*;

pub(crate) fn a_cancel_is_kept(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    assert!(harness.store.cancelled(&[]).unwrap().is_empty());
    assert_eq!(harness.store.cancelled(&["a", "b"]).unwrap(), [false, false]);
    harness.store.cancel("b").unwrap();
    harness.store.cancel("b").unwrap();
    let mut other = harness.factory.store();
    assert_eq!(other.cancelled(&["a", "b", "c"]).unwrap(), [false, true, false]);
    assert_eq!(harness.store.cancelled(&["b"]).unwrap(), [true]);
}

fn sorted(harness: &mut StoreHarness, key: &str) -> Vec<(String, Vec<u8>)> {
    let mut fields = harness.store.load(key).unwrap();
    fields.sort();
    fields
}

pub(crate) fn a_small_hash_is_kept(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    let hour = Duration::from_secs(3600);
    assert_eq!(sorted(&mut harness, "it-a"), []);
    harness.store.save("it-a", &[("c", b"[1]"), ("ex", b"1")], hour).unwrap();
    harness.factory.store().save("it-a", &[("c", b"\xff\0"), ("rt", b"")], hour).unwrap();
    harness.store.save("it-b", &[("c", b"other")], hour).unwrap();
    let field = |name: &str, value: &[u8]| (name.to_string(), value.to_vec());
    let expected = [field("c", b"\xff\0"), field("ex", b"1"), field("rt", b"")];
    assert_eq!(sorted(&mut harness, "it-a"), expected);
    harness.store.remove_hash("it-a").unwrap();
    harness.store.remove_hash("it-a").unwrap();
    assert_eq!(sorted(&mut harness, "it-a"), []);
    assert_eq!(sorted(&mut harness, "it-b"), [field("c", b"other")]);
}

pub(crate) fn a_small_hash_expires(fresh: OpenFresh<'_>) {
    let mut harness = StoreHarness::new(fresh);
    harness.store.save("k", &[("a", b"1")], Duration::from_millis(30)).unwrap();
    until("the hash ends", || harness.store.load("k").unwrap().is_empty());
    harness.store.save("k", &[("b", b"2")], Duration::from_secs(3600)).unwrap();
    assert_eq!(harness.store.load("k").unwrap(), [("b".to_string(), b"2".to_vec())]);
}
