//! A member of a consumer group: one handle that one thread polls.
//!
//! Each partition has its own queue, which is read in batches. Records that are not fetched stay in
//! it, and librdkafka stops fetching at the limit on bytes. Partitions are never paused, because
//! that drops the records fetched ahead. A queue notifies when it was empty and gets a record, and
//! not again until it is read. So a caller that stops fetching before `None` must come back without
//! a notification.

mod pending_assignment;
mod pending_commits;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use rdkafka_sys as sys;

use super::broker_statistics::BrokerStatistics;
use super::config::Config;
use super::error_reporter::ErrorReporter;
use super::errors::explain;
use super::partition_queue::PartitionQueue;
use super::position;
use super::raw::{
    ClientHandle, ClientKind, ErrorCode, EventKind, EventQueue, KafkaError, QueueEvent,
    TopicPartitionList,
};
use super::refusal_check::{is_refusal, RefusalCheck};
use crate::log::{
    Commit, ErrorKind, GroupMember, Limits, LogError, MemberEvent, Partition, Position, Result,
};
use crate::poll::wait_notified;
use crate::record::Chunk;
use crate::settings::{GroupSettings, Start};
use pending_assignment::PendingAssignment;
use pending_commits::PendingCommits;

/// The time to leave the group for a member that is dropped without leaving.
const LEAVE_WHEN_DROPPED: Duration = Duration::from_secs(2);

pub struct KafkaMember {
    // Records and queues are dropped before the handle.
    queues: HashMap<Partition, PartitionQueue>,
    assigning: Option<PendingAssignment>,
    commits: PendingCommits,
    queue: EventQueue,
    handle: Arc<ClientHandle>,
    notifier: Arc<EventFd>,
    reported_later: Vec<MemberEvent>,
    errors: ErrorReporter,
    refusals: RefusalCheck,
    start: Start,
    eof: bool,
    name: String,
    answer_timeout: Duration,
    statistics: Option<BrokerStatistics>,
    left: bool,
}

impl KafkaMember {
    /// Joins the group in the background.
    pub fn new(config: &Config, group: &GroupSettings, notifier: &Arc<EventFd>) -> Result<Self> {
        if group.topics.is_empty() {
            let message = format!("group {:?} reads no topic; name one", group.name);
            return Err(LogError::new(ErrorKind::Refused, message));
        }
        let mut conf = config.member(group)?;
        let (statistics_event, statistics) =
            BrokerStatistics::enable(&config.statistics, &mut conf);
        conf.events(
            sys::RD_KAFKA_EVENT_REBALANCE
                | sys::RD_KAFKA_EVENT_OFFSET_COMMIT
                | sys::RD_KAFKA_EVENT_ERROR
                | statistics_event,
        );
        let handle = config.open(ClientKind::Consumer, conf)?;
        handle.join_queues();
        let queue = EventQueue::of_consumer(&handle);
        queue.notify(notifier.fd());
        let mut topics = TopicPartitionList::new();
        for topic in &group.topics {
            topics.add(topic, -1, -1, "")?;
        }
        let name = format!("group {:?} at {}", group.name, config.address.url());
        handle.subscribe(&topics).map_err(|error| explain(&name, &error))?;
        Ok(Self {
            refusals: RefusalCheck::new(&handle, config),
            queues: HashMap::new(),
            assigning: None,
            commits: PendingCommits::new(&handle),
            queue,
            handle,
            notifier: notifier.clone(),
            reported_later: Vec::new(),
            errors: ErrorReporter::new(&config.address),
            start: group.start,
            eof: group.eof,
            name,
            answer_timeout: config.settings.answer_timeout,
            statistics,
            left: false,
        })
    }

    fn handle_event(&mut self, event: &QueueEvent, events: &mut Vec<MemberEvent>) {
        match event.kind() {
            EventKind::Rebalance => self.rebalance(event, events),
            EventKind::Commit => match self.commits.complete(event) {
                Ok(()) => self.errors.reset(),
                Err(error) => {
                    events.push(MemberEvent::CommitFailed(explain(&self.name, &error)));
                }
            },
            EventKind::Error => {
                let mut error = event.error();
                // The handle knows the cause of a fatal error.
                if let Some(fatal) = error.fatal.then(|| self.handle.fatal()).flatten() {
                    error = fatal;
                }
                events.extend(self.report(&error));
            }
            EventKind::Statistics => {
                self.statistics.iter_mut().for_each(|statistics| statistics.take(event));
            }
            EventKind::Delivery | EventKind::Other(_) => {}
        }
    }

