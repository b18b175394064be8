//! The thread of a consumer group. It polls the group's member, fetches where little is ready,
//! commits, and does what is due by the clock. It never runs user code and never waits for it.

mod commits;
mod dead_letters;
mod membership;
mod wait;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::assigned_partition::{AssignedPartition, OverdueBatch, PartitionActions};
use super::context::EngineContext;
use super::group::ConsumerGroup;
use super::group_partitions::GroupPartitions;
use super::partition_state::Now;
use super::settings::OnGap;
use crate::log::{GroupMember, Limits, LostRecords, MemberEvent, Partition, Position};
use crate::record::Chunk;
use crate::shared_producer::SharedProducer;
use chaton_core::backoff::Backoff;

/// After this many rounds without a wait, every partition is fetched again.
const ROUNDS_BETWEEN_FETCHES: u32 = 64;
/// A member is polled at least this often.
const POLL_NS: u64 = 1_000_000_000;
/// Trouble that the log has not reported again for this long is over.
const TROUBLE_KEPT_NS: u64 = 60 * POLL_NS;
/// How long commits in flight may take when the process ends.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Revoked partitions that are not released yet.
struct Revocation {
    partitions: Vec<Partition>,
    assigned: Vec<Arc<AssignedPartition>>,
    until_ns: u64,
}

/// A partition that could not be fetched, and when it is tried again.
struct FetchRetry {
    backoff: Backoff,
    at_ns: u64,
}

/// The thread.
pub(super) struct Poller {
    partitions: Arc<GroupPartitions>,
    group: Arc<ConsumerGroup>,
    context: Arc<EngineContext>,
    member: Option<Box<dyn GroupMember>>,
    /// When to join again, without a member.
    member_at_ns: u64,
    member_backoff: Backoff,
    commit_backoff: Backoff,
    /// Commits in a row that did not fail.
    commits_ok: u32,
    trouble: Backoff,
    trouble_until_ns: u64,
    /// By the generation of the partition.
    fetch_retries: HashMap<u64, FetchRetry>,
    revocations: Vec<Revocation>,
    events: Vec<MemberEvent>,
    producer: SharedProducer,
    /// When running batches are looked at again.
    running_at_ns: u64,
    /// When the ends of the partitions are read again.
    ends_at_ns: u64,
    /// Some partitions have records that were not fetched: nothing reports when their ends move.
    behind: bool,
    /// The metrics show a lag, which batches that end may have made smaller.
    lags: bool,
    /// When something is due.
    next_ns: u64,
}

impl Poller {
    pub fn new(partitions: &Arc<GroupPartitions>) -> Self {
        let group = partitions.group.clone();
        let context = group.context.clone();
        let backoff = || context.backoff();
        Self {
            member_backoff: backoff(),
            commit_backoff: backoff(),
            trouble: backoff(),
            partitions: partitions.clone(),
            group,
            context,
            member: None,
            member_at_ns: 0,
            commits_ok: 0,
            trouble_until_ns: u64::MAX,
            fetch_retries: HashMap::new(),
            revocations: Vec::new(),
            events: Vec::new(),
            producer: SharedProducer::default(),
            running_at_ns: 0,
            ends_at_ns: 0,
            behind: true,
            lags: false,
            next_ns: 0,
        }
    }

    /// Runs until the engine stops.
    pub fn run(mut self) {
        self.wait_until_ready();
        let mut woken = true;
        let mut rounds = 0u32;
        while !self.context.stopping.load(Ordering::SeqCst) {
            if self.round(woken) {
                rounds = rounds.wrapping_add(1);
                // A partition that is read without end must not hide what others have.
                woken = rounds.is_multiple_of(ROUNDS_BETWEEN_FETCHES);
                continue;
            }
            // Other threads notify from here on; what they did before is seen in this round.
            self.group.prepare_sleep();
            woken = self.round(false) || self.wait();
            self.group.woke();
        }
        self.leave();
    }

    /// Does what is due, without waiting; true when there may be more. `woken`: the member may have
    /// something new.
    fn round(&mut self, woken: bool) -> bool {
        let now = Now::read();
        let quiet = self.context.is_quiet();
        self.next_ns = u64::MAX;
        self.join(now);
        self.poll(now);
        self.context.room.readmit();
        let (mut more, mut dirty, mut over) = (false, false, false);
        self.behind = false;
        for partition in self.partitions.all() {
            let actions = partition.advance(now, woken);
            dirty |= actions.dirty;
            over |= actions.over;
            self.behind |= actions.behind;
            let fetches = actions.fetch.is_some();
            more |= self.perform(&partition, actions, now);
            // A fetch passes offsets without records, and records that are gone.
            dirty |= fetches && partition.is_dirty();
        }
        self.update_ends(now);
        self.tell_overdue(now);
        self.release_revoked(now);
        if dirty {
            self.commit(now);
        }
        if over || quiet {
            self.partitions.remove_over();
            // Partitions may have ended in this round, without a batch.
            self.context.idle_wait.changed();
        }
        if quiet && self.revocations.is_empty() && self.partitions.all().is_empty() {
            // A quiet member keeps nothing that others could work on, though other groups of the
            // process may still be busy.
            self.leave_group();
        }
        more
    }

