use std::collections::BTreeMap;
use std::ffi::c_char;
use std::time::Duration;

use rdkafka_sys as sys;

use super::options::{slice_of, AdminOptions, EventType};
use crate::log::kafka::raw::event_queue::{EventQueue, QueueEvent};
use crate::log::kafka::raw::kafka_error::{ErrorCode, KafkaError};
use crate::log::kafka::raw::text::{copied, text, written};
use crate::log::kafka::raw::topic_partitions::{TopicPartition, TopicPartitionList};
use crate::log::{ErrorKind, LogError, NewTopic, Result as LogResult};

pub fn create(queue: &EventQueue, topic: &NewTopic, timeout: Duration) -> LogResult<EventType> {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATETOPICS;
    let options = AdminOptions::new(handle, what, timeout);
    let name = text(&topic.name)?;
    let mut settings = Vec::new();
    for (key, value) in &topic.settings {
        settings.push((text(key)?, text(value)?));
    }
    let mut why = [0u8; 512];
    // SAFETY: our handle and queue, zero-ended texts; what is made is given
    // back once. -1 stands for the broker's default.
    unsafe {
        let mut new = sys::rd_kafka_NewTopic_new(
            name.as_ptr(),
            topic.partitions.unwrap_or(-1),
            topic.replication.unwrap_or(-1),
            why.as_mut_ptr().cast(),
            why.len(),
        );
        if new.is_null() {
            return Err(invalid(&topic.name, &why));
        }
        for (key, value) in &settings {
            sys::rd_kafka_NewTopic_set_config(new, key.as_ptr(), value.as_ptr());
        }
        sys::rd_kafka_CreateTopics(handle.raw(), &raw mut new, 1, options.0, queue.raw());
        sys::rd_kafka_NewTopic_destroy(new);
    }
    Ok(sys::RD_KAFKA_EVENT_CREATETOPICS_RESULT)
}

/// Adds partitions to a topic.
pub fn grow(
    queue: &EventQueue,
    name: &str,
    total: usize,
    timeout: Duration,
) -> LogResult<EventType> {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATEPARTITIONS;
    let options = AdminOptions::new(handle, what, timeout);
    let topic = text(name)?;
    let mut why = [0u8; 512];
    // SAFETY: as in `create`.
    unsafe {
        let buffer = why.as_mut_ptr().cast();
        let mut new = sys::rd_kafka_NewPartitions_new(topic.as_ptr(), total, buffer, why.len());
        if new.is_null() {
            return Err(invalid(name, &why));
        }
        sys::rd_kafka_CreatePartitions(handle.raw(), &raw mut new, 1, options.0, queue.raw());
        sys::rd_kafka_NewPartitions_destroy(new);
    }
    Ok(sys::RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT)
}

pub fn delete(queue: &EventQueue, name: &str, timeout: Duration) -> LogResult<EventType> {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DELETETOPICS;
    let options = AdminOptions::new(handle, what, timeout);
    let topic = text(name)?;
    // SAFETY: as in `create`.
    unsafe {
        let mut old = sys::rd_kafka_DeleteTopic_new(topic.as_ptr());
        sys::rd_kafka_DeleteTopics(handle.raw(), &raw mut old, 1, options.0, queue.raw());
        sys::rd_kafka_DeleteTopic_destroy(old);
    }
    Ok(sys::RD_KAFKA_EVENT_DELETETOPICS_RESULT)
}

/// Changes settings of a topic.
pub fn configure(
    queue: &EventQueue,
    name: &str,
    settings: &BTreeMap<String, String>,
    timeout: Duration,
) -> LogResult<EventType> {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS;
    let options = AdminOptions::new(handle, what, timeout);
    let mut resource = resource(name)?;
    for (key, value) in settings {
        let (key, value) = (text(key)?, text(value)?);
        // SAFETY: our resource, zero-ended texts; the error is ours. It only
        // occurs for a duplicate name, which a map rules out.
        let _ = unsafe {
            let set = sys::rd_kafka_AlterConfigOpType_t::RD_KAFKA_ALTER_CONFIG_OP_TYPE_SET;
            KafkaError::take(sys::rd_kafka_ConfigResource_add_incremental_config(
                resource.0,
                key.as_ptr(),
                set,
                value.as_ptr(),
            ))
        };
    }
    // SAFETY: our handle, resource, options and queue.
    unsafe {
        let list = &raw mut resource.0;
        sys::rd_kafka_IncrementalAlterConfigs(handle.raw(), list, 1, options.0, queue.raw());
    }
    Ok(sys::RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT)
}

/// Requests the settings of topics.
pub fn settings(queue: &EventQueue, names: &[&str], timeout: Duration) -> LogResult<EventType> {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS;
    let options = AdminOptions::new(handle, what, timeout);
    let owners = names.iter().map(|name| resource(name)).collect::<LogResult<Vec<_>>>()?;
    let mut list: Vec<_> = owners.iter().map(|one| one.0).collect();
    // SAFETY: our handle, options and queue, and so many resources of ours.
    unsafe {
        let first = list.as_mut_ptr();
        sys::rd_kafka_DescribeConfigs(handle.raw(), first, list.len(), options.0, queue.raw());
    }
    Ok(sys::RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT)
}

