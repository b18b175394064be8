use std::time::Duration;

use rdkafka_sys as sys;

use crate::log::kafka::raw::client_handle::ClientHandle;
use crate::log::kafka::raw::kafka_error::{ErrorCode, KafkaError};
use crate::log::kafka::raw::text::{copied, ms};

/// A topic as the brokers list it.
pub struct TopicLayout {
    pub name: String,
    pub partitions: Vec<i32>,
    /// The number of replicas of the first partition.
    pub replication: i32,
}

/// Whether a broker accepts this client and answers in time; waits for it.
pub fn is_answered(handle: &ClientHandle, timeout: Duration) -> bool {
    let mut found: *const sys::rd_kafka_metadata = std::ptr::null();
    // SAFETY: our handle; the answer is ours, and given back once.
    unsafe {
        let none = std::ptr::null_mut();
        let code = sys::rd_kafka_metadata(handle.raw(), 0, none, &raw mut found, ms(timeout));
        let answered = ErrorCode::from(code) == ErrorCode::NoError;
        if answered {
            sys::rd_kafka_metadata_destroy(found);
        }
        answered
    }
}

/// All topics, or with `own` those that this client uses; waits for the answer.
pub fn metadata(
    handle: &ClientHandle,
    own: bool,
    timeout: Duration,
) -> Result<Vec<TopicLayout>, KafkaError> {
    let mut found: *const sys::rd_kafka_metadata = std::ptr::null();
    // SAFETY: our handle; the answer is ours, read and given back once.
    unsafe {
        let none = std::ptr::null_mut();
        let code = sys::rd_kafka_metadata(
            handle.raw(),
            i32::from(!own),
            none,
            &raw mut found,
            ms(timeout),
        );
        KafkaError::check(code)?;
        let all = &*found;
        let topics = slice(all.topics, all.topic_cnt);
        let there = topics.iter().filter(|topic| ErrorCode::from(topic.err) == ErrorCode::NoError);
        let layouts = there.map(|topic| layout(topic)).collect();
        sys::rd_kafka_metadata_destroy(found);
        Ok(layouts)
    }
}

/// # Safety
/// `topic` is valid.
unsafe fn layout(topic: &sys::rd_kafka_metadata_topic) -> TopicLayout {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let partitions = slice(topic.partitions, topic.partition_cnt);
        let mut numbers: Vec<i32> = partitions.iter().map(|one| one.id).collect();
        numbers.sort_unstable();
        TopicLayout {
            name: copied(topic.topic),
            partitions: numbers,
            replication: partitions.first().map_or(0, |one| one.replica_cnt),
        }
    }
}

/// # Safety
/// `start` has so many for `'a`.
unsafe fn slice<'a, T>(start: *const T, count: i32) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: guaranteed by the caller.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(start, count) },
        _ => &[],
    }
}
