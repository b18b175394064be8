//! A member of a consumer group: takes part in sharing the partitions and reads its own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use chaton_embedded::OwnerLock;
use rusqlite::Connection;

use super::file_watch::{FileWatch, WatchEvent, WatchId};
use super::group_state::{GroupState, MemberInfo, Owner};
use super::groups;
use super::log_dir::{channel_of, check_name, Done, Failure, LogDir, CHANGES};
use super::process_watch::ProcessWatch;
use super::{errors, topics};
use crate::commit_notes::first_position;
use crate::log::{
    Assignment, Commit, ErrorKind, GroupMember, Limits, LogError, LostRecords, MemberEvent,
    Partition, Position, Result,
};
use crate::poll::wait_readable;
use crate::record::Chunk;
use crate::settings::{GroupSettings, Start};

mod owned_partitions;

use owned_partitions::OwnedPartitions;

/// How often members are checked whose deaths are not reported, because they
/// run in another PID namespace.
const UNWATCHED_CHECK: Duration = Duration::from_secs(1);

/// How often it is looked whether the log is still the same: nothing reports that a folder
/// above it was moved.
const DIR_CHECK: Duration = Duration::from_millis(500);

/// The longest wait for the log's lock by calls that are repeated anyway:
/// the thread also serves other groups and partitions.
const SHORT_LOCK_WAIT: Duration = Duration::from_millis(200);

pub(super) struct LocalMember {
    id: String,
    /// The group's, as of the last synchronisation.
    epoch: u64,
    settings: GroupSettings,
    dir: Arc<LogDir>,
    /// See [`LogDir::id`].
    dir_id: Option<(u64, u64)>,
    dir_checked: Instant,
    notifier: Arc<EventFd>,
    watch: FileWatch,
    /// Tells of changed topics and groups.
    changes: Option<WatchId>,
    processes: ProcessWatch,
    /// When the log was looked at last though nothing was reported.
    polled: Instant,
    /// The reported reason why some files are not watched.
    unwatched: Option<LogError>,
    /// Held as long as it is a member.
    lock: Option<OwnerLock>,
    owned: OwnedPartitions,
    /// See [`LocalMember::state_now`], as of the last synchronisation.
    synced_state: Option<u64>,
    /// Topics or groups have changed, perhaps these.
    may_have_changed: bool,
    /// The group has to be synchronised.
    group_changed: bool,
    /// Records were written since the last wait.
    records_written: bool,
    /// The last wait ended by a notification.
    notified: bool,
    /// The error of the last synchronisation; the next poll tries again.
    failure: Option<LogError>,
    /// Since when the log's lock cannot be taken.
    locked_out_since: Option<Instant>,
    synced: Instant,
    unknown_topics: BTreeSet<String>,
    pending: Vec<MemberEvent>,
}

/// What a synchronisation has found.
struct Synced {
    /// Partitions that other members own by now.
    lost: Vec<Partition>,
    /// Partitions that this member owns from now on, and where it begins to read them.
    claimed: Vec<(Assignment, Position)>,
    /// The partition counts of all topics that members read.
    partitions: BTreeMap<String, i32>,
}

impl LocalMember {
    /// A member that joins the group with its first poll.
    pub fn new(
        dir: &Arc<LogDir>,
        settings: &GroupSettings,
        notifier: &Arc<EventFd>,
    ) -> Result<Self> {
        if settings.name.is_empty() {
            return Err(LogError::new(ErrorKind::Refused, "a consumer group needs a name"));
        }
        for topic in &settings.topics {
            check_name(topic)?;
        }
        dir.prepare()?;
        let lock = OwnerLock::take(dir.path())
            .map_err(|error| errors::io(dir.path(), "locking a member of", &error))?;
        let (watch, changes) = watch(dir, settings)?;
        Ok(Self {
            // The byte of its lock is drawn of 2⁶².
            epoch: 0,
            id: format!(
                "{}-{}-{:x}",
                dir.settings.client_id,
                std::process::id(),
                lock.place().byte
            ),
            settings: settings.clone(),
            dir: dir.clone(),
            owned: OwnedPartitions::new(dir),
            dir_id: dir.id()?,
            dir_checked: Instant::now(),
            notifier: notifier.clone(),
            watch,
            changes,
            polled: Instant::now(),
            unwatched: None,
            processes: ProcessWatch::default(),
            lock: Some(lock),
            synced_state: None,
            may_have_changed: false,
            group_changed: true,
            records_written: false,
            notified: true,
            failure: None,
            locked_out_since: None,
            synced: Instant::now(),
            unknown_topics: BTreeSet::new(),
            pending: Vec::new(),
        })
    }

