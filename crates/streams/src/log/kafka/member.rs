//! A member of a consumer group: one handle, polled for ever by one thread.
//!
//! Each partition has a queue of its own, read in batches. What is not fetched
//! stays there, and librdkafka stops fetching at the bound on bytes: there is
//! no pausing, which would throw away what was fetched ahead. A queue rings the
//! bell when it was empty and gets something, and then not again until it is
//! looked at: who stops fetching before `None` must come back by himself.

mod commits;
mod joining;
mod reading;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::event_fd::EventFd;
use rdkafka_sys as sys;

use super::super::{
    Commit, ErrorKind, GroupMember, Limits, LogError, MemberEvent, Partition, Position, Result,
};
use super::config::Config;
use super::raw::{Code, Event, EventKind, Failure, Handle, Kind, Queue, TopicList};
use super::trouble::{explain, Troubles};
use super::wait;
use crate::record::Chunk;
use crate::settings::{GroupSettings, Start};
use commits::Commits;
use joining::Joining;
pub(super) use reading::Reading;

/// How long a member that is dropped without having left takes to leave.
const LEAVE_WHEN_DROPPED: Duration = Duration::from_secs(2);

/// A member of a group of Kafka's.
pub struct KafkaMember {
    // Records and queues go before the handle.
    readings: HashMap<Partition, Reading>,
    joining: Option<Joining>,
    commits: Commits,
    queue: Queue,
    handle: Arc<Handle>,
    bell: Arc<EventFd>,
    later: Vec<MemberEvent>,
    troubles: Troubles,
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
        let handle = config.open(Kind::Consumer, conf)?;
        handle.join_queues();
        let queue = Queue::of_consumer(&handle);
        queue.notify(bell.fd());
        let mut topics = TopicList::new();
        for topic in &group.topics {
            topics.add(topic, -1, -1, "")?;
        }
        let name = format!("group {:?} at {}", group.name, config.address.url());
        handle.subscribe(&topics).map_err(|failure| explain(&name, &failure))?;
        Ok(Self {
            readings: HashMap::new(),
            joining: None,
            commits: Commits::new(&handle),
            queue,
            handle,
            bell: bell.clone(),
            later: Vec::new(),
            troubles: Troubles::new(&config.address),
            start: group.start,
            name,
            answer_timeout: Duration::from_millis(config.settings.answer_timeout_ms),
            left: false,
        })
    }

    fn hear(&mut self, event: &Event, events: &mut Vec<MemberEvent>) {
        match event.kind() {
            EventKind::Rebalance => self.rebalance(event, events),
            EventKind::Commit => match self.commits.ended(event) {
                Ok(()) => self.troubles.forget(),
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
                events.extend(self.troubles.hear(&failure));
            }
            EventKind::Delivery | EventKind::Other(_) => {}
        }
    }

    fn rebalance(&mut self, event: &Event, events: &mut Vec<MemberEvent>) {
        let list = event.list();
        match event.code() {
            Code::AssignPartitions if list.places().is_empty() => {
                self.answer(&list, true, events);
                // Nothing came, but who the member is has changed: its generation.
                events.push(MemberEvent::Assigned(Vec::new()));
            }
            Code::AssignPartitions => {
                if let Err(error) = self.open_queues(&list) {
                    events.push(MemberEvent::Trouble(error));
                }
                self.joining = Some(Joining::new(list));
            }
            Code::RevokePartitions => {
                let partitions = self.partitions(&list);
                self.joining = None;
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
                events.extend(self.troubles.hear(&event.failure()));
            }
        }
    }

    /// Takes what the group gave, or gives what it takes.
    fn answer(&mut self, list: &TopicList, take: bool, events: &mut Vec<MemberEvent>) {
        let end = if take { self.handle.assign(list) } else { self.handle.unassign(list) };
        if let Err(failure) = end {
            events.extend(self.troubles.hear(&failure));
        }
    }

    /// Before they are read, so that no record goes to the group's own queue.
    fn open_queues(&mut self, list: &TopicList) -> Result<()> {
        for partition in self.partitions_of(list) {
            let Some(queue) =
                Queue::of_partition(&self.handle, &partition.topic, partition.number)?
            else {
                continue;
            };
            queue.notify(self.bell.fd());
            self.readings.insert(partition, Reading::new(queue));
        }
        Ok(())
    }

    fn drop_queues(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.readings.remove(partition);
        }
    }

    /// Those of the list that are being read.
    fn partitions(&self, list: &TopicList) -> Vec<Partition> {
        let mut all = self.partitions_of(list);
        if let Some(joining) = &self.joining {
            // The engine has not heard of these.
            all.retain(|partition| !joining.holds(partition));
        }
        all.retain(|partition| self.readings.contains_key(partition));
        all
    }

    fn partitions_of(&self, list: &TopicList) -> Vec<Partition> {
        list.places().iter().map(|place| joining::partition_of(&place)).collect()
    }

    /// Asks where to begin, and begins.
    fn join(&mut self, events: &mut Vec<MemberEvent>) {
        let Some(mut joining) = self.joining.take() else { return };
        match joining.ask(&self.handle) {
            None => self.joining = Some(joining),
            Some(Err(failure)) => {
                self.joining = Some(joining);
                let failure = Failure {
                    text: format!("where the group has come to is not known: {}", failure.text),
                    ..failure
                };
                events.extend(self.troubles.unanswered(&failure));
            }
            Some(Ok(assigned)) => {
                self.troubles.forget();
                let list = joining.starting(self.start);
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
        events.extend(self.troubles.overdue());
        self.join(events);
    }

    fn reading(&mut self, partition: &Partition) -> Result<&mut Reading> {
        self.readings.get_mut(partition).ok_or_else(|| {
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
                    self.readings.clear();
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
        let soonest = self.joining.as_ref().map_or(timeout, |joining| joining.wait(timeout));
        wait::on(&self.bell, soonest);
    }

    fn poll(&mut self, events: &mut Vec<MemberEvent>) {
        self.poll_into(events);
    }

    fn fetch(&mut self, partition: &Partition, limits: Limits) -> Result<Option<Chunk>> {
        let Some(reading) = self.readings.get_mut(partition) else { return Ok(None) };
        let chunk = reading.fetch(limits);
        for failure in reading.failures.drain(..) {
            let event = match failure.code {
                Code::PartitionEOF => Some(MemberEvent::End(partition.clone())),
                _ => self.troubles.hear(&failure),
            };
            self.later.extend(event);
            self.bell.notify();
        }
        if chunk.is_some() {
            self.troubles.forget();
        }
        Ok(chunk)
    }

    fn seek(&mut self, partition: &Partition, position: Position) -> Result<()> {
        self.reading(partition)?;
        let offset = super::offset_of(&self.handle, partition, position, self.answer_timeout)?;
        let mut list = TopicList::new();
        list.add(&partition.topic, partition.number, offset, "")?;
        let end = self.handle.seek(&mut list, self.answer_timeout);
        let end = end.and_then(|()| list.places().failure().map_or(Ok(()), Err));
        self.reading(partition)?.forget();
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
        let mut list = TopicList::new();
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
        let mut list = TopicList::new();
        for partition in partitions {
            if let Err(error) = list.add(&partition.topic, partition.number, -1001, "") {
                self.later.push(MemberEvent::Trouble(error));
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
        self.joining = None;
        self.readings.clear();
        self.close(until);
        self.queue.silence();
    }
}

impl Drop for KafkaMember {
    fn drop(&mut self) {
        self.leave(LEAVE_WHEN_DROPPED);
    }
}
