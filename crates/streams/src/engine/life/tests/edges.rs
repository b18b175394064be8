//! Turns that nobody ends, offsets where nothing is, times that do not come.

use super::*;

#[test]
fn what_was_marked_is_not_given_again_when_a_turn_is_abandoned() {
    let mut life = life(route());
    life.fetched(chunk(&(0..12).collect::<Vec<_>>()), at(0));
    let give = advance(&mut life, at(0)).remove(0);
    assert!(life.mark(0, give.id, 3, false) && life.mark(0, give.id, 6, true));
    life.abandon(0, give.id, true, at(0));
    let again = advance(&mut life, at(0)).remove(0);
    assert_eq!(offsets(&again), [4, 5, 7, 8, 9]);
    assert!(life.mark(0, again.id, 9, false));
    life.abandon(0, again.id, true, at(0));
    assert_eq!(offsets(&advance(&mut life, at(0))[0]), [10, 11], "nothing was left of it");
    assert_eq!((life.head(), life.rules.counters.read().records), (Some(10), 10));
}

#[test]
fn a_turn_that_is_abandoned_again_and_again_waits() {
    let mut life = life(route());
    life.fetched(chunk(&[0, 1]), at(0));
    let mut abandon = |at_ms: u64, started: bool| {
        let mut gives = advance(&mut life, at(at_ms));
        let give = gives.remove(0);
        assert_eq!(give.batch.as_ref().unwrap().attempt, 1);
        life.abandon(0, give.id, started, at(at_ms));
        life.next_ns()
    };
    // What was shed comes again at once, however often.
    assert_eq!([abandon(0, false), abandon(0, false), abandon(0, false)], [None; 3]);
    assert_eq!(abandon(0, true), None);
    let waits = [(0, 1_000), (2_000, 2_000), (9_000, 4_000)];
    for (from, most) in waits {
        let until = abandon(from, true).unwrap() / MS;
        assert!((from + most / 2..=from + most).contains(&until), "{until}");
    }
    // A thread that gets on ends that.
    let give = advance(&mut life, at(60_000)).remove(0);
    life.mark(0, give.id, 0, false);
    life.abandon(0, give.id, true, at(60_000));
    assert_eq!(offsets(&advance(&mut life, at(60_000))[0]), [1]);
}

#[test]
fn a_delay_counts_from_the_fetch_at_the_latest() {
    let mut life = life(RouteSettings { delay_ms: 100, ..route() });
    let mut builder = ChunkBuilder::default();
    for (offset, timestamp_ms) in [(0, i64::MAX), (1, 1_000_000), (2, 9_999_999)] {
        builder.push(offset, timestamp_ms, None, Some(b"v"), []);
    }
    life.fetched(builder.finish(), at(50));
    assert!(advance(&mut life, at(60)).is_empty());
    assert_eq!(life.next_ns(), Some(150 * MS));
    assert!(advance(&mut life, at(149)).is_empty());
    assert_eq!(offsets(&advance(&mut life, at(150))[0]), [0, 1, 2]);
    assert_eq!(at(0).ns_at(i64::MAX), u64::MAX);
}

#[test]
fn where_the_log_was_asked_to_go_is_not_promised() {
    let mut life = life(route());
    life.fetched(chunk(&[0]), at(0));
    let give = advance(&mut life, at(0)).remove(0);
    let wishes = Wishes { seek: Some(Position::Offset(1_000)), ..Wishes::default() };
    life.finish(0, give.id, Ending::Done, wishes, at(0));
    life.sought();
    life.unsaid();
    assert_eq!((life.is_dirty(), life.promise()), (false, None));
    life.end_reached();
    let end = advance(&mut life, at(0)).remove(0);
    assert_eq!(end.kind, Kind::End);
    assert!(life.pledge(0, end.id, None).is_err());
    life.finish(0, end.id, Ending::Done, Wishes::default(), at(0));
    assert_eq!(life.fetched(chunk(&[1, 2]), at(0)), Some(1_000));
    let give = advance(&mut life, at(0)).remove(0);
    life.finish(0, give.id, Ending::Done, Wishes::default(), at(0));
    assert_eq!(life.promise().map(|promise| promise.offset), Some(3));
}