    /// Looks at the group and its records though nothing was reported, and tries again to watch what
    /// could not be watched.
    fn look_anew(&mut self) {
        self.polled = Instant::now();
        (self.may_have_changed, self.records_written) = (true, true);
        if self.watch.failure().is_some() {
            match watch(&self.dir, &self.settings) {
                Ok((watch, changes)) => (self.watch, self.changes) = (watch, changes),
                Err(error) => self.report(error),
            }
        }
    }

    /// Reports once that some files cannot be watched.
    fn report_unwatched(&mut self) {
        let failure = self.watch.failure();
        if failure != self.unwatched.as_ref() {
            self.unwatched = failure.cloned();
            self.pending.extend(self.unwatched.clone().map(MemberEvent::Error));
        }
    }

    fn read_file_events(&mut self) {
        let changes = self.changes;
        let (changed, written) = (&mut self.may_have_changed, &mut self.records_written);
        self.watch.read_events(|event| match event {
            WatchEvent::Changed(id) if Some(id) == changes => *changed = true,
            WatchEvent::Changed(_) => *written = true,
            WatchEvent::Overflow => (*changed, *written) = (true, true),
        });
    }

    /// A hash of the group's state and its topics: all that a synchronisation depends on but the deaths of members.
    fn state_now(&self, conn: &Connection) -> Done<u64> {
        let mut now = DefaultHasher::new();
        groups::stored(conn, &self.settings.name)?.hash(&mut now);
        for name in &self.settings.topics {
            topics::id_and_partitions(conn, name)?.hash(&mut now);
        }
        Ok(now.finish())
    }

    /// Whether the group or its topics have changed since the last synchronisation.
    fn has_changed(&self) -> bool {
        let now = self.dir.read(|conn| self.state_now(conn));
        !matches!(now, Ok(now @ Some(_)) if now == self.synced_state)
    }

