//! Reads one partition outside of any group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use rdkafka_sys as sys;

use super::super::{
    ErrorKind, Limits, LogError, MemberEvent, Partition, PartitionReader, Position, Result,
};
use super::config::Config;
use super::error_reporter::{explain, ErrorReporter};
use super::partition_queue::PartitionQueue;
use super::raw::{
    requests, ClientHandle, ClientKind, ErrorCode, EventKind, EventQueue, TopicHandle,
};
use super::wait;
use crate::record::Chunk;

/// A reader of Kafka's.
pub struct KafkaReader {
    // Records and queues go before the handle.
    reading: PartitionQueue,
    main: EventQueue,
    topic: TopicHandle,
    partition: Partition,
    errors: ErrorReporter,
    /// librdkafka's.
    bell: EventFd,
    /// Of whoever interrupts.
    stop: Arc<EventFd>,
}

impl KafkaReader {
    /// Begins to read.
    pub fn new(config: &Config, partition: &Partition, from: Position) -> Result<Self> {
        let mut conf = config.reader()?;
        conf.events(sys::RD_KAFKA_EVENT_ERROR);
        let handle = config.open(ClientKind::Consumer, conf)?;
        let main = EventQueue::of_handle(&handle);
        let timeout = Duration::from_millis(config.settings.answer_timeout_ms);
        let what = format!("{}/{} at {}", partition.topic, partition.number, config.address.url());
        find(&handle, &main, partition, &what, timeout)?;
        let offset = super::offset_of(&handle, partition, from, timeout)?;
        let explained = |failure| explain(&what, &failure);
        let topic = TopicHandle::new(&handle, &partition.topic)?.map_err(explained)?;
        let event_fd = || {
            EventFd::new().map_err(|error| {
                LogError::new(ErrorKind::Unreachable, format!("{what}: no descriptor: {error}"))
            })
        };
        let (bell, stop) = (event_fd()?, Arc::new(event_fd()?));
        let queue = EventQueue::new(&handle);
        queue.notify(bell.fd());
        main.notify(bell.fd());
        topic.read(partition.number, offset, &queue).map_err(explained)?;
        Ok(Self {
            reading: PartitionQueue::new(queue),
            main,
            topic,
            partition: partition.clone(),
            errors: ErrorReporter::new(&config.address),
            bell,
            stop,
        })
    }

    /// What stands in the way, if it is told for the first time.
    fn trouble(&mut self) -> Result<()> {
        while let Some(event) = self.main.poll(Some(Duration::ZERO)) {
            if event.kind() == EventKind::Error {
                let failure = event.failure();
                check(self.errors.hear(&failure))?;
            }
        }
        for failure in std::mem::take(&mut self.reading.failures) {
            if failure.code != ErrorCode::PartitionEOF {
                check(self.errors.hear(&failure))?;
            }
        }
        Ok(())
    }
}

impl PartitionReader for KafkaReader {
    fn next(&mut self, limits: Limits, timeout: Duration) -> Result<Option<Chunk>> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(chunk) = self.reading.fetch(limits) {
                self.errors.forget();
                return Ok(Some(chunk));
            }
            self.trouble()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || wait::on_either(&self.bell, &self.stop, left) {
                return Ok(self.reading.fetch(limits));
            }
        }
    }

    fn interrupter(&self) -> Arc<EventFd> {
        self.stop.clone()
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        self.topic.stop_reading(self.partition.number);
        self.main.silence();
    }
}

fn check(event: Option<MemberEvent>) -> Result<()> {
    match event {
        Some(MemberEvent::Error(error) | MemberEvent::Fatal(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Whether there is such a partition.
fn find(
    handle: &ClientHandle,
    main: &EventQueue,
    partition: &Partition,
    what: &str,
    timeout: Duration,
) -> Result<()> {
    let shapes = requests::metadata(handle, timeout).map_err(|failure| {
        // Why nobody answered has come meanwhile.
        let mut cause = failure;
        while let Some(event) = main.poll(Some(Duration::ZERO)) {
            let heard = event.failure();
            if event.kind() == EventKind::Error && heard.code != ErrorCode::AllBrokersDown {
                cause = heard;
            }
        }
        explain(what, &cause)
    })?;
    let topic = shapes.iter().find(|shape| shape.name == *partition.topic);
    if topic.is_some_and(|shape| shape.partitions.contains(&partition.number)) {
        return Ok(());
    }
    let why = match topic {
        Some(shape) => format!("the topic has {} partitions", shape.partitions.len()),
        None => "there is no such topic".to_owned(),
    };
    Err(LogError::new(ErrorKind::UnknownTopic, format!("{what}: {why}")))
}
