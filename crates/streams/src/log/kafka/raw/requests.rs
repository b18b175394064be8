//! Questions to the brokers: each is put with a queue for its answer, which is
//! read while its event lives.

mod groups;
mod metadata;
mod topics;

use std::time::Duration;

use rdkafka_sys as sys;

use super::{copied, ms, ClientHandle, KafkaError};

pub use groups::{
    committed, describe_groups, list_groups, read_committed, read_groups, read_names,
    read_set_committed, set_committed,
};
pub use metadata::{cluster, metadata, TopicLayout};
pub use topics::{
    configure, create, delete, ends, grow, read_done, read_ends, read_settings, settings,
};

/// What is asked, by the number of librdkafka's event that answers.
pub type EventType = i32;

/// The options of one question.
struct AdminOptions(*mut sys::rd_kafka_AdminOptions_t);

impl AdminOptions {
    fn new(handle: &ClientHandle, what: sys::rd_kafka_admin_op_t, timeout: Duration) -> Self {
        let mut why = [0u8; 128];
        // SAFETY: our handle; a buffer and its size. A time that is not taken
        // leaves librdkafka's own.
        unsafe {
            let options = sys::rd_kafka_AdminOptions_new(handle.raw(), what);
            let buffer = why.as_mut_ptr().cast();
            let time = ms(timeout.clamp(Duration::from_millis(1), Duration::from_secs(3600)));
            sys::rd_kafka_AdminOptions_set_request_timeout(options, time, buffer, why.len());
            Self(options)
        }
    }
}

impl Drop for AdminOptions {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_AdminOptions_destroy(self.0) };
    }
}

/// An error of librdkafka's that is only shown.
///
/// # Safety
/// `error` is null or whole.
unsafe fn shown(error: *const sys::rd_kafka_error_t) -> Option<KafkaError> {
    if error.is_null() {
        return None;
    }
    // SAFETY: whole, as the caller says.
    let (code, text) =
        unsafe { (sys::rd_kafka_error_code(error), copied(sys::rd_kafka_error_string(error))) };
    let failure = KafkaError::new(code.into(), text);
    (failure.code != super::ErrorCode::NoError).then_some(failure)
}

/// A list of so many pointers.
///
/// # Safety
/// `list` is null or has as many for `'a`.
unsafe fn all<'a, T>(list: *mut *const T, count: usize) -> &'a [*const T] {
    if list.is_null() {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(list, count) }
}