    /// Brings the group's state up to date and adopts this member's part of it.
    fn sync_group(&mut self) -> Done<()> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let info = MemberInfo::new(&self.settings.topics, lock)?;
        let (dir, group) = (self.dir.clone(), self.settings.name.clone());
        let this = &*self;
        // Not synced: after a reboot no member is alive.
        let ((synced, state), now) = dir.write_within(SHORT_LOCK_WAIT, false, |tx| {
            let changed = groups::change(tx, &group, |state| {
                state.add(&this.id, info);
                groups::remove_dead(&this.dir, state)?;
                state.free_unread(&this.id, |topic, number| this.owned.contains(topic, number));
                let partitions = groups::partitions(tx.conn, state)?;
                state.rebalance(&partitions);
                let lost = this.owned.lost(state, &this.id);
                // A lost partition may be claimed again at once.
                let claimed = state.claim(&this.id, this.epoch);
                let claimed = this.beginnings(tx.conn, &claimed, &partitions)?;
                Ok(Synced { lost, claimed, partitions })
            })?;
            Ok((changed, this.state_now(tx.conn)?))
        })?;
        (self.synced_state, self.epoch) = (Some(now), state.epoch);
        self.report_unknown_topics(&synced.partitions);
        if !self.processes.watch(state.members.values().map(|info| &info.process)) {
            self.group_changed = true;
        }
        self.adopt(&state, synced);
        Ok(())
    }

    /// Where this member begins to read partitions that it has claimed. They are sorted.
    fn beginnings(
        &self,
        conn: &Connection,
        claimed: &[Partition],
        partitions: &BTreeMap<String, i32>,
    ) -> Done<Vec<(Assignment, Position)>> {
        let mut all = Vec::with_capacity(claimed.len());
        for of_topic in claimed.chunk_by(|one, next| one.topic == next.topic) {
            let topic = &*of_topic[0].topic;
            let commits = groups::committed(conn, &self.settings.name, Some(topic))?;
            let count = partitions.get(topic).copied().unwrap_or(0);
            for one in of_topic {
                let own = commits.binary_search_by_key(&one.number, |commit| commit.partition);
                let own = own.ok().map(|at| &commits[at]);
                let (from, metadata) = match (own, self.settings.start) {
                    (Some(own), _) => (Position::Offset(own.offset), own.metadata.clone()),
                    (None, Start::Earliest) => (Position::Earliest, String::new()),
                    (None, Start::Latest) => {
                        let notes = commits.iter().map(|it| (it.partition, it.metadata.as_str()));
                        first_position(one.number, count, notes)
                    }
                };
                let is_first = own.is_none() && self.settings.start == Start::Latest;
                let committed = own.map(|commit| commit.offset);
                let partition = one.clone();
                all.push((Assignment { partition, committed, metadata, is_first }, from));
            }
        }
        Ok(all)
    }

    /// Starts and ends reading as the state says, and reports it.
    fn adopt(&mut self, state: &GroupState, synced: Synced) {
        let Synced { lost, claimed, .. } = synced;
        if !lost.is_empty() {
            self.owned.remove_all(&lost);
            self.pending.push(MemberEvent::Lost(lost));
        }
        let revoked = self.owned.revoke(state, &self.id);
        if !revoked.is_empty() {
            self.pending.push(MemberEvent::Revoked(revoked));
        }
        if !claimed.is_empty() {
            let begun = claimed.into_iter().map(|(one, from)| self.begin(one, from));
            let assigned = begun.collect();
            self.pending.push(MemberEvent::Assigned(assigned));
        }
    }

    /// Begins to read a partition.
    fn begin(&mut self, mut one: Assignment, from: Position) -> Assignment {
        let failed = self.owned.add(&one.partition, from);
        self.pending.extend(failed.map(MemberEvent::Error));
        let end = self.owned.end_offset(&one.partition);
        if let Some(end) = end {
            self.pending.extend(clamp(&mut one, end).map(MemberEvent::Error));
        }
        if one.is_first {
            let is_end = from == Position::Latest;
            one.committed = if is_end { end } else { self.owned.start_offset(&one.partition) };
            if one.committed.is_none() {
                (one.is_first, one.metadata) = (false, String::new());
            }
        }
        one
    }

    /// Why the member has to join anew: the log is another one, or is not there.
    fn check_dir(&mut self) -> Result<()> {
        if self.dir_checked.elapsed() < DIR_CHECK && !self.group_changed && !self.may_have_changed {
            return Ok(());
        }
        self.dir_checked = Instant::now();
        if self.dir.id()? == self.dir_id {
            return Ok(());
        }
        Err(errors::replaced(self.dir.path()))
    }

    /// Tries again later. That the lock cannot be taken becomes an error after the answer timeout.
    fn sync_failed(&mut self, failure: Failure) {
        self.group_changed = true;
        if let Failure::Busy(_) = failure {
            let since = self.locked_out_since.get_or_insert_with(Instant::now);
            if since.elapsed() < self.dir.answer_timeout() {
                return;
            }
        }
        self.report(self.dir.error(failure));
    }

    /// Reports the same error once.
    fn report(&mut self, error: LogError) {
        if self.failure.as_ref() != Some(&error) {
            self.pending.push(MemberEvent::Error(error.clone()));
        }
        self.failure = Some(error);
    }

    /// Reports each topic that does not exist once.
    fn report_unknown_topics(&mut self, known: &BTreeMap<String, i32>) {
        for topic in &self.settings.topics {
            if known.contains_key(topic) {
                self.unknown_topics.remove(topic);
            } else if self.unknown_topics.insert(topic.clone()) {
                self.pending.push(MemberEvent::Error(errors::unknown_topic(topic)));
            }
        }
    }
}

impl GroupMember for LocalMember {
    fn wait(&mut self, timeout: Duration) {
        let due = (self.group_changed || self.may_have_changed)
            && self.failure.is_none()
            && self.locked_out_since.is_none();
        // A poll may have seen records that were not fetched since.
        if due || std::mem::take(&mut self.records_written) || !self.pending.is_empty() {
            self.notified = true;
            return;
        }
        let timeout =
            if self.processes.has_unwatched { timeout.min(UNWATCHED_CHECK) } else { timeout };
        let poll_at = self.polled + self.watch.poll_interval();
        let timeout = timeout.min(poll_at.saturating_duration_since(Instant::now()));
        let mut fds = vec![self.notifier.as_fd()];
        fds.extend(self.watch.descriptor());
        let others = fds.len();
        fds.extend(self.processes.descriptors());
        let ready = wait_readable(&fds, timeout);
        if ready[0] {
            self.notifier.clear();
        }
        self.group_changed |= ready[others..].contains(&true);
        self.read_file_events();
        if Instant::now() >= poll_at {
            self.look_anew();
        }
        let written = std::mem::take(&mut self.records_written);
        self.notified = written || self.group_changed || ready.contains(&true);
    }

    fn was_notified(&self) -> bool {
        self.notified
    }

