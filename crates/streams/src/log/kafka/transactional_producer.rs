//! Writes records and commits in transactions.
//!
//! A commit whose answer does not come may have happened. It is repeated on the same handle, which goes on
//! waiting for the answer, until the broker would have ended the transaction by itself. Then a new handle
//! with the same transactional id asks for it: `InitProducerId` ends a transaction that is open, and is
//! not answered before one that is being committed is complete (KIP-98). What the group has committed,
//! with the number of the transaction in its metadata, tells afterwards how it ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admin::KafkaAdmin;
use super::config::Config;
use super::errors::explain;
use super::raw::{
    ClientHandle, ClientKind, ErrorCode, KafkaError, TopicHandle, TopicPartitionList,
    TransactionalHandle,
};
use crate::commit_notes;
use crate::log::{AdminClient, Commit, ErrorKind, LogError, Result, TransactionalProducer};
use crate::record::OwnedRecord;

/// The pause before a call is retried.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// A call that can be resumed comes back this often, to look whether its result is still wanted.
const CALL_MAX: Duration = Duration::from_secs(1);

/// The result of a call to librdkafka.
type CallResult = std::result::Result<(), KafkaError>;

pub struct KafkaTransactionalProducer {
    config: Config,
    id: String,
    /// `None` before the first transaction and after the handle has failed; the
    /// next transaction opens a new one.
    open: Option<TransactionalHandle>,
}

/// Until when a call is repeated, and whether its result is still wanted.
struct Repeat<'a> {
    until: Instant,
    wanted: &'a dyn Fn() -> bool,
}

impl KafkaTransactionalProducer {
    /// The first transaction connects.
    pub fn new(config: &Config, id: &str) -> Result<Self> {
        // Reports a wrong property here.
        config.transactional_producer(id)?;
        Ok(Self { config: config.clone(), id: id.to_owned(), open: None })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.settings.answer_timeout
    }

    /// When the broker ends a transaction that begins now.
    fn transaction_deadline(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.config.transaction_timeout_ms())
    }

    fn explain(&self, error: &KafkaError, group: &str) -> LogError {
        let what = format!("transaction {:?} at {}", self.id, self.config.address.url());
        let error = explain(&what, error);
        LogError { message: format!("{} (group {group:?})", error.message), ..error }
    }

    /// A new handle, once no earlier transaction of this id is open.
    fn new_handle(&self, repeat: &Repeat<'_>, group: &str) -> Result<TransactionalHandle> {
        let conf = self.config.transactional_producer(&self.id)?;
        let open =
            TransactionalHandle::new(conf, |conf| self.config.open(ClientKind::Producer, conf))?;
        let ready = repeat.resumable(|left| open.init(left));
        ready.map_err(|error| self.explain(&error, group))?;
        Ok(open)
    }

    /// Writes the records and commits of a transaction, up to its commit.
    fn write(
        &self,
        open: &TransactionalHandle,
        records: &[OwnedRecord],
        member: &[u8],
        commits: &TopicPartitionList,
        until: Instant,
    ) -> CallResult {
        open.begin()?;
        for record in records {
            produce(open.handle(), record, until)?;
        }
        if commits.partitions().is_empty() {
            return Ok(());
        }
        let repeat = Repeat { until: self.deadline(), wanted: &|| true };
        repeat.call(Duration::MAX, |left| open.send_offsets(commits, member, left))
    }

    /// Finds out how a transaction has ended whose commit was not answered.
    fn find_out(
        &mut self,
        error: LogError,
        group: &str,
        commits: &[Commit],
        wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        if commits.is_empty() {
            return Err(error);
        }
        let repeat = Repeat { until: self.transaction_deadline(), wanted };
        let found = self.new_handle(&repeat, group).and_then(|open| {
            self.open = Some(open);
            KafkaAdmin::new(&self.config)?.committed(group)
        });
        match found {
            Ok(found) if commits.iter().all(|one| found.contains(one)) => Ok(()),
            Ok(_) => Err(error),
            Err(why) => {
                let message = format!(
                    "{}; it is not known whether it was committed: {}; the group is joined anew",
                    error.message, why.message
                );
                Err(LogError::new(ErrorKind::Unknown, message))
            }
        }
    }
}

impl TransactionalProducer for KafkaTransactionalProducer {
    fn transact(
        &mut self,
        records: &[OwnedRecord],
        group: &str,
        member: &[u8],
        commits: &[Commit],
        wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let number = fastrand::u64(..);
        let noted = |one: &Commit| Commit {
            metadata: commit_notes::with_transaction(&one.metadata, number),
            ..one.clone()
        };
        let commits: Vec<Commit> = commits.iter().map(noted).collect();
        let mut list = TopicPartitionList::new();
        for commit in &commits {
            list.add(&commit.topic, commit.partition, commit.offset, &commit.metadata)?;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => self.new_handle(&Repeat { until: self.deadline(), wanted }, group)?,
        };
        let repeat = Repeat { until: self.transaction_deadline(), wanted };
        let written = self.write(&open, records, member, &list, repeat.until);
        let is_written = written.is_ok();
        let ended = written.and_then(|()| repeat.resumable(|left| open.commit(left)));
        let Err(error) = ended else {
            self.open = Some(open);
            return Ok(());
        };
        let cause = open.cause();
        let explained = self.explain(cause.as_ref().unwrap_or(&error), group);
        // Only this error says that nothing was committed.
        let is_open = !is_written || error.abort;
        let abort = Repeat { until: self.deadline(), wanted };
        let aborted = is_open && abort.resumable(|left| open.abort(left)).is_ok();
        if is_written && !aborted {
            drop(open);
            return self.find_out(explained, group, &commits, wanted);
        }
        // After a refused record, librdkafka miscounts its records even once the
        // transaction is aborted.
        if !error.fatal && aborted && cause.is_none() {
            self.open = Some(open);
        }
        Err(explained)
    }
}

/// Queues a record, and waits for room if the queue is full.
fn produce(handle: &Arc<ClientHandle>, record: &OwnedRecord, until: Instant) -> CallResult {
    let topic = TopicHandle::new(handle, &record.topic)
        .map_err(|error| KafkaError::new(ErrorCode::InvalidArgument, error.message))??;
    loop {
        let end = record.with(|new| {
            topic.produce_with(
                new.partition.unwrap_or(-1),
                new.key,
                new.value,
                new.timestamp_ms,
                new.headers,
                std::ptr::null_mut(),
            )
        });
        match end {
            Err(error) if error.code == ErrorCode::QueueFull && Instant::now() < until => {
                handle.flush(until.saturating_duration_since(Instant::now()));
            }
            end => return end,
        }
    }
}

impl Repeat<'_> {
    /// Repeats a call that continues what the one before has begun.
    fn resumable(&self, call: impl FnMut(Duration) -> CallResult) -> CallResult {
        self.call(CALL_MAX, call)
    }

    /// Repeats a call while its error can be retried and there is time.
    fn call(&self, longest: Duration, mut call: impl FnMut(Duration) -> CallResult) -> CallResult {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            match call(left.clamp(Duration::from_millis(1), longest)) {
                Err(error) if error.retriable && left > RETRY_AFTER && (self.wanted)() => {
                    std::thread::sleep(RETRY_AFTER);
                }
                end => return end,
            }
        }
    }
}
