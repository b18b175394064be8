//! Commits that were started and have not completed.

use std::sync::Arc;
use std::time::Duration;

use crate::log::kafka::raw::{
    ClientHandle, ErrorCode, EventKind, EventQueue, KafkaError, QueueEvent, TopicPartitionList,
};

pub struct PendingCommits {
    count: usize,
    handle: Arc<ClientHandle>,
}

impl PendingCommits {
    pub fn new(handle: &Arc<ClientHandle>) -> Self {
        Self { count: 0, handle: handle.clone() }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Starts a commit; its result arrives in this queue.
    pub fn start(
        &mut self,
        list: &TopicPartitionList,
        queue: &EventQueue,
    ) -> Result<(), KafkaError> {
        queue.commit(list)?;
        self.count += 1;
        Ok(())
    }

    /// Completes a commit with the result in this event.
    pub fn complete(&mut self, event: &QueueEvent) -> Result<(), KafkaError> {
        self.count = self.count.saturating_sub(1);
        result(event)
    }

    /// Commits and waits for the result.
    pub fn commit_sync(
        &self,
        list: &TopicPartitionList,
        timeout: Duration,
    ) -> Result<(), KafkaError> {
        // A separate queue, so that the result of an earlier commit that timed
        // out is not taken for this one's.
        let own = EventQueue::new(&self.handle);
        own.commit(list)?;
        match own.poll(Some(timeout)) {
            Some(event) if event.kind() == EventKind::Commit => result(&event),
            _ => {
                let text = format!("a commit was not confirmed within {timeout:?}");
                Err(KafkaError::new(ErrorCode::OperationTimedOut, text))
            }
        }
    }
}

/// The result of a commit as a whole and for each partition.
fn result(event: &QueueEvent) -> Result<(), KafkaError> {
    match event.code() {
        ErrorCode::NoError => event.partitions().check(),
        // All offsets were committed before.
        ErrorCode::NoOffset => Ok(()),
        _ => Err(event.error()),
    }
}
