use std::ffi::{c_char, c_int};

use rdkafka_sys as sys;

use super::text::{copied, text, written};

/// Why a property was refused.
#[derive(Debug, PartialEq, Eq)]
pub enum ConfError {
    /// The name is unknown.
    Unknown,
    /// The value is wrong, with the reason.
    Invalid(String),
}

/// The configuration of a new handle.
pub struct Conf(*mut sys::rd_kafka_conf_t);

impl Conf {
    /// librdkafka's defaults without its log lines on standard error: errors arrive as events.
    pub fn new() -> Self {
        // SAFETY: takes nothing; the callback is ours and static.
        unsafe {
            let conf = sys::rd_kafka_conf_new();
            sys::rd_kafka_conf_set_log_cb(conf, Some(quiet));
            Self(conf)
        }
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfError> {
        let (Ok(name), Ok(value)) = (text(name), text(value)) else {
            return Err(ConfError::Invalid("it holds a zero byte".into()));
        };
        let mut why = [0u8; 512];
        // SAFETY: our configuration, zero-ended texts, a buffer and its size.
        let end = unsafe {
            let buffer = why.as_mut_ptr().cast::<c_char>();
            sys::rd_kafka_conf_set(self.0, name.as_ptr(), value.as_ptr(), buffer, why.len())
        };
        match end {
            sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK => Ok(()),
            sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_UNKNOWN => Err(ConfError::Unknown),
            sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_INVALID => {
                Err(ConfError::Invalid(written(&why)))
            }
        }
    }

    /// Delivers these kinds of events through queues.
    pub fn events(&mut self, kinds: i32) {
        // SAFETY: our configuration.
        unsafe { sys::rd_kafka_conf_set_events(self.0, kinds) };
    }

    /// Sets the callback for delivery reports.
    pub fn delivered(
        &mut self,
        callback: unsafe extern "C" fn(
            *mut sys::rd_kafka_t,
            *const sys::rd_kafka_message_t,
            *mut std::ffi::c_void,
        ),
        opaque: *mut std::ffi::c_void,
    ) {
        // SAFETY: our configuration; the caller keeps `opaque` alive as long as the handle.
        unsafe {
            sys::rd_kafka_conf_set_dr_msg_cb(self.0, Some(callback));
            sys::rd_kafka_conf_set_opaque(self.0, opaque);
        }
    }

    /// The names of all properties.
    pub fn names() -> Vec<String> {
        let conf = Self::new();
        let mut names = Vec::new();
        // SAFETY: dumps of configurations of ours, given back with the counts
        // that came with them; every second text is a name.
        unsafe {
            let mut count = 0;
            let list = sys::rd_kafka_conf_dump(conf.0, &raw mut count);
            names.extend((0..count).step_by(2).map(|i| copied(*list.add(i))));
            sys::rd_kafka_conf_dump_free(list, count);
            let topic = sys::rd_kafka_topic_conf_new();
            let list = sys::rd_kafka_topic_conf_dump(topic, &raw mut count);
            names.extend((0..count).step_by(2).map(|i| copied(*list.add(i))));
            sys::rd_kafka_conf_dump_free(list, count);
            sys::rd_kafka_topic_conf_destroy(topic);
        }
        names
    }

    pub(super) fn raw(&self) -> *mut sys::rd_kafka_conf_t {
        self.0
    }

    /// Leaves the ownership to a handle.
    pub(super) fn hand_over(self) {
        std::mem::forget(self);
    }
}

impl Drop for Conf {
    fn drop(&mut self) {
        // SAFETY: ours, and not given to a handle.
        unsafe { sys::rd_kafka_conf_destroy(self.0) };
    }
}

unsafe extern "C" fn quiet(
    _: *const sys::rd_kafka_t,
    _: c_int,
    _: *const c_char,
    _: *const c_char,
) {
}
