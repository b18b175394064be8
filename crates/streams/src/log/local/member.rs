//! A member of a consumer group: takes part in dividing the partitions and
//! reads its own.

use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;

use super::file_watch::{self, wait_for, FileWatch};
use super::group_files::GroupFiles;
use super::group_state::{GroupState, MemberInfo};
use super::liveness::{MemberLock, ProcessIdentity, ProcessWatch};
use super::log_dir::{parse_partition_key, partition_key, LogDir};
use super::{committed_offsets, errors, files, transactional_producer};
use crate::log::{
    self, Assignment, Commit, ErrorKind, Limits, LogError, MemberEvent, Partition, Position, Result,
};
use crate::record::Chunk;
use crate::settings::{GroupSettings, Start};

mod owned_partitions;

use owned_partitions::OwnedPartitions;

/// How often members in another PID namespace are looked at, whose deaths are
/// not heard.
const UNWATCHED_CHECK: Duration = Duration::from_secs(1);

/// Longest wait for the group's lock by what is tried again by itself: the
/// thread has other groups' and partitions' things to do.
const SHORT_LOCK_WAIT: Duration = Duration::from_millis(200);

/// See above.
pub(super) struct LocalMember {
    id: String,
    settings: GroupSettings,
    files: GroupFiles,
    bell: Arc<EventFd>,
    watch: FileWatch,
    deaths: ProcessWatch,
    member_lock: Option<MemberLock>,
    owned: OwnedPartitions,
    /// Something about the group or its topics may have changed.
    changed: bool,
    /// Records were written since the last wait.
    written: bool,
    /// That wait ended by what was heard.
    heard: bool,
    /// The last look did not work; the next poll looks again.
    failing: Option<LogError>,
    /// Since when the group's lock is not to be had.
    busy: Option<Instant>,
    looked: Instant,
    unknown: BTreeSet<String>,
    pending: Vec<MemberEvent>,
}

impl LocalMember {
    /// Comes into the group with its first poll.
    pub fn new(dir: &Arc<LogDir>, settings: &GroupSettings, bell: &Arc<EventFd>) -> Result<Self> {
        if settings.name.is_empty() {
            return Err(LogError::new(ErrorKind::Refused, "a consumer group needs a name"));
        }
        for topic in &settings.topics {
            super::log_dir::check_name(topic)?;
        }
        let files = GroupFiles::open(dir, &settings.name)?;
        let watch = FileWatch::new()?;
        watch.add(&files.folder, file_watch::RENAMED)?;
        watch.add(&dir.topics(), file_watch::RENAMED)?;
        let id = format!(
            "{}-{}",
            super::log_dir::escaped(&dir.settings.client_id),
            files::unique_name()
        );
        let member_lock = Some(MemberLock::enter(&files.folder.join("members"), &id)?);
        Ok(Self {
            id,
            settings: settings.clone(),
            owned: OwnedPartitions::new(dir),
            files,
            bell: bell.clone(),
            watch,
            deaths: ProcessWatch::default(),
            member_lock,
            changed: true,
            written: false,
            heard: true,
            failing: None,
            busy: None,
            looked: Instant::now(),
            unknown: BTreeSet::new(),
            pending: Vec::new(),
        })
    }

    /// Takes note of what was heard.
    fn hear(&mut self) {
        let (owned, changed, written) = (&self.owned, &mut self.changed, &mut self.written);
        self.watch.read_events(|heard| match heard {
            file_watch::WatchEvent::Changed(watch_id) if owned.is_of_records(watch_id) => {
                *written = true
            }
            file_watch::WatchEvent::Changed(_) => *changed = true,
            file_watch::WatchEvent::Overflow => (*changed, *written) = (true, true),
        });
    }

