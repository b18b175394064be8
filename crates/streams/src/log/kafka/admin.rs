//! Looks after topics and groups: questions to the brokers, each waited for.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka_sys as sys;

use super::super::{
    AdminClient, Commit, ErrorKind, GroupDescription, LogError, NewTopic, PartitionOffsets, Result,
    TopicDescription,
};
use super::config::Config;
use super::error_reporter::{explain, ErrorReporter};
use super::raw::requests::{self, EventType, TopicLayout};
use super::raw::{
    ClientHandle, ClientKind, ErrorCode, EventKind, EventQueue, KafkaError, QueueEvent,
    TopicPartitionList,
};

/// How long an answer is still waited for when no broker is connected: one may
/// be coming back.
const DOWN_MAX: Duration = Duration::from_secs(2);

/// Rests before a question is put again that could not be answered yet.
const AGAIN: Duration = Duration::from_millis(50);

/// Whether it is only that somebody is being elected or looked for, as after a
/// topic was made.
fn passes(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotLeaderForPartition
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::OffsetNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::NotController
    )
}

/// The brokers' administration.
pub struct KafkaAdmin {
    main: EventQueue,
    handle: Arc<ClientHandle>,
    config: Config,
    timeout: Duration,
    /// Why a question has no answer.
    errors: RefCell<ErrorReporter>,
}

/// What a question brought.
type Answered<T> = std::result::Result<T, KafkaError>;

/// First and last offsets by topic and partition.
type Ends = HashMap<(String, i32), i64>;

impl KafkaAdmin {
    /// With a handle of its own.
    pub fn new(config: &Config) -> Result<Self> {
        let mut conf = config.admin()?;
        conf.events(sys::RD_KAFKA_EVENT_ERROR);
        let handle = config.open(ClientKind::Producer, conf)?;
        let main = EventQueue::of_handle(&handle);
        let timeout = Duration::from_millis(config.settings.answer_timeout_ms);
        let errors = RefCell::new(ErrorReporter::new(&config.address));
        Ok(Self { main, handle, config: config.clone(), timeout, errors })
    }

    /// Puts a question and waits for its answer. What is wrong with the
    /// connection comes by the same queue, so that the cause is told.
    fn ask<T>(
        &self,
        what: &str,
        put: impl Fn(&EventQueue) -> Result<EventType>,
        read: impl Fn(&QueueEvent, EventType) -> Answered<T>,
    ) -> Result<T> {
        let until = Instant::now() + self.timeout;
        loop {
            while let Some(event) = self.main.poll(Some(Duration::ZERO)) {
                self.errors.borrow_mut().hear(&event.failure());
            }
            let queue = EventQueue::new(&self.handle);
            self.main.forward_to(&queue);
            let answer = put(&queue)?;
            let end = self.answer(&queue, answer).and_then(|event| read(&event, answer));
            match end {
                Err(failure) if passes(failure.code) && Instant::now() + AGAIN < until => {
                    std::thread::sleep(AGAIN);
                }
                end => {
                    let what = || format!("{what} at {}", self.url());
                    return end.map_err(|failure| explain(&what(), &failure));
                }
            }
        }
    }

    fn answer(&self, queue: &EventQueue, answer: EventType) -> Answered<QueueEvent> {
        let mut until = Instant::now() + self.timeout + DOWN_MAX;
        let mut errors = self.errors.borrow_mut();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(event) = queue.poll(Some(left)) else {
                let cause = errors.cause().unwrap_or("no answer in time").to_owned();
                return Err(KafkaError::new(ErrorCode::OperationTimedOut, cause));
            };
            match event.kind() {
                EventKind::Error => {
                    let failure = event.failure();
                    errors.hear(&failure);
                    match failure.code {
                        ErrorCode::Authentication | ErrorCode::SSL => return Err(failure),
                        ErrorCode::AllBrokersDown => until = until.min(Instant::now() + DOWN_MAX),
                        _ => {}
                    }
                }
                EventKind::Other(kind) if kind == answer => {
                    return match event.code() {
                        ErrorCode::NoError => {
                            errors.forget();
                            Ok(event)
                        }
                        ErrorCode::OperationTimedOut => {
                            let cause = errors.cause().map(str::to_owned);
                            let text = cause.unwrap_or_else(|| event.failure().text);
                            Err(KafkaError::new(ErrorCode::OperationTimedOut, text))
                        }
                        _ => Err(event.failure()),
                    };
                }
                _ => {}
            }
        }
    }

    fn url(&self) -> String {
        self.config.address.url()
    }

    /// The topics for which `wanted` holds.
    fn find(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<TopicDescription>> {
        // librdkafka's call for the list waits by itself and tells no cause; so
        // whether anybody answers is asked first.
        let anybody = |queue: &EventQueue| Ok(requests::cluster(queue, self.timeout));
        self.ask("the list of topics", anybody, |_, _| Ok(()))?;
        let shapes = requests::metadata(&self.handle, self.timeout).map_err(|failure| {
            explain(&format!("the list of topics at {}", self.url()), &failure)
        })?;
        let shapes: Vec<_> = shapes.into_iter().filter(|shape| wanted(&shape.name)).collect();
        if shapes.is_empty() {
            return Ok(Vec::new());
        }
        let starts = self.ends(&shapes, i64::from(sys::RD_KAFKA_OFFSET_BEGINNING))?;
        let ends = self.ends(&shapes, i64::from(sys::RD_KAFKA_OFFSET_END))?;
        let names: Vec<&str> = shapes.iter().map(|shape| &*shape.name).collect();
        let put = |queue: &EventQueue| requests::settings(queue, &names, self.timeout);
        let mut settings =
            self.ask("the settings of topics", put, |event, _| requests::read_settings(event))?;
        let topic = |shape: TopicLayout| {
            let state = |number: &i32| {
                let place = (shape.name.clone(), *number);
                let of = |ends: &Ends| ends.get(&place).copied().unwrap_or(0);
                PartitionOffsets { number: *number, start: of(&starts), end: of(&ends) }
            };
            TopicDescription {
                partitions: shape.partitions.iter().map(state).collect(),
                replication: shape.replication,
                settings: settings.remove(&shape.name).unwrap_or_default(),
                name: shape.name,
            }
        };
        let mut topics: Vec<TopicDescription> = shapes.into_iter().map(topic).collect();
        topics.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(topics)
    }

    fn ends(&self, shapes: &[TopicLayout], which: i64) -> Result<Ends> {
        let mut list = TopicPartitionList::new();
        for shape in shapes {
            for number in &shape.partitions {
                list.add(&shape.name, *number, which, "")?;
            }
        }
        let put = |queue: &EventQueue| Ok(requests::ends(queue, &list, self.timeout));
        let found =
            self.ask("the offsets of topics", put, |event, _| requests::read_ends(event))?;
        Ok(found.into_iter().map(|(topic, number, offset)| ((topic, number), offset)).collect())
    }
}

