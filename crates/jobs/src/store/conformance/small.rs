//! Cancels and small hashes.

use std::time::Duration;

use super::bench::*;

pub(crate) fn a_cancel_is_remembered(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    assert!(desk.store.cancelled(&[]).unwrap().is_empty());
    assert_eq!(desk.store.cancelled(&["a", "b"]).unwrap(), [false, false]);
    desk.store.cancel("b").unwrap();
    desk.store.cancel("b").unwrap();
    let mut other = desk.factory.store();
    assert_eq!(other.cancelled(&["a", "b", "c"]).unwrap(), [false, true, false]);
    assert_eq!(desk.store.cancelled(&["b"]).unwrap(), [true]);
}

fn sorted(desk: &mut Desk, key: &str) -> Vec<(String, Vec<u8>)> {
    let mut fields = desk.store.load(key).unwrap();
    fields.sort();
    fields
}

pub(crate) fn a_small_hash_is_kept(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    let hour = Duration::from_secs(3600);
    assert_eq!(sorted(&mut desk, "it-a"), []);
    desk.store.save("it-a", &[("c", b"[1]"), ("ex", b"1")], hour).unwrap();
    desk.factory.store().save("it-a", &[("c", b"\xff\0"), ("rt", b"")], hour).unwrap();
    desk.store.save("it-b", &[("c", b"other")], hour).unwrap();
    let field = |name: &str, value: &[u8]| (name.to_string(), value.to_vec());
    let expected = [field("c", b"\xff\0"), field("ex", b"1"), field("rt", b"")];
    assert_eq!(sorted(&mut desk, "it-a"), expected);
    desk.store.remove_hash("it-a").unwrap();
    desk.store.remove_hash("it-a").unwrap();
    assert_eq!(sorted(&mut desk, "it-a"), []);
    assert_eq!(sorted(&mut desk, "it-b"), [field("c", b"other")]);
}

pub(crate) fn a_small_hash_ends(fresh: Fresh<'_>) {
    let mut desk = Desk::new(fresh);
    desk.store.save("k", &[("a", b"1")], Duration::from_millis(30)).unwrap();
    until("the hash ends", || desk.store.load("k").unwrap().is_empty());
    desk.store.save("k", &[("b", b"2")], Duration::from_secs(3600)).unwrap();
    assert_eq!(desk.store.load("k").unwrap(), [("b".to_string(), b"2".to_vec())]);
}
