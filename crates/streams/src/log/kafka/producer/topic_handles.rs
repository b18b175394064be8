//! TopicHandles that were written to, by name: looking one up in librdkafka costs
//! more than the record.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::super::super::Result as LogResult;
use super::super::raw::{ClientHandle, KafkaError, TopicHandle};

/// TopicHandles remembered; further ones are looked up each time.
const TOPICS_MAX: usize = 10_000;

/// The topics of a handle.
pub struct TopicHandles {
    known: RwLock<HashMap<String, TopicHandle>>,
    handle: Arc<ClientHandle>,
}

impl TopicHandles {
    /// None yet.
    pub fn new(handle: &Arc<ClientHandle>) -> Self {
        Self { known: RwLock::default(), handle: handle.clone() }
    }

    /// Calls `then` with the topic of this name.
    pub fn with(
        &self,
        name: &str,
        then: impl FnOnce(&TopicHandle) -> Result<(), KafkaError>,
    ) -> LogResult<Result<(), KafkaError>> {
        if let Some(topic) = self.known.read().get(name) {
            return Ok(then(topic));
        }
        let topic = match TopicHandle::new(&self.handle, name)? {
            Ok(topic) => topic,
            Err(failure) => return Ok(Err(failure)),
        };
        let end = then(&topic);
        let mut known = self.known.write();
        if known.len() < TOPICS_MAX {
            known.insert(name.to_owned(), topic);
        }
        Ok(end)
    }
}
