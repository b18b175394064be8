//! Writes records: one handle per process, and a thread that waits for delivery reports in
//! librdkafka's queue. Threads that wait for room in the buffer are woken by that thread.

mod delivery_thread;
mod message_opaque;
mod topic_handles;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka_sys as sys;

use super::broker_statistics::BrokerStatistics;
use super::config::Config;
use super::errors::{error_kind, explain};
use super::raw::{ClientKind, ErrorCode, KafkaError};
use crate::delivery_errors::DeliveryErrors;
use crate::log::{ErrorKind, LogError, Producer, Result};
use crate::receipt::Receipt;
use crate::record::NewRecord;
use delivery_thread::DeliveryThread;
use message_opaque::MessageOpaque;
use topic_handles::TopicHandles;

/// Lets librdkafka choose the partition by the key.
const BY_KEY: i32 = -1;

pub struct KafkaProducer {
    topics: TopicHandles,
    deliveries: Arc<DeliveryThread>,
    thread: Option<JoinHandle<()>>,
}

impl KafkaProducer {
    pub(super) fn new(config: &Config, errors: &Arc<DeliveryErrors>) -> Result<Self> {
        let mut conf = config.producer()?;
        let (statistics_event, statistics) =
            BrokerStatistics::enable(&config.statistics, &mut conf);
        conf.events(sys::RD_KAFKA_EVENT_DR | sys::RD_KAFKA_EVENT_ERROR | statistics_event);
        let handle = config.open(ClientKind::Producer, conf)?;
        let deliveries = Arc::new(DeliveryThread::new(&handle, config, statistics, errors));
        let shared = deliveries.clone();
        let thread = chaton_core::thread::spawn("chaton-kafka-out", move || shared.run());
        let thread = thread.map_err(|error| {
            let message = format!("no thread for the producer of Kafka: {error}");
            LogError::new(ErrorKind::Unreachable, message)
        })?;
        Ok(Self { topics: TopicHandles::new(&handle), deliveries, thread: Some(thread) })
    }

    fn explain(&self, record: &NewRecord<'_>, error: &KafkaError) -> LogError {
        match error_kind(error.code) {
            ErrorKind::Full => {
                self.deliveries.buffer_full();
                let message = "the producer's buffer is full; wait, or raise produce_buffer";
                LogError::new(ErrorKind::Full, message)
            }
            _ if error.code == ErrorCode::UnknownPartition => {
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
                explain(&format!("a record of {size} bytes for topic {:?}", record.topic), error)
            }
        }
    }
}

impl Producer for KafkaProducer {
    fn send(&self, record: &NewRecord<'_>, receipt: Option<(&Arc<Receipt>, usize)>) -> Result<()> {
        let opaque_guard =
            receipt.map(|(receipt, index)| MessageOpaque::new(receipt.clone(), index));
        let pointer = opaque_guard.as_ref().map_or(std::ptr::null_mut(), MessageOpaque::as_opaque);
        let partition = record.partition.unwrap_or(BY_KEY);
        let end = self.topics.with(record.topic, |topic| {
            if record.headers.is_empty() && record.timestamp_ms.is_none() {
                topic.produce(partition, record.key, record.value, pointer)
            } else {
                topic.produce_with(
                    partition,
                    record.key,
                    record.value,
                    record.timestamp_ms,
                    record.headers,
                    pointer,
                )
            }
        })?;
        match end {
            Ok(()) => {
                // librdkafka returns it with the delivery report.
                opaque_guard.into_iter().for_each(MessageOpaque::hand_over);
                Ok(())
            }
            Err(error) => Err(self.explain(record, &error)),
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
        self.deliveries.handle().undelivered()
    }

    fn buffered(&self) -> usize {
        self.deliveries.handle().undelivered()
    }

    fn has_failed(&self) -> bool {
        self.deliveries.has_failed()
    }
}

impl Drop for KafkaProducer {
    fn drop(&mut self) {
        // Completes every receipt, with an error if the record is undelivered.
        self.deliveries.end();
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            // The thread panics only if a callback of a receipt does.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::settings::LogSettings;
    use crate::shared_producer::SharedProducer;

    #[test]
    fn a_producer_with_a_fatal_error_is_replaced() {
        // Nobody answers at this address.
        let config = Config::new(&LogSettings::for_tests("kafka://127.0.0.1:9")).unwrap();
        let shared = SharedProducer::default();
        let first = Arc::new(KafkaProducer::new(&config, &Arc::default()).unwrap());
        let get = || shared.get(|| Ok(Arc::new(KafkaProducer::new(&config, &Arc::default())?)));
        shared.get(|| Ok(first.clone())).unwrap();
        assert!(!get().unwrap().has_failed());
        let code = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        // SAFETY: our handle, a zero-ended text.
        unsafe {
            let handle = first.deliveries.handle().raw();
            sys::rd_kafka_test_fatal_error(handle, code, c"for a test".as_ptr());
        }
        let until = Instant::now() + Duration::from_secs(60);
        while !first.has_failed() {
            assert!(Instant::now() < until, "the error is not reported");
            std::thread::sleep(Duration::from_millis(5));
        }
        let record = NewRecord {
            topic: "t",
            partition: None,
            key: None,
            value: None,
            headers: &[],
            timestamp_ms: None,
        };
        assert!(first.send(&record, None).is_err());
        let second = get().unwrap();
        assert!(!second.has_failed());
        second.send(&record, None).unwrap();
    }
}
