//! Sending commits to the log.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::super::assigned_partition::AssignedPartition;
use super::super::partition_state::Now;
use super::super::route::Route;
use super::Poller;
use crate::log::{Commit, ErrorKind, LogError};

/// What is done, unless a transaction runs.
pub(super) fn take(partition: &AssignedPartition, is_free: bool) -> Option<Commit> {
    is_free.then(|| partition.take_commit()).flatten()
}

/// After this many commits in a row without a failure, commits work again.
const COMMITS_OK: u32 = 3;

impl Poller {
    /// Commits what is done: the first time at once, then once in an interval for all partitions. A
    /// quiet engine commits at once, and waits for the answer.
    pub(super) fn commit(&mut self, now: Now) {
        let stopping = self.context.stopping.load(Ordering::SeqCst);
        if now.ns < self.group.commit_at_ns() && !stopping {
            return self.due_at(self.group.commit_at_ns());
        }
        if self.member.is_none() {
            return;
        }
        let quiet = self.context.is_quiet();
        let interval_ns = self.context.commit_interval.as_nanos() as u64;
        self.group.commit_not_before(now.ns + if quiet { 0 } else { interval_ns });
        self.group.set_committing(true);
        let partitions = self.partitions.all().into_iter();
        let (transactional, plain): (Vec<_>, Vec<_>) =
            partitions.partition(|partition| partition.route.settings.transactional);
        let mut are_free = self.take_and_send(&plain, take, quiet, now);
        for partition in transactional {
            are_free &= self.take_and_send(&[partition], take, true, now);
        }
        if !are_free {
            self.due_at(now.ns + interval_ns.max(1));
        }
        self.group.set_committing(false);
    }

    /// Takes commits and sends them. `take` is told whether no transaction runs: a transaction commits by itself, and no
    /// commit that does not know of it may come behind it. Returns whether none ran.
    pub(super) fn take_and_send(
        &mut self,
        partitions: &[Arc<AssignedPartition>],
        take: fn(&AssignedPartition, bool) -> Option<Commit>,
        wait: bool,
        now: Now,
    ) -> bool {
        let mut routes: Vec<(&Arc<Route>, Option<_>)> = Vec::new();
        for AssignedPartition { route, .. } in partitions.iter().map(|one| &**one) {
            if !routes.iter().any(|(known, _)| Arc::ptr_eq(known, route)) {
                routes.push((route, route.transactor.try_lock()));
            }
        }
        let is_free = |one: &AssignedPartition| {
            routes.iter().any(|(route, held)| held.is_some() && Arc::ptr_eq(route, &one.route))
        };
        let commits: Vec<_> = partitions.iter().filter_map(|one| take(one, is_free(one))).collect();
        if !commits.is_empty() {
            self.send_commits(&commits, wait, now);
        }
        routes.iter().all(|(_, held)| held.is_some())
    }

    /// Sends commits; those that fail are sent again later.
    pub(super) fn send_commits(&mut self, commits: &[Commit], wait: bool, now: Now) {
        self.context.counters.commits.fetch_add(1, Ordering::Relaxed);
        let no_member =
            || Err(LogError::new(ErrorKind::Unreachable, "it has not joined the group"));
        let result = self.member.as_mut().map_or_else(no_member, |m| m.commit(commits, wait));
        match result {
            Ok(()) => {
                // A commit that was not waited for may still fail.
                self.commits_ok += if wait { COMMITS_OK } else { 1 };
                if self.commits_ok >= COMMITS_OK {
                    let failures = self.commit_backoff.succeeded();
                    self.warn_recovered("commits are accepted", failures);
                }
            }
            Err(error) => self.commit_failed(&error, now),
        }
    }

    pub(super) fn commit_failed(&mut self, error: &LogError, now: Now) {
        self.commits_ok = 0;
        let (pause, is_new) = self.commit_backoff.failed(&error.message);
        let at_ns = now.ns + pause.as_nanos() as u64;
        self.group.commit_not_before(at_ns);
        self.due_at(at_ns);
        self.partitions.all().iter().for_each(|partition| partition.uncommitted());
        if is_new {
            self.warn_failed("committing", &error.message);
        }
    }
}
