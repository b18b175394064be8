//! The thread of a consumer group. It polls the group's member, fetches where little is ready,
//! commits, and does what is due by the clock. It never runs user code and never waits for it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::assigned_partition::{AssignedPartition, OverdueBatch, PartitionActions};
use super::context::EngineContext;
use super::group::ConsumerGroup;
use super::group_partitions::GroupPartitions;
use super::partition_state::{LetterEnd, LetterSize, Now, PendingDeadLetter};
use super::route::{Progress, Route};
use super::settings::OnGap;
use crate::batch::BatchKind;
use crate::log::{
    self, Assignment, Commit, ErrorKind, GroupMember, Limits, LogError, LostRecords, MemberEvent,
    Partition, Position, Producer,
};
use crate::poll::wait_notified;
use crate::receipt::Receipt;
use crate::record::{Chunk, OwnedRecord};
use crate::shared_producer::SharedProducer;
use chaton_core::backoff::Backoff;
use chaton_core::calendar::iso_8601;

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
        self.take_and_send(std::slice::from_ref(partition), commit_of, false, now);
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
        let bound_ns = self.group.settings.max_poll_interval.as_nanos() as u64;
        let (all, mut tell) = (self.partitions.all(), Vec::new());
        let mut counts = vec![0; self.group.routes.len()];
        for one in &all {
            counts[self.group.place_of(&one.route)] += one.overdue(now, bound_ns, &mut tell);
        }
        for (route, count) in self.group.routes.iter().zip(counts) {
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

/// What is done, unless a transaction runs.
fn commit_of(partition: &AssignedPartition, is_free: bool) -> Option<Commit> {
    is_free.then(|| partition.take_commit()).flatten()
}

/// After this many commits in a row without a failure, commits work again.
const COMMITS_OK: u32 = 3;

// Sending commits to the log.
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
        let interval_ns = self.context.settings.commit_interval.as_nanos() as u64;
        self.group.commit_not_before(now.ns + if quiet { 0 } else { interval_ns });
        self.group.set_committing(true);
        let partitions = self.partitions.all().into_iter();
        let (transactional, plain): (Vec<_>, Vec<_>) =
            partitions.partition(|partition| partition.route.settings.transactional);
        let mut are_free = self.take_and_send(&plain, commit_of, quiet, now);
        for partition in transactional {
            are_free &= self.take_and_send(&[partition], commit_of, true, now);
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

/// How much of the error message is written when the whole letter is too large: one line of a list.
const MESSAGE_CHARS_SHORT: usize = 200;

/// The longest key that is written when the record is too large: others are what is too large.
const KEY_BYTES_KEPT: usize = 1_024;

// Writing records that failed too often to their dead-letter topic.
impl Poller {
    pub(super) fn send_dead_letter(
        &mut self,
        partition: &Arc<AssignedPartition>,
        letter: Arc<PendingDeadLetter>,
    ) {
        let record = record_of(&letter, &self.group.settings.name, &partition.partition);
        let owner = partition.clone();
        let receipt = Arc::new(Receipt::with_callback(1, move |receipt: &Receipt| {
            let failure = receipt.failures().into_iter().next().map(|(_, error)| error);
            let is_invalid = failure.as_ref().is_some_and(|error| error.kind == ErrorKind::Invalid);
            let shrinks = is_invalid && letter.smaller().is_some();
            owner.group.dead_letter_ended(&letter.topic, failure.as_ref(), shrinks);
            let end = match failure {
                None => LetterEnd::Durable,
                Some(_) if is_invalid => LetterEnd::Invalid,
                Some(_) => LetterEnd::Failed,
            };
            if end == LetterEnd::Durable {
                owner.route.counters.dead_letters.fetch_add(1, Ordering::Relaxed);
                owner.route.count(1, |topic| &topic.dead_letters);
            }
            owner.dead_letter_ended(&letter, end);
        }));
        let sent = self
            .producer()
            .and_then(|producer| record.with(|record| producer.send(record, Some((&receipt, 0)))));
        if let Err(error) = sent {
            // A record that the producer refuses does not settle its receipt.
            receipt.complete(0, Err(error));
        }
    }

    fn producer(&self) -> log::Result<Arc<dyn Producer>> {
        self.producer.get(|| (self.context.producer)())
    }
}

/// The dead letter: key, value and headers of the record, and headers that say what happened.
fn record_of(letter: &PendingDeadLetter, group: &str, partition: &Partition) -> OwnedRecord {
    let record = letter.record();
    let is_whole = letter.size == LetterSize::Whole;
    let has_value = letter.size != LetterSize::NoValue;
    let copied = record.headers().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)));
    let mut headers: Vec<_> = copied.take_while(|_| has_value).collect();
    let message: String = letter
        .message
        .chars()
        .take(if is_whole { usize::MAX } else { MESSAGE_CHARS_SHORT })
        .collect();
    let added = [
        ("source_topic", partition.topic.to_string()),
        ("source_partition", partition.number.to_string()),
        ("source_offset", record.offset().to_string()),
        ("source_consumer_group", group.to_owned()),
        ("source_attempts", letter.attempts().to_string()),
        ("error_class", letter.class.clone()),
        ("error_message", message),
        ("failed_at", iso_8601(letter.failed_at_ms)),
    ];
    let omitted = record.value().filter(|_| !has_value).map(|value| value.len().to_string());
    let omitted = omitted.map(|bytes| ("source_value_bytes", bytes));
    let added = added.into_iter().chain(omitted);
    headers.extend(added.map(|(name, value)| (name.into(), Some(value.into_bytes()))));
    let key = record.key().filter(|key| has_value || key.len() <= KEY_BYTES_KEPT);
    OwnedRecord {
        topic: letter.topic.clone(),
        partition: None,
        key: key.map(<[u8]>::to_vec),
        value: record.value().filter(|_| has_value).map(<[u8]>::to_vec),
        headers,
        timestamp_ms: None,
    }
}

