//! What the cases share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;

use crate::log::{
    AdminClient, Assignment, Commit, GroupMember, Limits, LogError, LostRecords, MemberEvent,
    NewTopic, Partition, Position, Producer, RecordLog,
};
use crate::receipt::{Receipt, RecordMetadata};
use crate::record::{Chunk, NewRecord};
use crate::settings::{GroupSettings, LogSettings};

/// A log under test.
pub trait LogFixture: Sync {
    /// Opens the log with its settings changed, as another process would.
    fn open(&self, change: &dyn Fn(&mut LogSettings)) -> Arc<dyn RecordLog>;

    /// Settings of a group, as the log needs them.
    fn group(&self, name: &str, topics: &[&str]) -> GroupSettings {
        GroupSettings::for_tests(name, topics)
    }
}

/// How long a condition may take to come true.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a wait takes that may end without a result.
pub const MOMENT: Duration = Duration::from_millis(100);
/// Enough for any case.
pub const LIMITS: Limits = Limits { records: 1000, bytes: 1 << 20 };

/// A name that no other case uses.
pub fn name(stem: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.unwrap_or_default().as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{stem}-{}-{nanos:x}-{count}", std::process::id())
}

/// Waits until `condition` is true; each check should wait a moment itself.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited too long: {what}");
    }
}

/// The log with default settings.
pub fn log(fixture: &dyn LogFixture) -> Arc<dyn RecordLog> {
    fixture.open(&|_| {})
}

/// A partition.
pub fn partition(topic: &str, number: i32) -> Partition {
    Partition { topic: topic.into(), number }
}

/// A new topic, ready for use.
pub fn topic(log: &dyn RecordLog, partitions: i32) -> String {
    topic_with(log, partitions, &[])
}

/// The same with settings.
pub fn topic_with(log: &dyn RecordLog, partitions: i32, settings: &[(&str, &str)]) -> String {
    let name = name("topic");
    let mut admin = log.admin().unwrap();
    admin.create(&new_topic(&name, partitions, settings)).unwrap();
    until("the topic is there", || settled(&mut *admin, &name, partitions));
    name
}

/// The description of a topic to be created.
pub fn new_topic(name: &str, partitions: i32, settings: &[(&str, &str)]) -> NewTopic {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewTopic {
        name: name.to_owned(),
        partitions: Some(partitions),
        replication: None,
        settings: settings.iter().map(owned).collect::<BTreeMap<_, _>>(),
    }
}

/// Whether a topic has this many partitions; waits a moment if not.
pub fn settled(admin: &mut dyn AdminClient, name: &str, partitions: i32) -> bool {
    let found = admin.topic(name);
    let there = matches!(&found, Ok(Some(topic)) if topic.partitions.len() == partitions as usize);
    if !there {
        std::thread::sleep(Duration::from_millis(10));
    }
    there
}

/// A record of a value.
pub fn record<'a>(topic: &'a str, value: &'a [u8]) -> NewRecord<'a> {
    NewRecord {
        topic,
        partition: Some(0),
        key: None,
        value: Some(value),
        headers: &[],
        timestamp_ms: None,
    }
}

/// Sends one record and waits until it is durable.
pub fn send(producer: &dyn Producer, record: &NewRecord<'_>) -> Result<RecordMetadata, LogError> {
    let receipt = Arc::new(Receipt::new(1));
    producer.send(record, Some((&receipt, 0)))?;
    assert!(receipt.wait(PATIENCE), "the record has not become durable");
    match receipt.failures().pop() {
        Some((_, error)) => Err(error),
        None => Ok(receipt.metadata().expect("a record that did not fail was placed")),
    }
}

/// Sends values `from..to`, as text, to one partition and waits for them.
pub fn fill(log: &dyn RecordLog, topic: &str, number: i32, values: std::ops::Range<usize>) {
    let producer = log.producer().unwrap();
    let receipt = Arc::new(Receipt::new(values.len()));
    for (index, value) in values.enumerate() {
        let text = value.to_string();
        let record = NewRecord { partition: Some(number), ..record(topic, text.as_bytes()) };
        producer.send(&record, Some((&receipt, index))).unwrap();
    }
    assert!(receipt.wait(PATIENCE));
    assert_eq!(receipt.failures(), []);
}

/// The values of a chunk as text.
pub fn texts(chunk: &Chunk) -> Vec<String> {
    let text = |at| String::from_utf8_lossy(chunk.record(at).value().unwrap_or_default()).into();
    (0..chunk.len()).map(text).collect()
}

