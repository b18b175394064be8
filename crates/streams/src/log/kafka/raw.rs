//! Safe wrappers of librdkafka: each type owns one of its objects, destroys it
//! when dropped and keeps its client handle alive. Nothing here decides.

mod client_handle;
mod conf;
mod event_queue;
mod kafka_error;
mod message;
pub mod requests;
mod text;
mod topic_handle;
mod topic_partitions;
mod transactional_handle;

pub use client_handle::{ClientHandle, ClientKind};
pub use conf::{Conf, ConfError};
pub use event_queue::{EventKind, EventQueue, QueueEvent};
pub use kafka_error::{ErrorCode, KafkaError};
pub use message::{DeliveryReport, FetchedMessage};
pub use topic_handle::TopicHandle;
pub use topic_partitions::{TopicPartition, TopicPartitionList};
pub use transactional_handle::TransactionalHandle;
