//! Kafka, by librdkafka.
//!
//! | what | where | handle |
//! |---|---|---|
//! | properties, checked before anything connects | `config` | none |
//! | a member of a group | `member` | one each |
//! | a producer, its receipts and its thread | `producer` | one |
//! | transactions | `transactor` | one each |
//! | a reader outside of groups | `reader` | one each |
//! | topics and groups | `admin` | one |
//! | librdkafka itself, owners for its pointers | `raw` | |
//!
//! A handle has threads, so none is made before it is asked for, and none may
//! be in a process that forks.

mod admin;
mod broker_address;
mod config;
mod error_reporter;
mod member;
mod partition_queue;
mod producer;
mod raw;
mod reader;
mod transactional_producer;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use rdkafka_sys as sys;

use super::{
    AdminClient, GroupMember, Partition, PartitionReader, Position, Producer, RecordLog, Result,
    TransactionalProducer,
};
use crate::settings::{GroupSettings, LogSettings};
use config::Config;
use raw::{ClientHandle, TopicPartitionList};

/// The brokers of one address.
pub struct KafkaLog {
    config: Config,
    url: String,
}

impl KafkaLog {
    /// Checks the settings; connects to nothing.
    ///
    /// # Errors
    /// `Refused` for an address or property that is none.
    pub fn open(settings: &LogSettings) -> Result<Self> {
        let config = Config::new(settings)?;
        let url = config.address.url();
        Ok(Self { config, url })
    }
}

impl RecordLog for KafkaLog {
    fn address(&self) -> &str {
        &self.url
    }

    fn member(&self, group: &GroupSettings, bell: &Arc<EventFd>) -> Result<Box<dyn GroupMember>> {
        Ok(Box::new(member::KafkaMember::new(&self.config, group, bell)?))
    }

    fn producer(&self) -> Result<Arc<dyn Producer>> {
        Ok(Arc::new(producer::KafkaProducer::new(&self.config)?))
    }

    fn transactional_producer(&self, id: &str) -> Result<Box<dyn TransactionalProducer>> {
        Ok(Box::new(transactional_producer::KafkaTransactionalProducer::new(&self.config, id)?))
    }

    fn reader(&self, partition: &Partition, from: Position) -> Result<Box<dyn PartitionReader>> {
        Ok(Box::new(reader::KafkaReader::new(&self.config, partition, from)?))
    }

    fn admin(&self) -> Result<Box<dyn AdminClient>> {
        Ok(Box::new(admin::KafkaAdmin::new(&self.config)?))
    }
}

/// The offset of a position, as librdkafka takes it: asked for when it is a
/// time.
fn offset_of(
    handle: &ClientHandle,
    partition: &Partition,
    position: Position,
    timeout: Duration,
) -> Result<i64> {
    Ok(match position {
        Position::Earliest => i64::from(sys::RD_KAFKA_OFFSET_BEGINNING),
        Position::Latest => i64::from(sys::RD_KAFKA_OFFSET_END),
        Position::Offset(offset) => offset.max(0),
        Position::Time(ms) => {
            let mut list = TopicPartitionList::new();
            list.add(&partition.topic, partition.number, ms.max(0), "")?;
            let end = handle.offsets_for_times(&mut list, timeout);
            end.and_then(|()| list.partitions().failure().map_or(Ok(()), Err)).map_err(
                |failure| {
                    let what = format!("{}/{}", partition.topic, partition.number);
                    error_reporter::explain(&what, &failure)
                },
            )?;
            let found = list.partitions().iter().next().and_then(|place| place.offset());
            // None is as late as that: behind the last one.
            found.unwrap_or(i64::from(sys::RD_KAFKA_OFFSET_END))
        }
    })
}
