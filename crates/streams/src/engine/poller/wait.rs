//! How a group's thread waits.
//!
//! The member is polled once a second. That does not end the wait, so that it costs the same
//! however many partitions there are.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::assigned_partition::AssignedPartition;
use super::super::partition_state::Now;
use super::super::route::Progress;
use super::{Poller, POLL_NS};
use crate::poll::wait_notified;

impl Poller {
    /// Waits until the process is ready, or stops.
    pub(super) fn wait_until_ready(&self) {
        let over = || {
            let held = self.context.held.load(Ordering::SeqCst);
            !held || self.context.stopping.load(Ordering::SeqCst)
        };
        while !over() {
            wait_notified(&[&self.group.event_fd], Duration::from_nanos(POLL_NS));
        }
    }

    /// Waits until something is due or another thread notifies. True: the member may have something
    /// new.
    pub(super) fn wait(&mut self) -> bool {
        if let Some(until_ns) = self.revocations.iter().map(|one| one.until_ns).min() {
            self.due_at(until_ns);
        }
        if self.member.is_none() && !self.context.is_quiet() {
            self.due_at(self.member_at_ns);
        }
        self.group.sleep_until(self.next_ns);
        loop {
            let now_ns = chaton_core::clock::now_ns();
            let until_ns = self.next_ns.min(now_ns + POLL_NS);
            let time = Duration::from_nanos(until_ns.saturating_sub(now_ns));
            let woken = match &mut self.member {
                Some(member) => {
                    member.wait(time);
                    member.was_notified()
                }
                None => wait_notified(&[&self.group.event_fd], time)[0],
            };
            self.context.counters.wakes.fetch_add(1, Ordering::Relaxed);
            // A member may clear a notification without reporting it.
            let notified = self.group.was_notified();
            if woken || notified || self.context.stopping.load(Ordering::SeqCst) {
                return true;
            }
            let now = Now::read();
            if now.ns >= self.next_ns || self.tick(now) {
                return false;
            }
        }
    }

    /// What is done each second; true when something has happened.
    fn tick(&mut self, now: Now) -> bool {
        let happened = self.poll(now);
        self.context.room.readmit();
        self.tell_overdue(now);
        if self.behind || self.lags {
            self.update_ends(now);
        }
        happened
    }

    /// What is shown of the partitions has changed: it is read in the next round, or in a second.
    pub(super) fn show_soon(&mut self) {
        (self.ends_at_ns, self.lags) = (0, true);
    }

    /// Reads the ends of the partitions, once a second.
    pub(super) fn update_ends(&mut self, now: Now) {
        let Some(member) = self.member.as_ref().filter(|_| now.ns >= self.ends_at_ns) else {
            return;
        };
        self.ends_at_ns = now.ns + POLL_NS;
        for partition in self.partitions.all() {
            partition.set_end(member.end_offset(&partition.partition));
        }
        self.lags = false;
        let all = self.partitions.all();
        for route in &self.group.routes {
            let Some(metrics) = &route.metrics else { continue };
            let own = || all.iter().filter(|one| one.route.number == route.number);
            let lag: u64 = own().map(|one| one.lag().unwrap_or(0)).sum();
            let oldest_ms = own().filter_map(|one| one.oldest_ms(now)).min().unwrap_or(0);
            let held = own().filter(|one| one.is_owned());
            let count = |is: fn(&AssignedPartition) -> bool| {
                held.clone().filter(|one| is(one)).count() as u64
            };
            let partitions = count(|_| true);
            let stopped = count(|one| one.stopped().is_some());
            let paused = count(AssignedPartition::is_paused);
            let oldest_ms = u64::try_from(oldest_ms).unwrap_or(0);
            metrics.show(&Progress { lag, partitions, stopped, paused }, oldest_ms);
            self.lags |= lag > 0 || paused > 0;
        }
    }
}
