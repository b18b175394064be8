//! What Rust has to say to Ruby outside the units of work: one bounded list of
//! events that the guardian, a Ruby thread outside the pool, waits for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::clock;

/// Events kept at most; past it the oldest report is dropped and counted.
const EVENTS_MAX: usize = 256;

/// One message to the guardian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Start this many pool threads.
    Spawn(usize),
    /// A unit runs past its time: its number, and when it was reported (ns).
    Late(u64, u64),
    /// The supervisor asks whether Ruby is alive.
    Ping,
    /// The supervisor is gone.
    Orphan,
    /// A sibling died: the JSON by which the supervisor names what it ran.
    Recover(String),
    /// Somebody left a signal for this process in the store: its name.
    Signal(String),
    /// The supervisor wants something done: JSON.
    Order(String),
    /// Collections have taken place whose summaries wait to be fetched.
    Collections,
    /// Ruby wants a full collection, and nobody comes to do it.
    FullWanted,
    /// Nothing was run or waited for as long as [`crate::hub::Hub::ask_idle`] said.
    Idle,
    /// The worker stops: the guardian ends.
    Stop,
}

/// The list. Any thread posts; the guardian waits outside the GVL.
#[derive(Default)]
pub struct Guard {
    events: Mutex<VecDeque<Event>>,
    posted: Condvar,
    interrupted: AtomicBool,
}

impl Guard {
    /// Adds an event. Spawns and pings join with one already waiting. In a
    /// full list a report makes room; a signal or an order is left out.
    pub fn post(&self, event: Event) {
        let mut events = self.events.lock();
        match &event {
            Event::Spawn(more) => {
                let waiting = events.iter_mut().find_map(|e| match e {
                    Event::Spawn(n) => Some(n),
                    _ => None,
                });
                match waiting {
                    Some(n) => *n += more,
                    None => events.push_back(event),
                }
            }
            Event::Ping | Event::Orphan | Event::Collections | Event::FullWanted | Event::Idle
                if events.contains(&event) => {}
            Event::Recover(_) | Event::Signal(_) | Event::Order(_) if events.contains(&event) => {}
            _ => {
                if events.len() >= EVENTS_MAX {
                    let late = events.iter().position(|e| matches!(e, Event::Late(..)));
                    match (late, &event) {
                        (Some(oldest), _) => drop(events.remove(oldest)),
                        (None, Event::Signal(_) | Event::Order(_)) => return,
                        (None, _) => {}
                    }
                }
                events.push_back(event);
            }
        }
        self.posted.notify_one();
    }

    /// Blocks until an event is there (true) or [`Guard::interrupt`] (false).
    /// The caller has released the GVL, and takes the event with
    /// [`Guard::poll`] once it has it back: a report that Ruby could not fetch
    /// must stay where [`Guard::take_unheard`] finds it.
    pub fn wait(&self) -> bool {
        let mut events = self.events.lock();
        loop {
            if self.interrupted.swap(false, Ordering::AcqRel) {
                return false;
            }
            if !events.is_empty() {
                return true;
            }
            self.posted.wait(&mut events);
        }
    }

    /// Takes the event that waits, if any, without blocking.
    pub fn poll(&self) -> Option<Event> {
        self.events.lock().pop_front()
    }

    /// Ends a [`Guard::wait`] early; kept if none waits yet.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        let _held = self.events.lock();
        self.posted.notify_all();
    }

    /// Takes out the reports that Ruby did not fetch within `patience_ns`: it
    /// could not get the GVL. Answers their units' numbers.
    pub fn take_unheard(&self, patience_ns: u64) -> Vec<u64> {
        let now = clock::now_ns();
        let mut unheard = vec![];
        self.events.lock().retain(|event| match event {
            Event::Late(id, at) if now.saturating_sub(*at) >= patience_ns => {
                unheard.push(*id);
                false
            }
            _ => true,
        });
        unheard
    }

    /// When the first report becomes unheard, in ns of the clock.
    pub fn next_unheard_ns(&self, patience_ns: u64) -> Option<u64> {
        self.events.lock().iter().find_map(|event| match event {
            Event::Late(_, at) => Some(at + patience_ns),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_what_can_be_joined() {
        let guard = Guard::default();
        for event in [Event::Spawn(1), Event::Ping, Event::Spawn(2), Event::Ping] {
            guard.post(event);
        }
        assert!(guard.wait());
        assert_eq!(guard.poll(), Some(Event::Spawn(3)));
        assert_eq!(guard.poll(), Some(Event::Ping));
        assert_eq!(guard.poll(), None);
    }

    #[test]
    fn keeps_an_interrupt_for_the_next_wait() {
        let guard = Guard::default();
        guard.interrupt();
        assert!(!guard.wait());
    }

    #[test]
    fn a_report_that_was_only_waited_for_is_unheard() {
        let guard = Guard::default();
        guard.post(Event::Late(7, 0));
        assert!(guard.wait());
        assert_eq!(guard.take_unheard(1), [7]);
        assert_eq!(guard.poll(), None);
    }

    #[test]
    fn is_bounded_and_keeps_what_matters() {
        let guard = Guard::default();
        guard.post(Event::Orphan);
        for id in 0..1_000 {
            guard.post(Event::Late(id, 0));
        }
        assert_eq!(guard.poll(), Some(Event::Orphan));
        assert_eq!(guard.take_unheard(1).len(), EVENTS_MAX - 1);
        assert_eq!(guard.next_unheard_ns(1), None);
    }

    #[test]
    fn what_is_owed_to_the_jobs_of_the_dead_is_never_dropped() {
        let guard = Guard::default();
        for n in 0..EVENTS_MAX {
            guard.post(Event::Recover(n.to_string()));
        }
        guard.post(Event::Signal("TERM".into()));
        guard.post(Event::Recover("last".into()));
        guard.post(Event::Recover("last".into()));
        let events: Vec<_> = std::iter::from_fn(|| guard.poll()).collect();
        assert_eq!(events.len(), EVENTS_MAX + 1, "the same line twice is one");
        assert_eq!(events.last(), Some(&Event::Recover("last".into())));
    }
}
