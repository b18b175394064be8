//! A log in memory: partitions as lists, groups of one member, and faults on demand.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use chaton_streams::log::{
    AdminClient, Assignment, Commit, ErrorKind, GroupMember, Limits, LogError, MemberEvent,
    Partition, PartitionReader, Position, Producer, RecordLog, Result, TransactionalProducer,
};
use chaton_streams::receipt::{Receipt, RecordMetadata};
use chaton_streams::record::{Chunk, ChunkBuilder, NewRecord, OwnedRecord};
use chaton_streams::settings::GroupSettings;
use parking_lot::{Condvar, Mutex};

/// Offset, timestamp and the rest.
type Kept = (i64, i64, OwnedRecord);

#[derive(Default)]
pub struct State {
    pub partitions: BTreeMap<(String, i32), Vec<Kept>>,
    /// The first offsets that retention has kept; 0 where it has removed nothing.
    pub starts: BTreeMap<(String, i32), i64>,
    /// Offsets without a record before the next one, like those of transactions' markers.
    pub gaps: BTreeMap<(String, i32), i64>,
    /// Clients of an earlier one belong to a process that was killed.
    pub generation: u64,
    /// The generation of the group: transactions of a member that does not know it are refused.
    pub epoch: u64,
    /// Partitions that were taken from their member, which does not know yet.
    pub fenced: BTreeSet<(String, i32)>,
    /// The next commits are done, but their answers are lost.
    pub lose_commits: usize,
    pub commits: BTreeMap<(String, i32), Vec<Commit>>,
    pub released: Vec<Partition>,
    events: VecDeque<MemberEvent>,
    event_fds: Vec<Arc<EventFd>>,
    /// The first poll of a member assigns it all partitions.
    pub assigns: bool,
    pub members: usize,
    pub left: usize,
    pub fail_joins: usize,
    pub fail_fetches: usize,
    pub fail_commits: usize,
    pub fail_sends: usize,
    pub fail_transactions: usize,
    pub fail_seeks: usize,
    /// Larger records are refused by the producer.
    pub record_bytes_max: Option<usize>,
    /// The next transaction is committed, but nobody knows.
    pub lose_answer: bool,
    /// The next transaction is aborted, but nobody knows.
    pub lose_abort: bool,
    pub transactors: Vec<String>,
    pub waits: usize,
    pub fetches: usize,
    /// Commits block while this is set.
    pub hold_commits: bool,
    pub held_commits: usize,
    /// Fetches of this partition block while this is set.
    pub hold_fetches: Option<i32>,
    pub held_fetches: usize,
    /// Making a transactional producer takes as long as this is set.
    pub hold_transactors: bool,
}

impl State {
    /// The offset behind the last record.
    fn records_end(&self, partition: &Partition) -> i64 {
        self.records_end_at(&(partition.topic.to_string(), partition.number))
    }

    fn records_end_at(&self, place: &(String, i32)) -> i64 {
        let last = self.partitions.get(place).and_then(|list| list.last());
        last.map_or_else(|| self.start(place), |last| last.0 + 1)
    }

    fn start(&self, place: &(String, i32)) -> i64 {
        self.starts.get(place).copied().unwrap_or(0)
    }

    /// Retention removes the first records; returns their offsets.
    pub fn remove_first(&mut self, topic: &str, number: i32, records: usize) -> Vec<i64> {
        let place = (topic.to_owned(), number);
        let Some(list) = self.partitions.get_mut(&place) else { return vec![] };
        let removed: Vec<i64> = list.drain(..records.min(list.len())).map(|one| one.0).collect();
        if let Some(last) = removed.last() {
            self.starts.insert(place, last + 1);
        }
        removed
    }

    pub fn end(&self, partition: &Partition) -> i64 {
        let gap = self.gaps.get(&(partition.topic.to_string(), partition.number)).unwrap_or(&0);
        self.records_end(partition) + gap
    }

