use std::ffi::{c_void, CStr};

use rdkafka_sys as sys;

use super::kafka_error::{ErrorCode, KafkaError};
use super::text::text;
use crate::log::Result as LogResult;

/// A list of partitions, each with an offset, metadata and an error.
pub struct TopicPartitionList(*mut sys::rd_kafka_topic_partition_list_t);

// SAFETY: plain memory with one owner.
unsafe impl Send for TopicPartitionList {}

pub struct TopicPartition<'a>(&'a sys::rd_kafka_topic_partition_t);

/// The partitions of a borrowed list.
pub struct TopicPartitions<'a>(&'a [sys::rd_kafka_topic_partition_t]);

impl TopicPartitionList {
    pub fn new() -> Self {
        // SAFETY: takes a size to begin with.
        Self(unsafe { sys::rd_kafka_topic_partition_list_new(8) })
    }

    /// A copy of a list.
    ///
    /// # Safety
    /// `list` is null or valid.
    pub(super) unsafe fn copy(list: *const sys::rd_kafka_topic_partition_list_t) -> Self {
        if list.is_null() {
            return Self::new();
        }
        // SAFETY: whole, as the caller says.
        Self(unsafe { sys::rd_kafka_topic_partition_list_copy(list) })
    }

    /// # Errors
    /// If the topic's name contains a zero byte.
    pub fn add(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        metadata: &str,
    ) -> LogResult<()> {
        let topic = text(topic)?;
        // SAFETY: our list; it copies the topic, and gives the note back to
        // the allocator that we take it from.
        unsafe {
            let partition =
                sys::rd_kafka_topic_partition_list_add(self.0, topic.as_ptr(), partition);
            (*partition).offset = offset;
            if !metadata.is_empty() {
                let memory = sys::rd_kafka_mem_malloc(std::ptr::null_mut(), metadata.len());
                std::ptr::copy_nonoverlapping(
                    metadata.as_ptr().cast::<c_void>(),
                    memory,
                    metadata.len(),
                );
                (*partition).metadata = memory;
                (*partition).metadata_size = metadata.len();
            }
        }
        Ok(())
    }

    /// Sets the offset of each partition.
    pub fn set_offsets(&mut self, mut offset: impl FnMut(TopicPartition<'_>) -> i64) {
        // SAFETY: our list of `cnt` whole elements, borrowed for writing.
        let partitions = unsafe {
            let list = &*self.0;
            std::slice::from_raw_parts_mut(list.elems, list.cnt.max(0) as usize)
        };
        for partition in partitions {
            partition.offset = offset(TopicPartition(partition));
        }
    }

    pub fn partitions(&self) -> TopicPartitions<'_> {
        // SAFETY: our list.
        unsafe { TopicPartitions::of(self.0) }
    }

    pub(in super::super) fn raw(&self) -> *mut sys::rd_kafka_topic_partition_list_t {
        self.0
    }
}

impl Drop for TopicPartitionList {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_topic_partition_list_destroy(self.0) };
    }
}

impl<'a> TopicPartitions<'a> {
    /// Borrows a list.
    ///
    /// # Safety
    /// `list` is null or valid for `'a`.
    pub(in super::super) unsafe fn of(list: *const sys::rd_kafka_topic_partition_list_t) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match list.as_ref() {
                Some(list) if list.cnt > 0 => {
                    Self(std::slice::from_raw_parts(list.elems, list.cnt as usize))
                }
                _ => Self(&[]),
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = TopicPartition<'a>> + use<'a> {
        self.0.iter().map(TopicPartition)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first error of a partition.
    pub fn check(&self) -> Result<(), KafkaError> {
        self.0.iter().try_for_each(|partition| KafkaError::check(partition.err))
    }
}

impl<'a> TopicPartition<'a> {
    pub(super) fn of(partition: &'a sys::rd_kafka_topic_partition_t) -> Self {
        Self(partition)
    }

    pub fn topic(&self) -> &'a str {
        // SAFETY: a zero-ended text that lives as long as its list.
        unsafe { CStr::from_ptr(self.0.topic) }.to_str().unwrap_or_default()
    }

    pub fn partition(&self) -> i32 {
        self.0.partition
    }

    /// The offset, if it is set.
    pub fn offset(&self) -> Option<i64> {
        (self.0.offset >= 0).then_some(self.0.offset)
    }

    /// The metadata of a commit.
    pub fn metadata(&self) -> String {
        if self.0.metadata.is_null() {
            return String::new();
        }
        // SAFETY: so many bytes that live as long as the list.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.0.metadata.cast::<u8>(), self.0.metadata_size)
        };
        String::from_utf8_lossy(bytes).into_owned()
    }

    pub fn code(&self) -> ErrorCode {
        ErrorCode::from(self.0.err)
    }
}
