//! The thread of a consumer group: it polls its member for ever, fetches where
//! little is ready, commits, and does by the clock what is due. It never runs
//! user code and never waits for it.

mod commits;
mod events;
mod letters;
mod nap;
mod rest;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::cell::{Cell, Errands};
use super::group::Group;
use super::life::Now;
use crate::log::{GroupMember, Limits, MemberEvent, Partition, Position, Producer};

/// After so many rounds without a wait each partition is looked at again.
const ROUNDS_BETWEEN_LOOKS: u32 = 64;
/// A member is polled at least this often.
const POLL_NS: u64 = 1_000_000_000;
/// Trouble that the log has not repeated for this long is over.
const TROUBLE_KEPT_NS: u64 = 60 * POLL_NS;
/// What commits under way have when the process ends.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Partitions that were asked back and have not been released.
struct Handover {
    partitions: Vec<Partition>,
    cells: Vec<Arc<Cell>>,
    until_ns: u64,
}

/// A partition that could not be read, and is read again then.
struct Unread {
    backoff: Backoff,
    at_ns: u64,
}

/// The thread.
pub(super) struct Poller {
    group: Arc<Group>,
    member: Option<Box<dyn GroupMember>>,
    /// Without a member: when the next one is tried.
    member_at_ns: u64,
    member_backoff: Backoff,
    commit_backoff: Backoff,
    commits_well: u32,
    trouble: Backoff,
    /// Trouble that is not repeated is over then.
    troubled_until_ns: u64,
    unread: HashMap<u64, Unread>,
    handovers: Vec<Handover>,
    events: Vec<MemberEvent>,
    producer: Option<Arc<dyn Producer>>,
    /// When the ends of the partitions were last looked at.
    ends_at_ns: u64,
    /// Some partitions have records that no fetch has come to: their ends
    /// move without being heard of.
    behind: bool,
    /// The next moment at which something is due.
    next_ns: u64,
}

impl Poller {
    pub fn new(group: &Arc<Group>) -> Self {
        let backoff = || Backoff::new(group.shared.group_retry_max_ms);
        Self {
            group: group.clone(),
            member: None,
            member_at_ns: 0,
            member_backoff: backoff(),
            commit_backoff: backoff(),
            commits_well: 0,
            trouble: backoff(),
            troubled_until_ns: u64::MAX,
            unread: HashMap::new(),
            handovers: Vec::new(),
            events: Vec::new(),
            producer: None,
            ends_at_ns: 0,
            behind: true,
            next_ns: 0,
        }
    }

    /// Until the engine stops.
    pub fn run(mut self) {
        let mut woken = true;
        let mut rounds = 0u32;
        while !self.group.shared.stopping.load(Ordering::SeqCst) {
            if self.round(woken) {
                rounds = rounds.wrapping_add(1);
                // What is read without end must not hide what others have.
                woken = rounds.is_multiple_of(ROUNDS_BETWEEN_LOOKS);
                continue;
            }
            // From here on others ring; what they did before is seen now.
            self.group.falls_asleep();
            woken = self.round(false) || self.rest();
            self.group.wakes();
        }
        self.leave();
    }

    /// Does what is due, without waiting; true when there may be more.
    /// `woken`: the member may have something new.
    fn round(&mut self, woken: bool) -> bool {
        let now = Now::read();
        let quiet = self.group.shared.is_quiet();
        self.next_ns = u64::MAX;
        self.join(now);
        self.poll(now);
        self.group.shared.readmit();
        let (mut more, mut dirty, mut over) = (false, false, false);
        self.behind = false;
        for cell in self.group.cells() {
            let errands = cell.tend(now, woken);
            dirty |= errands.dirty;
            over |= errands.over;
            self.behind |= errands.behind;
            more |= self.run_errands(&cell, errands, now);
        }
        self.look_at_ends(now);
        self.hand_over(now);
        if dirty {
            self.commit(now);
        }
        if over || quiet {
            self.group.forget_over();
            // Partitions may have come to their end here, without a turn.
            self.group.shared.ended();
        }
        if quiet {
            self.leave_when_over();
        }
        more
    }

    fn run_errands(&mut self, cell: &Arc<Cell>, errands: Errands, now: Now) -> bool {
        for letter in errands.letters {
            self.send(cell, letter);
        }
        if let Some(next_ns) = errands.next_ns {
            self.due_at(next_ns);
        }
        if let Some(position) = errands.seek {
            return self.seek(cell, position, now);
        }
        errands.fetch.is_some_and(|limits| self.fetch(cell, limits, now))
    }

