use std::ffi::c_void;
use std::sync::Arc;

use rdkafka_sys as sys;

use super::client_handle::ClientHandle;
use super::event_queue::EventQueue;
use super::kafka_error::{ErrorCode, KafkaError};
use super::text::text;
use crate::log::Result as LogResult;

/// A topic of a handle.
pub struct TopicHandle {
    raw: *mut sys::rd_kafka_topic_t,
    handle: Arc<ClientHandle>,
}

// SAFETY: librdkafka's topics may be used by all threads at once.
unsafe impl Send for TopicHandle {}
// SAFETY: as above.
unsafe impl Sync for TopicHandle {}

impl TopicHandle {
    /// Opens the topic without checking that it exists.
    pub fn new(handle: &Arc<ClientHandle>, name: &str) -> LogResult<Result<Self, KafkaError>> {
        let name = text(name)?;
        // SAFETY: our handle, a zero-ended text; null: the handle's defaults.
        let raw =
            unsafe { sys::rd_kafka_topic_new(handle.raw(), name.as_ptr(), std::ptr::null_mut()) };
        if raw.is_null() {
            return Ok(Err(last_error()));
        }
        Ok(Ok(Self { raw, handle: handle.clone() }))
    }

    /// Queues a record of key and value, which is the cheapest way.
    pub fn produce(
        &self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        opaque: *mut c_void,
    ) -> Result<(), KafkaError> {
        let (key, key_len) = parts(key);
        let (value, value_len) = parts(value);
        // SAFETY: our topic; the bytes are copied.
        let end = unsafe {
            let copy = sys::RD_KAFKA_MSG_F_COPY;
            sys::rd_kafka_produce(self.raw, partition, copy, value, value_len, key, key_len, opaque)
        };
        if end == 0 {
            Ok(())
        } else {
            Err(last_error())
        }
    }

    /// Queues a record with timestamp and headers.
    pub fn produce_with(
        &self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp_ms: Option<i64>,
        headers: &[(&[u8], Option<&[u8]>)],
        opaque: *mut c_void,
    ) -> Result<(), KafkaError> {
        use sys::rd_kafka_vtype_t as VuType;
        let memory = |bytes| {
            let (ptr, size) = parts(bytes);
            VuUnion { mem: sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size } }
        };
        let list = headers_of(headers)?;
        let mut all = vec![
            part(VuType::RD_KAFKA_VTYPE_RKT, VuUnion { rkt: self.raw }),
            part(VuType::RD_KAFKA_VTYPE_PARTITION, VuUnion { i32_: partition }),
            part(VuType::RD_KAFKA_VTYPE_MSGFLAGS, VuUnion { i: sys::RD_KAFKA_MSG_F_COPY }),
            part(VuType::RD_KAFKA_VTYPE_VALUE, memory(value)),
            part(VuType::RD_KAFKA_VTYPE_KEY, memory(key)),
            part(VuType::RD_KAFKA_VTYPE_OPAQUE, VuUnion { ptr: opaque }),
        ];
        if let Some(time) = timestamp_ms {
            all.push(part(VuType::RD_KAFKA_VTYPE_TIMESTAMP, VuUnion { i64_: time }));
        }
        if !list.is_null() {
            all.push(part(VuType::RD_KAFKA_VTYPE_HEADERS, VuUnion { headers: list }));
        }
        // SAFETY: our handle and as many parts as we say, each as its type
        // wants it; the list of headers is taken over unless it fails.
        unsafe {
            let end = sys::rd_kafka_produceva(self.handle.raw(), all.as_ptr(), all.len());
            let end = KafkaError::take(end);
            if end.is_err() && !list.is_null() {
                sys::rd_kafka_headers_destroy(list);
            }
            end
        }
    }

    /// Starts reading a partition into a queue, outside of groups.
    pub fn read(&self, partition: i32, offset: i64, queue: &EventQueue) -> Result<(), KafkaError> {
        // SAFETY: our topic and queue.
        let end =
            unsafe { sys::rd_kafka_consume_start_queue(self.raw, partition, offset, queue.raw()) };
        if end == 0 {
            Ok(())
        } else {
            Err(last_error())
        }
    }

    pub fn stop_reading(&self, partition: i32) {
        // SAFETY: our topic.
        unsafe { sys::rd_kafka_consume_stop(self.raw, partition) };
    }
}

impl Drop for TopicHandle {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_topic_destroy(self.raw) };
    }
}

type VuUnion = sys::rd_kafka_vu_s__bindgen_ty_1;

fn part(vtype: sys::rd_kafka_vtype_t, u: VuUnion) -> sys::rd_kafka_vu_t {
    sys::rd_kafka_vu_t { vtype, u }
}

fn parts(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    match bytes {
        Some(bytes) => (bytes.as_ptr().cast_mut().cast(), bytes.len()),
        None => (std::ptr::null_mut(), 0),
    }
}

/// A new list of headers; null for none.
fn headers_of(
    headers: &[(&[u8], Option<&[u8]>)],
) -> Result<*mut sys::rd_kafka_headers_t, KafkaError> {
    if headers.is_empty() {
        return Ok(std::ptr::null_mut());
    }
    // SAFETY: a new list; names and values are copied, with their lengths.
    unsafe {
        let list = sys::rd_kafka_headers_new(headers.len());
        for (name, value) in headers {
            let (value, size) = parts(*value);
            let name_len = name.len() as isize;
            let name = name.as_ptr().cast();
            let code = sys::rd_kafka_header_add(list, name, name_len, value, size as isize);
            if let Err(error) = KafkaError::check(code) {
                sys::rd_kafka_headers_destroy(list);
                return Err(error);
            }
        }
        Ok(list)
    }
}

/// The error of this thread's last call.
fn last_error() -> KafkaError {
    // SAFETY: takes nothing.
    let code = unsafe { sys::rd_kafka_last_error() };
    KafkaError::check(code).err().unwrap_or_else(|| KafkaError::new(ErrorCode::Fail, "it failed"))
}
