//! The producer that all threads of a process share.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::log::{Producer, Result};

/// Holds the producer, and replaces it when it has failed for good.
#[derive(Default)]
pub struct SharedProducer {
    made: Mutex<Option<Arc<dyn Producer>>>,
}

impl SharedProducer {
    /// The producer; `make` is called if there is none that can write.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get(
        &self,
        make: impl FnOnce() -> Result<Arc<dyn Producer>>,
    ) -> Result<Arc<dyn Producer>> {
        let mut made = self.made.lock();
        if let Some(producer) = made.as_ref().filter(|producer| !producer.has_failed()) {
            return Ok(producer.clone());
        }
        let producer = make()?;
        if let Some(failed) = made.replace(producer.clone()) {
            // Its end waits for its threads, and the caller may hold the GVL.
            let _ = chaton_core::thread::spawn("chaton-kafka-end", move || drop(failed));
        }
        Ok(producer)
    }

    /// The producer, if there is one.
    pub fn made(&self) -> Option<Arc<dyn Producer>> {
        self.made.lock().clone()
    }

    /// Forgets the producer; the next call of [`SharedProducer::get`] makes another one.
    pub fn forget(&self) {
        *self.made.lock() = None;
    }
}
