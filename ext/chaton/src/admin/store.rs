//! The store of the jobs, as the admin endpoint reads and changes it.

use std::collections::HashSet;
use std::io::Read;
use std::time::{Duration, Instant};

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine as _;
use chaton_admin::dashboard::stored_jobs::{
    CronTicks, JobAction, JobBatch, JobDetails, JobFilter, JobSource, StoredJob,
};
use chaton_admin::dashboard::CronEntry;
use chaton_admin::queues::{QueueSize, QueueSource, StoreSizes};
use chaton_core::clock::wall_s;
use chaton_jobs::cron::{CronMemory, Schedule};
use chaton_jobs::document::{Document, Fields};
use chaton_jobs::store::{
    self, BatchStatus, JobEntry, JobLocation, QueueStatus, Store, StoreError, StoreOptions,
};
use flate2::read::ZlibDecoder;
use serde_json::Value;

use crate::jobs::to_ruby::location;

/// Characters of an error that are shown.
const ERROR_MAX: usize = 500;
/// Characters of the error among a job's details: more than Sidekiq stores.
const ERROR_IN_FULL_MAX: usize = 12_000;
/// Lines of a backtrace that are shown, and bytes that are unpacked at most.
const BACKTRACE_LINES_MAX: usize = 200;
const BACKTRACE_BYTES_MAX: u64 = 256 << 10;
/// Bytes of arguments whose values are shown. A worker filters them, and its pipe takes 64 KB.
const VALUES_BYTES_MAX: usize = 16 << 10;
/// Arguments whose kinds are shown.
const KINDS_MAX: usize = 20;
/// Entries among which a job is searched first.
const NEAR_MAX: usize = 200;
/// Time after which an action on many jobs ends, so that its request is answered.
const ACTION_MAX: Duration = Duration::from_secs(2);

/// How long it is remembered which queues are worked on. A process's heartbeat comes less often.
const SERVED_KEPT: Duration = Duration::from_secs(5);

/// Opens the store; one that cannot be named right was refused by the workers.
pub fn open(settings: &serde_json::Value) -> Option<(Box<dyn QueueSource>, Box<dyn JobSource>)> {
    let options: StoreOptions = serde_json::from_value(settings.clone()).ok()?;
    let factory = store::open(&options).ok()?;
    let queues = StoreQueues { store: factory.store(), served: (None, Instant::now()) };
    Some((Box::new(queues), Box::new(StoreJobs(factory.store()))))
}

struct StoreQueues {
    store: Box<dyn Store>,
    /// The queues whose jobs living processes take, and when that was read.
    served: (Option<HashSet<String>>, Instant),
}

impl StoreQueues {
    /// Reads which queues are worked on, now and then: it takes a round trip or two for all processes.
    fn served(&mut self) -> Result<&HashSet<String>, StoreError> {
        let (served, read_at) = &mut self.served;
        if served.is_none() || read_at.elapsed() >= SERVED_KEPT {
            let ours = self.store.processes()?.into_iter().filter(|one| !one.quiet);
            let infos = ours.map(|one| one.info).chain(self.store.sidekiq_processes()?);
            *served = Some(infos.flat_map(|info| queues_of(&info)).collect());
            *read_at = Instant::now();
        }
        Ok(served.get_or_insert_with(HashSet::new))
    }
}

