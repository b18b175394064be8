//! Where records live, behind one set of traits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use serde::{Deserialize, Serialize};

pub use crate::error::{ErrorKind, LogError, Result};
use crate::receipt::Receipt;
use crate::record::{Chunk, NewRecord, OwnedRecord};
use crate::settings::{GroupSettings, LogSettings};

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod local;

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition's number, from 0.
    pub number: i32,
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first record that is kept.
    Earliest,
    /// Behind the last one.
    Latest,
    /// This record, or the first after it.
    Offset(i64),
    /// The first record of this time or later, in ms since 1970.
    Time(i64),
}

/// How much is read at once; one record may be larger than `bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Records at most.
    pub records: usize,
    /// Bytes at most.
    pub bytes: usize,
}

/// How far a group has come in a partition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The topic.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
    /// The first record that is not done.
    pub offset: i64,
    /// What the committer noted beside it; at most 4,096 bytes.
    #[serde(default)]
    pub metadata: String,
}

/// A partition that a member has got.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Which.
    pub partition: Partition,
    /// Where the group has come to; `None`: nowhere yet (the member begins as
    /// `start` of its settings says).
    pub committed: Option<i64>,
    /// What was noted beside it.
    pub metadata: String,
}

/// What happened to a member.
#[derive(Clone, Debug)]
pub enum MemberEvent {
    /// It may read these from now on.
    Assigned(Vec<Assignment>),
    /// It shall give these up: finish what runs, commit, then call
    /// [`GroupMember::release`]. Nothing more is fetched of them.
    Revoked(Vec<Partition>),
    /// Others have these already; nothing can be committed any more and
    /// [`GroupMember::release`] is not called.
    Lost(Vec<Partition>),
    /// All records that there are have been fetched (only with `eof` of the
    /// settings).
    End(Partition),
    /// A commit was not taken; what it said is said again with the next one.
    CommitFailed(LogError),
    /// Something else is wrong, and is tried again by itself.
    Trouble(LogError),
    /// The member cannot go on: wrong credentials, a protocol that the broker
    /// does not know. The engine makes a new one after a while.
    Fatal(LogError),
}

/// One member of a consumer group. Used by one thread.
pub trait GroupMember: Send {
    /// Waits until something may be there to poll or to fetch, the bell given
    /// to [`RecordLog::member`] rings, or time is up. May return early.
    fn wait(&mut self, timeout: Duration);

    /// Whether the last [`GroupMember::wait`] ended since something may be there;
    /// false: time was up and nothing was heard. Who cannot tell says yes, and
    /// is asked for every partition each second.
    fn was_notified(&self) -> bool {
        true
    }

    /// Takes part in the group and adds what happened. Called at least once a
    /// second as long as the member lives.
    fn poll(&mut self, events: &mut Vec<MemberEvent>);

    /// The next records of an assigned partition, `None` while there are none.
    /// Each call goes on where the last one ended. Never waits.
    ///
    /// # Errors
    /// What stands in the way; the next call tries again.
    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>>;

    /// Goes on elsewhere: the next fetch begins there.
    ///
    /// # Errors
    /// When the log does not answer.
    fn seek(&mut self, partition: &Partition, position: Position) -> Result<()>;

    /// Notes how far the group has come: begins to, or with `wait` has done it
    /// on return.
    ///
    /// # Errors
    /// When it could not begin (or, with `wait`, end).
    fn commit(&mut self, commits: &[Commit], wait: bool) -> Result<()>;

    /// Gives revoked partitions up: all of one [`MemberEvent::Revoked`].
    fn release(&mut self, partitions: &[Partition]);

    /// The first offset that is not written yet, as last heard.
    fn end_offset(&self, partition: &Partition) -> Option<i64>;

    /// Names this member and its generation to a [`TransactionalProducer`].
    fn identity(&self) -> Vec<u8>;

    /// Leaves the group; waits for commits under way no longer than this.
    fn leave(&mut self, timeout: Duration);
}

/// Writes records. Shared by all threads of a process.
pub trait Producer: Send + Sync {
    /// Takes a record into the buffer. The receipt is settled under `index`
    /// later, in any case that this returns `Ok`.
    ///
    /// # Errors
    /// `Full` while the buffer is: [`Producer::wait_room`] tells when to try
    /// again. `Invalid`, `UnknownTopic`, `Refused`.
    fn send(&self, record: &NewRecord<'_>, receipt: Option<(&Arc<Receipt>, usize)>) -> Result<()>;

    /// Waits for room in the buffer; false when time is up or
    /// [`Producer::interrupt`] was called.
    fn wait_room(&self, timeout: Duration) -> bool;

    /// Makes waits that go on return.
    fn interrupt(&self);

    /// Sends what is in the buffer, and waits; answers how many records are
    /// left when time is up.
    fn flush(&self, timeout: Duration) -> usize;

    /// Records in the buffer.
    fn buffered(&self) -> usize;
}

/// Writes records and commits in one: all of it or nothing is seen.
pub trait TransactionalProducer: Send {
    /// One whole transaction.
    ///
    /// # Errors
    /// `Fenced` when the member is no longer who it was; nothing is written.
    fn transact(
        &mut self,
        records: &[OwnedRecord],
        group: &str,
        member: &[u8],
        commits: &[Commit],
    ) -> Result<()>;
}

/// Reads one partition outside of any group.
pub trait PartitionReader: Send {
    /// The next records, waited for; `None` when time is up.
    ///
    /// # Errors
    /// What stands in the way; the next call tries again.
    fn next(&mut self, limits: Limits, timeout: Duration) -> Result<Option<Chunk>>;