impl AdminClient for KafkaAdmin {
    fn topics(&mut self) -> Result<Vec<TopicDescription>> {
        self.find(|name| !name.starts_with("__"))
    }

    fn topic(&mut self, name: &str) -> Result<Option<TopicDescription>> {
        Ok(self.find(|one| one == name)?.pop())
    }

    fn create(&mut self, topic: &NewTopic) -> Result<()> {
        let what = format!("creating topic {:?}", topic.name);
        self.ask(&what, |queue| requests::create(queue, topic, self.timeout), requests::read_done)
    }

    fn grow(&mut self, name: &str, total: i32) -> Result<()> {
        let what = format!("giving topic {name:?} {total} partitions");
        let total = usize::try_from(total).map_err(|_| {
            LogError::new(ErrorKind::Invalid, format!("{what}: there is no such number"))
        })?;
        self.ask(
            &what,
            |queue| requests::grow(queue, name, total, self.timeout),
            requests::read_done,
        )
    }

    fn configure(&mut self, name: &str, settings: &BTreeMap<String, String>) -> Result<()> {
        if settings.is_empty() {
            return Ok(());
        }
        let what = format!("setting {:?} of topic {name:?}", settings.keys().collect::<Vec<_>>());
        let put = |queue: &EventQueue| requests::configure(queue, name, settings, self.timeout);
        self.ask(&what, put, requests::read_done)
    }

    fn delete(&mut self, name: &str) -> Result<()> {
        let what = format!("deleting topic {name:?}");
        self.ask(&what, |queue| requests::delete(queue, name, self.timeout), requests::read_done)
    }

    fn groups(&mut self) -> Result<Vec<GroupDescription>> {
        let put = |queue: &EventQueue| Ok(requests::list_groups(queue, self.timeout));
        let mut names =
            self.ask("the list of groups", put, |event, _| requests::read_names(event))?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        names.sort();
        let put = |queue: &EventQueue| requests::describe_groups(queue, &names, self.timeout);
        self.ask("the members of groups", put, |event, _| Ok(requests::read_groups(event)))
    }

    fn committed(&mut self, group: &str) -> Result<Vec<Commit>> {
        let what = format!("the offsets of group {group:?}");
        let put = |queue: &EventQueue| requests::committed(queue, group, self.timeout);
        let found = self.ask(&what, put, |event, _| requests::read_committed(event));
        let mut commits = match found {
            // A group of which nobody has heard has come nowhere.
            Err(error) if error.message.contains("group id does not exist") => Vec::new(),
            found => found?,
        };
        commits.sort_by(|one, other| {
            (&one.topic, one.partition).cmp(&(&other.topic, other.partition))
        });
        Ok(commits)
    }

    fn set_committed(&mut self, group: &str, commits: &[Commit]) -> Result<()> {
        if commits.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        for commit in commits {
            list.add(&commit.topic, commit.partition, commit.offset, &commit.metadata)?;
        }
        let what = format!("the offsets of group {group:?}");
        let put = |queue: &EventQueue| requests::set_committed(queue, group, &list, self.timeout);
        let read = |event: &QueueEvent, _| {
            requests::read_set_committed(event).map_err(|failure| match failure.code {
                // So the brokers say that somebody is in the group.
                ErrorCode::UnknownMemberId
                | ErrorCode::NonEmptyGroup
                | ErrorCode::StaleMemberEpoch => {
                    KafkaError { code: ErrorCode::NonEmptyGroup, ..failure }
                }
                _ => failure,
            })
        };
        self.ask(&what, put, read)
    }
}
