//! Where records live: one set of traits for Kafka and the embedded log.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use chaton_core::process::scoreboard::OwnGauges;
use chaton_embedded::Enlisted;
use serde::{Deserialize, Serialize};

use crate::delivery_errors::DeliveryErrors;
pub use crate::error::{ErrorKind, LogError, Result};
use crate::receipt::Receipt;
use crate::record::{Chunk, NewRecord, OwnedRecord};
use crate::settings::{GroupSettings, LogSettings};

#[cfg(any(test, feature = "test-support"))]
pub mod conformance;
pub mod kafka;
pub mod sqlite;

/// A partition of a topic, shown as `topic/number`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition's number, from 0.
    pub number: i32,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.number)
    }
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first record that is kept.
    Earliest,
    /// Behind the last record.
    Latest,
    /// This offset, or the first record after it.
    Offset(i64),
    /// The first record of this time or later, in ms since 1970.
    Time(i64),
}

/// How much one fetch returns at most. The first record is returned whole,
/// even if it is larger than `bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records at most.
    pub records: usize,
    /// Bytes at most.
    pub bytes: usize,
}

/// An offset that a group commits in a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The topic.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
    /// The first offset that is not processed yet.
    pub offset: i64,
    /// Free text kept with the offset, at most 4,096 bytes.
    #[serde(default)]
    pub metadata: String,
}

/// A partition that was assigned to a member.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The partition.
    pub partition: Partition,
    /// The committed offset; `None` if the group has not committed here, then
    /// the member begins at `start` of its settings.
    pub committed: Option<i64>,
    /// The metadata of that commit.
    pub metadata: String,
    /// The group has not committed here: `committed` and `metadata` are where the member begins, by
    /// [`commit_notes`](crate::commit_notes), and are to be committed at once.
    pub is_first: bool,
}

/// Records that were durable, and that no file of the log contains any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecords {
    /// The first of them.
    pub from: i64,
    /// The offset after the last of them.
    pub until: i64,
    /// Where they are missing.
    pub why: String,
}

/// What happened to a member.
#[derive(Clone, Debug)]
pub enum MemberEvent {
    /// The member reads these partitions from now on.
    Assigned(Vec<Assignment>),
    /// The member has to give these partitions up: finish what runs, commit,
    /// then call [`GroupMember::release`]. They are no longer fetched.
    Revoked(Vec<Partition>),
    /// Other members own these partitions already. Commits are refused, and
    /// [`GroupMember::release`] is not called.
    Lost(Vec<Partition>),
    /// All records of the partition have been fetched. Sent only with the setting `eof`.
    PartitionEof(Partition),
    /// A commit failed; its offsets are part of the next commit again.
    CommitFailed(LogError),
    /// An error that the member retries by itself.
    Error(LogError),
    /// The member cannot go on: wrong credentials, or a protocol that the
    /// broker does not support. The engine replaces the member after a while.
    Fatal(LogError),
}

/// One member of a consumer group. Used by one thread.
pub trait GroupMember: Send {
    /// Waits until there may be something to poll or to fetch, the notifier given to
    /// [`RecordLog::member`] is notified, or the time is up. May return early.
    fn wait(&mut self, timeout: Duration);

    /// Whether the last [`GroupMember::wait`] ended because there may be something to do; false if
    /// the time was up. A log that cannot tell returns true.
    fn was_notified(&self) -> bool {
        true
    }

    /// Takes part in the group and appends what happened. Must be called at
    /// least once a second while the member lives.
    fn poll(&mut self, events: &mut Vec<MemberEvent>);

    /// The next records of an assigned partition, `None` if there are none.
    /// Each call continues where the last one ended. Never blocks.
    ///
    /// # Errors
    /// The reason why nothing can be read; the next call tries again.
    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>>;

    /// The lost records that the last fetch of this partition has passed over; they lie before the
    /// records that it has returned. A log that cannot tell returns `None`.
    fn take_lost(&mut self, _partition: &Partition) -> Option<LostRecords> {
        None
    }

    /// The offset up to which all was fetched when the last fetch returned `None`: behind the last record, or
    /// behind offsets that have none. A log whose offsets all have records returns `None`.
    fn position(&self, _partition: &Partition) -> Option<i64> {
        None
    }

    /// Makes the next fetch begin at this position.
    ///
    /// # Errors
    /// When the log does not answer.
    fn seek(&mut self, partition: &Partition, position: Position) -> Result<()>;

    /// Commits offsets: starts the commit, or with `wait` completes it.
    ///
    /// # Errors
    /// When the commit could not be started or, with `wait`, completed.
    fn commit(&mut self, commits: &[Commit], wait: bool) -> Result<()>;

    /// Gives up all partitions of one [`MemberEvent::Revoked`].
    fn release(&mut self, partitions: &[Partition]);

    /// The log start offset of the partition, as last seen: the first record that is kept.
    fn start_offset(&self, partition: &Partition) -> Option<i64>;

