//! How a group's thread waits.
//!
//! Once a second the member is polled. That does not end the rest of the
//! thread: it costs the same however many partitions there are.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::life::Now;
use super::{nap, Poller, POLL_NS};

impl Poller {
    /// Waits until something is due, or somebody rings. True: the member may
    /// have something new.
    pub(super) fn rest(&mut self) -> bool {
        if let Some(until_ns) = self.handovers.iter().map(|handover| handover.until_ns).min() {
            self.due_at(until_ns);
        }
        if self.member.is_none() && !self.group.shared.is_quiet() {
            self.due_at(self.member_at_ns);
        }
        self.group.sleeps_until(self.next_ns);
        loop {
            let now_ns = chaton_core::clock::now_ns();
            let until_ns = self.next_ns.min(now_ns + POLL_NS);
            let time = Duration::from_nanos(until_ns.saturating_sub(now_ns));
            let heard = match &mut self.member {
                Some(member) => {
                    member.wait(time);
                    member.was_notified()
                }
                None => nap::nap(&self.group.bell, time),
            };
            self.group.shared.counters.wakes.fetch_add(1, Ordering::Relaxed);
            if heard {
                return true;
            }
            // A member may take away a ring without having heard it.
            if self.group.was_rung() || self.group.shared.stopping.load(Ordering::SeqCst) {
                return true;
            }
            let now = Now::read();
            if now.ns >= self.next_ns || self.tick(now) {
                return false;
            }
        }
    }

    /// What is done each second, and no more; true when something has
    /// happened.
    fn tick(&mut self, now: Now) -> bool {
        let happened = self.poll(now);
        self.group.shared.readmit();
        if self.behind {
            self.look_at_ends(now);
        }
        happened
    }

    /// How far the log has come, once a second.
    pub(super) fn look_at_ends(&mut self, now: Now) {
        let Some(member) = self.member.as_ref().filter(|_| now.ns >= self.ends_at_ns) else {
            return;
        };
        self.ends_at_ns = now.ns + POLL_NS;
        for cell in self.group.cells() {
            cell.set_end(member.end_offset(cell.partition()));
        }
    }
}
