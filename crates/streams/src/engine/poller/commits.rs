//! How far the group has come is said to the log.

use std::sync::atomic::Ordering;

use super::super::life::Now;
use super::Poller;
use crate::log::{Commit, ErrorKind, LogError};

/// After so many commits without a failure they are well again.
const COMMITS_WELL: u32 = 3;

impl Poller {
    /// Says what is done, unless it is too early: the first at once, then one
    /// commit for all in an interval. A quiet engine says it at once, and
    /// waits until it is taken.
    pub(super) fn commit(&mut self, now: Now) {
        let group = self.group.clone();
        let stopping = group.shared.stopping.load(Ordering::SeqCst);
        if now.ns < group.commit_at_ns() && !stopping {
            return self.due_at(group.commit_at_ns());
        }
        if self.member.is_none() {
            return;
        }
        let quiet = group.shared.is_quiet();
        let gap_ns = if quiet { 0 } else { group.shared.commit_interval.as_nanos() as u64 };
        group.commit_not_before(now.ns + gap_ns);
        group.set_committing(true);
        let (transactional, plain): (Vec<_>, Vec<_>) =
            group.cells().into_iter().partition(|cell| cell.settings().transactional);
        let commits: Vec<Commit> = plain.iter().filter_map(|cell| cell.commit()).collect();
        if !commits.is_empty() {
            self.say(&commits, quiet, now);
        }
        for cell in transactional {
            // A transaction commits for itself; it must not be overtaken.
            if let Some(_taken) = cell.route_parts().transactors.try_take() {
                let commits: Vec<Commit> = cell.commit().into_iter().collect();
                if !commits.is_empty() {
                    self.say(&commits, true, now);
                }
            } else {
                self.due_at(now.ns + group.shared.commit_interval.as_nanos().max(1) as u64);
            }
        }
        group.set_committing(false);
    }

    /// Says these; what is not taken is said again later.
    pub(super) fn say(&mut self, commits: &[Commit], wait: bool, now: Now) {
        self.group.shared.counters.commits.fetch_add(1, Ordering::Relaxed);
        let nobody = || Err(LogError::new(ErrorKind::Unreachable, "it is no member now"));
        let result = self.member.as_mut().map_or_else(nobody, |m| m.commit(commits, wait));
        match result {
            Ok(()) => {
                // What the log took without waiting may still fail.
                self.commits_well += if wait { COMMITS_WELL } else { 1 };
                if self.commits_well >= COMMITS_WELL {
                    let failures = self.commit_backoff.worked();
                    self.relieved("commits are taken", failures);
                }
            }
            Err(error) => self.commit_failed(&error, now),
        }
    }

    pub(super) fn commit_failed(&mut self, error: &LogError, now: Now) {
        self.commits_well = 0;
        let (pause, news) = self.commit_backoff.failed(&error.message);
        let at_ns = now.ns + pause.as_nanos() as u64;
        self.group.commit_not_before(at_ns);
        self.due_at(at_ns);
        self.group.cells().iter().for_each(|cell| cell.unsaid());
        if news {
            self.complain("committing", &error.message);
        }
    }
}