    fn report(&mut self, event: MemberEvent) {
        self.events.push_back(event);
        self.event_fds.iter().for_each(|event_fd| event_fd.notify());
    }

    fn append(&mut self, topic: &str, number: i32, record: OwnedRecord) -> i64 {
        let place = (topic.to_owned(), number);
        let offset = self.records_end_at(&place) + self.gaps.remove(&place).unwrap_or(0);
        let list = self.partitions.entry(place).or_default();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        list.push((offset, record.timestamp_ms.unwrap_or(now.as_millis() as i64), record));
        offset
    }
}

/// The log.
#[derive(Default)]
pub struct MemoryLog {
    pub state: Mutex<State>,
    /// Notifies blocked commits.
    pub changed: Condvar,
    me: std::sync::OnceLock<std::sync::Weak<MemoryLog>>,
}

fn gone(what: &str) -> LogError {
    LogError::new(ErrorKind::Unreachable, format!("{what}: failed on purpose"))
}

fn fails(count: &mut usize, what: &str) -> Result<()> {
    if *count == 0 {
        return Ok(());
    }
    *count -= 1;
    Err(gone(what))
}

impl MemoryLog {
    /// With these partitions of the topic `events`.
    pub fn new(partitions: i32) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let _ = log.me.set(Arc::downgrade(&log));
        let mut state = log.state.lock();
        state.assigns = true;
        for number in 0..partitions {
            state.partitions.insert(("events".into(), number), vec![]);
        }
        drop(state);
        log
    }

    fn me(&self) -> Arc<Self> {
        self.me.get().and_then(|me| me.upgrade()).expect("made by new")
    }

    /// Writes that many records with `key(n)`.
    pub fn write(&self, number: i32, count: i64, key: impl Fn(i64) -> String) {
        let mut state = self.state.lock();
        for n in 0..count {
            let key = Some(key(n).into_bytes());
            let value = Some(n.to_string().into_bytes());
            state.append("events", number, OwnedRecord { key, value, ..OwnedRecord::default() });
        }
        // Notifies once, so that no fetch sees only a part.
        state.event_fds.iter().for_each(|event_fd| event_fd.notify());
    }

    /// Adds offsets without a record at the end of the partition.
    pub fn add_gap(&self, number: i32, offsets: i64) {
        let mut state = self.state.lock();
        *state.gaps.entry(("events".into(), number)).or_default() += offsets;
        state.event_fds.iter().for_each(|event_fd| event_fd.notify());
    }

    pub fn append(&self, topic: &str, number: i32, record: OwnedRecord) -> i64 {
        let mut state = self.state.lock();
        let offset = state.append(topic, number, record);
        state.event_fds.iter().for_each(|event_fd| event_fd.notify());
        offset
    }

    /// Lets everything go on that blocks.
    pub fn release(&self) {
        let mut state = self.state.lock();
        (state.hold_commits, state.hold_transactors) = (false, false);
        state.hold_fetches = None;
        self.changed.notify_all();
    }

    /// Takes a partition from its member for another one, and gives it back.
    pub fn lose(&self, number: i32) {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.fenced.insert(("events".into(), number));
        state.report(MemberEvent::Lost(vec![partition("events", number)]));
        let assigned = assigned(&state, "events", number);
        state.report(MemberEvent::Assigned(vec![assigned]));
    }

    /// Reports these events to a member, with one poll.
    pub fn report_all(&self, events: impl IntoIterator<Item = MemberEvent>) {
        let mut state = self.state.lock();
        events.into_iter().for_each(|event| state.report(event));
    }

    /// Reports this event to a member.
    pub fn report(&self, event: MemberEvent) {
        self.state.lock().report(event);
    }

    /// Takes a partition from the member; returns how many members there were until now.
    pub fn revoke(&self, number: i32) -> usize {
        let mut state = self.state.lock();
        state.released.retain(|one| one.number != number);
        state.report(MemberEvent::Revoked(vec![partition("events", number)]));
        state.members
    }

    /// Assigns a revoked partition again if it was released. False: not yet. A later member than those has it
    /// already.
    pub fn assign_released(&self, number: i32, members: usize) -> bool {
        let mut state = self.state.lock();
        if state.members != members {
            return true;
        }
        let is_released = state.released.iter().any(|one| one.number == number);
        if is_released {
            let assigned = assigned(&state, "events", number);
            state.report(MemberEvent::Assigned(vec![assigned]));
        }
        is_released
    }

    pub fn assigned(&self, number: i32) -> Assignment {
        assigned(&self.state.lock(), "events", number)
    }

    pub fn committed(&self, group: &str, number: i32) -> Option<Commit> {
        assert_eq!(group, "app");
        self.state.lock().commits.get(&("events".into(), number))?.last().cloned()
    }

    pub fn written(&self, topic: &str) -> Vec<OwnedRecord> {
        let state = self.state.lock();
        let all = state.partitions.iter().filter(|(place, _)| place.0 == topic);
        all.flat_map(|(_, list)| list.iter().map(|(_, _, record)| record.clone())).collect()
    }
}

