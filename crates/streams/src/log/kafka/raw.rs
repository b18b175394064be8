//! librdkafka, safe to use: each of its things is an owner here that gives it
//! back, and all of them keep their handle alive. Nothing here decides.

pub mod ask;
mod conf;
mod failure;
mod handle;
mod list;
mod message;
mod queue;
mod topic;
mod transaction;

pub use conf::{Conf, Refusal};
pub use failure::{Code, Failure};
pub use handle::{Handle, Kind};
pub use list::{Place, Places, TopicList};
pub use message::{Delivered, Message};
pub use queue::{Event, EventKind, Queue};
pub use topic::TopicHandle;
pub use transaction::Transaction;

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
