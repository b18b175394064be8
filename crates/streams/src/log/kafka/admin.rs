//! The admin client for Kafka: requests to the brokers, each waited for.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka_sys as sys;

use super::config::Config;
use super::error_reporter::ErrorReporter;
use super::errors::explain;
use super::raw::requests::{self, EventType, TopicLayout};
use super::raw::{
    ClientHandle, ClientKind, ErrorCode, EventKind, EventQueue, KafkaError, QueueEvent,
    TopicPartitionList,
};
use crate::log::{
    AdminClient, Commit, ErrorKind, GroupDescription, LogError, NewTopic, PartitionOffsets, Result,
    TopicDescription,
};

/// The longest wait for an answer when no broker is connected: one may come back.
const DOWN_MAX: Duration = Duration::from_secs(2);

/// The pause before a request is retried.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// A topic of the brokers' own; what is asked about it does not matter.
const ANY_TOPIC: &str = "__consumer_offsets";

/// Whether the error ends by itself, for example with the election of a leader
/// after a topic was created.
fn is_transient(code: ErrorCode) -> bool {
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

pub struct KafkaAdmin {
    main: EventQueue,
    handle: Arc<ClientHandle>,
    config: Config,
    timeout: Duration,
    /// Tells why a request has no answer.
    errors: RefCell<ErrorReporter>,
}

type KafkaResult<T> = std::result::Result<T, KafkaError>;

/// Offsets by topic and partition.
type Offsets = HashMap<(String, i32), i64>;

impl KafkaAdmin {
    pub fn new(config: &Config) -> Result<Self> {
        let mut conf = config.admin()?;
        conf.events(sys::RD_KAFKA_EVENT_ERROR);
        let handle = config.open(ClientKind::Consumer, conf)?;
        let main = EventQueue::of_handle(&handle);
        let timeout = config.settings.answer_timeout;
        let errors = RefCell::new(ErrorReporter::new(&config.address));
        Ok(Self { main, handle, config: config.clone(), timeout, errors })
    }

    /// Sends a request and waits for the answer. Connection errors arrive in the
    /// same queue, so that the cause can be reported.
    fn request<T>(
        &self,
        what: &str,
        send: impl Fn(&EventQueue) -> Result<EventType>,
        read: impl Fn(&QueueEvent, EventType) -> KafkaResult<T>,
    ) -> Result<T> {
        let until = Instant::now() + self.timeout;
        loop {
            while let Some(event) = self.main.poll(Some(Duration::ZERO)) {
                self.errors.borrow_mut().report(&event.error());
            }
            let queue = EventQueue::new(&self.handle);
            self.main.forward_to(&queue);
            let answer = send(&queue)?;
            let end = self.wait_answer(&queue, answer).and_then(|event| read(&event, answer));
            match end {
                Err(error) if is_transient(error.code) && Instant::now() + RETRY_AFTER < until => {
                    std::thread::sleep(RETRY_AFTER);
                    // A leader that was elected anew has another epoch. librdkafka keeps the old one for
                    // `metadata.max.age.ms`: rd_kafka_ListOffsets_handle_result (rdkafka_admin.c) forgets a topic
                    // for two other errors only.
                    let left = until.saturating_duration_since(Instant::now());
                    let _ = requests::metadata(&self.handle, true, left);
                }
                end => {
                    let what = || format!("{what} at {}", self.url());
                    return end.map_err(|error| explain(&what(), &error));
                }
            }
        }
    }

    fn wait_answer(&self, queue: &EventQueue, answer: EventType) -> KafkaResult<QueueEvent> {
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
                    let error = event.error();
                    errors.report(&error);
                    match error.code {
                        ErrorCode::Authentication | ErrorCode::SSL => return Err(error),
                        ErrorCode::AllBrokersDown => until = until.min(Instant::now() + DOWN_MAX),
                        _ => {}
                    }
                }
                EventKind::Other(kind) if kind == answer => {
                    return match event.code() {
                        ErrorCode::NoError => {
                            errors.reset();
                            Ok(event)
                        }
                        ErrorCode::OperationTimedOut => {
                            let cause = errors.cause().map(str::to_owned);
                            let text = cause.unwrap_or_else(|| event.error().text);
                            Err(KafkaError::new(ErrorCode::OperationTimedOut, text))
                        }
                        _ => Err(event.error()),
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
        // librdkafka's call for the list blocks and reports no cause, so another request finds
        // out first whether a broker answers. It is not DescribeCluster, which ends the process
        // when the answer names no broker (librdkafka 2.12).
        let ask = |queue: &EventQueue| requests::settings(queue, &[ANY_TOPIC], self.timeout);
        self.request("the list of topics", ask, |_, _| Ok(()))?;
        let layouts = requests::metadata(&self.handle, false, self.timeout)
            .map_err(|error| explain(&format!("the list of topics at {}", self.url()), &error))?;
        let layouts: Vec<_> = layouts.into_iter().filter(|layout| wanted(&layout.name)).collect();
        if layouts.is_empty() {
            return Ok(Vec::new());
        }
        let starts = self.offsets(&layouts, i64::from(sys::RD_KAFKA_OFFSET_BEGINNING))?;
        let ends = self.offsets(&layouts, i64::from(sys::RD_KAFKA_OFFSET_END))?;
        let names: Vec<&str> = layouts.iter().map(|layout| &*layout.name).collect();
        let send = |queue: &EventQueue| requests::settings(queue, &names, self.timeout);
        let mut settings = self
            .request("the settings of topics", send, |event, _| requests::read_settings(event))?;
        let topic = |layout: TopicLayout| {
            let state = |number: &i32| {
                let place = (layout.name.clone(), *number);
                let of = |ends: &Offsets| ends.get(&place).copied().unwrap_or(0);
                PartitionOffsets { number: *number, start: of(&starts), end: of(&ends) }
            };
            TopicDescription {
                partitions: layout.partitions.iter().map(state).collect(),
                replication: layout.replication,
                settings: settings.remove(&layout.name).unwrap_or_default(),
                name: layout.name,
            }
        };
        let mut topics: Vec<TopicDescription> = layouts.into_iter().map(topic).collect();
        topics.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(topics)
    }

    fn offsets(&self, layouts: &[TopicLayout], which: i64) -> Result<Offsets> {
        let mut list = TopicPartitionList::new();
        for layout in layouts {
            for number in &layout.partitions {
                list.add(&layout.name, *number, which, "")?;
            }
        }
        let send = |queue: &EventQueue| Ok(requests::offsets(queue, &list, self.timeout));
        let found =
            self.request("the offsets of topics", send, |event, _| requests::read_offsets(event))?;
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
        self.request(
            &what,
            |queue| requests::create(queue, topic, self.timeout),
            requests::read_done,
        )
    }

    fn grow(&mut self, name: &str, total: i32) -> Result<()> {
        let what = format!("giving topic {name:?} {total} partitions");
        let total = usize::try_from(total).map_err(|_| {
            LogError::new(ErrorKind::Invalid, format!("{what}: there is no such number"))
        })?;
        self.request(
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
        let send = |queue: &EventQueue| requests::configure(queue, name, settings, self.timeout);
        self.request(&what, send, requests::read_done)
    }

    fn delete(&mut self, name: &str) -> Result<()> {
        let what = format!("deleting topic {name:?}");
        self.request(
            &what,
            |queue| requests::delete(queue, name, self.timeout),
            requests::read_done,
        )
    }

    fn groups(&mut self) -> Result<Vec<GroupDescription>> {
        let send = |queue: &EventQueue| Ok(requests::list_groups(queue, self.timeout));
        let mut names =
            self.request("the list of groups", send, |event, _| requests::read_names(event))?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        names.sort();
        let send = |queue: &EventQueue| requests::describe_groups(queue, &names, self.timeout);
        self.request("the members of groups", send, |event, _| Ok(requests::read_groups(event)))
    }

    fn committed(&mut self, group: &str) -> Result<Vec<Commit>> {
        let what = format!("the offsets of group {group:?}");
        let send = |queue: &EventQueue| requests::committed(queue, group, self.timeout);
        let found = self.request(&what, send, |event, _| requests::read_committed(event));
        let mut commits = match found {
            // An unknown group has committed nothing.
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
        let send = |queue: &EventQueue| requests::set_committed(queue, group, &list, self.timeout);
        let read = |event: &QueueEvent, _| {
            requests::read_set_committed(event).map_err(|error| match error.code {
                // With these codes brokers refuse to change a group with members.
                ErrorCode::UnknownMemberId
                | ErrorCode::NonEmptyGroup
                | ErrorCode::StaleMemberEpoch => {
                    KafkaError { code: ErrorCode::NonEmptyGroup, ..error }
                }
                _ => error,
            })
        };
        self.request(&what, send, read)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::settings::LogSettings;

    const TOPIC: &CStr = c"events";

    /// librdkafka's own broker, with one topic; a handle owns it.
    struct MockCluster {
        raw: *mut sys::rd_kafka_mock_cluster_t,
        _owner: Arc<ClientHandle>,
    }

    impl MockCluster {
        fn new() -> Self {
            let config = Config::new(&LogSettings::for_tests("kafka://127.0.0.1:9")).unwrap();
            let owner = config.open(ClientKind::Producer, config.producer().unwrap()).unwrap();
            // SAFETY: our handle, which outlives the cluster, and a text.
            let raw = unsafe {
                let raw = sys::rd_kafka_mock_cluster_new(owner.raw(), 1);
                sys::rd_kafka_mock_topic_create(raw, TOPIC.as_ptr(), 1, 1);
                raw
            };
            Self { raw, _owner: owner }
        }

        fn admin(&self) -> KafkaAdmin {
            // SAFETY: our cluster, whose text lives as long.
            let address =
                unsafe { CStr::from_ptr(sys::rd_kafka_mock_cluster_bootstraps(self.raw)) };
            let broker = format!("kafka://{}", address.to_str().unwrap());
            KafkaAdmin::new(&Config::new(&LogSettings::for_tests(&broker)).unwrap()).unwrap()
        }

        fn elect_leader(&self) {
            // SAFETY: our cluster, a text.
            unsafe { sys::rd_kafka_mock_partition_set_leader(self.raw, TOPIC.as_ptr(), 0, 1) };
        }
    }

    impl Drop for MockCluster {
        fn drop(&mut self) {
            // SAFETY: ours, destroyed once.
            unsafe { sys::rd_kafka_mock_cluster_destroy(self.raw) };
        }
    }

    #[test]
    fn offsets_are_known_after_another_election_of_a_leader() {
        let cluster = MockCluster::new();
        let admin = cluster.admin();
        let layouts = [TopicLayout { name: "events".into(), partitions: vec![0], replication: 1 }];
        let ends = || admin.offsets(&layouts, i64::from(sys::RD_KAFKA_OFFSET_END));
        let zero = Offsets::from([(("events".to_owned(), 0), 0)]);
        assert_eq!(ends().unwrap(), zero);
        cluster.elect_leader();
        assert_eq!(ends().unwrap(), zero);
    }
}
