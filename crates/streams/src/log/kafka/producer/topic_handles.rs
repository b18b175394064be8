//! Topic handles by name: opening one in librdkafka costs more than sending a record.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::log::kafka::raw::{ClientHandle, KafkaError, TopicHandle};
use crate::log::Result as LogResult;

/// Topics that are kept; further ones are opened each time.
const TOPICS_MAX: usize = 10_000;

pub struct TopicHandles {
    known: RwLock<HashMap<String, TopicHandle>>,
    handle: Arc<ClientHandle>,
}

impl TopicHandles {
    pub fn new(handle: &Arc<ClientHandle>) -> Self {
        Self { known: RwLock::default(), handle: handle.clone() }
    }

    /// Calls `use_topic` with the topic of this name.
    pub fn with(
        &self,
        name: &str,
        use_topic: impl FnOnce(&TopicHandle) -> Result<(), KafkaError>,
    ) -> LogResult<Result<(), KafkaError>> {
        if let Some(topic) = self.known.read().get(name) {
            return Ok(use_topic(topic));
        }
        let topic = match TopicHandle::new(&self.handle, name)? {
            Ok(topic) => topic,
            Err(error) => return Ok(Err(error)),
        };
        let end = use_topic(&topic);
        let mut known = self.known.write();
        if known.len() < TOPICS_MAX {
            known.insert(name.to_owned(), topic);
        }
        Ok(end)
    }
}
