use std::time::Duration;

use rdkafka_sys as sys;

use super::options::{borrowed_error, slice_of, AdminOptions, EventType};
use crate::log::kafka::raw::event_queue::{EventQueue, QueueEvent};
use crate::log::kafka::raw::kafka_error::KafkaError;
use crate::log::kafka::raw::text::{copied, text};
use crate::log::kafka::raw::topic_partitions::{
    TopicPartition, TopicPartitionList, TopicPartitions,
};
use crate::log::{Commit, GroupDescription, MemberDescription, Result as LogResult};

/// Requests the names of all groups.
pub fn list_groups(queue: &EventQueue, timeout: Duration) -> EventType {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS;
    let options = AdminOptions::new(handle, what, timeout);
    // SAFETY: our handle, options and queue.
    unsafe { sys::rd_kafka_ListConsumerGroups(handle.raw(), options.0, queue.raw()) };
    sys::RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT
}

pub fn read_names(event: &QueueEvent) -> Result<Vec<String>, KafkaError> {
    let mut count = 0;
    // SAFETY: an event of this kind, whose lists and texts live as long.
    unsafe {
        let result = sys::rd_kafka_event_ListConsumerGroups_result(event.raw());
        let errors = sys::rd_kafka_ListConsumerGroups_result_errors(result, &raw mut count);
        if let Some(error) = slice_of(errors, count).iter().find_map(|one| borrowed_error(*one)) {
            return Err(error);
        }
        let list = sys::rd_kafka_ListConsumerGroups_result_valid(result, &raw mut count);
        let name = |one: &*const _| copied(sys::rd_kafka_ConsumerGroupListing_group_id(*one));
        Ok(slice_of(list, count).iter().map(name).collect())
    }
}

/// Requests the members of these groups.
pub fn describe_groups(
    queue: &EventQueue,
    names: &[String],
    timeout: Duration,
) -> LogResult<EventType> {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    let options = AdminOptions::new(handle, what, timeout);
    let names = names.iter().map(|name| text(name)).collect::<LogResult<Vec<_>>>()?;
    let mut list: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: our handle, options and queue, and so many zero-ended texts.
    unsafe {
        let first = list.as_mut_ptr();
        let (count, options) = (list.len(), options.0);
        sys::rd_kafka_DescribeConsumerGroups(handle.raw(), first, count, options, queue.raw());
    }
    Ok(sys::RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT)
}

/// The requested groups without those deleted meanwhile.
pub fn read_groups(event: &QueueEvent) -> Vec<GroupDescription> {
    let mut count = 0;
    // SAFETY: an event of this kind, whose lists and texts live as long.
    unsafe {
        let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event.raw());
        let list = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut count);
        let there = slice_of(list, count).iter().filter(|one| {
            borrowed_error(sys::rd_kafka_ConsumerGroupDescription_error(**one)).is_none()
        });
        there.map(|one| group(*one)).collect()
    }
}

/// # Safety
/// `group` is valid.
unsafe fn group(group: *const sys::rd_kafka_ConsumerGroupDescription_t) -> GroupDescription {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let state = sys::rd_kafka_ConsumerGroupDescription_state(group);
        let count = sys::rd_kafka_ConsumerGroupDescription_member_count(group);
        let member = |index| {
            let member = sys::rd_kafka_ConsumerGroupDescription_member(group, index);
            let assigned = sys::rd_kafka_MemberDescription_assignment(member);
            let list = sys::rd_kafka_MemberAssignment_partitions(assigned);
            let name =
                |place: TopicPartition<'_>| format!("{}-{}", place.topic(), place.partition());
            MemberDescription {
                id: copied(sys::rd_kafka_MemberDescription_consumer_id(member)),
                host: copied(sys::rd_kafka_MemberDescription_host(member)),
                partitions: TopicPartitions::of(list).iter().map(name).collect(),
            }
        };
        GroupDescription {
            name: copied(sys::rd_kafka_ConsumerGroupDescription_group_id(group)),
            state: copied(sys::rd_kafka_consumer_group_state_name(state)),
            members: (0..count).map(member).collect(),
        }
    }
}

/// Requests the committed offsets of a group.
pub fn committed(queue: &EventQueue, group: &str, timeout: Duration) -> LogResult<EventType> {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS;
    let options = AdminOptions::new(handle, what, timeout);
    let group = text(group)?;
    // SAFETY: our handle, options and queue, a zero-ended text; null stands for
    // all partitions. What is made is given back.
    unsafe {
        let none = std::ptr::null();
        let mut one = sys::rd_kafka_ListConsumerGroupOffsets_new(group.as_ptr(), none);
        let list = &raw mut one;
        sys::rd_kafka_ListConsumerGroupOffsets(handle.raw(), list, 1, options.0, queue.raw());
        sys::rd_kafka_ListConsumerGroupOffsets_destroy(one);
    }
    Ok(sys::RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT)
}

/// The offsets that are committed.
pub fn read_committed(event: &QueueEvent) -> Result<Vec<Commit>, KafkaError> {
    let mut count = 0;
    // SAFETY: an event of this kind, whose list lives as long.
    unsafe {
        let result = sys::rd_kafka_event_ListConsumerGroupOffsets_result(event.raw());
        let groups = sys::rd_kafka_ListConsumerGroupOffsets_result_groups(result, &raw mut count);
        let mut commits = Vec::new();
        for one in slice_of(groups, count) {
            let partitions = partitions(*one)?;
            commits.extend(partitions.iter().filter_map(|partition| {
                Some(Commit {
                    topic: partition.topic().to_owned(),
                    partition: partition.partition(),
                    offset: partition.offset()?,
                    metadata: partition.metadata(),
                })
            }));
        }
        Ok(commits)
    }
}

/// Sets committed offsets of a group.
pub fn set_committed(
    queue: &EventQueue,
    group: &str,
    list: &TopicPartitionList,
    timeout: Duration,
) -> LogResult<EventType> {
    let handle = queue.handle();
    let what = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS;
    let options = AdminOptions::new(handle, what, timeout);
    let group = text(group)?;
    // SAFETY: as in `committed`; the list is copied.
    unsafe {
        let mut one = sys::rd_kafka_AlterConsumerGroupOffsets_new(group.as_ptr(), list.raw());
        let all = &raw mut one;
        sys::rd_kafka_AlterConsumerGroupOffsets(handle.raw(), all, 1, options.0, queue.raw());
        sys::rd_kafka_AlterConsumerGroupOffsets_destroy(one);
    }
    Ok(sys::RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT)
}

pub fn read_set_committed(event: &QueueEvent) -> Result<(), KafkaError> {
    let mut count = 0;
    // SAFETY: an event of this kind, whose list lives as long.
    unsafe {
        let result = sys::rd_kafka_event_AlterConsumerGroupOffsets_result(event.raw());
        let groups = sys::rd_kafka_AlterConsumerGroupOffsets_result_groups(result, &raw mut count);
        slice_of(groups, count).iter().try_for_each(|one| partitions(*one).map(drop))
    }
}

/// # Safety
/// `result` is valid for `'a`.
unsafe fn partitions<'a>(
    result: *const sys::rd_kafka_group_result_t,
) -> Result<TopicPartitions<'a>, KafkaError> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if let Some(error) = borrowed_error(sys::rd_kafka_group_result_error(result)) {
            return Err(error);
        }
        let partitions = TopicPartitions::of(sys::rd_kafka_group_result_partitions(result));
        partitions.check().map(|()| partitions)
    }
}
