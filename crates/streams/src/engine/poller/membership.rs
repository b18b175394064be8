//! Joining the group, and the partitions that come and go.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::super::assigned_partition::AssignedPartition;
use super::super::partition_state::Now;
use super::super::route::Route;
use super::{name, Poller, Revocation, TROUBLE_KEPT_NS};
use crate::batch::BatchKind;
use crate::log::{Assignment, ErrorKind, LogError, MemberEvent, Partition};

/// What has failed when there is no member.
const CANNOT_JOIN: &str = "it cannot be joined";

impl Poller {
    /// Joins the group if there is no member, unless it is too early to try again. A quiet engine
    /// does not join.
    pub(super) fn join(&mut self, now: Now) {
        if self.member.is_some() || now.ns < self.member_at_ns || self.context.is_quiet() {
            return;
        }
        match self.context.log.member(&self.group.settings, &self.group.event_fd) {
            Ok(member) => {
                self.member = Some(member);
                self.group.set_connected(true);
            }
            Err(error) => self.join_failed(CANNOT_JOIN, &error, now),
        }
    }

    /// Leaves the group, to join it anew.
    fn drop_member(&mut self, what: &str, error: &LogError, now: Now) {
        self.member = None;
        self.revocations.clear();
        self.partitions.all().iter().for_each(|partition| partition.lose());
        self.context.counters.restarts.fetch_add(1, Ordering::Relaxed);
        self.join_failed(what, error, now);
    }

    /// Polls the member; returns whether it reported anything.
    pub(super) fn poll(&mut self, now: Now) -> bool {
        if now.ns >= self.trouble_until_ns {
            self.log_works();
        }
        if let Some(error) = self.group.take_rejoin() {
            self.drop_member("a transaction", &error, now);
        }
        let Some(member) = &mut self.member else { return false };
        let mut events = std::mem::take(&mut self.events);
        member.poll(&mut events);
        let identity =
            (self.group.take_identity_doubt() || !events.is_empty()).then(|| member.identity());
        let any = !events.is_empty();
        // Transactions of assignments that are over are not to have the new identity.
        events.iter().for_each(|event| self.lose_former(event));
        identity.into_iter().for_each(|identity| self.group.set_identity(identity));
        for event in events.drain(..) {
            self.handle(event, now);
        }
        self.events = events;
        any
    }

    /// Loses the partitions that the event takes away, or assigns anew.
    fn lose_former(&mut self, event: &MemberEvent) {
        match event {
            MemberEvent::Lost(partitions) => self.lose(partitions),
            MemberEvent::Assigned(list) => {
                // The log may assign a partition again without having revoked it.
                list.iter().for_each(|one| self.lose(std::slice::from_ref(&one.partition)));
            }
            _ => {}
        }
    }

    fn handle(&mut self, event: MemberEvent, now: Now) {
        let counters = self.context.counters.clone();
        self.show_soon();
        match event {
            MemberEvent::Assigned(list) => {
                counters.rebalances.fetch_add(1, Ordering::Relaxed);
                let failures = self.member_backoff.succeeded();
                self.warn_recovered("joining", failures);
                // Failures of commits belonged to the former generation.
                self.commit_backoff.succeeded();
                self.group.commit_not_before(now.ns);
                self.log_works();
                self.count_rebalance(list.iter().map(|assigned| &assigned.partition));
                list.iter().for_each(|assigned| self.assign(assigned));
            }
            MemberEvent::Revoked(partitions) => {
                counters.rebalances.fetch_add(1, Ordering::Relaxed);
                self.count_rebalance(partitions.iter());
                let assigned = self.owned(&partitions);
                assigned.iter().for_each(|partition| partition.drain(BatchKind::Revoked));
                let until_ns = now.ns + self.group.drain_time().as_nanos() as u64;
                self.revocations.push(Revocation { partitions, assigned, until_ns });
            }
            MemberEvent::Lost(partitions) => {
                counters.rebalances.fetch_add(1, Ordering::Relaxed);
                self.count_rebalance(partitions.iter());
                self.lose(&partitions);
            }
            MemberEvent::PartitionEof(partition) => {
                for partition in self.owned(&[partition]) {
                    if partition.route.settings.eof {
                        partition.end_reached();
                    }
                }
            }
            MemberEvent::CommitFailed(error) => self.commit_failed(&error, now),
            // The log goes on behind damage.
            MemberEvent::Error(error) if error.kind == ErrorKind::Corrupt => {
                let group = &self.group.settings.name;
                self.context.warn(&format!("group {group}: {}", error.message));
            }
            MemberEvent::Error(error) => {
                self.group.set_trouble(Some(error.message.clone()));
                self.trouble_until_ns = now.ns + TROUBLE_KEPT_NS;
                if self.trouble.failed(&error.message).1 {
                    self.warn_failed("the log", &error.message);
                }
            }
            MemberEvent::Fatal(error) => self.drop_member(CANNOT_JOIN, &error, now),
        }
    }

