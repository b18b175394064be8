use std::fmt;

use rdkafka_sys as sys;

use super::text::copied;
pub use rdkafka_sys::types::RDKafkaErrorCode as ErrorCode;

/// An error of librdkafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaError {
    pub code: ErrorCode,
    pub text: String,
    /// The handle cannot be used any more.
    pub fatal: bool,
    /// The same call may be repeated.
    pub retriable: bool,
    /// The transaction must be aborted.
    pub abort: bool,
}

impl KafkaError {
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), fatal: false, retriable: false, abort: false }
    }

    /// The error of this code with librdkafka's text.
    pub fn of(code: ErrorCode) -> Self {
        Self::new(code, describe(code))
    }

    /// The error that an event reports. A certificate that cannot be verified comes as an error of the
    /// connection if librdkafka notices it between two steps of the handshake.
    pub(super) fn reported(code: ErrorCode, text: String) -> Self {
        let unverified = text.contains("certificate verify failed");
        let code = match code {
            ErrorCode::BrokerTransportFailure if unverified => ErrorCode::SSL,
            code => code,
        };
        Self::new(code, text)
    }

    /// The error of this code, unless it means success.
    pub(super) fn check(code: sys::rd_kafka_resp_err_t) -> Result<(), Self> {
        match ErrorCode::from(code) {
            ErrorCode::NoError => Ok(()),
            code => Err(Self::of(code)),
        }
    }

    /// Takes over an error; null means success.
    ///
    /// # Safety
    /// `error` is null or owned by the caller.
    pub(super) unsafe fn take(error: *mut sys::rd_kafka_error_t) -> Result<(), Self> {
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's error, read and then destroyed once.
        unsafe {
            let taken = Self {
                code: ErrorCode::from(sys::rd_kafka_error_code(error)),
                text: copied(sys::rd_kafka_error_string(error)),
                fatal: sys::rd_kafka_error_is_fatal(error) != 0,
                retriable: sys::rd_kafka_error_is_retriable(error) != 0,
                abort: sys::rd_kafka_error_txn_requires_abort(error) != 0,
            };
            sys::rd_kafka_error_destroy(error);
            Err(taken)
        }
    }
}

impl fmt::Display for KafkaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The text of a code, without its name.
fn describe(code: ErrorCode) -> String {
    let text = code.to_string();
    match text.split_once(" (") {
        Some((_, words)) => words.trim_end_matches(')').to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_cannot_be_verified_is_no_lost_connection() {
        let text = "error:0A000086:SSL routines::certificate verify failed (after 15ms in state SSL_HANDSHAKE)";
        let reported =
            |text: &str| KafkaError::reported(ErrorCode::BrokerTransportFailure, text.into());
        assert_eq!(reported(text).code, ErrorCode::SSL);
        assert_eq!(reported("Disconnected").code, ErrorCode::BrokerTransportFailure);
    }
}
