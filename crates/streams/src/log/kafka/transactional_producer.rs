//! Writes records and commits in transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::Config;
use super::errors::explain;
use super::raw::{
    ClientHandle, ClientKind, ErrorCode, KafkaError, TopicHandle, TopicPartitionList,
    TransactionalHandle,
};
use crate::log::{Commit, LogError, Result, TransactionalProducer};
use crate::record::OwnedRecord;

/// The pause before a call is retried.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// The result of a call to librdkafka.
type CallResult = std::result::Result<(), KafkaError>;

pub struct KafkaTransactionalProducer {
    config: Config,
    id: String,
    /// `None` before the first transaction and after the handle has failed; the
    /// next transaction opens a new one.
    open: Option<TransactionalHandle>,
}

impl KafkaTransactionalProducer {
    /// The first transaction connects.
    pub fn new(config: &Config, id: &str) -> Result<Self> {
        // Reports a wrong property here.
        config.transactional_producer(id)?;
        Ok(Self { config: config.clone(), id: id.to_owned(), open: None })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.config.settings.answer_timeout_ms)
    }

    fn explain(&self, error: &KafkaError) -> LogError {
        let what = format!("transaction {:?} at {}", self.id, self.config.address.url());
        explain(&what, error)
    }

    /// The open handle, or a new one.
    fn take_handle(&mut self) -> Result<TransactionalHandle> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let conf = self.config.transactional_producer(&self.id)?;
        let open =
            TransactionalHandle::new(conf, |conf| self.config.open(ClientKind::Producer, conf))?;
        let until = self.deadline();
        retry(until, |left| open.init(left)).map_err(|error| self.explain(&error))?;
        Ok(open)
    }
}

impl TransactionalProducer for KafkaTransactionalProducer {
    fn transact(
        &mut self,
        records: &[OwnedRecord],
        group: &str,
        member: &[u8],
        commits: &[Commit],
    ) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for commit in commits {
            list.add(&commit.topic, commit.partition, commit.offset, &commit.metadata)?;
        }
        let until = self.deadline();
        let open = self.take_handle()?;
        let Err(error) = run(&open, records, member, &list, until) else {
            self.open = Some(open);
            return Ok(());
        };
        let cause = open.cause();
        let aborted = retry(self.deadline(), |left| open.abort(left));
        // After a refused record, librdkafka miscounts its records even once the
        // transaction is aborted.
        if !error.fatal && aborted.is_ok() && cause.is_none() {
            self.open = Some(open);
        }
        let error = self.explain(cause.as_ref().unwrap_or(&error));
        Err(LogError { message: format!("{} (group {group:?})", error.message), ..error })
    }
}

/// Runs a transaction up to its commit.
fn run(
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
    if !commits.partitions().is_empty() {
        retry(until, |left| open.send_offsets(commits, member, left))?;
    }
    retry(until, |left| open.commit(left))
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

/// Repeats a call while its error can be retried and there is time.
fn retry(until: Instant, mut call: impl FnMut(Duration) -> CallResult) -> CallResult {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match call(left.max(Duration::from_millis(1))) {
            Err(error) if error.retriable && left > RETRY_AFTER => std::thread::sleep(RETRY_AFTER),
            end => return end,
        }
    }
}