    fn perform(
        &mut self,
        partition: &Arc<AssignedPartition>,
        actions: PartitionActions,
        now: Now,
    ) -> bool {
        for letter in actions.dead_letters {
            self.send_dead_letter(partition, letter);
        }
        if let Some((offset, story)) = actions.poison {
            self.warn_poison(partition, offset, &story);
            partition.poison_told(offset);
        }
        if let Some(next_ns) = actions.next_ns {
            self.due_at(next_ns);
        }
        if let Some(position) = actions.seek {
            return self.seek(partition, position, now);
        }
        actions.fetch.is_some_and(|limits| self.fetch(partition, limits, now))
    }

    fn fetch(&mut self, partition: &Arc<AssignedPartition>, limits: Limits, now: Now) -> bool {
        let Some(member) = &mut self.member else { return false };
        let retry_at_ns = self.fetch_retries.get(&partition.generation).map(|retry| retry.at_ns);
        if let Some(at_ns) = retry_at_ns.filter(|at_ns| *at_ns > now.ns) {
            self.due_at(at_ns);
            return false;
        }
        match member.fetch(&partition.partition, limits) {
            Ok(chunk) => {
                let chunk = chunk.filter(|chunk| !chunk.is_empty());
                let any = chunk.is_some();
                if any {
                    partition.set_end(member.end_offset(&partition.partition));
                } else if let Some(position) = member.position(&partition.partition) {
                    partition.read_up_to(position);
                }
                if let Some(lost) = self.lost_before(partition, chunk.as_ref()) {
                    if self.stops_at(partition, lost) {
                        return false;
                    }
                }
                if let Some(position) = partition.fetched(chunk) {
                    self.warn_went_back(&partition.partition, position);
                }
                if any {
                    self.context.counters.fetches.fetch_add(1, Ordering::Relaxed);
                    self.log_works();
                }
                if let Some(mut retry) = self.fetch_retries.remove(&partition.generation) {
                    let what = format!("reading {}", name(&partition.partition));
                    self.warn_recovered(&what, retry.backoff.succeeded());
                }
                any
            }
            Err(error) => {
                let backoff = || self.context.backoff();
                let retry = self.fetch_retries.entry(partition.generation);
                let retry = retry.or_insert_with(|| FetchRetry { backoff: backoff(), at_ns: 0 });
                let (pause, is_new) = retry.backoff.failed(&error.message);
                retry.at_ns = now.ns + pause.as_nanos() as u64;
                let at_ns = retry.at_ns;
                self.due_at(at_ns);
                if is_new {
                    let what = format!("reading {}", name(&partition.partition));
                    self.warn_failed(&what, &error.message);
                }
                false
            }
        }
    }