/// The settings that differ from the defaults, by topic.
pub fn read_settings(
    event: &QueueEvent,
) -> Result<BTreeMap<String, BTreeMap<String, String>>, KafkaError> {
    let mut found = BTreeMap::new();
    let mut count = 0;
    // SAFETY: an event of this kind, whose lists and texts live as long.
    unsafe {
        let result = sys::rd_kafka_event_DescribeConfigs_result(event.raw());
        let list = sys::rd_kafka_DescribeConfigs_result_resources(result, &raw mut count);
        for resource in slice_of(list, count) {
            check_resource(*resource)?;
            let list = sys::rd_kafka_ConfigResource_configs(*resource, &raw mut count);
            let own = slice_of(list, count).iter().filter(|entry| {
                sys::rd_kafka_ConfigEntry_source(**entry)
                    == sys::rd_kafka_ConfigSource_t::RD_KAFKA_CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG
            });
            let pair = |entry: &*const sys::rd_kafka_ConfigEntry_t| {
                let name = copied(sys::rd_kafka_ConfigEntry_name(*entry));
                (name, copied(sys::rd_kafka_ConfigEntry_value(*entry)))
            };
            let name = copied(sys::rd_kafka_ConfigResource_name(*resource));
            found.insert(name, own.map(pair).collect());
        }
    }
    Ok(found)
}

/// The result of a request that changes topics.
pub fn read_done(event: &QueueEvent, answer: EventType) -> Result<(), KafkaError> {
    let mut count = 0;
    // SAFETY: an event of the kind that `answer` says, whose list lives as long.
    unsafe {
        let list = match answer {
            sys::RD_KAFKA_EVENT_CREATETOPICS_RESULT => {
                let result = sys::rd_kafka_event_CreateTopics_result(event.raw());
                sys::rd_kafka_CreateTopics_result_topics(result, &raw mut count)
            }
            sys::RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT => {
                let result = sys::rd_kafka_event_CreatePartitions_result(event.raw());
                sys::rd_kafka_CreatePartitions_result_topics(result, &raw mut count)
            }
            sys::RD_KAFKA_EVENT_DELETETOPICS_RESULT => {
                let result = sys::rd_kafka_event_DeleteTopics_result(event.raw());
                sys::rd_kafka_DeleteTopics_result_topics(result, &raw mut count)
            }
            _ => {
                let result = sys::rd_kafka_event_IncrementalAlterConfigs_result(event.raw());
                let list =
                    sys::rd_kafka_IncrementalAlterConfigs_result_resources(result, &raw mut count);
                return slice_of(list, count).iter().try_for_each(|one| check_resource(*one));
            }
        };
        slice_of(list, count).iter().try_for_each(|one| {
            let text = sys::rd_kafka_topic_result_error_string(*one);
            check(sys::rd_kafka_topic_result_error(*one), text)
        })
    }
}

/// Requests the first (-2 in the list) or last (-1) offsets of partitions.
pub fn offsets(queue: &EventQueue, list: &TopicPartitionList, timeout: Duration) -> EventType {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTOFFSETS;
    let options = AdminOptions::new(handle, what, timeout);
    // SAFETY: our handle, list, options and queue.
    unsafe { sys::rd_kafka_ListOffsets(handle.raw(), list.raw(), options.0, queue.raw()) };
    sys::RD_KAFKA_EVENT_LISTOFFSETS_RESULT
}

pub fn read_offsets(event: &QueueEvent) -> Result<Vec<(String, i32, i64)>, KafkaError> {
    let mut count = 0;
    // SAFETY: an event of this kind, whose list lives as long.
    unsafe {
        let result = sys::rd_kafka_event_ListOffsets_result(event.raw());
        let list = sys::rd_kafka_ListOffsets_result_infos(result, &raw mut count);
        let infos = slice_of(list, count).iter();
        infos
            .map(|info| {
                let partition = &*sys::rd_kafka_ListOffsetsResultInfo_topic_partition(*info);
                let partition = TopicPartition::of(partition);
                match partition.code() {
                    ErrorCode::NoError => {
                        let offset = partition.offset().unwrap_or(0);
                        Ok((partition.topic().to_owned(), partition.partition(), offset))
                    }
                    code => Err(KafkaError::of(code)),
                }
            })
            .collect()
    }
}

/// Names the topic of a settings request.
struct ConfigResource(*mut sys::rd_kafka_ConfigResource_t);

impl Drop for ConfigResource {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_ConfigResource_destroy(self.0) };
    }
}

fn resource(name: &str) -> LogResult<ConfigResource> {
    let name = text(name)?;
    let kind = sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC;
    // SAFETY: a zero-ended text, which is copied.
    Ok(ConfigResource(unsafe { sys::rd_kafka_ConfigResource_new(kind, name.as_ptr()) }))
}

/// # Safety
/// `resource` is valid.
unsafe fn check_resource(
    resource: *const sys::rd_kafka_ConfigResource_t,
) -> Result<(), KafkaError> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let text = sys::rd_kafka_ConfigResource_error_string(resource);
        check(sys::rd_kafka_ConfigResource_error(resource), text)
    }
}

/// An error gets the broker's text, if it sent one.
///
/// # Safety
/// `text` is null or ends with a zero byte.
unsafe fn check(code: sys::rd_kafka_resp_err_t, text: *const c_char) -> Result<(), KafkaError> {
    // SAFETY: guaranteed by the caller.
    let (code, text) = (ErrorCode::from(code), unsafe { copied(text) });
    match code {
        ErrorCode::NoError => Ok(()),
        _ if text.is_empty() => Err(KafkaError::of(code)),
        _ => Err(KafkaError::new(code, text)),
    }
}

fn invalid(name: &str, why: &[u8]) -> LogError {
    LogError::new(ErrorKind::Invalid, format!("topic {name:?}: {}", written(why)))
}