    /// The log end offset of the partition, as last seen.
    fn end_offset(&self, partition: &Partition) -> Option<i64>;

    /// Identifies this member and its generation to a [`TransactionalProducer`].
    fn identity(&self) -> Vec<u8>;

    /// Leaves the group; waits at most this long for pending commits.
    fn leave(&mut self, timeout: Duration);
}

/// Writes records. Shared by all threads of a process.
pub trait Producer: Send + Sync {
    /// Adds a record to the buffer. After `Ok` the receipt is completed under
    /// `index` sooner or later.
    ///
    /// # Errors
    /// `Full` if the buffer is full ([`Producer::wait_room`] waits for room);
    /// `Invalid`, `UnknownTopic`, `Refused`.
    fn send(&self, record: &NewRecord<'_>, receipt: Option<(&Arc<Receipt>, usize)>) -> Result<()>;

    /// Waits for room in the buffer; false when the time is up or
    /// [`Producer::interrupt`] was called.
    fn wait_room(&self, timeout: Duration) -> bool;

    /// Ends all waits that are under way.
    fn interrupt(&self);

    /// Sends all buffered records and waits for their delivery; returns how
    /// many are left when the time is up.
    fn flush(&self, timeout: Duration) -> usize;

    /// The number of records in the buffer.
    fn buffered(&self) -> usize;

    /// Whether it can never write again, so that the process needs another one.
    fn has_failed(&self) -> bool {
        false
    }
}

/// Writes records and commits in transactions.
pub trait TransactionalProducer: Send {
    /// Runs one transaction: all of it becomes visible or nothing. Gives up, with `Unknown` if need be,
    /// when its outcome is no longer `wanted`.
    ///
    /// # Errors
    /// `Fenced` if the member no longer owns the partitions. Nothing is written then, as with every
    /// error but `Unknown`: after that the partitions have to be assigned anew, because the log
    /// assigns them once it knows.
    fn transact(
        &mut self,
        records: &[OwnedRecord],
        group: &str,
        member: &[u8],
        commits: &[Commit],
        wanted: &dyn Fn() -> bool,
    ) -> Result<()>;

    /// The same with what another engine writes in the transaction.
    ///
    /// # Errors
    /// `Refused` by a log that cannot; else as [`TransactionalProducer::transact`], or that of the other engine.
    fn transact_with(
        &mut self,
        _also: &dyn Enlisted,
        _records: &[OwnedRecord],
        _group: &str,
        _member: &[u8],
        _commits: &[Commit],
    ) -> Result<()> {
        Err(no_common_file())
    }
}

fn no_common_file() -> LogError {
    LogError::new(ErrorKind::Refused, "this log has no transactions with the store of jobs")
}

/// What a transaction writes besides commits.
#[derive(Clone, Copy)]
pub struct Writes<'a> {
    /// Records.
    pub records: &'a [OwnedRecord],
    /// What another engine writes, where it is in one file with the log.
    pub also: Option<&'a dyn Enlisted>,
}

/// Reads one partition outside of any group.
pub trait PartitionReader: Send {
    /// Waits for the next records; `None` when the time is up.
    ///
    /// # Errors
    /// The reason why nothing can be read; the next call tries again.
    fn next(&mut self, limits: Limits, timeout: Duration) -> Result<Option<Chunk>>;

    /// Ends a wait when it is notified, from any thread.
    fn interrupter(&self) -> Arc<EventFd>;
}

/// The first and the last offset of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionOffsets {
    /// The partition's number.
    pub number: i32,
    /// The log start offset: the first record that is kept.
    pub start: i64,
    /// The log end offset: the first offset that is not written yet.
    pub end: i64,
}

/// A topic that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its partitions, by number.
    pub partitions: Vec<PartitionOffsets>,
    /// The number of replicas of each partition.
    pub replication: i32,
    /// Settings that differ from the log's defaults, under Kafka's names
    /// (`retention.ms`, `retention.bytes`, …).
    pub settings: BTreeMap<String, String>,
}

/// A topic to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// The number of partitions; `None`: the log's default.
    pub partitions: Option<i32>,
    /// The number of replicas; `None`: the log's default. The embedded log has one.
    pub replication: Option<i32>,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
}

/// A consumer group that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupDescription {
    /// Its name.
    pub name: String,
    /// Kafka's name of its state: Stable, Empty, PreparingRebalance, …
    pub state: String,
    /// Its members.
    pub members: Vec<MemberDescription>,
}

/// A member of a consumer group, as the log lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberDescription {
    /// Its id in the group.
    pub id: String,
    /// The host it runs on.
    pub host: String,
    /// The partitions it reads, as `topic-number`.
    pub partitions: Vec<String>,
}

/// Manages topics and groups. Calls wait for the answer.
pub trait AdminClient: Send {
    /// All topics but the log's internal ones.
    ///
    /// # Errors
    /// When the log does not answer, as with all calls here.
    fn topics(&mut self) -> Result<Vec<TopicDescription>>;