    fn poll(&mut self, events: &mut Vec<MemberEvent>) {
        if self.lock.is_none() {
            return;
        }
        self.read_file_events();
        if let Err(error) = self.check_dir() {
            return events.push(MemberEvent::Fatal(error));
        }
        let check_unwatched =
            self.processes.has_unwatched && self.synced.elapsed() >= UNWATCHED_CHECK;
        let may_have_changed = std::mem::take(&mut self.may_have_changed);
        if self.group_changed || check_unwatched || may_have_changed && self.has_changed() {
            self.group_changed = false;
            self.synced = Instant::now();
            match self.sync_group() {
                Ok(()) => (self.failure, self.locked_out_since) = (None, None),
                Err(failure) => self.sync_failed(failure),
            }
        }
        self.report_unwatched();
        events.append(&mut self.pending);
    }

    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        let fetched = self.owned.fetch(partition, limits);
        if let Ok(None) = fetched {
            if self.settings.eof && self.owned.is_newly_at_end(partition) {
                self.pending.push(MemberEvent::PartitionEof(partition.clone()));
            }
        }
        fetched
    }

    fn take_lost(&mut self, partition: &Partition) -> Option<LostRecords> {
        self.owned.take_lost(partition)
    }

    fn seek(&mut self, partition: &Partition, position: Position) -> Result<()> {
        self.owned.seek(partition, position)
    }

    fn commit(&mut self, commits: &[Commit], wait: bool) -> Result<()> {
        groups::check(commits)?;
        let (member, group) = (Owner::new(&self.id, self.epoch), &self.settings.name);
        let timeout = if wait { self.dir.answer_timeout() } else { SHORT_LOCK_WAIT };
        let done = self.dir.write_within(timeout, wait, |tx| {
            let state = groups::load(tx.conn, group)?;
            let others = groups::others(&state, &member, commits);
            groups::commit(tx, group, commits.iter().filter(|one| !others.contains(one)))?;
            Ok(others.first().map(|other| errors::fenced(group, other)))
        });
        let error = match done {
            Ok(None) => return Ok(()),
            Ok(Some(fenced)) => {
                self.group_changed = true;
                fenced
            }
            Err(Failure::Busy(error)) => error,
            Err(failure) => return Err(self.dir.error(failure)),
        };
        if wait {
            return Err(error);
        }
        self.pending.push(MemberEvent::CommitFailed(error));
        Ok(())
    }

    fn release(&mut self, partitions: &[Partition]) {
        self.owned.remove_all(partitions);
        let freed: HashSet<_> = partitions.iter().map(|one| (&*one.topic, one.number)).collect();
        // If this fails, the next synchronisation frees the partitions that
        // are not read here, or reports the error.
        let _ = self.dir.write_within(SHORT_LOCK_WAIT, false, |tx| {
            groups::change(tx, &self.settings.name, |state| {
                state.free_unread(&self.id, |topic, number| !freed.contains(&(topic, number)));
                Ok(())
            })
        });
        self.group_changed = true;
    }

    fn start_offset(&self, partition: &Partition) -> Option<i64> {
        self.owned.start_offset(partition)
    }

    fn end_offset(&self, partition: &Partition) -> Option<i64> {
        self.owned.end_offset(partition)
    }

    fn identity(&self) -> Vec<u8> {
        Owner::new(&self.id, self.epoch).identity()
    }

    fn leave(&mut self, timeout: Duration) {
        if self.lock.is_none() {
            return;
        }
        self.owned.clear();
        let (id, dir) = (&self.id, &self.dir);
        // If this fails, the others find the member's lock free.
        let _ = dir.write_within(dir.answer_timeout().min(timeout), false, |tx| {
            groups::change(tx, &self.settings.name, |state| {
                state.remove(id);
                let partitions = groups::partitions(tx.conn, state)?;
                state.rebalance(&partitions);
                Ok(())
            })
        });
        self.lock = None;
    }
}

impl Drop for LocalMember {
    fn drop(&mut self) {
        self.leave(self.dir.answer_timeout());
    }
}

/// Watches the channels of the group's topics, and that of all changes.
fn watch(dir: &LogDir, settings: &GroupSettings) -> Result<(FileWatch, Option<WatchId>)> {
    let watch = FileWatch::new();
    let changes = watch.add(dir.path(), CHANGES)?;
    for topic in &settings.topics {
        watch.add(dir.path(), channel_of(topic))?;
    }
    Ok((watch, changes))
}

/// Moves a commit behind the end to the end. Its records are gone, for example
/// after a power failure with `durable` off.
fn clamp(one: &mut Assignment, end: i64) -> Option<LogError> {
    let offset = one.committed.filter(|offset| *offset > end)?;
    let message = format!(
        "{} is committed to {offset} and ends at {end}: records are gone, or were \
         written anew; the group goes on at {end}; seek to read from before",
        one.partition
    );
    (one.committed, one.metadata) = (Some(end), String::new());
    Some(LogError::new(ErrorKind::Corrupt, message))
}
