//! Assigned partitions that are not read yet, because their committed offsets are not known.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rdkafka_sys as sys;

use crate::commit_notes::first_position;
use crate::log::kafka::raw::{
    requests, ClientHandle, ErrorCode, KafkaError, TopicPartition, TopicPartitionList,
};
use crate::log::{Assignment, Partition, Position};
use crate::settings::Start;

/// How long one request may block the group's thread.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The pause after a request without an answer.
const RETRY_AFTER: Duration = Duration::from_millis(200);

pub struct PendingAssignment {
    list: TopicPartitionList,
    start: Start,
    next: Instant,
}

/// The offsets and the metadata of the first commits of partitions.
type FirstCommits = HashMap<Partition, (i64, String)>;

impl PendingAssignment {
    pub fn new(list: TopicPartitionList, start: Start) -> Self {
        Self { list, start, next: Instant::now() }
    }

    pub fn contains(&self, partition: &Partition) -> bool {
        let same = |one: TopicPartition<'_>| {
            one.topic() == &*partition.topic && one.partition() == partition.number
        };
        self.list.partitions().iter().any(same)
    }

    /// The timeout, cut to the time of the next request.
    pub fn wait_at_most(&self, timeout: Duration) -> Duration {
        timeout.min(self.next.saturating_duration_since(Instant::now()))
    }

    /// Requests the committed offsets if the request is due.
    pub fn fetch_committed(
        &mut self,
        handle: &ClientHandle,
    ) -> Option<Result<Vec<Assignment>, KafkaError>> {
        if Instant::now() < self.next {
            return None;
        }
        let committed = fill_in_committed(handle, &mut self.list);
        let first = committed.and_then(|()| match self.start {
            Start::Earliest => Ok(FirstCommits::new()),
            Start::Latest => self.first_commits(handle),
        });
        self.next = Instant::now() + RETRY_AFTER;
        Some(first.map(|mut first| self.assignments(&mut first)))
    }

    fn assignments(&mut self, first: &mut FirstCommits) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        self.list.set_offsets(|listed| {
            let partition = partition_of(&listed);
            let begin = first.remove(&partition);
            let is_first = begin.is_some();
            let (committed, metadata) = match begin {
                Some((offset, metadata)) => (Some(offset), metadata),
                None => (listed.offset(), listed.metadata()),
            };
            assigned.push(Assignment { partition, committed, metadata, is_first });
            committed.unwrap_or_else(|| i64::from(sys::RD_KAFKA_OFFSET_BEGINNING))
        });
        assigned
    }

    /// Where the partitions begin that the group has not committed.
    fn first_commits(&self, handle: &ClientHandle) -> Result<FirstCommits, KafkaError> {
        let listed = self.list.partitions();
        let missing: Vec<Partition> = listed
            .iter()
            .filter(|one| one.offset().is_none())
            .map(|one| partition_of(&one))
            .collect();
        if missing.is_empty() {
            return Ok(FirstCommits::new());
        }
        let layouts = requests::metadata(handle, true, REQUEST_TIMEOUT)?;
        let mut counts = BTreeMap::new();
        let mut all = TopicPartitionList::new();
        for layout in layouts.iter().filter(|one| missing.iter().any(|two| *two.topic == one.name))
        {
            counts.insert(layout.name.as_str(), layout.partitions.len() as i32);
            layout
                .partitions
                .iter()
                .try_for_each(|number| add(&mut all, &layout.name, *number, -1))?;
        }
        fill_in_committed(handle, &mut all)?;
        let (mut asked, mut metadata) = (TopicPartitionList::new(), HashMap::new());
        for partition in missing {
            let (topic, number) = (&*partition.topic, partition.number);
            let Some(count) = counts.get(topic) else {
                let text = format!("the partitions of topic {topic:?} are not known");
                return Err(KafkaError::new(ErrorCode::UnknownTopic, text));
            };
            let commits: Vec<(i32, String)> = all
                .partitions()
                .iter()
                .filter(|one| one.topic() == topic && one.offset().is_some())
                .map(|one| (one.partition(), one.metadata()))
                .collect();
            let commits = commits.iter().map(|(number, metadata)| (*number, metadata.as_str()));
            let (position, noted) = first_position(number, *count, commits);
            let asks_for = match position {
                Position::Earliest => sys::RD_KAFKA_OFFSET_BEGINNING,
                _ => sys::RD_KAFKA_OFFSET_END,
            };
            add(&mut asked, topic, number, i64::from(asks_for))?;
            metadata.insert(partition, noted);
        }
        // A request by time takes these two as well: they are the times of the protocol's ListOffsets.
        handle.offsets_for_times(&mut asked, REQUEST_TIMEOUT)?;
        asked.partitions().check()?;
        let found = asked.partitions().iter().filter_map(|one| {
            let partition = partition_of(&one);
            let metadata = metadata.remove(&partition)?;
            Some((partition, (one.offset()?, metadata)))
        });
        Ok(found.collect())
    }

    /// The partitions with the offsets at which they begin.
    pub fn into_offsets(self) -> TopicPartitionList {
        self.list
    }
}

fn fill_in_committed(
    handle: &ClientHandle,
    list: &mut TopicPartitionList,
) -> Result<(), KafkaError> {
    handle.committed(list, REQUEST_TIMEOUT)?;
    list.partitions().check()
}

fn add(
    list: &mut TopicPartitionList,
    topic: &str,
    number: i32,
    offset: i64,
) -> Result<(), KafkaError> {
    let added = list.add(topic, number, offset, "");
    added.map_err(|error| KafkaError::new(ErrorCode::InvalidArgument, error.message))
}

/// The partition of an element of a list.
pub fn partition_of(partition: &TopicPartition<'_>) -> Partition {
    Partition { topic: partition.topic().into(), number: partition.partition() }
}
