//! librdkafka, safe to use: each of its things is an owner here that gives it
//! back, and all of them keep their handle alive. Nothing here decides.

mod client_handle;
mod conf;
mod event_queue;
mod kafka_error;
mod message;
pub mod requests;
mod topic_handle;
mod topic_partitions;
mod transactional_handle;

pub use client_handle::{ClientHandle, ClientKind};
pub use conf::{Conf, ConfError};
pub use event_queue::{EventKind, EventQueue, QueueEvent};
pub use kafka_error::{ErrorCode, KafkaError};
pub use message::{DeliveryReport, FetchedMessage};
pub use topic_handle::TopicHandle;
pub use topic_partitions::{TopicPartition, TopicPartitionList, TopicPartitions};
pub use transactional_handle::TransactionalHandle;

use std::ffi::{c_char, CStr, CString};
use std::time::Duration;

use super::super::{ErrorKind, LogError, Result};

/// A text as C takes it.
pub fn text(value: &str) -> Result<CString> {
    CString::new(value).map_err(|_| {
        let message = format!("{value:?} holds a zero byte; names and values cannot");
        LogError::new(ErrorKind::Invalid, message)
    })
}

/// Milliseconds as librdkafka takes them: never -1, which would be for ever.
pub fn ms(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// A copy of a text of librdkafka's.
///
/// # Safety
/// `text` is null or ends with a zero byte.
unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and ends as the caller says.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What librdkafka wrote into a buffer of ours.
fn written(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}