    fn rebalance(&mut self, event: &QueueEvent, events: &mut Vec<MemberEvent>) {
        let list = event.list();
        match event.code() {
            ErrorCode::AssignPartitions if list.partitions().is_empty() => {
                self.answer_rebalance(&list, true, events);
                // No partition was added, but the generation has changed.
                events.push(MemberEvent::Assigned(Vec::new()));
            }
            ErrorCode::AssignPartitions => {
                if let Err(error) = self.open_queues(&list) {
                    events.push(MemberEvent::Error(error));
                }
                self.assigning = Some(PendingAssignment::new(list, self.start));
            }
            ErrorCode::RevokePartitions => {
                let partitions = self.partitions(&list);
                self.assigning = None;
                let lost = self.handle.is_assignment_lost();
                if lost || partitions.is_empty() {
                    self.drop_queues(&partitions);
                    self.answer_rebalance(&list, false, events);
                }
                match (partitions.is_empty(), lost) {
                    (true, _) => {}
                    (false, true) => events.push(MemberEvent::Lost(partitions)),
                    (false, false) => events.push(MemberEvent::Revoked(partitions)),
                }
            }
            _ => {
                self.answer_rebalance(&list, false, events);
                events.extend(self.report(&event.error()));
            }
        }
    }

    /// Confirms an assignment or a revocation.
    fn answer_rebalance(
        &mut self,
        list: &TopicPartitionList,
        take: bool,
        events: &mut Vec<MemberEvent>,
    ) {
        let end = if take { self.handle.assign(list) } else { self.handle.unassign(list) };
        if let Err(error) = end {
            events.extend(self.report(&error));
        }
    }

    /// The event for this error; that a broker refuses this client is reported when it is known
    /// whether another one accepts it.
    fn report(&mut self, error: &KafkaError) -> Option<MemberEvent> {
        if !is_refusal(error) {
            return self.errors.report(error);
        }
        self.errors.refuse(error);
        let notifier = self.notifier.clone();
        self.refusals.start(error, move || notifier.notify());
        None
    }

    /// Opens the partitions' queues before they are read, so that no record goes
    /// to the group's own queue.
    fn open_queues(&mut self, list: &TopicPartitionList) -> Result<()> {
        for partition in self.partitions_of(list) {
            let Some(queue) =
                EventQueue::of_partition(&self.handle, &partition.topic, partition.number)?
            else {
                continue;
            };
            queue.notify(self.notifier.fd());
            self.queues.insert(partition, PartitionQueue::new(queue, self.eof));
        }
        Ok(())
    }

    fn drop_queues(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.queues.remove(partition);
        }
    }

    /// The partitions of the list that are read.
    fn partitions(&self, list: &TopicPartitionList) -> Vec<Partition> {
        let mut all = self.partitions_of(list);
        if let Some(pending) = &self.assigning {
            // The engine does not know these yet.
            all.retain(|partition| !pending.contains(partition));
        }
        all.retain(|partition| self.queues.contains_key(partition));
        all
    }

    fn partitions_of(&self, list: &TopicPartitionList) -> Vec<Partition> {
        list.partitions().iter().map(|place| pending_assignment::partition_of(&place)).collect()
    }

    /// Begins to read assigned partitions once their committed offsets are known.
    fn start_assigned(&mut self, events: &mut Vec<MemberEvent>) {
        let Some(mut pending) = self.assigning.take() else { return };
        match pending.fetch_committed(&self.handle) {
            None => self.assigning = Some(pending),
            Some(Err(error)) => {
                self.assigning = Some(pending);
                let error = KafkaError {
                    text: format!(
                        "the committed offsets of the group are not known: {}",
                        error.text
                    ),
                    ..error
                };
                events.extend(self.errors.report_unanswered(&error));
            }
            Some(Ok(assigned)) => {
                self.errors.reset();
                let list = pending.into_offsets();
                self.answer_rebalance(&list, true, events);
                events.push(MemberEvent::Assigned(assigned));
            }
        }
    }

    fn poll_into(&mut self, events: &mut Vec<MemberEvent>) {
        events.append(&mut self.reported_later);
        while let Some(event) = self.queue.poll(Some(Duration::ZERO)) {
            self.handle_event(&event, events);
        }
        if let Some((refusal, accepted)) = self.refusals.answer() {
            events.extend(self.errors.report_refusal(&refusal, accepted));
        }
        events.extend(self.errors.report_overdue());
        self.start_assigned(events);
    }

    fn queue(&mut self, partition: &Partition) -> Result<&mut PartitionQueue> {
        self.queues.get_mut(partition).ok_or_else(|| {
            let message = format!("{}/{} is not this member's", partition.topic, partition.number);
            LogError::new(ErrorKind::Fenced, message)
        })
    }

    /// Returns the error of a commit of partitions that are not this member's, or
    /// reports it with the next events when nobody waits for the commit.
    fn report_fenced(&mut self, fenced: Result<()>, wait: bool) -> Result<()> {
        match fenced {
            Err(error) if !wait => {
                self.reported_later.push(MemberEvent::CommitFailed(error));
                self.notifier.notify();
                Ok(())
            }
            result => result,
        }
    }

    /// Confirms revocations until the group is left.
    fn close(&mut self, until: Instant) {
        if self.queue.close_consumer().is_err() {
            return;
        }
        let mut ignored = Vec::new();
        while !self.queue.is_consumer_closed() {
            let left = until.saturating_duration_since(Instant::now());
            let Some(event) = self.queue.poll(Some(left)) else { return };
            match event.kind() {
                EventKind::Rebalance => {
                    let list = event.list();
                    self.queues.clear();
                    self.answer_rebalance(&list, false, &mut ignored);
                }
                EventKind::Commit => drop(self.commits.complete(&event)),
                _ => {}
            }
        }
    }
}

