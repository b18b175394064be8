//! The thread of a consumer group: it polls its member for ever, fetches where
//! little is ready, commits, and does by the clock what is due. It never runs
//! user code and never waits for it.

mod commits;
mod events;
mod letters;
mod nap;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Backoff;
use super::cell::{Cell, Errands};
use super::group::Group;
use super::life::Now;
use crate::log::{Limits, Member, MemberEvent, Partition, Position, Producer};

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
    member: Option<Box<dyn Member>>,
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
            next_ns: 0,
        }
    }

    /// Until the engine stops.
    pub fn run(mut self) {
        let mut woken = true;
        while !self.group.shared.stopping.load(Ordering::SeqCst) {
            if self.round(woken) {
                woken = false;
                continue;
            }
            // From here on others ring; what they did before is seen now.
            self.group.falls_asleep();
            if !self.round(false) {
                self.rest();
            }
            self.group.wakes();
            woken = true;
        }
        self.leave();
    }

    /// Does what is due, without waiting; true when there may be more.
    /// `woken`: the member may have something new.
    fn round(&mut self, woken: bool) -> bool {
        let now = Now::read();
        self.next_ns = now.ns + POLL_NS;
        self.join(now);
        self.poll(now);
        if now.ns >= self.troubled_until_ns {
            self.well();
        }
        if woken {
            self.group.shared.readmit();
        }
        let ends = woken && now.ns >= self.ends_at_ns;
        if ends {
            self.ends_at_ns = now.ns + POLL_NS;
        }
        let (mut more, mut dirty, mut over) = (false, false, false);
        for cell in self.group.cells() {
            let errands = cell.tend(now, woken);
            dirty |= errands.dirty;
            over |= errands.over;
            more |= self.run_errands(&cell, errands, now);
            if let Some(member) = self.member.as_mut().filter(|_| ends) {
                cell.set_end(member.end_offset(cell.partition()));
            }
        }
        self.hand_over(now);
        if dirty {
            self.commit(now);
        }
        if over {
            self.group.forget_over();
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
                cell.fetched(chunk, now);
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

    /// Waits until something is due, the member has something, or somebody
    /// rings.
    fn rest(&mut self) {
        let now_ns = chaton_core::clock::now_ns();
        if let Some(until_ns) = self.handovers.iter().map(|handover| handover.until_ns).min() {
            self.due_at(until_ns);
        }
        if self.member.is_none() {
            self.due_at(self.member_at_ns);
        }
        self.group.sleeps_until(self.next_ns);
        let time = Duration::from_nanos(self.next_ns.saturating_sub(now_ns));
        match &mut self.member {
            Some(member) => member.wait(time),
            None => nap::nap(&self.group.bell, time),
        }
        self.group.bell.clear();
        self.group.shared.counters.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(mut self) {
        let now = Now::read();
        self.poll(now);
        self.commit(now);
        if let Some(mut member) = self.member.take() {
            member.leave(LEAVE_MAX);
        }
        self.group.set_connected(false);
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
