//! Abandoned batches, offsets without records, and timestamps in the future.

use super::*;

#[test]
fn marked_records_are_not_handed_out_again_after_an_abandoned_batch() {
    let mut state = state(route());
    state.fetched(chunk(&(0..12).collect::<Vec<_>>()), at(0));
    let batch = advance(&mut state, at(0)).remove(0);
    assert!(state.mark(&batch, 3, false) && state.mark(&batch, 6, true));
    state.finish(&batch, BatchOutcome::Abandoned, true, at(0));
    let again = advance(&mut state, at(0)).remove(0);
    assert_eq!(offsets(&again), [4, 5, 7, 8, 9]);
    assert!(state.mark(&again, 9, false));
    state.finish(&again, BatchOutcome::Abandoned, true, at(0));
    assert_eq!(offsets(&advance(&mut state, at(0))[0]), [10, 11], "nothing was left of it");
    assert_eq!((state.head(), state.route.counters.read().records), (Some(10), 10));
}

#[test]
fn a_batch_that_is_abandoned_again_and_again_is_paused() {
    let mut state = state(route());
    state.fetched(chunk(&[0, 1]), at(0));
    let mut abandon = |at_ms: u64, started: bool| {
        let mut batches = advance(&mut state, at(at_ms));
        let batch = batches.remove(0);
        assert_eq!(batch.attempt(), 1);
        state.finish(&batch, BatchOutcome::Abandoned, started, at(at_ms));
        state.next_ns()
    };
    // A batch that was never started is handed out again at once, however often.
    assert_eq!([abandon(0, false), abandon(0, false), abandon(0, false)], [None; 3]);
    assert_eq!(abandon(0, true), None);
    let waits = [(0, 1_000), (2_000, 2_000), (9_000, 4_000)];
    for (from, most) in waits {
        let until = abandon(from, true).unwrap() / MS;
        assert!((from + most / 2..=from + most).contains(&until), "{until}");
    }
    // A marked record resets the count.
    let batch = advance(&mut state, at(60_000)).remove(0);
    state.mark(&batch, 0, false);
    state.finish(&batch, BatchOutcome::Abandoned, true, at(60_000));
    assert_eq!(offsets(&advance(&mut state, at(60_000))[0]), [1]);
}

#[test]
fn a_record_without_a_time_has_no_age() {
    let mut state = state(route());
    let mut builder = ChunkBuilder::default();
    for (offset, timestamp_ms) in [(0, -1), (1, 2_000)] {
        builder.push(offset, timestamp_ms, None, Some(b"v"), []);
    }
    state.fetched(builder.finish(), at(0));
    let batch = advance(&mut state, at(0)).remove(0);
    assert_eq!(state.head_time_ms(), None);
    state.mark(&batch, 0, false);
    assert_eq!(state.head_time_ms(), Some(2_000));
}

#[test]
fn a_delay_is_never_longer_than_from_the_fetch() {
    let mut state = state(RouteSettings { delay: Duration::from_millis(100), ..route() });
    let mut builder = ChunkBuilder::default();
    for (offset, timestamp_ms) in [(0, i64::MAX), (1, 1_000_000), (2, 9_999_999)] {
        builder.push(offset, timestamp_ms, None, Some(b"v"), []);
    }
    state.fetched(builder.finish(), at(50));
    assert!(advance(&mut state, at(60)).is_empty());
    assert_eq!(state.next_ns(), Some(150 * MS));
    assert!(advance(&mut state, at(149)).is_empty());
    assert_eq!(offsets(&advance(&mut state, at(150))[0]), [0, 1, 2]);
    assert_eq!(at(0).ns_at(i64::MAX), u64::MAX);
}

#[test]
fn the_position_of_a_seek_is_not_committed() {
    let mut state = state(route());
    state.fetched(chunk(&[0]), at(0));
    let batch = advance(&mut state, at(0)).remove(0);
    batch.seek(Position::Offset(1_000));
    state.finish(&batch, BatchOutcome::Done, true, at(0));
    state.seek_done();
    state.uncommitted();
    assert_eq!((state.is_dirty(), state.take_commit()), (false, None));
    state.end_reached();
    let end = advance(&mut state, at(0)).remove(0);
    assert_eq!(end.kind(), BatchKind::End);
    assert!(state.prepare_transaction(&end, None).is_err());
    state.finish(&end, BatchOutcome::Done, true, at(0));
    assert_eq!(state.fetched(chunk(&[1, 2]), at(0)), Some(1_000));
    let batch = advance(&mut state, at(0)).remove(0);
    state.finish(&batch, BatchOutcome::Done, true, at(0));
    assert_eq!(state.take_commit().map(|commit| commit.offset), Some(3));
}