    /// Takes part: who is there, who reads what, what is mine. False when the
    /// group's lock was not to be had.
    fn look(&mut self) -> Result<bool> {
        // Before the look: what changes during it is heard after it.
        for topic in &self.settings.topics {
            let folder = self.files.dir.topic(topic);
            if folder.is_dir() {
                let _ = self.watch.add(&folder, file_watch::RENAMED);
            }
        }
        let Some(held) = self.files.hold_within(SHORT_LOCK_WAIT)? else { return Ok(false) };
        let before = self.files.load()?;
        let committed = committed_offsets::load(&self.files.folder)?;
        let mut state = before.clone();
        let process = ProcessIdentity::own()?;
        let info = || MemberInfo { process, host: host(), topics: self.settings.topics.clone() };
        state.members.entry(self.id.clone()).or_insert_with(info);
        self.files.bury(&mut state)?;
        state.give_up(&self.id, |partition| self.owned.has(partition));
        let partitions = self.files.partitions(&state)?;
        state.balance(&partitions);
        let lost = self.owned.lost(&state, &self.id);
        // Some of what was lost may be given again: it is told in this order.
        let taken = state.take(&self.id);
        if state != before {
            self.files.store(&state)?;
        }
        drop(held);
        self.tell_unknown(partitions.keys().cloned().collect());
        self.tell(&state, lost, &taken, &committed);
        if !self.deaths.watch(state.members.values().map(|info| &info.process)) {
            self.changed = true;
        }
        Ok(true)
    }

    fn tell(
        &mut self,
        state: &GroupState,
        lost: Vec<Partition>,
        taken: &[String],
        committed: &committed_offsets::CommittedOffsets,
    ) {
        if !lost.is_empty() {
            self.owned.drop_all(&lost, &self.watch);
            self.pending.push(MemberEvent::Lost(lost));
        }
        let revoked = self.owned.revoke(state, &self.id);
        if !revoked.is_empty() {
            self.pending.push(MemberEvent::Revoked(revoked));
        }
        let mut assigned = Vec::new();
        for partition in taken.iter().filter_map(|key| parse_partition_key(key)) {
            let key = (partition.topic.to_string(), partition.number);
            let mut commit = committed.get(&key).cloned();
            let from = match (&commit, self.settings.start) {
                (Some(commit), _) => Position::Offset(commit.offset),
                (None, Start::Earliest) => Position::Earliest,
                (None, Start::Latest) => Position::Latest,
            };
            let failed = self.owned.add(&partition, from, &self.watch);
            self.pending.extend(failed.map(MemberEvent::Trouble));
            let end = self.owned.end_offset(&partition);
            if let (Some(commit), Some(end)) = (&mut commit, end) {
                self.pending.extend(clamp(commit, end).map(MemberEvent::Trouble));
            }
            assigned.push(Assignment {
                partition,
                committed: commit.as_ref().map(|commit| commit.offset),
                metadata: commit.map(|commit| commit.metadata).unwrap_or_default(),
            });
        }
        if !assigned.is_empty() {
            self.pending.push(MemberEvent::Assigned(assigned));
        }
        self.owned.renew(&self.watch);
    }

    /// Looks again later; that others have the lock is trouble when it lasts.
    fn is_busy(&mut self) {
        self.changed = true;
        let patience = self.files.dir.answer_timeout();
        if self.busy.get_or_insert_with(Instant::now).elapsed() >= patience {
            self.has_failed(self.files.busy(patience));
        }
    }

    /// Looks again later; the same is said once.
    fn has_failed(&mut self, error: LogError) {
        self.changed = true;
        if self.failing.as_ref() != Some(&error) {
            self.pending.push(MemberEvent::Trouble(error.clone()));
        }
        self.failing = Some(error);
    }

    /// Once for each topic that is not there.
    fn tell_unknown(&mut self, known: BTreeSet<String>) {
        for topic in &self.settings.topics {
            if known.contains(topic) {
                self.unknown.remove(topic);
            } else if self.unknown.insert(topic.clone()) {
                self.pending.push(MemberEvent::Trouble(errors::unknown_topic(topic)));
            }
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = vec![self.watch.fd(), self.bell.fd()];
        all.extend(self.deaths.descriptors());
        all
    }

    /// Changes the group's state, if this member is in it.
    fn change(&self, patience: Duration, change: impl FnOnce(&mut GroupState)) -> Result<()> {
        let held = self.files.hold_within(patience)?;
        let _held = held.ok_or_else(|| self.files.busy(patience))?;
        let before = self.files.load()?;
        let mut state = before.clone();
        change(&mut state);
        if state != before {
            self.files.store(&state)?;
        }
        Ok(())
    }
}

impl log::GroupMember for LocalMember {
    fn wait(&mut self, timeout: Duration) {
        let due = self.changed && self.failing.is_none() && self.busy.is_none();
        // A poll may have heard of records that were not fetched since.
        if due || std::mem::take(&mut self.written) || !self.pending.is_empty() {
            self.heard = true;
            return;
        }
        let timeout =
            if self.deaths.has_unwatched { timeout.min(UNWATCHED_CHECK) } else { timeout };
        let ready = wait_for(&self.descriptors(), timeout);
        if ready[1] {
            self.bell.clear();
        }
        self.changed |= ready[2..].contains(&true);
        self.hear();
        self.heard = std::mem::take(&mut self.written) || self.changed || ready.contains(&true);
    }