/// What has failed when there is no member.
const CANNOT_JOIN: &str = "it cannot be joined";

// Joining the group, and the partitions that come and go.
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
            // The log may assign a partition again without having revoked it.
            MemberEvent::Assigned(list) => self.lose(list.iter().map(|one| &one.partition)),
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
                let partitions = list.iter().map(|assigned| &assigned.partition);
                self.count_rebalance(partitions.clone());
                // The former assignment of one that was not revoked no longer counts.
                self.lose(partitions);
                list.iter().for_each(|assigned| self.assign(assigned));
            }
            MemberEvent::Revoked(partitions) => {
                counters.rebalances.fetch_add(1, Ordering::Relaxed);
                self.count_rebalance(partitions.iter());
                let assigned = self.owned(&partitions.iter().collect());
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
                for partition in self.owned(&[&partition].into()) {
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
    fn count_rebalance<'a>(&self, partitions: impl Iterator<Item = &'a Partition>) {
        let topics: HashSet<&str> = partitions.map(|partition| &*partition.topic).collect();
        let concerned = topics.into_iter().filter_map(|topic| self.group.route(topic));
        concerned.for_each(|route| route.count(1, |topic| &topic.rebalances));
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
    fn owned(&self, partitions: &HashSet<&Partition>) -> Vec<Arc<AssignedPartition>> {
        let mut assigned = self.partitions.all();
        assigned.retain(|one| one.is_owned() && partitions.contains(&one.partition));
        assigned
    }

    /// Other members may have these partitions by now. Where they were about to be given up they are not released
    /// any more: that would release a new assignment.
    fn lose<'a>(&mut self, partitions: impl IntoIterator<Item = &'a Partition>) {
        let partitions = partitions.into_iter().collect();
        self.owned(&partitions).iter().for_each(|partition| partition.lose());
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

// How a group's thread waits. The member is polled once a second. That does not end the wait, so that it costs the same
// however many partitions there are.
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
        let mut shown = vec![(Progress::default(), None::<i64>); self.group.routes.len()];
        for one in self.partitions.all() {
            one.set_end(member.end_offset(&one.partition));
            let (progress, oldest_ms) = &mut shown[self.group.place_of(&one.route)];
            progress.lag += one.lag().unwrap_or(0);
            *oldest_ms = [*oldest_ms, one.oldest_ms(now)].into_iter().flatten().min();
            if one.is_owned() {
                progress.partitions += 1;
                progress.stopped += u64::from(one.stopped().is_some());
                progress.paused += u64::from(one.is_paused());
            }
        }
        self.lags = false;
        for (route, (progress, oldest_ms)) in self.group.routes.iter().zip(shown) {
            let Some(metrics) = &route.metrics else { continue };
            metrics.show(&progress, u64::try_from(oldest_ms.unwrap_or(0)).unwrap_or(0));
            self.lags |= progress.lag > 0 || progress.paused > 0;
        }
    }
}