    /// The topic of this name, if it exists.
    fn topic(&mut self, name: &str) -> Result<Option<TopicDescription>>;

    /// Creates a topic.
    ///
    /// # Errors
    /// `Invalid` if it exists already or a setting is wrong.
    fn create(&mut self, topic: &NewTopic) -> Result<()>;

    /// Adds partitions to a topic, up to `total`.
    ///
    /// # Errors
    /// `Invalid` if it has more already; `UnknownTopic`.
    fn grow(&mut self, name: &str, total: i32) -> Result<()>;

    /// Changes these settings of a topic and leaves the others.
    ///
    /// # Errors
    /// `Invalid` for a wrong setting; `UnknownTopic`.
    fn configure(&mut self, name: &str, settings: &BTreeMap<String, String>) -> Result<()>;

    /// Deletes a topic and its records.
    ///
    /// # Errors
    /// `UnknownTopic`.
    fn delete(&mut self, name: &str) -> Result<()>;

    /// All consumer groups.
    fn groups(&mut self) -> Result<Vec<GroupDescription>>;

    /// The committed offsets of a group.
    fn committed(&mut self, group: &str) -> Result<Vec<Commit>>;

    /// Sets committed offsets of a group that has no members.
    ///
    /// # Errors
    /// `Refused` while it has members.
    fn set_committed(&mut self, group: &str, commits: &[Commit]) -> Result<()>;
}

/// Where records live: the entry point to readers, writers and groups.
pub trait RecordLog: Send + Sync {
    /// The address for people, without a password.
    fn address(&self) -> &str;

    /// Creates the declared topics that do not exist, where the log is Chaton's own.
    ///
    /// # Errors
    /// `Refused` for an unusable folder; `Full`, `Unreachable`, `Invalid` for a wrong setting.
    fn create_declared(&self) -> Result<()> {
        Ok(())
    }

    /// A new member of a group. The notifier ends its waits.
    ///
    /// # Errors
    /// `Refused` for wrong settings.
    fn member(
        &self,
        group: &GroupSettings,
        notifier: &Arc<EventFd>,
    ) -> Result<Box<dyn GroupMember>>;

    /// A new producer; a process needs one.
    ///
    /// # Errors
    /// `Refused` for wrong settings.
    fn producer(&self) -> Result<Arc<dyn Producer>>;

    /// What the producers of this log tell of records whose receipt nobody has read.
    fn delivery_errors(&self) -> Arc<DeliveryErrors> {
        Arc::default()
    }

    /// A new transactional producer. It fences off an earlier one of the same id.
    ///
    /// # Errors
    /// `Refused`, `Unreachable`.
    fn transactional_producer(&self, id: &str) -> Result<Box<dyn TransactionalProducer>>;

    /// Records to be written in a transaction of the store of jobs, which is in the same file.
    ///
    /// # Errors
    /// `Refused` by a log that cannot; else those of the records.
    fn enlist(&self, _records: &[OwnedRecord]) -> Result<Box<dyn Enlisted>> {
        Err(no_common_file())
    }

    /// A reader of one partition.
    ///
    /// # Errors
    /// `UnknownTopic`, `Unreachable`.
    fn reader(&self, partition: &Partition, from: Position) -> Result<Box<dyn PartitionReader>>;

    /// Has members and producers that are made from now on count their traffic with each broker, so often.
    fn count_brokers(&self, _gauges: &OwnGauges, _interval: Duration) {}

    /// A client that manages topics and groups.
    ///
    /// # Errors
    /// `Refused` for wrong settings.
    fn admin(&self) -> Result<Box<dyn AdminClient>>;
}

/// Whether the address is one of the embedded log.
fn is_embedded(address: &str) -> bool {
    ["log://", "sqlite://"].iter().any(|scheme| address.starts_with(scheme))
}

/// Opens the log that the settings name, without connecting to it.
///
/// # Errors
/// `Refused` for a wrong address or property.
pub fn open(settings: &LogSettings) -> Result<Arc<dyn RecordLog>> {
    let address = settings.broker.as_str();
    if is_embedded(address) {
        return Ok(Arc::new(sqlite::LocalLog::open(settings)?));
    }
    if address.starts_with("kafka://") || address.starts_with("kafka+ssl://") {
        return Ok(Arc::new(kafka::KafkaLog::open(settings)?));
    }
    Err(LogError::new(
        ErrorKind::Refused,
        format!("broker {address:?} must begin with sqlite://, log:// or kafka://"),
    ))
}

/// Checks that [`open`] would accept these settings; creates no folder.
///
/// # Errors
/// As [`open`].
pub fn check(settings: &LogSettings) -> Result<()> {
    if is_embedded(&settings.broker) {
        return sqlite::check(settings);
    }
    open(settings).map(drop)
}
