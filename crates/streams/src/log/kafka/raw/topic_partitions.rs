use std::ffi::{c_void, CStr};

use rdkafka_sys as sys;

use super::super::super::Result;
use super::{text, ErrorCode, KafkaError};

/// Partitions, each with an offset, a note and what is wrong with it.
pub struct TopicPartitionList(*mut sys::rd_kafka_topic_partition_list_t);

// SAFETY: plain memory with one owner.
unsafe impl Send for TopicPartitionList {}

/// One partition of a list.
pub struct TopicPartition<'a>(&'a sys::rd_kafka_topic_partition_t);

/// The partitions of a list of librdkafka's.
pub struct TopicPartitions<'a>(&'a [sys::rd_kafka_topic_partition_t]);

impl TopicPartitionList {
    /// An empty list.
    pub fn new() -> Self {
        // SAFETY: takes a size to begin with.
        Self(unsafe { sys::rd_kafka_topic_partition_list_new(8) })
    }

    /// A copy of one of librdkafka's.
    ///
    /// # Safety
    /// `list` is null or whole.
    pub(super) unsafe fn copy(list: *const sys::rd_kafka_topic_partition_list_t) -> Self {
        if list.is_null() {
            return Self::new();
        }
        // SAFETY: whole, as the caller says.
        Self(unsafe { sys::rd_kafka_topic_partition_list_copy(list) })
    }

    /// Adds a partition.
    ///
    /// # Errors
    /// For a topic's name that is none.
    pub fn add(&mut self, topic: &str, partition: i32, offset: i64, note: &str) -> Result<()> {
        let topic = text(topic)?;
        // SAFETY: our list; it copies the topic, and gives the note back to
        // the allocator that we take it from.
        unsafe {
            let partition =
                sys::rd_kafka_topic_partition_list_add(self.0, topic.as_ptr(), partition);
            (*partition).offset = offset;
            if !note.is_empty() {
                let memory = sys::rd_kafka_mem_malloc(std::ptr::null_mut(), note.len());
                std::ptr::copy_nonoverlapping(note.as_ptr().cast::<c_void>(), memory, note.len());
                (*partition).metadata = memory;
                (*partition).metadata_size = note.len();
            }
        }
        Ok(())
    }

    /// Sets the offset of each by what is known of it.
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

    /// What it holds.
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
    /// Of a list of librdkafka's.
    ///
    /// # Safety
    /// `list` is null or whole for `'a`.
    pub(in super::super) unsafe fn of(list: *const sys::rd_kafka_topic_partition_list_t) -> Self {
        // SAFETY: as the caller says.
        unsafe {
            match list.as_ref() {
                Some(list) if list.cnt > 0 => {
                    Self(std::slice::from_raw_parts(list.elems, list.cnt as usize))
                }
                _ => Self(&[]),
            }
        }
    }

    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = TopicPartition<'a>> + use<'a> {
        self.0.iter().map(TopicPartition)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first failure of one.
    pub fn failure(&self) -> Option<KafkaError> {
        self.0.iter().find_map(|partition| KafkaError::check(partition.err).err())
    }
}

impl<'a> TopicPartition<'a> {
    /// One of librdkafka's.
    pub(super) fn of(partition: &'a sys::rd_kafka_topic_partition_t) -> Self {
        Self(partition)
    }

    /// The topic's name.
    pub fn topic(&self) -> &'a str {
        // SAFETY: a zero-ended text that lives as long as its list.
        unsafe { CStr::from_ptr(self.0.topic) }.to_str().unwrap_or_default()
    }

    /// The partition's number.
    pub fn partition(&self) -> i32 {
        self.0.partition
    }

    /// The offset, if it is one.
    pub fn offset(&self) -> Option<i64> {
        (self.0.offset >= 0).then_some(self.0.offset)
    }

    /// What was noted beside it.
    pub fn note(&self) -> String {
        if self.0.metadata.is_null() {
            return String::new();
        }
        // SAFETY: so many bytes that live as long as the list.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.0.metadata.cast::<u8>(), self.0.metadata_size)
        };
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// What is wrong with it.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::from(self.0.err)
    }
}
