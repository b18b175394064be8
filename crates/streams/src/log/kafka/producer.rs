//! Writes records: one handle for a process, and a thread that hears of their
//! delivery. Nobody polls: the thread sleeps in librdkafka's queue, and whoever
//! waits for room sleeps until it has heard.

mod delivery_thread;
mod message_opaque;
mod topic_handles;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka_sys as sys;

use super::super::{ErrorKind, LogError, Producer, Result};
use super::config::Config;
use super::error_reporter::{explain, kind};
use super::raw::{ClientKind, ErrorCode, KafkaError};
use crate::receipt::Receipt;
use crate::record::NewRecord;
use delivery_thread::DeliveryThread;
use message_opaque::MessageOpaque;
use topic_handles::TopicHandles;

/// Any partition: by the key's hash.
const BY_KEY: i32 = -1;

/// A producer of Kafka's.
pub struct KafkaProducer {
    topics: TopicHandles,
    deliveries: Arc<DeliveryThread>,
    thread: Option<JoinHandle<()>>,
}

impl KafkaProducer {
    /// With a handle and a thread of its own.
    pub(super) fn new(config: &Config) -> Result<Self> {
        let mut conf = config.producer()?;
        conf.events(sys::RD_KAFKA_EVENT_DR | sys::RD_KAFKA_EVENT_ERROR);
        let handle = config.open(ClientKind::Producer, conf)?;
        let deliveries = Arc::new(DeliveryThread::new(&handle, config));
        let heard = deliveries.clone();
        let thread = chaton_core::thread::spawn("chaton-kafka-out", move || heard.run());
        let thread = thread.map_err(|error| {
            let message = format!("no thread for the producer of Kafka: {error}");
            LogError::new(ErrorKind::Unreachable, message)
        })?;
        Ok(Self { topics: TopicHandles::new(&handle), deliveries, thread: Some(thread) })
    }

    fn explain(&self, record: &NewRecord<'_>, failure: &KafkaError) -> LogError {
        match kind(failure.code) {
            ErrorKind::Full => {
                self.deliveries.full();
                let message = "the producer's buffer is full; wait, or raise produce_buffer";
                LogError::new(ErrorKind::Full, message)
            }
            _ if failure.code == ErrorCode::UnknownPartition => {
                let partition = record.partition.unwrap_or(BY_KEY);
                let message = format!(
                    "topic {:?} has no partition {partition}; leave the partition out, or \
                     give the topic more",
                    record.topic
                );
                LogError::new(ErrorKind::UnknownTopic, message)
            }
            _ => {
                let size = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
                explain(&format!("a record of {size} bytes for topic {:?}", record.topic), failure)
            }
        }
    }
}

impl Producer for KafkaProducer {
    fn send(&self, record: &NewRecord<'_>, receipt: Option<(&Arc<Receipt>, usize)>) -> Result<()> {
        let ticket = receipt.map(|(receipt, index)| MessageOpaque::new(receipt.clone(), index));
        let opaque = ticket.as_ref().map_or(std::ptr::null_mut(), MessageOpaque::as_opaque);
        let partition = record.partition.unwrap_or(BY_KEY);
        let end = self.topics.with(record.topic, |topic| {
            if record.headers.is_empty() && record.timestamp_ms.is_none() {
                topic.produce(partition, record.key, record.value, opaque)
            } else {
                topic.produce_whole(
                    partition,
                    record.key,
                    record.value,
                    record.timestamp_ms,
                    record.headers,
                    opaque,
                )
            }
        })?;
        match end {
            Ok(()) => {
                // librdkafka has it now, and gives it back with the delivery.
                ticket.into_iter().for_each(MessageOpaque::given);
                Ok(())
            }
            Err(failure) => Err(self.explain(record, &failure)),
        }
    }

    fn wait_room(&self, timeout: Duration) -> bool {
        self.deliveries.wait_room(timeout)
    }

    fn interrupt(&self) {
        self.deliveries.interrupt();
    }

    fn flush(&self, timeout: Duration) -> usize {
        self.deliveries.handle().flush(timeout);
        self.deliveries.handle().left()
    }

    fn buffered(&self) -> usize {
        self.deliveries.handle().left()
    }
}

impl Drop for KafkaProducer {
    fn drop(&mut self) {
        // What is not delivered is told so: every receipt is settled.
        self.deliveries.end();
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            // It only panics with a receipt's callback, which has had its say.
            drop(thread.join());
        }
    }
}