impl GroupMember for KafkaMember {
    fn wait(&mut self, timeout: Duration) {
        let soonest =
            self.assigning.as_ref().map_or(timeout, |pending| pending.wait_at_most(timeout));
        wait_notified(&[&self.notifier], soonest);
    }

    fn poll(&mut self, events: &mut Vec<MemberEvent>) {
        self.poll_into(events);
    }

    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        let Some(queue) = self.queues.get_mut(partition) else { return Ok(None) };
        let chunk = queue.fetch(limits);
        for error in queue.errors.drain(..) {
            let event = match error.code {
                ErrorCode::PartitionEOF => Some(MemberEvent::PartitionEof(partition.clone())),
                _ => self.errors.report(&error),
            };
            self.reported_later.extend(event);
            self.notifier.notify();
        }
        if chunk.is_some() {
            self.errors.reset();
        }
        Ok(chunk)
    }

    fn position(&self, partition: &Partition) -> Option<i64> {
        self.queues.get(partition).and_then(|_| self.handle.position(partition))
    }

    fn seek(&mut self, partition: &Partition, position: Position) -> Result<()> {
        self.queue(partition)?;
        let offset = position::resolve(&self.handle, partition, position, self.answer_timeout)?;
        let mut list = TopicPartitionList::new();
        list.add(&partition.topic, partition.number, offset, "")?;
        let end = self.handle.seek(&mut list, self.answer_timeout);
        let end = end.and_then(|()| list.partitions().check());
        self.queue(partition)?.clear();
        // Records that came meanwhile have notified already.
        self.notifier.notify();
        end.map_err(|error| explain(&partition.to_string(), &error))
    }

    fn commit(&mut self, commits: &[Commit], wait: bool) -> Result<()> {
        if commits.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        let mut fenced = Ok(());
        for commit in commits {
            // A broker accepts the commit of a client that is out of its group
            // while the group is empty, so the member refuses it itself.
            let partition =
                Partition { topic: commit.topic.as_str().into(), number: commit.partition };
            if let Err(error) = self.queue(&partition) {
                fenced = Err(error);
                continue;
            }
            list.add(&commit.topic, commit.partition, commit.offset, &commit.metadata)?;
        }
        if list.partitions().is_empty() {
            return self.report_fenced(fenced, wait);
        }
        let end = if wait {
            self.commits.commit_sync(&list, self.answer_timeout)
        } else {
            self.commits.start(&list, &self.queue)
        };
        end.map_err(|error| explain(&self.name, &error))?;
        self.report_fenced(fenced, wait)
    }

    fn release(&mut self, partitions: &[Partition]) {
        self.drop_queues(partitions);
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            if let Err(error) = list.add(&partition.topic, partition.number, -1001, "") {
                self.reported_later.push(MemberEvent::Error(error));
            }
        }
        let mut events = Vec::new();
        self.answer_rebalance(&list, false, &mut events);
        self.reported_later.append(&mut events);
    }

    fn start_offset(&self, partition: &Partition) -> Option<i64> {
        Some(self.handle.offsets(&partition.topic, partition.number)?.0)
    }

    fn end_offset(&self, partition: &Partition) -> Option<i64> {
        Some(self.handle.offsets(&partition.topic, partition.number)?.1).filter(|end| *end >= 0)
    }

    fn identity(&self) -> Vec<u8> {
        self.handle.group_metadata()
    }

    fn leave(&mut self, timeout: Duration) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        let until = Instant::now() + timeout;
        let mut ignored = Vec::new();
        while self.commits.count() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            let Some(event) = self.queue.poll(Some(left)) else { break };
            if event.kind() == EventKind::Rebalance {
                // A leaving member gives everything up.
                self.answer_rebalance(&event.list(), false, &mut ignored);
            } else {
                self.handle_event(&event, &mut ignored);
            }
        }
        self.assigning = None;
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
