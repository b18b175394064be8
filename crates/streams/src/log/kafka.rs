//! Kafka, through librdkafka.
//!
//! | what | module | handles |
//! |---|---|---|
//! | properties, checked before anything connects | `config` | none |
//! | a group member | `member` | one each |
//! | a producer, its delivery reports and their thread | `producer` | one |
//! | transactions | `transactional_producer` | one each |
//! | a reader outside of groups | `reader` | one each |
//! | topics and groups | `admin` | one |
//! | safe wrappers of librdkafka | `raw` | |
//!
//! A handle has threads. So it is created on first use, and never in a process that forks.

mod admin;
mod broker_address;
mod broker_statistics;
mod config;
mod error_reporter;
mod errors;
mod member;
mod partition_queue;
mod position;
mod producer;
mod raw;
mod reader;
mod refusal_check;
mod transactional_producer;

use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use chaton_core::process::scoreboard::OwnGauges;

use super::{
    AdminClient, GroupMember, Partition, PartitionReader, Position, Producer, RecordLog, Result,
    TransactionalProducer,
};
use crate::delivery_errors::DeliveryErrors;
use crate::settings::{GroupSettings, LogSettings};
use config::Config;

/// A Kafka cluster.
pub struct KafkaLog {
    config: Config,
    url: String,
    delivery_errors: Arc<DeliveryErrors>,
}

impl KafkaLog {
    /// Checks the settings without connecting.
    ///
    /// # Errors
    /// `Refused` for a wrong address or property.
    pub fn open(settings: &LogSettings) -> Result<Self> {
        let config = Config::new(settings)?;
        let url = config.address.url();
        Ok(Self { config, url, delivery_errors: Arc::default() })
    }
}

impl RecordLog for KafkaLog {
    fn address(&self) -> &str {
        &self.url
    }

    fn member(
        &self,
        group: &GroupSettings,
        notifier: &Arc<EventFd>,
    ) -> Result<Box<dyn GroupMember>> {
        Ok(Box::new(member::KafkaMember::new(&self.config, group, notifier)?))
    }

    fn producer(&self) -> Result<Arc<dyn Producer>> {
        Ok(Arc::new(producer::KafkaProducer::new(&self.config, &self.delivery_errors)?))
    }

    fn delivery_errors(&self) -> Arc<DeliveryErrors> {
        self.delivery_errors.clone()
    }

    fn transactional_producer(&self, id: &str) -> Result<Box<dyn TransactionalProducer>> {
        Ok(Box::new(transactional_producer::KafkaTransactionalProducer::new(&self.config, id)?))
    }

    fn reader(&self, partition: &Partition, from: Position) -> Result<Box<dyn PartitionReader>> {
        Ok(Box::new(reader::KafkaReader::new(&self.config, partition, from)?))
    }

    fn count_brokers(&self, gauges: &OwnGauges, interval: Duration) {
        // The first engine of a process counts for all.
        let _ = self.config.statistics.set((gauges.clone(), interval));
    }

    fn admin(&self) -> Result<Box<dyn AdminClient>> {
        Ok(Box::new(admin::KafkaAdmin::new(&self.config)?))
    }
}
