//! PendingCommits that were begun and have not ended.

use std::sync::Arc;
use std::time::Duration;

use super::super::raw::{
    ClientHandle, ErrorCode, EventKind, EventQueue, KafkaError, QueueEvent, TopicPartitionList,
};

/// PendingCommits under way.
pub struct PendingCommits {
    count: usize,
    handle: Arc<ClientHandle>,
}

impl PendingCommits {
    /// None yet.
    pub fn new(handle: &Arc<ClientHandle>) -> Self {
        Self { count: 0, handle: handle.clone() }
    }

    /// How many.
    pub fn under_way(&self) -> usize {
        self.count
    }

    /// Begins one, whose end comes by this queue.
    pub fn begin(
        &mut self,
        list: &TopicPartitionList,
        queue: &EventQueue,
    ) -> Result<(), KafkaError> {
        queue.commit(list)?;
        self.count += 1;
        Ok(())
    }

    /// One that was begun has ended, in which way the event tells.
    pub fn ended(&mut self, event: &QueueEvent) -> Result<(), KafkaError> {
        self.count = self.count.saturating_sub(1);
        outcome(event)
    }

    /// Does one, and waits for its end.
    pub fn now(&self, list: &TopicPartitionList, timeout: Duration) -> Result<(), KafkaError> {
        // A queue of its own, so that no earlier one whose time was up is taken
        // for it.
        let own = EventQueue::new(&self.handle);
        own.commit(list)?;
        match own.poll(Some(timeout)) {
            Some(event) if event.kind() == EventKind::Commit => outcome(&event),
            _ => {
                let text = format!("a commit was not confirmed within {timeout:?}");
                Err(KafkaError::new(ErrorCode::OperationTimedOut, text))
            }
        }
    }
}

/// How a commit ended: as a whole, and for each partition.
fn outcome(event: &QueueEvent) -> Result<(), KafkaError> {
    match event.code() {
        ErrorCode::NoError => event.partitions().failure().map_or(Ok(()), Err),
        // There was nothing new in it.
        ErrorCode::NoOffset => Ok(()),
        _ => Err(event.failure()),
    }
}
