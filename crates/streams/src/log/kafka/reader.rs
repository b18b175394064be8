//! Reads one partition outside of any group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use rdkafka_sys as sys;

use super::config::Config;
use super::error_reporter::ErrorReporter;
use super::errors::explain;
use super::partition_queue::PartitionQueue;
use super::position;
use super::raw::{
    requests, ClientHandle, ClientKind, ErrorCode, EventKind, EventQueue, TopicHandle,
};
use crate::log::{
    ErrorKind, Limits, LogError, MemberEvent, Partition, PartitionReader, Position, Result,
};
use crate::poll::wait_notified;
use crate::record::Chunk;

pub struct KafkaReader {
    // Records and queues are dropped before the handle.
    reading: PartitionQueue,
    main: EventQueue,
    topic: TopicHandle,
    partition: Partition,
    errors: ErrorReporter,
    /// Notified by librdkafka.
    notifier: EventFd,
    interrupter: Arc<EventFd>,
}

impl KafkaReader {
    pub fn new(config: &Config, partition: &Partition, from: Position) -> Result<Self> {
        let mut conf = config.reader()?;
        conf.events(sys::RD_KAFKA_EVENT_ERROR);
        let handle = config.open(ClientKind::Consumer, conf)?;
        let main = EventQueue::of_handle(&handle);
        let timeout = config.settings.answer_timeout;
        let what = format!("{}/{} at {}", partition.topic, partition.number, config.address.url());
        check_exists(&handle, &main, partition, &what, timeout)?;
        let offset = position::resolve(&handle, partition, from, timeout)?;
        let explained = |error| explain(&what, &error);
        let topic = TopicHandle::new(&handle, &partition.topic)?.map_err(explained)?;
        let event_fd = || {
            EventFd::new().map_err(|error| {
                LogError::new(ErrorKind::Unreachable, format!("{what}: no descriptor: {error}"))
            })
        };
        let (notifier, interrupter) = (event_fd()?, Arc::new(event_fd()?));
        let queue = EventQueue::new(&handle);
        queue.notify(notifier.fd());
        main.notify(notifier.fd());
        topic.read(partition.number, offset, &queue).map_err(explained)?;
        Ok(Self {
            reading: PartitionQueue::new(queue, false),
            main,
            topic,
            partition: partition.clone(),
            errors: ErrorReporter::new(&config.address),
            notifier,
            interrupter,
        })
    }

    /// The error that prevents reading, if it was not reported yet.
    fn check_errors(&mut self) -> Result<()> {
        while let Some(event) = self.main.poll(Some(Duration::ZERO)) {
            if event.kind() == EventKind::Error {
                let error = event.error();
                check(self.errors.report(&error))?;
            }
        }
        for error in std::mem::take(&mut self.reading.errors) {
            if error.code != ErrorCode::PartitionEOF {
                check(self.errors.report(&error))?;
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
                self.errors.reset();
                return Ok(Some(chunk));
            }
            self.check_errors()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || wait_notified(&[&self.notifier, &self.interrupter], left)[1] {
                return Ok(self.reading.fetch(limits));
            }
        }
    }

    fn interrupter(&self) -> Arc<EventFd> {
        self.interrupter.clone()
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

/// Checks that the partition exists.
fn check_exists(
    handle: &ClientHandle,
    main: &EventQueue,
    partition: &Partition,
    what: &str,
    timeout: Duration,
) -> Result<()> {
    let layouts = requests::metadata(handle, false, timeout).map_err(|error| {
        // The cause has arrived meanwhile.
        let mut cause = error;
        while let Some(event) = main.poll(Some(Duration::ZERO)) {
            let reported = event.error();
            if event.kind() == EventKind::Error && reported.code != ErrorCode::AllBrokersDown {
                cause = reported;
            }
        }
        explain(what, &cause)
    })?;
    let topic = layouts.iter().find(|layout| layout.name == *partition.topic);
    if topic.is_some_and(|layout| layout.partitions.contains(&partition.number)) {
        return Ok(());
    }
    let why = match topic {
        Some(layout) => format!("the topic has {} partitions", layout.partitions.len()),
        None => "there is no such topic".to_owned(),
    };
    Err(LogError::new(ErrorKind::UnknownTopic, format!("{what}: {why}")))
}
