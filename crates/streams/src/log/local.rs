//! The embedded log: topics, partitions and consumer groups in a folder of
//! one machine, shared by all its processes without a server.
//!
//! * A partition is a row of append-only segments (`segment`) of records that
//!   carry their checksum and offset (`record_frame`), each with a sparse
//!   index (`offset_index`). Writers exclude each other by a lock
//!   (`path_lock`); `partition_writer` also repairs what a crash has left. A
//!   small file (`high_watermark`) tells up to where records are durable:
//!   readers (`partition_cursor`) read no further, and its change wakes them
//!   (`file_watch`).
//! * A `producer` collects records while its thread waits for the disk, so
//!   that many records share one sync.
//! * A consumer group is a small file (`group_state`) that is changed under a
//!   lock, the `committed_offsets` beside it, and a lock per member that its
//!   death frees (`liveness`). A stopped process (SIGSTOP) keeps its
//!   partitions until it continues or dies.
//! * A transaction takes effect with one durable file (`txn_log`). If its
//!   writer dies, the next process that needs its locks completes it.

use std::sync::Arc;

use chaton_core::event_fd::EventFd;

use super::{
    AdminClient, GroupMember, Partition, PartitionReader, Position, Producer, RecordLog, Result,
    TransactionalProducer,
};
use crate::delivery_errors::DeliveryErrors;
use crate::settings::{GroupSettings, LogSettings};

mod admin;
mod assignor;
mod committed_offsets;
mod errors;
mod file_watch;
mod files;
mod group_files;
mod group_state;
mod high_watermark;
mod liveness;
mod log_dir;
mod member;
mod offset_index;
mod partition_cursor;
mod partition_writer;
mod partitioner;
mod path_lock;
mod process_watch;
mod producer;
mod reader;
mod record_frame;
mod retention;
mod scan;
mod segment;
#[cfg(test)]
mod tests;
mod topic_config;
mod topics;
mod transactional_producer;
mod txn_log;

use log_dir::LogDir;

/// Checks the folder of `log:///folder`; creates nothing.
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
    /// Opens the folder of `log:///folder`, which is created when something is written.
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
        self.dir.create()?;
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
        Ok(Arc::new(producer::LocalProducer::new(&self.dir)))
    }

    fn delivery_errors(&self) -> Arc<DeliveryErrors> {
        self.delivery_errors.clone()
    }

    fn transactional_producer(&self, _id: &str) -> Result<Box<dyn TransactionalProducer>> {
        Ok(Box::new(transactional_producer::LocalTransactionalProducer::new(&self.dir)))
    }

    fn reader(&self, partition: &Partition, from: Position) -> Result<Box<dyn PartitionReader>> {
        Ok(Box::new(reader::LocalReader::open(&self.dir, partition, from)?))
    }

    fn admin(&self) -> Result<Box<dyn AdminClient>> {
        Ok(Box::new(admin::LocalAdmin::new(&self.dir)))
    }
}
