//! Messages to the support thread, waits for idleness, and the state of a unit of work.

use std::sync::Arc;
use std::time::Duration;

use loom::thread::spawn;

use super::{model, pool};
use crate::idle_wait::IdleWait;
use crate::process::events::{SupportEvent, SupportEvents};
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::work::{AtomicWorkState, WorkState};

const LONG: Duration = Duration::from_secs(3_600);

#[test]
fn no_event_is_lost() {
    model(|| {
        let events = Arc::new(SupportEvents::default());
        let support = {
            let events = events.clone();
            spawn(move || {
                let mut spawned = 0;
                while spawned < 2 {
                    assert!(events.wait());
                    match events.poll() {
                        Some(SupportEvent::Spawn(count)) => spawned += count,
                        other => panic!("{other:?}"),
                    }
                }
            })
        };
        let other = {
            let events = events.clone();
            spawn(move || events.post(SupportEvent::Spawn(1)))
        };
        events.post(SupportEvent::Spawn(1));
        other.join().unwrap();
        support.join().unwrap();
    });
}

#[test]
fn an_interrupt_ends_the_wait_for_events() {
    model(|| {
        let events = Arc::new(SupportEvents::default());
        let support = {
            let events = events.clone();
            spawn(move || assert!(!events.wait()))
        };
        events.interrupt();
        support.join().unwrap();
    });
}

#[test]
fn a_change_or_an_interrupt_ends_a_wait_for_idleness() {
    for interrupted in [false, true] {
        model(move || {
            let both = Arc::new((IdleWait::default(), AtomicBool::new(false)));
            let waiter = {
                let both = both.clone();
                spawn(move || both.0.wait(LONG, || both.1.load(SeqCst)))
            };
            if interrupted {
                both.0.interrupt();
            } else {
                both.1.store(true, SeqCst);
                both.0.changed();
            }
            assert_eq!(waiter.join().unwrap(), !interrupted);
        });
    }
}

#[test]
fn an_idle_timer_that_is_set_when_the_last_one_ends_stays_set() {
    model(|| {
        let pool = pool(false);
        pool.set_idle_timer(1);
        let scheduler = {
            let pool = pool.clone();
            spawn(move || pool.post_idle_if_due(u64::MAX))
        };
        assert!(pool.events.wait());
        assert_eq!(pool.events.poll(), Some(SupportEvent::Idle));
        pool.set_idle_timer(1);
        scheduler.join().unwrap();
        assert!(pool.is_idle_timer_set());
    });
}

#[test]
fn work_is_either_started_or_finished_without_a_start() {
    model(|| {
        let state = Arc::new(AtomicWorkState::default());
        let starter = {
            let state = state.clone();
            spawn(move || state.start())
        };
        let finished = state.finish_unstarted();
        assert_ne!(starter.join().unwrap(), finished);
        let now = if finished { WorkState::Finished } else { WorkState::Running };
        assert_eq!(state.get(), now);
    });
}