    /// Makes a wait that goes on return; callable from any thread.
    fn interrupter(&self) -> Arc<EventFd>;
}

/// A partition as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionOffsets {
    /// Its number.
    pub number: i32,
    /// The first record that is kept.
    pub start: i64,
    /// The first offset that is not written yet.
    pub end: i64,
}

/// A topic as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicDescription {
    /// Its name.
    pub name: String,
    /// Its partitions by number.
    pub partitions: Vec<PartitionOffsets>,
    /// Copies of each partition.
    pub replication: i32,
    /// Its settings that differ from the log's defaults, Kafka's names
    /// (`retention.ms`, `retention.bytes`, `segment.bytes`, …).
    pub settings: BTreeMap<String, String>,
}

/// A topic as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; `None`: the log's default.
    pub partitions: Option<i32>,
    /// Copies of each; `None`: the log's default. The local log has one.
    pub replication: Option<i32>,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
}

/// A consumer group as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupDescription {
    /// Its name.
    pub name: String,
    /// As Kafka calls it: Stable, Empty, PreparingRebalance, …
    pub state: String,
    /// Who they are and what they read: `topic-partition`.
    pub members: Vec<MemberDescription>,
}

/// A member as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberDescription {
    /// Its name in the group.
    pub id: String,
    /// Where it runs.
    pub host: String,
    /// `topic-partition` of each partition it reads.
    pub partitions: Vec<String>,
}

/// Looks after topics and groups. Calls wait for the answer.
pub trait AdminClient: Send {
    /// All topics but the log's own.
    ///
    /// # Errors
    /// When the log does not answer, as with all calls here.
    fn topics(&mut self) -> Result<Vec<TopicDescription>>;

    /// One topic; `None` when there is none of that name.
    ///
    /// # Errors
    /// When the log does not answer.
    fn topic(&mut self, name: &str) -> Result<Option<TopicDescription>>;

    /// Makes a topic.
    ///
    /// # Errors
    /// `Invalid` when there is one already or a setting is wrong.
    fn create(&mut self, topic: &NewTopic) -> Result<()>;

    /// Gives a topic more partitions, `total` in all.
    ///
    /// # Errors
    /// `Invalid` when it has more; `UnknownTopic`.
    fn grow(&mut self, name: &str, total: i32) -> Result<()>;

    /// Sets settings of a topic; others stay.
    ///
    /// # Errors
    /// `Invalid` for a wrong one; `UnknownTopic`.
    fn configure(&mut self, name: &str, settings: &BTreeMap<String, String>) -> Result<()>;

    /// Deletes a topic and its records.
    ///
    /// # Errors
    /// `UnknownTopic`.
    fn delete(&mut self, name: &str) -> Result<()>;

    /// All consumer groups.
    ///
    /// # Errors
    /// When the log does not answer.
    fn groups(&mut self) -> Result<Vec<GroupDescription>>;

    /// How far a group has come.
    ///
    /// # Errors
    /// When the log does not answer.
    fn committed(&mut self, group: &str) -> Result<Vec<Commit>>;

    /// Sets how far a group has come; it must have no members.
    ///
    /// # Errors
    /// `Refused` while it has members.
    fn set_committed(&mut self, group: &str, commits: &[Commit]) -> Result<()>;
}

/// Where records live.
pub trait RecordLog: Send + Sync {
    /// For people, without a password.
    fn address(&self) -> &str;

    /// A new member of a group. `bell` ends its waits.
    ///
    /// # Errors
    /// `Refused` for wrong settings.
    fn member(&self, group: &GroupSettings, bell: &Arc<EventFd>) -> Result<Box<dyn GroupMember>>;

    /// A new producer; a process needs one.
    ///
    /// # Errors
    /// `Refused` for wrong settings.
    fn producer(&self) -> Result<Arc<dyn Producer>>;

    /// A new producer of transactions; `id` is nobody else's.
    ///
    /// # Errors
    /// `Refused`, `Unreachable`.
    fn transactional_producer(&self, id: &str) -> Result<Box<dyn TransactionalProducer>>;

    /// Reads a partition.
    ///
    /// # Errors
    /// `UnknownTopic`, `Unreachable`.
    fn reader(&self, partition: &Partition, from: Position) -> Result<Box<dyn PartitionReader>>;

    /// Looks after topics and groups.
    ///
    /// # Errors
    /// `Refused` for wrong settings.
    fn admin(&self) -> Result<Box<dyn AdminClient>>;
}

/// The log that the settings name. Connects to nothing yet.
///
/// # Errors
/// `Refused` for an address or property that is none.
pub fn open(settings: &LogSettings) -> Result<Arc<dyn RecordLog>> {
    let address = settings.broker.as_str();
    if address.starts_with("log://") {
        return Ok(Arc::new(local::LocalLog::open(settings)?));
    }
    #[cfg(feature = "kafka")]
    if address.starts_with("kafka://") || address.starts_with("kafka+ssl://") {
        return Ok(Arc::new(kafka::KafkaLog::open(settings)?));
    }
    Err(LogError::new(
        ErrorKind::Refused,
        format!("broker {address:?} must begin with log:// or kafka://"),
    ))
}

/// Whether [`open`] would take these settings, without opening anything.
///
/// # Errors
/// As [`open`].
pub fn check(settings: &LogSettings) -> Result<()> {
    if settings.broker.starts_with("log://") {
        return Ok(());
    }
    open(settings).map(drop)
}
