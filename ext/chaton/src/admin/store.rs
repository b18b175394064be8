//! The store of the jobs, as the admin endpoint reads and changes it.

use std::time::{Duration, Instant};

use chaton_admin::dashboard::stored_jobs::{JobAction, JobSource, StoredJob};
use chaton_admin::queues::{QueueSize, QueueSource, StoreSizes};
use chaton_core::clock::wall_s;
use chaton_jobs::document::{Document, Fields};
use chaton_jobs::store::{
    self, JobEntry, JobLocation, QueueStatus, Store, StoreError, StoreOptions,
};

use crate::jobs::to_ruby::location;

/// Characters of an error that are shown.
const ERROR_MAX: usize = 500;
/// Entries among which a job is searched first.
const NEAR_MAX: usize = 200;
/// Time after which an action on many jobs ends, so that its request is answered.
const ACTION_MAX: Duration = Duration::from_secs(2);

/// Opens the store; one that cannot be named right was refused by the workers.
pub fn open(settings: &serde_json::Value) -> Option<(Box<dyn QueueSource>, Box<dyn JobSource>)> {
    let options: StoreOptions = serde_json::from_value(settings.clone()).ok()?;
    let factory = store::open(&options).ok()?;
    Some((Box::new(StoreQueues(factory.store())), Box::new(StoreJobs(factory.store()))))
}

struct StoreQueues(Box<dyn Store>);

impl QueueSource for StoreQueues {
    fn read(&mut self) -> Option<StoreSizes> {
        let stats = self.0.stats().ok()?;
        let queues = self.0.queues().ok()?.into_iter();
        let size = |queue: QueueStatus| QueueSize {
            name: queue.name,
            size: queue.size,
            latency_s: queue.latency_s,
            paused: queue.paused,
        };
        let sets = vec![
            ("scheduled", stats.scheduled),
            ("retries", stats.retries),
            ("dead", stats.dead),
            ("in_flight", stats.in_flight),
        ];
        Some(StoreSizes { queues: queues.map(size).collect(), sets })
    }
}

struct StoreJobs(Box<dyn Store>);

fn sentence(error: StoreError) -> String {
    error.to_string()
}

impl JobSource for StoreJobs {
    fn list(&mut self, place: &str, offset: usize, count: usize) -> Result<Vec<StoredJob>, String> {
        let entries = self.0.list(&location(place)?, offset, count).map_err(sentence)?;
        Ok(entries.iter().map(shown).collect())
    }

    fn act(
        &mut self,
        action: JobAction,
        place: &str,
        jid: &str,
        offset: usize,
    ) -> Result<bool, String> {
        let place = location(place)?;
        let Some(entry) = self.find(&place, jid, offset)? else { return Ok(false) };
        self.act_on(action, &place, &entry)
    }

    fn act_on_all(
        &mut self,
        action: JobAction,
        place: &str,
        count: usize,
    ) -> Result<usize, String> {
        let place = location(place)?;
        if action == JobAction::Delete {
            return self.0.clear(&place, count).map_err(sentence);
        }
        let until = Instant::now() + ACTION_MAX;
        let (mut done, mut failed) = (0, None);
        for entry in self.0.list(&place, 0, count).map_err(sentence)? {
            match self.act_on(action, &place, &entry) {
                Ok(there) => done += usize::from(there),
                // One that is no job stays, and the others go on.
                Err(why) => failed = Some(why),
            }
            if Instant::now() >= until {
                break;
            }
        }
        failed.filter(|_| done == 0).map_or(Ok(done), Err)
    }

    fn pause(&mut self, queue: &str, paused: bool) -> Result<(), String> {
        self.0.pause(queue, paused).map_err(sentence)
    }
}

impl StoreJobs {
    /// Looks where the job stood on the page, and only then everywhere.
    fn find(
        &mut self,
        place: &JobLocation,
        jid: &str,
        offset: usize,
    ) -> Result<Option<JobEntry>, String> {
        let first = offset.saturating_sub(NEAR_MAX / 4);
        let near = self.0.list(place, first, NEAR_MAX).map_err(sentence)?;
        if let Some(entry) = near.into_iter().find(|entry| shown(entry).jid == jid) {
            return Ok(Some(entry));
        }
        let found = self.0.find(jid).map_err(sentence)?;
        Ok(found.filter(|(found_in, _)| found_in == place).map(|(_, entry)| entry))
    }

    fn act_on(
        &mut self,
        action: JobAction,
        place: &JobLocation,
        entry: &JobEntry,
    ) -> Result<bool, String> {
        match (action, place) {
            (JobAction::Retry, JobLocation::Queue(_)) => {
                Err("jobs of a queue wait to be run already".to_owned())
            }
            (JobAction::Retry, _) => self.0.enqueue_entry(place, entry, wall_s()).map_err(sentence),
            (JobAction::Delete, _) => self.0.remove(place, entry).map_err(sentence),
        }
    }
}

/// What is shown of an entry. One that is no job is shown without a class, so that it can be removed.
fn shown(entry: &JobEntry) -> StoredJob {
    let document = Document::parse(entry.payload.as_slice().into()).ok();
    let fields = Fields::parse(&entry.payload).ok();
    let text = |name: &str| fields.as_ref().and_then(|fields| fields.text(name));
    let error = text("error_message").map(|message| {
        let class = text("error_class").unwrap_or_default();
        format!("{class}: {message}").chars().take(ERROR_MAX).collect()
    });
    // retry_count is 0 after the first failure.
    let retries = fields.as_ref().and_then(|fields| fields.number("retry_count"));
    StoredJob {
        jid: text("jid").unwrap_or_default(),
        class: document.as_ref().map(Document::display_class).unwrap_or_default(),
        queue: text("queue").unwrap_or_default(),
        at: entry.score,
        enqueued_at: document.and_then(|document| document.enqueued_at_s()),
        failures: retries.map(|count| (count as u64).saturating_add(1)),
        error,
    }
}
