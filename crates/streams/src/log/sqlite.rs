//! The embedded log: topics, partitions and consumer groups in a SQLite database of one machine,
//! shared by all its processes without a server.
//!
//! * A batch of records is a row with its checksum (`batches`, `frames`). A reader (`cursor`) copies
//!   what it needs of it into a chunk, and no read outlives a fetch: else SQLite's log would grow.
//! * A `producer` collects records while its thread waits for the disk, so that many share one
//!   transaction and one sync.
//! * Every commit touches a file beside the database, one of 64 by the topic's name, which wakes the
//!   readers (`file_watch`).
//! * A consumer group is a row (`group_state`, `groups`), and a lock per member that its death frees
//!   (`liveness`). A stopped process (SIGSTOP) keeps its partitions until it continues or dies.
//! * Records and commits of a transaction are one transaction of SQLite.

use std::sync::Arc;

use chaton_core::event_fd::EventFd;
use chaton_embedded::Enlisted;

use super::{
    AdminClient, GroupMember, Partition, PartitionReader, Position, Producer, RecordLog, Result,
    TransactionalProducer,
};
use crate::delivery_errors::DeliveryErrors;
use crate::record::OwnedRecord;
use crate::settings::{GroupSettings, LogSettings};

mod admin;
mod age_clock;
mod assignor;
mod batches;
mod by_partition;
mod cursor;
mod errors;
mod file_watch;
mod frames;
mod group_state;
mod groups;
mod liveness;
mod log_dir;
mod member;
mod partitioner;
mod process_watch;
mod producer;
mod reader;
#[cfg(test)]
mod tests;
mod topic_config;
mod topics;
mod transactional_producer;

use log_dir::LogDir;

/// Checks the file of `sqlite:///file`, or of `log:///folder`; creates nothing.
///
/// # Errors
/// `Refused` for a wrong address and a network disk.
pub fn check(settings: &LogSettings) -> Result<()> {
    LogDir::check_path(settings).map(drop)
}

/// A log in a folder of this machine.
pub struct LocalLog {
    dir: Arc<LogDir>,
    delivery_errors: Arc<DeliveryErrors>,
}

impl LocalLog {
    /// Opens the file of `sqlite:///file`, or of `log:///folder`, which is created when something is written.
    ///
    /// # Errors
    /// `Refused` for a wrong address and an unusable folder.
    pub fn open(settings: &LogSettings) -> Result<Self> {
        Ok(Self { dir: Arc::new(LogDir::open(settings)?), delivery_errors: Arc::default() })
    }
}

impl RecordLog for LocalLog {
    fn address(&self) -> &str {
        &self.dir.settings.broker
    }

    fn create_declared(&self) -> Result<()> {
        self.dir.prepare()?;
        topics::create_declared(&self.dir)
    }

    fn member(
        &self,
        group: &GroupSettings,
        notifier: &Arc<EventFd>,
    ) -> Result<Box<dyn GroupMember>> {
        Ok(Box::new(member::LocalMember::new(&self.dir, group, notifier)?))
    }

    fn producer(&self) -> Result<Arc<dyn Producer>> {
        Ok(Arc::new(producer::LocalProducer::new(&self.dir, &self.delivery_errors)))
    }

    fn delivery_errors(&self) -> Arc<DeliveryErrors> {
        self.delivery_errors.clone()
    }

    fn transactional_producer(&self, _id: &str) -> Result<Box<dyn TransactionalProducer>> {
        Ok(Box::new(transactional_producer::LocalTransactionalProducer::new(&self.dir)))
    }

    fn enlist(&self, records: &[OwnedRecord]) -> Result<Box<dyn Enlisted>> {
        transactional_producer::enlist(&self.dir, records)
    }

    fn reader(&self, partition: &Partition, from: Position) -> Result<Box<dyn PartitionReader>> {
        Ok(Box::new(reader::LocalReader::open(&self.dir, partition, from)?))
    }

    fn admin(&self) -> Result<Box<dyn AdminClient>> {
        Ok(Box::new(admin::LocalAdmin::new(&self.dir)))
    }
}
