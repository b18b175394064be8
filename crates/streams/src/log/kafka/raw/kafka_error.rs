use std::fmt;

use rdkafka_sys as sys;
pub use rdkafka_sys::types::RDKafkaErrorCode as ErrorCode;

/// What librdkafka says went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaError {
    /// Which error.
    pub code: ErrorCode,
    /// In its words.
    pub text: String,
    /// The handle is of no use any more.
    pub fatal: bool,
    /// The same call may be made again.
    pub retriable: bool,
    /// The transaction has to be aborted.
    pub abort: bool,
}

impl KafkaError {
    /// One with a text of its own.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), fatal: false, retriable: false, abort: false }
    }

    /// This code, in librdkafka's words.
    pub fn of(code: ErrorCode) -> Self {
        Self::new(code, describe(code))
    }

    /// Nothing went wrong, or what this code says.
    pub(super) fn check(code: sys::rd_kafka_resp_err_t) -> Result<(), Self> {
        match ErrorCode::from(code) {
            ErrorCode::NoError => Ok(()),
            code => Err(Self::of(code)),
        }
    }

    /// Nothing went wrong (null), or what this error says; it is destroyed.
    ///
    /// # Safety
    /// `error` is null or the caller's own.
    pub(super) unsafe fn take(error: *mut sys::rd_kafka_error_t) -> Result<(), Self> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's own error, looked at and then destroyed once.
        unsafe {
            let failure = Self {
                code: ErrorCode::from(sys::rd_kafka_error_code(error)),
                text: super::copied(sys::rd_kafka_error_string(error)),
                fatal: sys::rd_kafka_error_is_fatal(error) != 0,
                retriable: sys::rd_kafka_error_is_retriable(error) != 0,
                abort: sys::rd_kafka_error_txn_requires_abort(error) != 0,
            };
            sys::rd_kafka_error_destroy(error);
            Err(failure)
        }
    }
}

impl fmt::Display for KafkaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The code in words, without its name.
fn describe(code: ErrorCode) -> String {
    let text = code.to_string();
    match text.split_once(" (") {
        Some((_, words)) => words.trim_end_matches(')').to_owned(),
        None => text,
    }
}
