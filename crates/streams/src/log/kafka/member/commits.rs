//! Commits that were begun and have not ended.

use std::sync::Arc;
use std::time::Duration;

use super::super::raw::{Code, Event, EventKind, Failure, Handle, Queue, TopicList};

/// Commits under way.
pub struct Commits {
    count: usize,
    handle: Arc<Handle>,
}

impl Commits {
    /// None yet.
    pub fn new(handle: &Arc<Handle>) -> Self {
        Self { count: 0, handle: handle.clone() }
    }

    /// How many.
    pub fn under_way(&self) -> usize {
        self.count
    }

    /// Begins one, whose end comes by this queue.
    pub fn begin(&mut self, list: &TopicList, queue: &Queue) -> Result<(), Failure> {
        queue.commit(list)?;
        self.count += 1;
        Ok(())
    }

    /// One that was begun has ended, in which way the event tells.
    pub fn ended(&mut self, event: &Event) -> Result<(), Failure> {
        self.count = self.count.saturating_sub(1);
        outcome(event)
    }

    /// Does one, and waits for its end.
    pub fn now(&self, list: &TopicList, timeout: Duration) -> Result<(), Failure> {
        // A queue of its own, so that no earlier one whose time was up is taken
        // for it.
        let own = Queue::new(&self.handle);
        own.commit(list)?;
        match own.poll(Some(timeout)) {
            Some(event) if event.kind() == EventKind::Commit => outcome(&event),
            _ => {
                let text = format!("a commit was not confirmed within {timeout:?}");
                Err(Failure::new(Code::OperationTimedOut, text))
            }
        }
    }
}

/// How a commit ended: as a whole, and for each partition.
fn outcome(event: &Event) -> Result<(), Failure> {
    match event.code() {
        Code::NoError => event.places().failure().map_or(Ok(()), Err),
        // There was nothing new in it.
        Code::NoOffset => Ok(()),
        _ => Err(event.failure()),
    }
}
