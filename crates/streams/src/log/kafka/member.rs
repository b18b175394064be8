//! A member of a consumer group: one handle, polled for ever by one thread.
//!
//! Each partition has a queue of its own, read in batches. What is not fetched
//! stays there, and librdkafka stops fetching at the bound on bytes: there is
//! no pausing, which would throw away what was fetched ahead. A queue rings the
//! bell when it was empty and gets something, and then not again until it is
//! looked at: who stops fetching before `None` must come back by himself.

mod pending_assignment;
mod pending_commits;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use rdkafka_sys as sys;

use super::super::{
    Commit, ErrorKind, GroupMember, Limits, LogError, MemberEvent, Partition, Position, Result,
};
use super::config::Config;
use super::error_reporter::{explain, ErrorReporter};
use super::partition_queue::PartitionQueue;
use super::raw::{
    ClientHandle, ClientKind, ErrorCode, EventKind, EventQueue, KafkaError, QueueEvent,
    TopicPartitionList,
};
use super::wait;
use crate::record::Chunk;
use crate::settings::{GroupSettings, Start};
use pending_assignment::PendingAssignment;
use pending_commits::PendingCommits;

/// How long a member that is dropped without having left takes to leave.
const LEAVE_WHEN_DROPPED: Duration = Duration::from_secs(2);

/// A member of a group of Kafka's.
pub struct KafkaMember {
    // Records and queues go before the handle.
    queues: HashMap<Partition, PartitionQueue>,
    pending: Option<PendingAssignment>,
    commits: PendingCommits,
    queue: EventQueue,
    handle: Arc<ClientHandle>,
    bell: Arc<EventFd>,
    later: Vec<MemberEvent>,
    errors: ErrorReporter,
    start: Start,
    name: String,
    answer_timeout: Duration,
    left: bool,
}

impl KafkaMember {
    /// Joins the group, in the background.
    pub fn new(config: &Config, group: &GroupSettings, bell: &Arc<EventFd>) -> Result<Self> {
        if group.topics.is_empty() {
            let message = format!("group {:?} reads no topic; name one", group.name);
            return Err(LogError::new(ErrorKind::Refused, message));
        }
        let mut conf = config.member(group)?;
        conf.events(
            sys::RD_KAFKA_EVENT_REBALANCE
                | sys::RD_KAFKA_EVENT_OFFSET_COMMIT
                | sys::RD_KAFKA_EVENT_ERROR,
        );
        let handle = config.open(ClientKind::Consumer, conf)?;
        handle.join_queues();
        let queue = EventQueue::of_consumer(&handle);
        queue.notify(bell.fd());
        let mut topics = TopicPartitionList::new();
        for topic in &group.topics {
            topics.add(topic, -1, -1, "")?;
        }
        let name = format!("group {:?} at {}", group.name, config.address.url());
        handle.subscribe(&topics).map_err(|failure| explain(&name, &failure))?;
        Ok(Self {
            queues: HashMap::new(),
            pending: None,
            commits: PendingCommits::new(&handle),
            queue,
            handle,
            bell: bell.clone(),
            later: Vec::new(),
            errors: ErrorReporter::new(&config.address),
            start: group.start,
            name,
            answer_timeout: Duration::from_millis(config.settings.answer_timeout_ms),
            left: false,
        })
    }

    fn hear(&mut self, event: &QueueEvent, events: &mut Vec<MemberEvent>) {
        match event.kind() {
            EventKind::Rebalance => self.rebalance(event, events),
            EventKind::Commit => match self.commits.ended(event) {
                Ok(()) => self.errors.forget(),
                Err(failure) => {
                    events.push(MemberEvent::CommitFailed(explain(&self.name, &failure)));
                }
            },
            EventKind::Error => {
                let mut failure = event.failure();
                // What a fatal error says is behind it.
                if let Some(fatal) = failure.fatal.then(|| self.handle.fatal()).flatten() {
                    failure = fatal;
                }
                events.extend(self.errors.hear(&failure));
            }
            EventKind::Delivery | EventKind::Other(_) => {}
        }
    }

