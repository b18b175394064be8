//! The embedded log: topics, partitions and consumer groups in a folder of
//! one machine, shared by all its processes without a server.
//!
//! * A partition is a row of append-only segments (`segment`) of records that
//!   carry their checksum and offset (`frame`), each with a sparse `index`.
//!   Writers take turns by a lock (`lock`); `writer` also puts right what a
//!   crash has left. A small file (`head`) tells how far records are durable:
//!   readers (`cursor`) go no further, and are woken by its change (`ear`).
//! * A `producer` gathers records while its thread waits for the disk; many
//!   share one sync.
//! * A consumer `group` is a small file changed under a lock, the offsets
//!   beside it (`offsets`) and a lock per member that its death frees
//!   (`presence`). A process that is stopped (SIGSTOP) keeps what it has until
//!   it goes on or dies.
//! * Transactions are decided by one durable file (`intents`), and done again
//!   by whoever comes next when their writer dies.

use std::sync::Arc;

use chaton_core::event_fd::EventFd;

use super::{
    AdminClient, GroupMember, Partition, PartitionReader, Position, Producer, RecordLog, Result,
    TransactionalProducer,
};
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

/// See above.
pub struct LocalLog {
    dir: Arc<LogDir>,
}

impl LocalLog {
    /// Opens the folder of `log:///folder`, made on first use.
    ///
    /// # Errors
    /// `Refused` for an address that is none and a folder that cannot be
    /// used, `Full` when there is no room to make it.
    pub fn open(settings: &LogSettings) -> Result<Self> {
        Ok(Self { dir: Arc::new(LogDir::open(settings)?) })
    }
}

impl RecordLog for LocalLog {
    fn address(&self) -> &str {
        &self.dir.settings.broker
    }

    fn member(&self, group: &GroupSettings, bell: &Arc<EventFd>) -> Result<Box<dyn GroupMember>> {
        Ok(Box::new(member::LocalMember::new(&self.dir, group, bell)?))
    }

    fn producer(&self) -> Result<Arc<dyn Producer>> {
        Ok(Arc::new(producer::LocalProducer::new(&self.dir)))
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
