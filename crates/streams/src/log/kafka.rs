//! Kafka, by librdkafka.
use super::{Admin, Log, Member, Partition, Position, Producer, Reader, Result, Transactor};
use crate::settings::{GroupSettings, LogSettings};
use chaton_core::wake::Alarm;
use std::sync::Arc;

/// Placeholder while it is being built.
pub enum KafkaLog {}

impl KafkaLog {
    /// Opens.
    ///
    /// # Errors
    /// Always.
    pub fn open(_: &LogSettings) -> Result<Self> {
        Err(super::LogError::new(super::ErrorKind::Refused, "not built"))
    }
}

impl Log for KafkaLog {
    fn address(&self) -> &str {
        match *self {}
    }
    fn member(&self, _: &GroupSettings, _: &Arc<Alarm>) -> Result<Box<dyn Member>> {
        match *self {}
    }
    fn producer(&self) -> Result<Arc<dyn Producer>> {
        match *self {}
    }
    fn transactor(&self, _: &str) -> Result<Box<dyn Transactor>> {
        match *self {}
    }
    fn reader(&self, _: &Partition, _: Position) -> Result<Box<dyn Reader>> {
        match *self {}
    }
    fn admin(&self) -> Result<Box<dyn Admin>> {
        match *self {}
    }
}