    fn rebalance(&mut self, event: &QueueEvent, events: &mut Vec<MemberEvent>) {
        let list = event.list();
        match event.code() {
            ErrorCode::AssignPartitions if list.partitions().is_empty() => {
                self.answer(&list, true, events);
                // Nothing came, but who the member is has changed: its generation.
                events.push(MemberEvent::Assigned(Vec::new()));
            }
            ErrorCode::AssignPartitions => {
                if let Err(error) = self.open_queues(&list) {
                    events.push(MemberEvent::Error(error));
                }
                self.pending = Some(PendingAssignment::new(list));
            }
            ErrorCode::RevokePartitions => {
                let partitions = self.partitions(&list);
                self.pending = None;
                let lost = self.handle.is_assignment_lost();
                if lost || partitions.is_empty() {
                    self.drop_queues(&partitions);
                    self.answer(&list, false, events);
                }
                match (partitions.is_empty(), lost) {
                    (true, _) => {}
                    (false, true) => events.push(MemberEvent::Lost(partitions)),
                    (false, false) => events.push(MemberEvent::Revoked(partitions)),
                }
            }
            _ => {
                self.answer(&list, false, events);
                events.extend(self.errors.hear(&event.failure()));
            }
        }
    }

    /// Takes what the group gave, or gives what it takes.
    fn answer(&mut self, list: &TopicPartitionList, take: bool, events: &mut Vec<MemberEvent>) {
        let end = if take { self.handle.assign(list) } else { self.handle.unassign(list) };
        if let Err(failure) = end {
            events.extend(self.errors.hear(&failure));
        }
    }

    /// Before they are read, so that no record goes to the group's own queue.
    fn open_queues(&mut self, list: &TopicPartitionList) -> Result<()> {
        for partition in self.partitions_of(list) {
            let Some(queue) =
                EventQueue::of_partition(&self.handle, &partition.topic, partition.number)?
            else {
                continue;
            };
            queue.notify(self.bell.fd());
            self.queues.insert(partition, PartitionQueue::new(queue));
        }
        Ok(())
    }

    fn drop_queues(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.queues.remove(partition);
        }
    }

    /// Those of the list that are being read.
    fn partitions(&self, list: &TopicPartitionList) -> Vec<Partition> {
        let mut all = self.partitions_of(list);
        if let Some(pending) = &self.pending {
            // The engine has not heard of these.
            all.retain(|partition| !pending.holds(partition));
        }
        all.retain(|partition| self.queues.contains_key(partition));
        all
    }

    fn partitions_of(&self, list: &TopicPartitionList) -> Vec<Partition> {
        list.partitions().iter().map(|place| pending_assignment::partition_of(&place)).collect()
    }

    /// Asks where to begin, and begins.
    fn join(&mut self, events: &mut Vec<MemberEvent>) {
        let Some(mut pending) = self.pending.take() else { return };
        match pending.ask(&self.handle) {
            None => self.pending = Some(pending),
            Some(Err(failure)) => {
                self.pending = Some(pending);
                let failure = KafkaError {
                    text: format!("where the group has come to is not known: {}", failure.text),
                    ..failure
                };
                events.extend(self.errors.unanswered(&failure));
            }
            Some(Ok(assigned)) => {
                self.errors.forget();
                let list = pending.starting(self.start);
                self.answer(&list, true, events);
                events.push(MemberEvent::Assigned(assigned));
            }
        }
    }

    fn poll_into(&mut self, events: &mut Vec<MemberEvent>) {
        events.append(&mut self.later);
        while let Some(event) = self.queue.poll(Some(Duration::ZERO)) {
            self.hear(&event, events);
        }
        events.extend(self.errors.overdue());
        self.join(events);
    }

    fn queue(&mut self, partition: &Partition) -> Result<&mut PartitionQueue> {
        self.queues.get_mut(partition).ok_or_else(|| {
            let message = format!("{}/{} is not this member's", partition.topic, partition.number);
            LogError::new(ErrorKind::Fenced, message)
        })
    }

    /// Gives everything up as it is asked for, until the group is left.
    fn close(&mut self, until: Instant) {
        if self.queue.close_consumer().is_err() {
            return;
        }
        let mut unheard = Vec::new();
        while !self.queue.is_consumer_closed() {
            let left = until.saturating_duration_since(Instant::now());
            let Some(event) = self.queue.poll(Some(left)) else { return };
            match event.kind() {
                EventKind::Rebalance => {
                    let list = event.list();
                    self.queues.clear();
                    self.answer(&list, false, &mut unheard);
                }
                EventKind::Commit => drop(self.commits.ended(&event)),
                _ => {}
            }
        }
    }
}

