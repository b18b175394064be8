use std::ffi::{c_char, CStr, CString};
use std::time::Duration;

use crate::log::{ErrorKind, LogError, Result};

/// A C string.
pub fn text(value: &str) -> Result<CString> {
    CString::new(value).map_err(|_| {
        let message = format!("{value:?} holds a zero byte; names and values cannot");
        LogError::new(ErrorKind::Invalid, message)
    })
}

/// Milliseconds for librdkafka: never -1, which means without limit.
pub fn ms(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// A copy of a C string.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and ends as the caller says.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The text that librdkafka wrote into a buffer.
pub fn written(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}
