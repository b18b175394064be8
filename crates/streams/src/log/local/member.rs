//! A member of a consumer group: takes part in sharing the partitions and reads its own.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;

use super::committed_offsets::{self, CommittedOffsets};
use super::file_watch::{FileWatch, WatchEvent, RENAMED};
use super::group_files::GroupFiles;
use super::group_state::{GroupState, MemberInfo};
use super::liveness::{MemberLock, ProcessIdentity};
use super::log_dir::{check_name, escaped, parse_partition_key, partition_key, LogDir};
use super::process_watch::ProcessWatch;
use super::{errors, files};
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

/// How often it is looked whether the log's folder is still the same: nothing reports that a folder
/// above it was moved.
const DIR_CHECK: Duration = Duration::from_millis(500);

/// The longest wait for the group's lock by calls that are repeated anyway:
/// the thread also serves other groups and partitions.
const SHORT_LOCK_WAIT: Duration = Duration::from_millis(200);

pub(super) struct LocalMember {
    id: String,
    settings: GroupSettings,
    files: GroupFiles,
    /// See [`LogDir::id`].
    dir_id: (u64, u64),
    dir_checked: Instant,
    notifier: Arc<EventFd>,
    watch: FileWatch,
    processes: ProcessWatch,
    /// When the files were looked at last though nothing was reported.
    polled: Instant,
    /// The reported reason why some files are not watched.
    unwatched: Option<LogError>,
    member_lock: Option<MemberLock>,
    owned: OwnedPartitions,
    /// The group or its topics may have changed.
    group_changed: bool,
    /// Records were written since the last wait.
    records_written: bool,
    /// The last wait ended by a notification.
    notified: bool,
    /// The error of the last synchronisation; the next poll tries again.
    failure: Option<LogError>,
    /// Since when the group's lock cannot be taken.
    locked_out_since: Option<Instant>,
    synced: Instant,
    unknown_topics: BTreeSet<String>,
    pending: Vec<MemberEvent>,
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
        let files = GroupFiles::open(dir, &settings.name)?;
        let id = format!("{}-{}", escaped(&dir.settings.client_id), files::unique_name());
        let member_lock = Some(MemberLock::acquire(&files.folder.join("members"), &id)?);
        Ok(Self {
            id,
            settings: settings.clone(),
            owned: OwnedPartitions::new(dir),
            watch: watch(&files)?,
            dir_id: dir.id()?,
            dir_checked: Instant::now(),
            files,
            notifier: notifier.clone(),
            polled: Instant::now(),
            unwatched: None,
            processes: ProcessWatch::default(),
            member_lock,
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
        (self.group_changed, self.records_written) = (true, true);
        if self.watch.failure().is_some() {
            match watch(&self.files) {
                Ok(watch) => self.watch = watch,
                Err(error) => return self.sync_failed(error),
            }
            self.owned.watch_anew(&self.watch);
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
        let owned = &self.owned;
        let (changed, written) = (&mut self.group_changed, &mut self.records_written);
        self.watch.read_events(|event| match event {
            WatchEvent::Changed(id) if owned.watches_records(id) => *written = true,
            WatchEvent::Changed(_) => *changed = true,
            WatchEvent::Overflow => (*changed, *written) = (true, true),
        });
    }

    /// Brings the group's state up to date and adopts this member's part of
    /// it. False if the group's lock could not be taken.
    fn sync_group(&mut self) -> Result<bool> {
        // Before reading, so that changes during it are reported after it.
        for topic in &self.settings.topics {
            let folder = self.files.dir.topic(topic);
            if folder.is_dir() {
                let _ = self.watch.add(&folder, RENAMED);
            }
        }
        let Some(held) = self.files.lock_within(SHORT_LOCK_WAIT)? else { return Ok(false) };
        let before = self.files.load()?;
        let committed = committed_offsets::load(&self.files.folder)?;
        let mut state = before.clone();
        let process = ProcessIdentity::own()?;
        let topics = &self.settings.topics;
        let info = || MemberInfo { process, host: host(), topics: topics.clone() };
        state.members.entry(self.id.clone()).or_insert_with(info);
        self.files.remove_dead(&mut state)?;
        state.free_unread(&self.id, |partition| self.owned.contains(partition));
        let partitions = self.files.partitions(&state)?;
        state.rebalance(&partitions);
        let lost = self.owned.lost(&state, &self.id);
        // A lost partition may be claimed again at once.
        let claimed = state.claim(&self.id);
        if state != before {
            self.files.store(&state)?;
        }
        drop(held);
        self.report_unknown_topics(partitions.keys().cloned().collect());
        self.adopt(&state, lost, &claimed, &committed, &partitions);
        if !self.processes.watch(state.members.values().map(|info| &info.process)) {
            self.group_changed = true;
        }
        Ok(true)
    }

    /// Starts and ends reading as the state says, and reports it.
    fn adopt(
        &mut self,
        state: &GroupState,
        lost: Vec<Partition>,
        claimed: &[String],
        committed: &CommittedOffsets,
        partitions: &BTreeMap<String, i32>,
    ) {
        if !lost.is_empty() {
            self.owned.remove_all(&lost, &self.watch);
            self.pending.push(MemberEvent::Lost(lost));
        }
        let revoked = self.owned.revoke(state, &self.id);
        if !revoked.is_empty() {
            self.pending.push(MemberEvent::Revoked(revoked));
        }
        let mut assigned = Vec::new();
        for partition in claimed.iter().filter_map(|key| parse_partition_key(key)) {
            let key = (partition.topic.to_string(), partition.number);
            let mut commit = committed.get(&key).cloned();
            let (from, beginning) = match (&commit, self.settings.start) {
                (Some(commit), _) => (Position::Offset(commit.offset), None),
                (None, Start::Earliest) => (Position::Earliest, None),
                (None, Start::Latest) => {
                    let own = committed.iter().filter(|((topic, _), _)| *topic == key.0);
                    let own = own.map(|((_, number), commit)| (*number, commit.metadata.as_str()));
                    let count = partitions.get(&key.0).copied().unwrap_or(0);
                    let (from, metadata) = first_position(key.1, count, own);
                    (from, Some(metadata))
                }
            };
            let failed = self.owned.add(&partition, from, &self.watch);
            self.pending.extend(failed.map(MemberEvent::Error));
            let end = self.owned.end_offset(&partition);
            if let (Some(commit), Some(end)) = (&mut commit, end) {
                self.pending.extend(clamp(commit, end).map(MemberEvent::Error));
            }
            let first = beginning.and_then(|metadata| match from {
                Position::Latest => Some((end?, metadata)),
                _ => Some((self.owned.start_offset(&partition)?, metadata)),
            });
            let is_first = first.is_some();
            let commit = commit.map(|commit| (commit.offset, commit.metadata)).or(first).unzip();
            let (committed, metadata) = (commit.0, commit.1.unwrap_or_default());
            assigned.push(Assignment { partition, committed, metadata, is_first });
        }
        if !assigned.is_empty() {
            self.pending.push(MemberEvent::Assigned(assigned));
        }
        self.owned.reset_recreated(&self.watch);
    }

    /// Why the member has to join anew: the log's folder is another one, or is not there.
    fn check_dir(&mut self) -> Result<()> {
        if self.dir_checked.elapsed() < DIR_CHECK {
            return Ok(());
        }
        self.dir_checked = Instant::now();
        if self.files.dir.id()? == self.dir_id {
            return Ok(());
        }
        Err(errors::replaced(&self.files.dir.root))
    }

    /// Tries again later; it becomes an error after the answer timeout.
    fn lock_timed_out(&mut self) {
        self.group_changed = true;
        let timeout = self.files.dir.answer_timeout();
        if self.locked_out_since.get_or_insert_with(Instant::now).elapsed() >= timeout {
            self.sync_failed(self.files.lock_timed_out(timeout));
        }
    }

    /// Tries again later; the same error is reported once.
    fn sync_failed(&mut self, error: LogError) {
        self.group_changed = true;
        if self.failure.as_ref() != Some(&error) {
            self.pending.push(MemberEvent::Error(error.clone()));
        }
        self.failure = Some(error);
    }

    /// Reports each topic that does not exist once.
    fn report_unknown_topics(&mut self, known: BTreeSet<String>) {
        for topic in &self.settings.topics {
            if known.contains(topic) {
                self.unknown_topics.remove(topic);
            } else if self.unknown_topics.insert(topic.clone()) {
                self.pending.push(MemberEvent::Error(errors::unknown_topic(topic)));
            }
        }
    }

    /// Changes the group's state under its lock.
    fn change(&self, timeout: Duration, change: impl FnOnce(&mut GroupState)) -> Result<()> {
        let held = self.files.lock_within(timeout)?;
        let _held = held.ok_or_else(|| self.files.lock_timed_out(timeout))?;
        let before = self.files.load()?;
        let mut state = before.clone();
        change(&mut state);
        if state != before {
            self.files.store(&state)?;
        }
        Ok(())
    }
}

impl GroupMember for LocalMember {
    fn wait(&mut self, timeout: Duration) {
        let due = self.group_changed && self.failure.is_none() && self.locked_out_since.is_none();
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
        if self.member_lock.is_none() {
            return;
        }
        if let Err(error) = self.check_dir() {
            return events.push(MemberEvent::Fatal(error));
        }
        self.read_file_events();
        let check_unwatched =
            self.processes.has_unwatched && self.synced.elapsed() >= UNWATCHED_CHECK;
        if self.group_changed || check_unwatched {
            self.group_changed = false;
            self.synced = Instant::now();
            match self.sync_group() {
                Ok(true) => (self.failure, self.locked_out_since) = (None, None),
                Ok(false) => self.lock_timed_out(),
                Err(error) => self.sync_failed(error),
            }
        }
        self.report_unwatched();
        events.append(&mut self.pending);
    }

    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        let fetched = self.owned.fetch(partition, limits, &self.watch);
        self.pending.extend(self.owned.take_damage(partition).map(MemberEvent::Error));
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
        self.owned.seek(partition, position, &self.watch)
    }

    fn commit(&mut self, commits: &[Commit], wait: bool) -> Result<()> {
        committed_offsets::check(commits)?;
        let timeout = if wait { self.files.dir.answer_timeout() } else { SHORT_LOCK_WAIT };
        let Some(_held) = self.files.lock_within(timeout)? else {
            let error = self.files.lock_timed_out(timeout);
            if wait {
                return Err(error);
            }
            self.pending.push(MemberEvent::CommitFailed(error));
            return Ok(());
        };
        let state = self.files.load()?;
        let is_owned = |commit: &&Commit| {
            let owner = state.owners.get(&partition_key(&commit.topic, commit.partition));
            owner == Some(&self.id)
        };
        let (owned, others): (Vec<_>, Vec<_>) = commits.iter().partition(is_owned);
        let owned: Vec<_> = owned.into_iter().cloned().collect();
        if !owned.is_empty() {
            let durable = wait && self.files.dir.settings.durable;
            committed_offsets::append(&self.files.folder, &owned, durable)?;
        }
        let Some(other) = others.first() else { return Ok(()) };
        self.group_changed = true;
        let error = errors::fenced(&self.files.name, other);
        if wait {
            return Err(error);
        }
        self.pending.push(MemberEvent::CommitFailed(error));
        Ok(())
    }

    fn release(&mut self, partitions: &[Partition]) {
        self.owned.remove_all(partitions, &self.watch);
        let id = self.id.clone();
        let keys: Vec<_> =
            partitions.iter().map(|one| partition_key(&one.topic, one.number)).collect();
        // If this fails, the next synchronisation frees the partitions that
        // are not read here, or reports the error.
        let _ = self.change(SHORT_LOCK_WAIT, |state| {
            state.owners.retain(|key, owner| *owner != id || !keys.contains(key));
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
        self.id.clone().into_bytes()
    }

    fn leave(&mut self, timeout: Duration) {
        if self.member_lock.is_none() {
            return;
        }
        self.owned.clear(&self.watch);
        let id = self.id.clone();
        let files = &self.files;
        // If this fails, the others find the member's lock free.
        let timeout = self.files.dir.answer_timeout().min(timeout);
        let _ = self.change(timeout, |state| {
            state.remove(&id);
            if let Ok(partitions) = files.partitions(state) {
                state.rebalance(&partitions);
            }
        });
        self.member_lock = None;
    }
}

impl Drop for LocalMember {
    fn drop(&mut self) {
        self.leave(self.files.dir.answer_timeout());
    }
}

/// Watches the group and the names of topics. What is in the topics is added when it is known.
fn watch(files: &GroupFiles) -> Result<FileWatch> {
    let watch = FileWatch::new();
    watch.add(&files.folder, RENAMED)?;
    watch.add(&files.dir.topics(), RENAMED)?;
    Ok(watch)
}

/// Moves a commit behind the end to the end. Its records are gone, for example
/// after a power failure with `durable` off.
fn clamp(commit: &mut Commit, end: i64) -> Option<LogError> {
    let Commit { topic, partition, offset, metadata } = commit;
    if *offset <= end {
        return None;
    }
    let message = format!(
        "{topic}/{partition} is committed to {offset} and ends at {end}: records are gone, or were \
         written anew; the group goes on at {end}; seek to read from before"
    );
    (*offset, *metadata) = (end, String::new());
    Some(LogError::new(ErrorKind::Corrupt, message))
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