impl GroupMember for KafkaMember {
    fn wait(&mut self, timeout: Duration) {
        let soonest = self.pending.as_ref().map_or(timeout, |pending| pending.wait(timeout));
        wait::on(&self.bell, soonest);
    }

    fn poll(&mut self, events: &mut Vec<MemberEvent>) {
        self.poll_into(events);
    }

    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        let Some(queue) = self.queues.get_mut(partition) else { return Ok(None) };
        let chunk = queue.fetch(limits);
        for failure in queue.failures.drain(..) {
            let event = match failure.code {
                ErrorCode::PartitionEOF => Some(MemberEvent::PartitionEof(partition.clone())),
                _ => self.errors.hear(&failure),
            };
            self.later.extend(event);
            self.bell.notify();
        }
        if chunk.is_some() {
            self.errors.forget();
        }
        Ok(chunk)
    }

    fn seek(&mut self, partition: &Partition, position: Position) -> Result<()> {
        self.queue(partition)?;
        let offset = super::offset_of(&self.handle, partition, position, self.answer_timeout)?;
        let mut list = TopicPartitionList::new();
        list.add(&partition.topic, partition.number, offset, "")?;
        let end = self.handle.seek(&mut list, self.answer_timeout);
        let end = end.and_then(|()| list.partitions().failure().map_or(Ok(()), Err));
        self.queue(partition)?.forget();
        // What came meanwhile rang before it was asked for.
        self.bell.notify();
        end.map_err(|failure| {
            explain(&format!("{}/{}", partition.topic, partition.number), &failure)
        })
    }

    fn commit(&mut self, commits: &[Commit], wait: bool) -> Result<()> {
        if commits.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        for commit in commits {
            list.add(&commit.topic, commit.partition, commit.offset, &commit.metadata)?;
        }
        let end = if wait {
            self.commits.now(&list, self.answer_timeout)
        } else {
            self.commits.begin(&list, &self.queue)
        };
        end.map_err(|failure| explain(&self.name, &failure))
    }

    fn release(&mut self, partitions: &[Partition]) {
        self.drop_queues(partitions);
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            if let Err(error) = list.add(&partition.topic, partition.number, -1001, "") {
                self.later.push(MemberEvent::Error(error));
            }
        }
        let mut events = Vec::new();
        self.answer(&list, false, &mut events);
        self.later.append(&mut events);
    }

    fn end_offset(&self, partition: &Partition) -> Option<i64> {
        self.handle.end_offset(&partition.topic, partition.number)
    }

    fn identity(&self) -> Vec<u8> {
        self.handle.group_metadata()
    }

    fn leave(&mut self, timeout: Duration) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        let until = Instant::now() + timeout;
        let mut unheard = Vec::new();
        while self.commits.under_way() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let Some(event) = self.queue.poll(Some(left)) else { break };
            if event.kind() == EventKind::Rebalance {
                // Answered as whoever leaves does: it gives all up.
                self.answer(&event.list(), false, &mut unheard);
            } else {
                self.hear(&event, &mut unheard);
            }
        }
        self.pending = None;
        self.queues.clear();
        self.close(until);
        self.queue.silence();
    }
}

impl Drop for KafkaMember {
    fn drop(&mut self) {
        self.leave(LEAVE_WHEN_DROPPED);
    }
}