/// The queues that a process names in its description.
fn queues_of(info: &str) -> Vec<String> {
    let info: serde_json::Value = serde_json::from_str(info).unwrap_or_default();
    let names = info["queues"].as_array().into_iter().flatten();
    names.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

impl QueueSource for StoreQueues {
    fn read(&mut self) -> Result<StoreSizes, String> {
        let stats = self.store.stats().map_err(sentence)?;
        let queues = self.store.queues().map_err(sentence)?.into_iter();
        let served = self.served().map_err(sentence)?;
        let size = |queue: QueueStatus| QueueSize {
            served: Some(served.contains(&queue.name)),
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
        let queues = queues.map(size).collect();
        let outbox = self.store.outbox().map_err(sentence)?;
        Ok(StoreSizes { queues, sets, outbox })
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
        offset: usize,
        count: usize,
        filter: &JobFilter,
    ) -> Result<(usize, Option<usize>), String> {
        let place = location(place)?;
        if action == JobAction::Delete && filter.is_empty() {
            let done = self.0.clear(&place, count).map_err(sentence)?;
            return Ok((done, (done == count).then_some(0)));
        }
        let until = Instant::now() + ACTION_MAX;
        let entries = self.0.list(&place, offset, count).map_err(sentence)?;
        let (mut stay, mut done, mut failed) = (0, 0, None);
        let more = entries.len() == count;
        let mut late = false;
        for entry in entries {
            if !filter.is_empty() && !filter.takes(&shown(&entry)) {
                stay += 1;
                continue;
            }
            match self.act_on(action, &place, &entry) {
                Ok(there) => done += usize::from(there),
                // One that is no job stays, and the others go on.
                Err(why) => (stay, failed) = (stay + 1, Some(why)),
            }
            late = Instant::now() >= until;
            if late {
                break;
            }
        }
        let next = (more || late).then_some(offset + stay);
        failed.filter(|_| done == 0).map_or(Ok((done, next)), Err)
    }

    fn details(
        &mut self,
        place: &str,
        jid: &str,
        offset: usize,
    ) -> Result<Option<JobDetails>, String> {
        let place = location(place)?;
        Ok(self.find(&place, jid, offset)?.map(|entry| details(&entry)))
    }

    fn crons(
        &mut self,
        application: &str,
        entries: &[CronEntry],
    ) -> Result<Vec<CronTicks>, String> {
        let memory = CronMemory::load(&mut *self.0, application).map_err(sentence)?;
        let ticks = entries.iter().map(|entry| {
            let schedule = Schedule::new(&entry.name, &entry.schedule, &entry.zone)?;
            Ok((memory.last_tick(&entry.name), schedule.next(wall_s())))
        });
        ticks.collect()
    }

    fn batches(&mut self, max: usize) -> Result<Vec<JobBatch>, String> {
        let batches = self.0.batches(max).map_err(sentence)?.into_iter();
        let batch = |one: BatchStatus| JobBatch {
            bid: one.bid,
            parent: one.parent,
            description: one.description,
            created_at: one.created_at,
            total: one.total,
            pending: one.pending,
            failures: one.failures,
            children_pending: one.children_pending,
            complete: one.complete,
            dead: one.dead,
        };
        Ok(batches.map(batch).collect())
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
            (JobAction::Kill, JobLocation::Dead) => Err("the job is dead already".to_owned()),
            (JobAction::Kill, _) => self.0.kill(place, entry, wall_s()).map_err(sentence),
            (JobAction::Delete, _) => self.0.remove(place, entry).map_err(sentence),
        }
    }
}

/// More about an entry.
fn details(entry: &JobEntry) -> JobDetails {
    let fields = Fields::parse(&entry.payload).ok();
    let text = |name: &str| fields.as_ref().and_then(|fields| fields.text(name));
    // Sidekiq 8 writes milliseconds.
    let time = |name: &str| {
        let at = fields.as_ref().and_then(|fields| fields.number(name))?;
        Some(if at > 1e11 { at / 1e3 } else { at })
    };
    let arguments = fields.as_ref().and_then(|fields| fields.get("args"));
    JobDetails {
        job: shown_with(entry, ERROR_IN_FULL_MAX),
        created_at: time("created_at"),
        failed_at: time("failed_at"),
        retried_at: time("retried_at"),
        bid: text("bid"),
        arguments: arguments.map(kinds).unwrap_or_default(),
        raw_arguments: Some(arguments.unwrap_or("[]"))
            .filter(|text| text.len() <= VALUES_BYTES_MAX)
            .map(str::to_owned),
        values: None,
        values_error: None,
        backtrace: text("error_backtrace").map(|text| backtrace(&text)).unwrap_or_default(),
    }
}

/// The kinds of arguments. Those of ActiveJob are in an envelope.
fn kinds(arguments: &str) -> String {
    let given: Vec<Value> = serde_json::from_str(arguments).unwrap_or_default();
    let wrapped = match &given[..] {
        [Value::Object(one)] if one.contains_key("job_class") => one.get("arguments"),
        _ => None,
    };
    let all = wrapped.and_then(Value::as_array).unwrap_or(&given);
    let kind = |one: &Value| match one {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(_) => "a number".to_owned(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(members) => format!("an object of {}", members.len()),
    };
    let more = all.len().saturating_sub(KINDS_MAX);
    let mut kinds: Vec<_> = all.iter().take(KINDS_MAX).map(kind).collect();
    kinds.extend((more > 0).then(|| format!("and {more} more")));
    if kinds.is_empty() {
        "none".to_owned()
    } else {
        kinds.join(", ")
    }
}

/// The lines that Sidekiq writes as JSON, deflated, in Base64.
fn backtrace(text: &str) -> Vec<String> {
    let packed: Vec<u8> = text.bytes().filter(|byte| *byte != b'\n').collect();
    let (deflated, mut json) = (BASE64.decode(packed).unwrap_or_default(), Vec::new());
    let read = ZlibDecoder::new(&deflated[..]).take(BACKTRACE_BYTES_MAX).read_to_end(&mut json);
    let lines = read.ok().and_then(|_| serde_json::from_slice::<Vec<String>>(&json).ok());
    let lines = lines.unwrap_or_default();
    lines.into_iter().take(BACKTRACE_LINES_MAX).collect()
}

/// What is shown of an entry. One that is no job is shown without a class, so that it can be removed.
fn shown(entry: &JobEntry) -> StoredJob {
    shown_with(entry, ERROR_MAX)
}

fn shown_with(entry: &JobEntry, error_max: usize) -> StoredJob {
    let document = Document::parse(entry.payload.as_slice().into()).ok();
    let fields = Fields::parse(&entry.payload).ok();
    let text = |name: &str| fields.as_ref().and_then(|fields| fields.text(name));
    let error = text("error_message").map(|message| {
        let class = text("error_class").unwrap_or_default();
        format!("{class}: {message}").chars().take(error_max).collect()
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
