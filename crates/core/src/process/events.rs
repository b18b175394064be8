//! Events for the support thread, a Ruby thread outside the pool: a bounded list
//! of what Rust asks of Ruby besides running work.

use std::collections::VecDeque;

use crate::clock;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::work::Role;

/// Events kept at most; when the list is full, the oldest late report is dropped.
const EVENTS_MAX: usize = 256;

/// One message to the support thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupportEvent {
    /// Start this many pool threads.
    Spawn(usize),
    /// Work runs past its time: its role and number, and when it was reported (ns).
    Late(Role, u64, u64),
    /// The supervisor asks whether Ruby is alive.
    Ping,
    /// The supervisor is gone.
    Orphan,
    /// A sibling died: the supervisor's JSON with the jobs it ran.
    Recover(String),
    /// The store holds a signal for this process: its name.
    Signal(String),
    /// A command from the supervisor: JSON.
    Order(String),
    /// Summaries of garbage collections can be fetched.
    Collections,
    /// Ruby wants a full garbage collection, and no pool thread is free to run it.
    FullWanted,
    /// The pool was idle for the time set by [`crate::pool::Pool::set_idle_timer`].
    Idle,
    /// The worker stops: the support thread ends.
    Stop,
}

/// The list. Any thread posts; the support thread waits outside the GVL.
#[derive(Default)]
pub struct SupportEvents {
    events: Mutex<VecDeque<SupportEvent>>,
    posted: Condvar,
    interrupted: AtomicBool,
}

impl SupportEvents {
    /// Adds an event unless an equal one waits; the counts of spawns are added up.
    /// In a full list it replaces the oldest late report. Without a late report, a
    /// signal or an order is dropped and any other event exceeds the limit.
    pub fn post(&self, event: SupportEvent) {
        let mut events = self.events.lock();
        match &event {
            SupportEvent::Spawn(more) => {
                let waiting = events.iter_mut().find_map(|e| match e {
                    SupportEvent::Spawn(n) => Some(n),
                    _ => None,
                });
                match waiting {
                    Some(n) => *n += more,
                    None => events.push_back(event),
                }
            }
            SupportEvent::Ping
            | SupportEvent::Orphan
            | SupportEvent::Collections
            | SupportEvent::FullWanted
            | SupportEvent::Idle
            | SupportEvent::Recover(_)
            | SupportEvent::Signal(_)
            | SupportEvent::Order(_)
                if events.contains(&event) => {}
            _ => {
                if events.len() >= EVENTS_MAX {
                    let late = events.iter().position(|e| matches!(e, SupportEvent::Late(..)));
                    match (late, &event) {
                        (Some(oldest), _) => drop(events.remove(oldest)),
                        (None, SupportEvent::Signal(_) | SupportEvent::Order(_)) => return,
                        (None, _) => {}
                    }
                }
                events.push_back(event);
            }
        }
        self.posted.notify_one();
    }

    /// Blocks until an event waits (true) or [`SupportEvents::interrupt`] is called
    /// (false). The caller has released the GVL and takes the event with
    /// [`SupportEvents::poll`] once it holds the GVL again. Until then
    /// [`SupportEvents::take_unfetched`] can take out a late report.
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
    pub fn poll(&self) -> Option<SupportEvent> {
        self.events.lock().pop_front()
    }

    /// Ends a [`SupportEvents::wait`] early; kept for the next one when none waits.
    pub fn interrupt(&self) {
        let _held = self.events.lock();
        self.interrupted.store(true, Ordering::Release);
        self.posted.notify_all();
    }

    /// Takes out the late reports that Ruby did not fetch within `limit_ns`
    /// because it could not get the GVL. Returns role and number of their work.
    pub fn take_unfetched(&self, limit_ns: u64) -> Vec<(Role, u64)> {
        let now = clock::now_ns();
        let mut unfetched = vec![];
        self.events.lock().retain(|event| match event {
            SupportEvent::Late(role, id, at) if now.saturating_sub(*at) >= limit_ns => {
                unfetched.push((*role, *id));
                false
            }
            _ => true,
        });
        unfetched
    }

    /// When the first late report counts as unfetched (ns of the clock).
    pub fn next_unfetched_ns(&self, limit_ns: u64) -> Option<u64> {
        self.events.lock().iter().find_map(|event| match event {
            SupportEvent::Late(_, _, at) => Some(at + limit_ns),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spawns_are_added_up_and_equal_events_are_kept_once() {
        let events = SupportEvents::default();
        for event in
            [SupportEvent::Spawn(1), SupportEvent::Ping, SupportEvent::Spawn(2), SupportEvent::Ping]
        {
            events.post(event);
        }
        assert!(events.wait());
        assert_eq!(events.poll(), Some(SupportEvent::Spawn(3)));
        assert_eq!(events.poll(), Some(SupportEvent::Ping));
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn an_interrupt_is_kept_for_the_next_wait() {
        let events = SupportEvents::default();
        events.interrupt();
        assert!(!events.wait());
    }

    #[test]
    fn a_report_that_was_not_polled_can_be_taken_out() {
        let events = SupportEvents::default();
        events.post(SupportEvent::Late(Role::Web, 7, 0));
        assert!(events.wait());
        assert_eq!(events.take_unfetched(1), [(Role::Web, 7)]);
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn a_full_list_drops_late_reports_first() {
        let events = SupportEvents::default();
        events.post(SupportEvent::Orphan);
        for id in 0..1_000 {
            events.post(SupportEvent::Late(Role::Web, id, 0));
        }
        assert_eq!(events.poll(), Some(SupportEvent::Orphan));
        assert_eq!(events.take_unfetched(1).len(), EVENTS_MAX - 1);
        assert_eq!(events.next_unfetched_ns(1), None);
    }

    #[test]
    fn the_recovery_of_a_dead_workers_jobs_is_never_dropped() {
        let events = SupportEvents::default();
        for n in 0..EVENTS_MAX {
            events.post(SupportEvent::Recover(n.to_string()));
        }
        events.post(SupportEvent::Signal("TERM".into()));
        events.post(SupportEvent::Recover("last".into()));
        events.post(SupportEvent::Recover("last".into()));
        let events: Vec<_> = std::iter::from_fn(|| events.poll()).collect();
        assert_eq!(events.len(), EVENTS_MAX + 1, "the same line twice counts once");
        assert_eq!(events.last(), Some(&SupportEvent::Recover("last".into())));
    }
}