    fn fetch(&mut self, cell: &Arc<Cell>, limits: Limits, now: Now) -> bool {
        let Some(member) = &mut self.member else { return false };
        let held = self.unread.get(&cell.generation()).map(|unread| unread.at_ns);
        if let Some(at_ns) = held.filter(|at_ns| *at_ns > now.ns) {
            self.due_at(at_ns);
            return false;
        }
        let partition = cell.partition();
        match member.fetch(partition, limits) {
            Ok(chunk) => {
                let chunk = chunk.filter(|chunk| !chunk.is_empty());
                let any = chunk.is_some();
                if any {
                    cell.set_end(member.end_offset(partition));
                }
                if let Some(position) = cell.fetched(chunk) {
                    self.went_back(partition, position);
                }
                if any {
                    self.group.shared.counters.fetches.fetch_add(1, Ordering::Relaxed);
                    self.well();
                }
                if held.is_some() {
                    let unread = self.unread.remove(&cell.generation());
                    let failures = unread.map_or(0, |mut unread| unread.backoff.worked());
                    self.relieved(&format!("{} is read", name(cell.partition())), failures);
                }
                any
            }
            Err(error) => {
                let retry_max = self.group.shared.group_retry_max_ms;
                let unread = self.unread.entry(cell.generation());
                let unread =
                    unread.or_insert_with(|| Unread { backoff: Backoff::new(retry_max), at_ns: 0 });
                let (pause, news) = unread.backoff.failed(&error.message);
                unread.at_ns = now.ns + pause.as_nanos() as u64;
                let at_ns = unread.at_ns;
                self.due_at(at_ns);
                if news {
                    self.complain(&format!("reading {}", name(partition)), &error.message);
                }
                false
            }
        }
    }

    fn seek(&mut self, cell: &Arc<Cell>, position: Position, now: Now) -> bool {
        // What was done before belongs to where it was done.
        if let Some(commit) = cell.commit() {
            self.say(&[commit], false, now);
        }
        let Some(member) = &mut self.member else { return false };
        match member.seek(cell.partition(), position) {
            Ok(()) => {
                cell.sought();
                true
            }
            Err(error) => {
                let (pause, news) = self.trouble.failed(&error.message);
                let at_ns = now.ns + pause.as_nanos() as u64;
                cell.seek_again(at_ns);
                self.due_at(at_ns);
                if news {
                    let what = format!("going elsewhere in {}", name(cell.partition()));
                    self.complain(&what, &error.message);
                }
                false
            }
        }
    }

    fn leave(mut self) {
        let now = Now::read();
        self.poll(now);
        self.commit(now);
        self.leave_group();
    }

    /// A quiet member keeps nothing that others could work on: it leaves once
    /// the last turn of each of its partitions has ended, though other groups
    /// of the process may still be busy.
    fn leave_when_over(&mut self) {
        if self.handovers.is_empty() && self.group.cells().is_empty() {
            self.leave_group();
        }
    }

    fn leave_group(&mut self) {
        if let Some(mut member) = self.member.take() {
            member.leave(LEAVE_MAX);
            self.group.set_connected(false);
        }
    }

    /// What was read before is gone, or the group had come to where there is
    /// nothing.
    fn went_back(&self, partition: &Partition, position: i64) {
        let (group, what) = (&self.group.settings.name, name(partition));
        let line = format!(
            "group {group}: {what}: nothing is kept at offset {position}, where it was to go on; \
             it goes on with an earlier record: was the topic made anew, or an offset set too high?"
        );
        self.group.shared.warn(&line);
    }

    fn due_at(&mut self, at_ns: u64) {
        self.next_ns = self.next_ns.min(at_ns);
    }

    /// The log works.
    fn well(&mut self) {
        if self.trouble.worked() > 0 {
            self.troubled_until_ns = u64::MAX;
        }
        self.group.set_trouble(None);
    }

    fn relieved(&self, what: &str, failures: u32) {
        if failures > 0 {
            let name = &self.group.settings.name;
            let line = format!("group {name}: {what} again after {failures} failures");
            self.group.shared.warn(&line);
        }
    }

    fn complain(&self, what: &str, why: &str) {
        let name = &self.group.settings.name;
        self.group.shared.warn(&format!("group {name}: {what}: {why}; trying again"));
    }
}

/// For people.
fn name(partition: &Partition) -> String {
    format!("{}/{}", partition.topic, partition.number)
}