fn assigned(state: &State, topic: &str, number: i32) -> Assignment {
    let last = state.commits.get(&(topic.into(), number)).and_then(|list| list.last());
    Assignment {
        partition: partition(topic, number),
        committed: last.map(|commit| commit.offset),
        metadata: last.map(|commit| commit.metadata.clone()).unwrap_or_default(),
        is_first: false,
    }
}

pub fn partition(topic: &str, number: i32) -> Partition {
    Partition { topic: topic.into(), number }
}

impl RecordLog for MemoryLog {
    fn address(&self) -> &str {
        "memory:"
    }

    fn member(
        &self,
        group: &GroupSettings,
        event_fd: &Arc<EventFd>,
    ) -> Result<Box<dyn GroupMember>> {
        let mut state = self.state.lock();
        fails(&mut state.fail_joins, "joining")?;
        if state.members > 0 {
            // They were for the member before.
            state.events.clear();
        }
        state.members += 1;
        state.event_fds.push(event_fd.clone());
        if state.assigns {
            let places: Vec<_> = state.partitions.keys().cloned().collect();
            let own = places.iter().filter(|place| group.topics.contains(&place.0));
            let list = own.map(|place| assigned(&state, &place.0, place.1)).collect();
            state.events.push_back(MemberEvent::Assigned(list));
        }
        let (log, event_fd, positions) = (self.me(), event_fd.clone(), HashMap::new());
        let (eof, ended, generation) = (group.eof, HashMap::new(), state.generation);
        let (epoch, was_notified) = (state.epoch, false);
        Ok(Box::new(MemoryMember {
            log,
            event_fd,
            positions,
            eof,
            ended,
            generation,
            epoch,
            was_notified,
        }))
    }

    fn producer(&self) -> Result<Arc<dyn Producer>> {
        Ok(self.me())
    }

    fn transactional_producer(&self, id: &str) -> Result<Box<dyn TransactionalProducer>> {
        let mut state = self.state.lock();
        state.transactors.push(id.into());
        while state.hold_transactors {
            self.changed.wait(&mut state);
        }
        Ok(Box::new(MemoryTransactionalProducer(self.me(), state.generation)))
    }

    fn reader(&self, _: &Partition, _: Position) -> Result<Box<dyn PartitionReader>> {
        Err(gone("a reader"))
    }

    fn admin(&self) -> Result<Box<dyn AdminClient>> {
        Err(gone("an admin"))
    }
}

