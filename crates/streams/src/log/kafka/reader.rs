//! Reads one partition outside of any group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use rdkafka_sys as sys;

use super::super::{
    ErrorKind, Limits, LogError, MemberEvent, Partition, PartitionReader, Position, Result,
};
use super::config::Config;
use super::member::Reading;
use super::raw::{ask, Code, EventKind, Handle, Kind, Queue, TopicHandle};
use super::trouble::{explain, Troubles};
use super::wait;
use crate::record::Chunk;

/// A reader of Kafka's.
pub struct KafkaReader {
    // Records and queues go before the handle.
    reading: Reading,
    main: Queue,
    topic: TopicHandle,
    partition: Partition,
    troubles: Troubles,
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
        let handle = config.open(Kind::Consumer, conf)?;
        let main = Queue::of_handle(&handle);
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
        let queue = Queue::new(&handle);
        queue.notify(bell.fd());
        main.notify(bell.fd());
        topic.read(partition.number, offset, &queue).map_err(explained)?;
        Ok(Self {
            reading: Reading::new(queue),
            main,
            topic,
            partition: partition.clone(),
            troubles: Troubles::new(&config.address),
            bell,
            stop,
        })
    }

    /// What stands in the way, if it is told for the first time.
    fn trouble(&mut self) -> Result<()> {
        while let Some(event) = self.main.poll(Some(Duration::ZERO)) {
            if event.kind() == EventKind::Error {
                let failure = event.failure();
                check(self.troubles.hear(&failure))?;
            }
        }
        for failure in std::mem::take(&mut self.reading.failures) {
            if failure.code != Code::PartitionEOF {
                check(self.troubles.hear(&failure))?;
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
                self.troubles.forget();
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
        Some(MemberEvent::Trouble(error) | MemberEvent::Fatal(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Whether there is such a partition.
fn find(
    handle: &Handle,
    main: &Queue,
    partition: &Partition,
    what: &str,
    timeout: Duration,
) -> Result<()> {
    let shapes = ask::metadata(handle, timeout).map_err(|failure| {
        // Why nobody answered has come meanwhile.
        let mut cause = failure;
        while let Some(event) = main.poll(Some(Duration::ZERO)) {
            let heard = event.failure();
            if event.kind() == EventKind::Error && heard.code != Code::AllBrokersDown {
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
