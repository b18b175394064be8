use std::time::Duration;

use rdkafka_sys as sys;

use crate::log::kafka::raw::client_handle::ClientHandle;
use crate::log::kafka::raw::kafka_error::{ErrorCode, KafkaError};
use crate::log::kafka::raw::text::{copied, ms};

/// The type of the event that answers a request.
pub type EventType = i32;

/// The options of one request.
pub struct AdminOptions(pub *mut sys::rd_kafka_AdminOptions_t);

impl AdminOptions {
    pub fn new(handle: &ClientHandle, what: sys::rd_kafka_admin_op_t, timeout: Duration) -> Self {
        let mut why = [0u8; 128];
        // SAFETY: our handle; a buffer and its size. A time that is refused
        // leaves librdkafka's default.
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

/// An error that librdkafka keeps the ownership of.
///
/// # Safety
/// `error` is null or valid.
pub unsafe fn borrowed_error(error: *const sys::rd_kafka_error_t) -> Option<KafkaError> {
    if error.is_null() {
        return None;
    }
    // SAFETY: valid, as the caller says.
    let (code, text) =
        unsafe { (sys::rd_kafka_error_code(error), copied(sys::rd_kafka_error_string(error))) };
    let found = KafkaError::new(code.into(), text);
    (found.code != ErrorCode::NoError).then_some(found)
}

/// A list of pointers as a slice.
///
/// # Safety
/// `list` is null or has `count` elements for `'a`.
pub unsafe fn slice_of<'a, T>(list: *mut *const T, count: usize) -> &'a [*const T] {
    if list.is_null() {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(list, count) }
}