/// Reads this many values of a partition.
pub fn read(
    log: &dyn RecordLog,
    topic: &str,
    number: i32,
    from: Position,
    count: usize,
) -> Vec<String> {
    let mut reader = log.reader(&partition(topic, number), from).unwrap();
    let mut values = Vec::new();
    until("the records are read", || {
        let chunk = reader.next(LIMITS, MOMENT).unwrap();
        values.extend(chunk.iter().flat_map(texts));
        values.len() >= count
    });
    values
}

/// A member of a group, with what it has received.
pub struct TestMember {
    /// The member.
    pub member: Box<dyn GroupMember>,
    /// Ends its waits.
    pub notifier: Arc<EventFd>,
    /// Its partitions.
    pub has: Vec<Assignment>,
    /// Revoked partitions that are not released, with [`TestMember::keeps`].
    pub revoked: Vec<Partition>,
    /// Revoked partitions are kept until the case releases them.
    pub keeps: bool,
    /// Values it has read, with their partitions and offsets.
    pub values: Vec<(Partition, i64, String)>,
    /// Partitions whose ends were reported.
    pub ends: Vec<Partition>,
    /// The reported errors.
    pub errors: Vec<LogError>,
    /// Lost records before those that were read.
    pub lost: Vec<LostRecords>,
}

impl TestMember {
    /// Joins a group.
    pub fn join(log: &dyn RecordLog, group: &GroupSettings) -> Self {
        let notifier = Arc::new(EventFd::new().unwrap());
        let member = log.member(group, &notifier).unwrap();
        Self {
            member,
            notifier,
            has: Vec::new(),
            revoked: Vec::new(),
            keeps: false,
            values: Vec::new(),
            ends: Vec::new(),
            errors: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Polls once, without reading.
    pub fn step(&mut self, timeout: Duration) {
        self.member.wait(timeout);
        let mut events = Vec::new();
        self.member.poll(&mut events);
        for event in events {
            match event {
                MemberEvent::Assigned(new) => self.has.extend(new),
                MemberEvent::Revoked(gone) => {
                    self.forget(&gone);
                    if self.keeps {
                        self.revoked.extend(gone);
                    } else {
                        self.member.release(&gone);
                    }
                }
                MemberEvent::Lost(gone) => self.forget(&gone),
                MemberEvent::PartitionEof(partition) => self.ends.push(partition),
                MemberEvent::CommitFailed(error)
                | MemberEvent::Error(error)
                | MemberEvent::Fatal(error) => self.errors.push(error),
            }
        }
    }

    fn forget(&mut self, gone: &[Partition]) {
        self.has.retain(|one| !gone.contains(&one.partition));
    }

    /// Reads all available records, and returns their number.
    pub fn fetch(&mut self) -> usize {
        let before = self.values.len();
        for assigned in self.has.clone() {
            let partition = assigned.partition;
            while let Some(chunk) = self.fetch_one(&partition) {
                let values = texts(&chunk).into_iter().enumerate();
                let placed =
                    values.map(|(at, text)| (partition.clone(), chunk.record(at).offset(), text));
                self.values.extend(placed);
            }
        }
        self.values.len() - before
    }

    fn fetch_one(&mut self, partition: &Partition) -> Option<Chunk> {
        let chunk = self.member.fetch(partition, LIMITS).unwrap();
        self.lost.extend(self.member.take_lost(partition));
        chunk
    }

    /// Polls and reads until it has this many values.
    pub fn read(&mut self, count: usize) {
        until("the member has read", || {
            self.fetch();
            let enough = self.values.len() >= count;
            if !enough {
                self.step(MOMENT);
            }
            enough
        });
    }

    /// Polls until it has this many partitions.
    pub fn has(&mut self, count: usize) {
        until("the member has its partitions", || {
            let enough = self.has.len() == count;
            if !enough {
                self.step(MOMENT);
            }
            enough
        });
    }

    /// Values as numbers, sorted.
    pub fn numbers(&self) -> Vec<usize> {
        let mut all: Vec<_> =
            self.values.iter().map(|(_, _, text)| text.parse().unwrap()).collect();
        all.sort_unstable();
        all
    }
}

/// A commit.
pub fn commit(topic: &str, number: i32, offset: i64, metadata: &str) -> Commit {
    Commit { topic: topic.into(), partition: number, offset, metadata: metadata.into() }
}
