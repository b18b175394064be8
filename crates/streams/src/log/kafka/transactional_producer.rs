//! Transactions: records and commits in one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Commit, LogError, Result, TransactionalProducer};
use super::config::Config;
use super::error_reporter::explain;
use super::raw::{
    ClientHandle, ClientKind, ErrorCode, KafkaError, TopicHandle, TopicPartitionList,
    TransactionalHandle,
};
use crate::record::OwnedRecord;

/// Rests between tries of a call that may be made again.
const AGAIN: Duration = Duration::from_millis(50);

/// Of a call of librdkafka's.
type Outcome = std::result::Result<(), KafkaError>;

/// A producer of transactions of Kafka's.
pub struct KafkaTransactionalProducer {
    config: Config,
    id: String,
    /// None before the first transaction, and after it has become useless: the
    /// next one begins with a handle of its own.
    open: Option<TransactionalHandle>,
}

impl KafkaTransactionalProducer {
    /// Connects with its first transaction.
    pub fn new(config: &Config, id: &str) -> Result<Self> {
        // So that a wrong property is told here.
        config.transactional_producer(id)?;
        Ok(Self { config: config.clone(), id: id.to_owned(), open: None })
    }

    fn until(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.config.settings.answer_timeout_ms)
    }

    fn explain(&self, failure: &KafkaError) -> LogError {
        let what = format!("transaction {:?} at {}", self.id, self.config.address.url());
        explain(&what, failure)
    }

    /// The handle of before, or a new one that takes its place.
    fn take(&mut self) -> Result<TransactionalHandle> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let conf = self.config.transactional_producer(&self.id)?;
        let open =
            TransactionalHandle::new(conf, |conf| self.config.open(ClientKind::Producer, conf))?;
        let until = self.until();
        again(until, |left| open.init(left)).map_err(|failure| self.explain(&failure))?;
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
        let until = self.until();
        let open = self.take()?;
        let Err(failure) = run(&open, records, member, &list, until) else {
            self.open = Some(open);
            return Ok(());
        };
        let cause = open.cause();
        let aborted = again(self.until(), |left| open.abort(left));
        // librdkafka loses count of its records when one was refused, also after
        // the abortion.
        if !failure.fatal && aborted.is_ok() && cause.is_none() {
            self.open = Some(open);
        }
        let error = self.explain(cause.as_ref().unwrap_or(&failure));
        Err(LogError { message: format!("{} (group {group:?})", error.message), ..error })
    }
}

/// All of one transaction but its abortion.
fn run(
    open: &TransactionalHandle,
    records: &[OwnedRecord],
    member: &[u8],
    commits: &TopicPartitionList,
    until: Instant,
) -> Outcome {
    open.begin()?;
    for record in records {
        produce(open.handle(), record, until)?;
    }
    if !commits.partitions().is_empty() {
        again(until, |left| open.send_offsets(commits, member, left))?;
    }
    again(until, |left| open.commit(left))
}

/// Hands a record over, and waits for room where there is none.
fn produce(handle: &Arc<ClientHandle>, record: &OwnedRecord, until: Instant) -> Outcome {
    let topic = TopicHandle::new(handle, &record.topic)
        .map_err(|error| KafkaError::new(ErrorCode::InvalidArgument, error.message))??;
    loop {
        let end = record.with(|new| {
            topic.produce_whole(
                new.partition.unwrap_or(-1),
                new.key,
                new.value,
                new.timestamp_ms,
                new.headers,
                std::ptr::null_mut(),
            )
        });
        match end {
            Err(failure) if failure.code == ErrorCode::QueueFull && Instant::now() < until => {
                handle.flush(until.saturating_duration_since(Instant::now()));
            }
            end => return end,
        }
    }
}

/// Makes a call, again as long as that may help and there is time.
fn again(until: Instant, mut call: impl FnMut(Duration) -> Outcome) -> Outcome {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match call(left.max(Duration::from_millis(1))) {
            Err(failure) if failure.retriable && left > AGAIN => std::thread::sleep(AGAIN),
            end => return end,
        }
    }
}