impl Producer for MemoryLog {
    fn send(&self, record: &NewRecord<'_>, receipt: Option<(&Arc<Receipt>, usize)>) -> Result<()> {
        let mut failure = fails(&mut self.state.lock().fail_sends, "writing");
        let headers: usize = record
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len))
            .sum();
        let bytes =
            headers + record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        let max = self.state.lock().record_bytes_max;
        if max.is_some_and(|max| bytes > max) {
            failure = Err(LogError::new(ErrorKind::Invalid, format!("{bytes} bytes are too many")));
        }
        let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let owned = OwnedRecord {
            topic: record.topic.into(),
            partition: record.partition,
            key: own(record.key),
            value: own(record.value),
            headers: record.headers.iter().map(|(name, v)| (name.to_vec(), own(*v))).collect(),
            timestamp_ms: record.timestamp_ms,
        };
        let placed = failure.map(|()| {
            let offset = self.append(record.topic, 0, owned);
            RecordMetadata { partition: 0, offset }
        });
        if let Some((receipt, index)) = receipt {
            // Like a real log, on another thread.
            let receipt = receipt.clone();
            std::thread::spawn(move || receipt.complete(index, placed));
        }
        Ok(())
    }

    fn wait_room(&self, _: Duration) -> bool {
        true
    }

    fn interrupt(&self) {}

    fn flush(&self, _: Duration) -> usize {
        0
    }

    fn buffered(&self) -> usize {
        0
    }
}

struct MemoryTransactionalProducer(Arc<MemoryLog>, u64);

impl TransactionalProducer for MemoryTransactionalProducer {
    fn transact(
        &mut self,
        records: &[OwnedRecord],
        _group: &str,
        member: &[u8],
        commits: &[Commit],
        _wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let is_old = member != identity(self.0.state.lock().epoch);
        if is_old {
            return Err(LogError::new(ErrorKind::Fenced, "of an older generation of the group"));
        }
        if let Some(error) = refuses(&self.0.state.lock(), self.1, commits) {
            return Err(error);
        }
        fails(&mut self.0.state.lock().fail_transactions, "the transaction")?;
        let unknown = || Err(LogError::new(ErrorKind::Unknown, "the answer was lost on purpose"));
        if std::mem::take(&mut self.0.state.lock().lose_abort) {
            return unknown();
        }
        let is_unknown = std::mem::take(&mut self.0.state.lock().lose_answer);
        for record in records {
            self.0.append(&record.topic, record.partition.unwrap_or(0), record.clone());
        }
        note(&mut self.0.state.lock(), commits);
        match is_unknown {
            false => Ok(()),
            true => unknown(),
        }
    }
}

fn identity(epoch: u64) -> Vec<u8> {
    format!("me-{epoch}").into_bytes()
}

/// Why commits of a client of this generation do not count.
fn refuses(state: &State, generation: u64, commits: &[Commit]) -> Option<LogError> {
    let taken = |one: &Commit| state.fenced.contains(&(one.topic.clone(), one.partition));
    let is_refused = generation != state.generation || commits.iter().any(taken);
    is_refused.then(|| LogError::new(ErrorKind::Fenced, "another member has the partition"))
}

fn note(state: &mut State, commits: &[Commit]) {
    for commit in commits {
        assert!(commit.metadata.len() <= 4_096);
        let place = (commit.topic.clone(), commit.partition);
        state.commits.entry(place).or_default().push(commit.clone());
    }
}

struct MemoryMember {
    log: Arc<MemoryLog>,
    event_fd: Arc<EventFd>,
    positions: HashMap<Partition, i64>,
    eof: bool,
    ended: HashMap<Partition, i64>,
    generation: u64,
    epoch: u64,
    was_notified: bool,
}

impl GroupMember for MemoryMember {
    fn wait(&mut self, timeout: Duration) {
        self.log.state.lock().waits += 1;
        let mut fd = libc::pollfd { fd: self.event_fd.fd(), events: libc::POLLIN, revents: 0 };
        let ms = timeout.as_nanos().div_ceil(1_000_000) as libc::c_int;
        // SAFETY: one descriptor that lives as long as the event_fd.
        unsafe { libc::poll(&mut fd, 1, ms) };
        self.was_notified = fd.revents != 0;
        if self.was_notified {
            self.event_fd.clear();
        }
    }

    fn was_notified(&self) -> bool {
        self.was_notified
    }

