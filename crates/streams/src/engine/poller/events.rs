//! What a member tells: partitions come and go.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::super::cell::Cell;
use super::super::ending::Kind;
use super::super::life::Now;
use super::{name, Handover, Poller, TROUBLE_KEPT_NS};
use crate::log::{Assignment, LogError, MemberEvent, Partition};

impl Poller {
    /// Makes sure that there is a member, unless it is too early to try again.
    pub(super) fn join(&mut self, now: Now) {
        let group = self.group.clone();
        // Who is to end takes no part any more.
        if self.member.is_some() || now.ns < self.member_at_ns || group.shared.is_quiet() {
            return;
        }
        match group.shared.tools.log.member(&group.settings, &group.bell) {
            Ok(member) => {
                self.member = Some(member);
                group.set_connected(true);
            }
            Err(error) => self.without_member(&error, now),
        }
    }

    /// Hears the member; whether it had something to say.
    pub(super) fn poll(&mut self, now: Now) -> bool {
        if now.ns >= self.troubled_until_ns {
            self.well();
        }
        let Some(member) = &mut self.member else { return false };
        let mut events = std::mem::take(&mut self.events);
        member.poll(&mut events);
        if self.group.was_identity_doubted() || !events.is_empty() {
            self.group.set_identity(member.identity());
        }
        let any = !events.is_empty();
        for event in events.drain(..) {
            self.heed(event, now);
        }
        self.events = events;
        any
    }

    fn heed(&mut self, event: MemberEvent, now: Now) {
        let counters = &self.group.shared.counters;
        match event {
            MemberEvent::Assigned(list) => {
                counters.rebalances.fetch_add(1, Ordering::Relaxed);
                let failures = self.member_backoff.worked();
                self.relieved("it is joined", failures);
                // What stood in the way of commits was another generation's, or has passed.
                self.commit_backoff.worked();
                self.group.commit_not_before(now.ns);
                self.well();
                list.iter().for_each(|assigned| self.assign(assigned));
            }
            MemberEvent::Revoked(partitions) => {
                counters.rebalances.fetch_add(1, Ordering::Relaxed);
                self.revoke(partitions, now);
            }
            MemberEvent::Lost(partitions) => {
                counters.rebalances.fetch_add(1, Ordering::Relaxed);
                let cells = self.cells_of(&partitions);
                lose(&cells);
            }
            MemberEvent::End(partition) => {
                for cell in self.cells_of(&[partition]) {
                    if cell.settings().eof {
                        cell.end_reached();
                    }
                }
            }
            MemberEvent::CommitFailed(error) => self.commit_failed(&error, now),
            MemberEvent::Trouble(error) => {
                self.group.set_trouble(Some(error.message.clone()));
                self.troubled_until_ns = now.ns + TROUBLE_KEPT_NS;
                if self.trouble.failed(&error.message).1 {
                    self.complain("the log", &error.message);
                }
            }
            MemberEvent::Fatal(error) => {
                self.member = None;
                self.handovers.clear();
                lose(&self.group.cells());
                self.group.shared.counters.restarts.fetch_add(1, Ordering::Relaxed);
                self.without_member(&error, now);
            }
        }
    }

    fn without_member(&mut self, error: &LogError, now: Now) {
        self.group.set_connected(false);
        self.group.set_trouble(Some(error.message.clone()));
        let (pause, news) = self.member_backoff.failed(&error.message);
        self.member_at_ns = now.ns + pause.as_nanos() as u64;
        if news {
            self.complain("it cannot be joined", &error.message);
        }
    }

    fn assign(&mut self, assigned: &Assignment) {
        let group = self.group.clone();
        let shared = &group.shared;
        // Given without having been taken: what was before does not count.
        lose(&self.cells_of(std::slice::from_ref(&assigned.partition)));
        let Some(route) = group.route(&assigned.partition.topic) else {
            let what = format!("given {}, which no route names", name(&assigned.partition));
            return self.complain(&what, "it is left unread");
        };
        let generation = shared.generations.fetch_add(1, Ordering::Relaxed);
        let cell = Cell::new(&group, route, assigned, generation);
        group.add(cell.clone());
        if shared.is_quiet() {
            cell.drain(Kind::Shutdown);
        }
    }

    fn revoke(&mut self, partitions: Vec<Partition>, now: Now) {
        let cells = self.cells_of(&partitions);
        cells.iter().for_each(|cell| cell.drain(Kind::Revoked));
        let until_ns = now.ns + self.group.drain_time().as_nanos() as u64;
        self.handovers.push(Handover { partitions, cells, until_ns });
    }

    /// What these partitions are here, until they are given up to others.
    fn cells_of(&self, partitions: &[Partition]) -> Vec<Arc<Cell>> {
        let mut cells = self.group.cells();
        cells.retain(|cell| cell.is_ours() && partitions.contains(cell.partition()));
        cells
    }

    /// Gives up what was asked back and has ended, or had its time.
    pub(super) fn hand_over(&mut self, now: Now) {
        let is_due = |handover: &Handover| {
            handover.until_ns <= now.ns || handover.cells.iter().all(|cell| cell.is_drained())
        };
        let (due, rest) = std::mem::take(&mut self.handovers).into_iter().partition(is_due);
        self.handovers = rest;
        let due: Vec<Handover> = due;
        for handover in due {
            self.group.set_committing(true);
            let commits: Vec<_> = handover.cells.iter().filter_map(|c| c.last_commit()).collect();
            if !commits.is_empty() {
                self.say(&commits, true, now);
            }
            self.group.set_committing(false);
            if let Some(member) = &mut self.member {
                member.release(&handover.partitions);
            }
            handover.cells.iter().for_each(|cell| {
                self.unread.remove(&cell.generation());
                cell.kick();
            });
        }
    }
}

/// Nothing of these counts any more.
fn lose(cells: &[Arc<Cell>]) {
    for cell in cells {
        cell.lose();
        cell.kick();
    }
}