    /// Counts one event for the metrics of each topic that it concerns.
    fn count_rebalance<'a>(&self, partitions: impl Iterator<Item = &'a Partition> + Clone) {
        let concerned = |route: &&Arc<Route>| {
            partitions.clone().any(|partition| *partition.topic == *route.settings.topic)
        };
        self.group.routes.iter().filter(concerned).for_each(|route| route.count_rebalance());
    }

    fn join_failed(&mut self, what: &str, error: &LogError, now: Now) {
        self.group.set_connected(false);
        self.group.set_trouble(Some(error.message.clone()));
        let (pause, is_new) = self.member_backoff.failed(&error.message);
        self.member_at_ns = now.ns + pause.as_nanos() as u64;
        if is_new {
            self.warn_failed(what, &error.message);
        }
    }

    fn assign(&mut self, assigned: &Assignment) {
        // The log may assign a partition again without having revoked it: the former assignment no
        // longer counts.
        self.lose(std::slice::from_ref(&assigned.partition));
        let Some(route) = self.group.route(&assigned.partition.topic) else {
            let what = format!("it was assigned {}", name(&assigned.partition));
            return self.warn_failed(&what, "no route names its topic, and it is not read");
        };
        let generation = self.context.generations.fetch_add(1, Ordering::Relaxed);
        let partition = AssignedPartition::new(&self.group, route, assigned, generation);
        self.partitions.add(partition.clone());
        if self.context.is_quiet() {
            partition.drain(BatchKind::Shutdown);
        }
    }

    /// The assigned partitions among these that were not given up.
    fn owned(&self, partitions: &[Partition]) -> Vec<Arc<AssignedPartition>> {
        let mut assigned = self.partitions.all();
        assigned.retain(|one| one.is_owned() && partitions.contains(&one.partition));
        assigned
    }

    /// Other members may have these partitions by now. Where they were about to be given up they are not released
    /// any more: that would release a new assignment.
    fn lose(&mut self, partitions: &[Partition]) {
        self.owned(partitions).iter().for_each(|partition| partition.lose());
        for revocation in &mut self.revocations {
            revocation.partitions.retain(|partition| !partitions.contains(partition));
        }
        self.revocations.retain(|revocation| !revocation.partitions.is_empty());
    }

    /// Releases revoked partitions whose batches have ended, or whose time to drain is over.
    pub(super) fn release_revoked(&mut self, now: Now) {
        let is_due = |revocation: &Revocation| {
            let mut assigned = revocation.assigned.iter();
            revocation.until_ns <= now.ns || assigned.all(|partition| partition.is_drained())
        };
        let (due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.revocations).into_iter().partition(is_due);
        self.revocations = rest;
        for Revocation { partitions, assigned, .. } in due {
            self.group.set_committing(true);
            let last =
                |one: &AssignedPartition, is_free| one.take_last_commit().filter(|_| is_free);
            self.take_and_send(&assigned, last, true, now);
            self.group.set_committing(false);
            if let Some(member) = &mut self.member {
                member.release(&partitions);
            }
            self.show_soon();
            for partition in assigned {
                self.fetch_retries.remove(&partition.generation);
                partition.hand_out();
            }
        }
    }
}