    fn poll(&mut self, events: &mut Vec<MemberEvent>) {
        let mut state = self.log.state.lock();
        if self.generation != state.generation {
            return;
        }
        while let Some(event) = state.events.pop_front() {
            if let MemberEvent::Assigned(list) = &event {
                self.epoch = state.epoch;
                for assigned in list {
                    let partition = &assigned.partition;
                    state.fenced.remove(&(partition.topic.to_string(), partition.number));
                    // Like a real log, a position beyond the end becomes the end.
                    let end = state.records_end(partition);
                    let from = assigned.committed.unwrap_or(0).min(end);
                    self.positions.insert(assigned.partition.clone(), from);
                }
            }
            events.push(event);
        }
        if !self.eof {
            return;
        }
        for (partition, position) in &self.positions {
            let end = state.records_end(partition);
            if *position == end && self.ended.insert(partition.clone(), end) != Some(end) {
                events.push(MemberEvent::PartitionEof(partition.clone()));
            }
        }
    }

    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        let mut state = self.log.state.lock();
        state.fetches += 1;
        while state.hold_fetches == Some(partition.number) {
            state.held_fetches += 1;
            self.log.changed.wait(&mut state);
        }
        fails(&mut state.fail_fetches, "fetching")?;
        let position = self.positions.get_mut(partition).expect("an assigned partition");
        let place = (partition.topic.to_string(), partition.number);
        *position = state.start(&place).max(*position);
        let list = &state.partitions[&place];
        let first = list.partition_point(|record| record.0 < *position);
        let mut builder = ChunkBuilder::default();
        for (offset, timestamp_ms, record) in list[first..].iter().take(limits.records) {
            if !builder.is_empty() && builder.bytes() >= limits.bytes {
                break;
            }
            let headers = record.headers.iter().map(|(name, value)| (&name[..], value.as_deref()));
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            builder.push(*offset, *timestamp_ms, key, value, headers);
            *position = offset + 1;
        }
        Ok((!builder.is_empty()).then(|| builder.finish()))
    }

    fn position(&self, partition: &Partition) -> Option<i64> {
        let state = self.log.state.lock();
        let is_at_end = *self.positions.get(partition)? >= state.records_end(partition);
        is_at_end.then(|| state.end(partition))
    }

    fn seek(&mut self, partition: &Partition, position: Position) -> Result<()> {
        fails(&mut self.log.state.lock().fail_seeks, "seeking")?;
        let to = match position {
            Position::Offset(offset) => offset.min(self.end_offset(partition).unwrap_or(0)),
            Position::Latest => self.end_offset(partition).unwrap_or(0),
            Position::Earliest | Position::Time(_) => 0,
        };
        self.positions.insert(partition.clone(), to);
        Ok(())
    }

    fn commit(&mut self, commits: &[Commit], _wait: bool) -> Result<()> {
        let mut state = self.log.state.lock();
        while state.hold_commits {
            state.held_commits += 1;
            self.log.changed.wait(&mut state);
        }
        fails(&mut state.fail_commits, "committing")?;
        for one in commits {
            let one = std::slice::from_ref(one);
            match refuses(&state, self.generation, one) {
                Some(error) => state.events.push_back(MemberEvent::CommitFailed(error)),
                None => note(&mut state, one),
            }
        }
        fails(&mut state.lose_commits, "the answer to a commit")
    }

    fn release(&mut self, partitions: &[Partition]) {
        partitions.iter().for_each(|partition| {
            self.positions.remove(partition);
        });
        self.log.state.lock().released.extend_from_slice(partitions);
    }

    fn start_offset(&self, partition: &Partition) -> Option<i64> {
        let state = self.log.state.lock();
        Some(state.start(&(partition.topic.to_string(), partition.number)))
    }

    fn end_offset(&self, partition: &Partition) -> Option<i64> {
        Some(self.log.state.lock().end(partition))
    }

    fn identity(&self) -> Vec<u8> {
        identity(self.epoch)
    }

    fn leave(&mut self, _timeout: Duration) {
        self.log.state.lock().left += 1;
    }
}