    fn seek(&mut self, partition: &Arc<AssignedPartition>, to: Position, now: Now) -> bool {
        // What was done so far belongs to the position before the seek.
        self.take_and_send(std::slice::from_ref(partition), commits::take, false, now);
        let Some(member) = &mut self.member else { return false };
        match member.seek(&partition.partition, to) {
            Ok(()) => {
                partition.seek_done();
                true
            }
            Err(error) => {
                let (pause, is_new) = self.trouble.failed(&error.message);
                let at_ns = now.ns + pause.as_nanos() as u64;
                partition.seek_failed(at_ns);
                self.due_at(at_ns);
                if is_new {
                    let what = format!("seeking in {}", name(&partition.partition));
                    self.warn_failed(&what, &error.message);
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

    fn leave_group(&mut self) {
        if let Some(mut member) = self.member.take() {
            member.leave(LEAVE_MAX);
            self.group.set_connected(false);
        }
    }

    /// Records that were read before are gone, or the group's offset was beyond the end.
    fn warn_poison(&self, partition: &AssignedPartition, offset: i64, story: &str) {
        let (group, name) = (&self.group.settings.name, name(&partition.partition));
        let what = match &partition.route.settings.dead_letter {
            Some(topic) => format!("it is written to {topic}"),
            None => {
                "it is tried again alone after a pause, because its topic has no dead_letter".into()
            }
        };
        self.context.warn(&format!("group {group}: {name} @{offset}: {story}; {what}"));
    }

    fn warn_went_back(&self, partition: &Partition, position: i64) {
        let (group, what) = (&self.group.settings.name, name(partition));
        self.context.warn(&format!(
            "group {group}: {what}: there is no record at offset {position}, where reading was to \
             continue; it continues with an earlier record. Was the topic recreated, or an offset \
             set too high?"
        ));
    }

    /// The records before the fetched ones that the group can no longer read: what the log knows to
    /// be lost, or what lies before its start. Other gaps are of transactions and compaction.
    fn lost_before(
        &mut self,
        partition: &Arc<AssignedPartition>,
        chunk: Option<&Chunk>,
    ) -> Option<LostRecords> {
        let place = &partition.partition;
        let member = self.member.as_mut()?;
        let lost = member
            .take_lost(place)
            .map(|lost| LostRecords { why: format!("are gone: {}", lost.why), ..lost });
        let from = partition.expected();
        if let Some(lost) = lost {
            let from = from.map_or(lost.from, |expected| expected.min(lost.from));
            return Some(LostRecords { from, ..lost });
        }
        let from = from?;
        let until = match chunk.and_then(|chunk| chunk.entries().first()) {
            Some(first) => first.offset,
            None => member.end_offset(place)?,
        };
        // The start is read only where there is a gap, or nothing in spite of a lag.
        let start = (from < until).then(|| member.start_offset(place)).flatten()?;
        let until = if chunk.is_some() { until } else { start };
        let why = "were removed by retention before the group has read them".to_owned();
        (from < start).then_some(LostRecords { from, until, why })
    }

    /// Records are gone before the group has read them. Returns whether the partition has stopped.
    fn stops_at(&mut self, partition: &AssignedPartition, lost: LostRecords) -> bool {
        let LostRecords { from, until, why } = &lost;
        let count = until - from;
        let stops = partition.route.settings.on_gap == OnGap::Stop;
        let end = if stops {
            "it stops (on_gap: :stop). To continue, stop the group's workers and set its offset with \
             `chaton streams seek`"
                .to_owned()
        } else {
            self.context.counters.skipped.fetch_add(count.unsigned_abs(), Ordering::Relaxed);
            format!("it continues at {until}")
        };
        let (group, what) = (&self.group.settings.name, name(&partition.partition));
        self.context.warn(&format!(
            "group {group}: {what}: offsets {from} to {} ({count}) {why}; {end}",
            until - 1
        ));
        if stops {
            partition.stop_at(lost);
            self.show_soon();
        } else {
            partition.pass_over(&lost);
        }
        stops
    }

    /// Tells of batches that run for too long, which nothing else does: the member is polled whatever they do,
    /// so that the log does not take it for dead. The bound is the one that has this role elsewhere.
    fn tell_overdue(&mut self, now: Now) {
        if now.ns < self.running_at_ns {
            return;
        }
        self.running_at_ns = now.ns + POLL_NS;
        let bound_ns = self.group.settings.max_poll_interval_ms.saturating_mul(1_000_000);
        let (all, mut tell) = (self.partitions.all(), Vec::new());
        for route in &self.group.routes {
            let own = all.iter().filter(|one| one.route.number == route.number);
            let count: usize = own.map(|one| one.overdue(now, bound_ns, &mut tell)).sum();
            if let Some(metrics) = &route.metrics {
                metrics.show_overdue(count as u64);
            }
        }
        let group = &self.group.settings.name;
        for OverdueBatch { what, ran_ns } in tell {
            let seconds = ran_ns / 1_000_000_000;
            self.context.warn(&format!(
                "group {group}: {what} has been running for {seconds} s (max_poll_interval is {} s); its \
                 partition waits until consume returns",
                bound_ns / 1_000_000_000
            ));
        }
    }

    fn due_at(&mut self, at_ns: u64) {
        self.next_ns = self.next_ns.min(at_ns);
    }

    fn log_works(&mut self) {
        if self.trouble.succeeded() > 0 {
            self.trouble_until_ns = u64::MAX;
        }
        self.group.set_trouble(None);
    }

    fn warn_recovered(&self, what: &str, failures: u32) {
        if failures > 0 {
            let name = &self.group.settings.name;
            self.context
                .warn(&format!("group {name}: {what} works again after {failures} failures"));
        }
    }

    fn warn_failed(&self, what: &str, why: &str) {
        let name = &self.group.settings.name;
        self.context.warn(&format!("group {name}: {what}: {why}; trying again"));
    }
}

fn name(partition: &Partition) -> String {
    format!("{}/{}", partition.topic, partition.number)
}