    fn was_notified(&self) -> bool {
        self.heard
    }

    fn poll(&mut self, events: &mut Vec<MemberEvent>) {
        if self.member_lock.is_none() {
            return;
        }
        self.hear();
        let far = self.deaths.has_unwatched && self.looked.elapsed() >= UNWATCHED_CHECK;
        if self.changed || far {
            self.changed = false;
            self.looked = Instant::now();
            match self.look() {
                Ok(true) => (self.failing, self.busy) = (None, None),
                Ok(false) => self.is_busy(),
                Err(error) => self.has_failed(error),
            }
        }
        events.append(&mut self.pending);
    }

    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        let fetched = self.owned.fetch(partition, limits, &self.watch);
        self.pending.extend(self.owned.damage(partition).map(MemberEvent::Trouble));
        if let Ok(None) = fetched {
            if self.settings.eof && self.owned.is_newly_at_end(partition) {
                self.pending.push(MemberEvent::End(partition.clone()));
            }
        }
        fetched
    }

    fn seek(&mut self, partition: &Partition, position: Position) -> Result<()> {
        self.owned.seek(partition, position, &self.watch)
    }

    fn commit(&mut self, commits: &[Commit], wait: bool) -> Result<()> {
        committed_offsets::check(commits)?;
        let patience = if wait { self.files.dir.answer_timeout() } else { SHORT_LOCK_WAIT };
        let Some(_held) = self.files.hold_within(patience)? else {
            let error = self.files.busy(patience);
            if wait {
                return Err(error);
            }
            self.pending.push(MemberEvent::CommitFailed(error));
            return Ok(());
        };
        let state = self.files.load()?;
        let is_mine = |commit: &&Commit| {
            let owner = state.owners.get(&partition_key(&commit.topic, commit.partition));
            owner == Some(&self.id)
        };
        let (mine, others): (Vec<_>, Vec<_>) = commits.iter().partition(is_mine);
        let mine: Vec<_> = mine.into_iter().cloned().collect();
        if !mine.is_empty() {
            let durable = wait && self.files.dir.settings.durable;
            committed_offsets::append(&self.files.folder, &mine, durable)?;
        }
        let Some(other) = others.first() else { return Ok(()) };
        self.changed = true;
        let error = transactional_producer::fenced(&self.files.name, other);
        if wait {
            return Err(error);
        }
        self.pending.push(MemberEvent::CommitFailed(error));
        Ok(())
    }

    fn release(&mut self, partitions: &[Partition]) {
        self.owned.drop_all(partitions, &self.watch);
        let id = self.id.clone();
        let keys: Vec<_> =
            partitions.iter().map(|one| partition_key(&one.topic, one.number)).collect();
        // Where this does not work, the next look finds that they are not read
        // here and gives them up, or says what stands in the way.
        let _ = self.change(SHORT_LOCK_WAIT, |state| {
            state.owners.retain(|key, owner| *owner != id || !keys.contains(key));
        });
        self.changed = true;
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
        // When this does not work, the others find its lock free.
        let patience = self.files.dir.answer_timeout().min(timeout);
        let _ = self.change(patience, |state| {
            state.remove(&id);
            if let Ok(partitions) = files.partitions(state) {
                state.balance(&partitions);
            }
        });
        self.member_lock = None;
    }
}

impl Drop for LocalMember {
    fn drop(&mut self) {
        log::GroupMember::leave(self, self.files.dir.answer_timeout());
    }
}

/// A commit of records that are gone, as after a loss of power with `durable`
/// off: the group goes on with what is written next.
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
