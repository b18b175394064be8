//! Records that were being consumed when workers died.

use super::super::super::suspects::{BatchSlot, Suspects};
use super::*;
use chaton_core::process::deaths::DeathTable;
use chaton_core::process::in_flight::InFlightTable;

/// A partition's state beside the tables of its worker and of the supervisor.
fn suspected(settings: RouteSettings) -> (PartitionState, BatchSlot) {
    let table = Arc::new(InFlightTable::new(1, 16).unwrap());
    let slot = BatchSlot { table, slot: 0, deaths: Arc::new(DeathTable::new().unwrap()) };
    let suspects = Arc::new(Suspects::new(Some(slot.clone())));
    let mut route = Arc::into_inner(route_of(settings, 2)).unwrap();
    route.suspects = suspects;
    // A table has no entry 0.
    route.batch_ids = Arc::new(1.into());
    let state =
        PartitionState::new(&Arc::new(route), &assigned(Some(0), ""), 1, at(0), Rng::with_seed(1));
    (state, slot)
}

/// The worker of this batch dies: what a successor knows, which has the records again.
fn die(batch: &Batch, state: &mut PartitionState, slot: &BatchSlot) {
    state.route.suspects.started(1, batch, 0);
    for started in slot.table.started(0) {
        slot.deaths.add(&started.jid, "SIGKILL", 1_000_000);
    }
    slot.table.clear(0);
    state.finish(batch, BatchOutcome::Abandoned, false, at(0));
}

#[test]
fn a_record_runs_alone_after_two_deaths_and_is_a_dead_letter_after_the_third() {
    let (mut state, slot) =
        suspected(RouteSettings { dead_letter: Some("dead".into()), ..route() });
    state.fetched(chunk(&[0, 1, 2]), at(0));
    let batch = advance(&mut state, at(0)).remove(0);
    assert_eq!((offsets(&batch), batch.attempt()), (vec![0, 1, 2], 1));
    die(&batch, &mut state, &slot);
    // One by one, beside other partitions.
    let single = advance(&mut state, at(0)).remove(0);
    assert_eq!((offsets(&single), single.attempt()), (vec![0], 2));
    assert!(state.route.suspects.begin_alone(77));
    state.route.suspects.end_alone(77);
    die(&single, &mut state, &slot);
    let alone = advance(&mut state, at(0)).remove(0);
    assert_eq!((offsets(&alone), alone.attempt(), alone.isolated()), (vec![0], 3, false));
    assert!(!state.route.suspects.begin_alone(77), "no other suspect runs beside it");
    state.finish(&alone, BatchOutcome::Abandoned, false, at(0));
    assert!(state.route.suspects.begin_alone(77));
    assert!(advance(&mut state, at(0)).is_empty(), "it waits for the other one");
    state.route.suspects.end_alone(77);
    let poison = advance(&mut state, at(100)).remove(0);
    assert_eq!(offsets(&poison), [0]);
    die(&poison, &mut state, &slot);
    assert!(advance(&mut state, at(100)).is_empty());
    let letter = state.dead_letter_due(at(100)).unwrap();
    assert_eq!((letter.record().offset(), letter.attempts(), &*letter.topic), (0, 3, "dead"));
    assert_eq!(letter.class, "Chaton::Streams::Poison");
    assert!(
        letter.message.contains("3 times within 72 hours: SIGKILL at 1970"),
        "{}",
        letter.message
    );
    assert_eq!(state.poison.take().map(|(offset, _)| offset), Some(0));
    state.dead_letter_ended(&letter, LetterEnd::Durable, at(100));
    for offset in [1, 2] {
        let next = advance(&mut state, at(100)).remove(0);
        assert_eq!(offsets(&next), [offset]);
        state.finish(&next, BatchOutcome::Done, true, at(100));
    }
    assert_eq!(state.take_commit().map(|commit| commit.offset), Some(3));
}

#[test]
fn without_a_dead_letter_topic_it_is_tried_again_after_pauses_that_grow() {
    let (mut state, slot) = suspected(route());
    state.fetched(chunk(&[0]), at(0));
    for _ in 0..3 {
        let batch = advance(&mut state, at(0)).remove(0);
        die(&batch, &mut state, &slot);
    }
    for (pause_ms, attempt) in [(1_000, 4), (2_000, 5)] {
        assert!(advance(&mut state, at(pause_ms - 1)).is_empty());
        assert_eq!(state.stats(at(0)).state, "retrying");
        assert_eq!(state.poison.take().map(|(offset, _)| offset), Some(0));
        let again = advance(&mut state, at(pause_ms)).remove(0);
        assert_eq!((offsets(&again), again.attempt()), (vec![0], attempt));
        assert!(state.poison.is_none(), "each death is logged once");
        die(&again, &mut state, &slot);
    }
}

#[test]
fn what_a_record_has_done_is_logged_before_it_is_tried_again() {
    let (mut state, slot) = suspected(route());
    state.fetched(chunk(&[0]), at(0));
    for _ in 0..3 {
        let batch = advance(&mut state, at(0)).remove(0);
        die(&batch, &mut state, &slot);
    }
    // The next worker is there after the pause.
    for _ in 0..2 {
        assert!(advance(&mut state, at(9_000)).is_empty());
    }
    assert_eq!(state.poison.take().map(|(offset, _)| offset), Some(0));
    assert_eq!(offsets(&advance(&mut state, at(9_000)).remove(0)), [0]);
}

#[test]
fn a_batch_ends_before_a_suspect() {
    let (mut state, slot) = suspected(route());
    slot.deaths.add("1 0 2 0", "SIGKILL", 1_000_000);
    state.fetched(chunk(&[0, 1, 2, 3]), at(0));
    let parts = std::iter::from_fn(|| {
        let batch = advance(&mut state, at(0)).pop()?;
        state.finish(&batch, BatchOutcome::Done, true, at(0));
        Some(offsets(&batch))
    });
    assert_eq!(parts.collect::<Vec<_>>(), [vec![0, 1], vec![2], vec![3]]);
}
