//! The places where jobs wait, for people and tools.

use super::resp::{Pack, Value};
use super::scripts::Script;
use super::{unix_s, RedisStore};
use crate::document::{enqueued_at, stamped, Document, Fields};
use crate::store::{JobEntry, JobLocation, QueueStatus, Result, Stats, StoreError};

/// Entries looked at in one round trip.
const PAGE: usize = 500;

impl RedisStore {
    pub(super) fn count_all(&mut self) -> Result<Stats> {
        let counts = self.call(Script::Stats, &[])?.items();
        let count = |index: usize| counts.get(index).map_or(0, Value::count);
        Ok(Stats {
            processed: count(0),
            failed: count(1),
            enqueued: count(2),
            scheduled: count(3),
            retries: count(4),
            dead: count(5),
            in_flight: count(6),
            processes: count(7),
        })
    }

    pub(super) fn list_queues(&mut self) -> Result<Vec<QueueStatus>> {
        let mut items = self.call(Script::Queues, &[])?.items().into_iter();
        let now_s = unix_s();
        let mut queues = Vec::new();
        while let (Some(name), Some(size), Some(job), Some(paused)) =
            (items.next(), items.next(), items.next(), items.next())
        {
            let latency_s = enqueued_at(&job.bytes()).map_or(0.0, |at| (now_s - at).max(0.0));
            let (name, paused) = (name.text(), paused.count() == 1);
            queues.push(QueueStatus { name, size: size.count(), latency_s, paused });
        }
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(queues)
    }

    pub(super) fn page(
        &mut self,
        place: &JobLocation,
        offset: usize,
        count: usize,
    ) -> Result<Vec<JobEntry>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let (offset, count) = (offset as i64, count.min(i32::MAX as usize) as i64);
        let key = key(place);
        let mut pack = Pack::new();
        match place {
            // The front of a queue is its right end.
            JobLocation::Queue(_) => {
                pack.begin(4).word("LRANGE").word(&key).number(-offset - count).number(-offset - 1)
            }
            JobLocation::Dead => pack
                .begin(5)
                .word("ZREVRANGE")
                .word(&key)
                .number(offset)
                .number(offset + count - 1)
                .word("WITHSCORES"),
            JobLocation::Scheduled | JobLocation::Retry => pack
                .begin(5)
                .word("ZRANGE")
                .word(&key)
                .number(offset)
                .number(offset + count - 1)
                .word("WITHSCORES"),
        };
        let reply = self.run(&pack)?.next().unwrap_or(Value::Nil);
        Ok(match place {
            JobLocation::Queue(_) => {
                reply.items().into_iter().rev().map(|job| entry(job.bytes(), 0.0)).collect()
            }
            _ => reply.scored().into_iter().map(|(job, score)| entry(job, score)).collect(),
        })
    }

    pub(super) fn search(&mut self, jid: &str) -> Result<Option<(JobLocation, JobEntry)>> {
        if jid.is_empty() {
            return Ok(None);
        }
        let names = self.one(&[b"SMEMBERS", b"queues"])?.items();
        let queues = names.into_iter().map(|name| JobLocation::Queue(name.text()));
        let places = [JobLocation::Retry, JobLocation::Scheduled, JobLocation::Dead]
            .into_iter()
            .chain(queues);
        for place in places {
            // A page may shift while jobs come and go; one that moves past us
            // is taken by a worker, not lost.
            let mut offset = 0;
            loop {
                let page = self.page(&place, offset, PAGE)?;
                offset += page.len();
                let last = page.len() < PAGE;
                if let Some(entry) = page.into_iter().find(|entry| is_job(&entry.payload, jid)) {
                    return Ok(Some((place, entry)));
                }
                if last {
                    break;
                }
            }
        }
        Ok(None)
    }

    pub(super) fn drop_entry(&mut self, place: &JobLocation, entry: &JobEntry) -> Result<bool> {
        self.take(place, entry, "drop", None, unix_s())
    }

    pub(super) fn kill_entry(
        &mut self,
        place: &JobLocation,
        entry: &JobEntry,
        now_s: f64,
    ) -> Result<bool> {
        self.take(place, entry, "bury", None, now_s)
    }

    pub(super) fn requeue_entry(
        &mut self,
        place: &JobLocation,
        entry: &JobEntry,
        now_s: f64,
    ) -> Result<bool> {
        let one_less = *place == JobLocation::Retry;
        let ready = stamped(&entry.payload, now_s, self.rules.format, one_less);
        let ready = match (ready, place) {
            (Some((_, payload)), JobLocation::Queue(queue)) => (queue.clone(), payload),
            (Some(ready), _) => ready,
            (None, JobLocation::Queue(queue)) => (queue.clone(), entry.payload.clone()),
            (None, _) => {
                return Err(StoreError::refused(
                    "this entry is no job document with a queue: it can only be removed",
                ))
            }
        };
        self.take(place, entry, "push", Some(ready), now_s)
    }

    fn take(
        &mut self,
        place: &JobLocation,
        entry: &JobEntry,
        action: &str,
        ready: Option<(String, Vec<u8>)>,
        now_s: f64,
    ) -> Result<bool> {
        let mut pack = Pack::new();
        self.conn.script(&mut pack, Script::Take, 13)?;
        pack.word(key(place)).word(kind(place)).word(&entry.payload).word(action);
        let (queue, payload) = ready.unwrap_or_default();
        pack.word(payload).word(queue);
        self.burial(&mut pack, now_s);
        let held = if action == "push" {
            JobResources::default()
        } else {
            JobResources::of(&entry.payload)
        };
        held.pack(&mut pack);
        Ok(self.run(&pack)?.next().is_some_and(|taken| taken.count() == 1))
    }

    pub(super) fn clear_place(&mut self, place: &JobLocation, max: usize) -> Result<usize> {
        let (key, mut cleared) = (key(place), 0);
        let max = if max == 0 { usize::MAX } else { max };
        loop {
            let step = PAGE.min(max - cleared);
            let number = step.to_string();
            let words = [key.as_bytes(), kind(place).as_bytes(), number.as_bytes()];
            let mut answer = self.call(Script::Clear, &words)?.items().into_iter();
            let gone = answer.next().map_or(0, |gone| gone.count()) as usize;
            cleared += gone;
            let held: Vec<JobResources> = answer
                .map(|job| JobResources::of(&job.bytes()))
                .filter(|held| held.lock.is_some() || held.bid.is_some())
                .collect();
            if !held.is_empty() {
                let mut pack = Pack::new();
                self.conn.script(&mut pack, Script::Free, 4 * held.len())?;
                held.iter().for_each(|held| held.pack(&mut pack));
                self.run(&pack)?;
            }
            if gone < step || cleared >= max {
                return Ok(cleared);
            }
        }
    }
}

/// What a job that is taken away holds.
#[derive(Default)]
struct JobResources {
    jid: String,
    lock: Option<String>,
    bid: Option<String>,
}

impl JobResources {
    fn of(payload: &[u8]) -> Self {
        match Document::parse(payload.into()) {
            Ok(job) => Self {
                jid: job.jid().into(),
                lock: job.extra().and_then(|extra| extra.lock.clone()),
                bid: job.bid().map(Into::into),
            },
            Err(_) => Self::default(),
        }
    }

    fn pack(&self, pack: &mut Pack) {
        pack.word(self.lock.as_deref().unwrap_or_default()).word(&self.jid);
        pack.word(self.bid.as_deref().unwrap_or_default()).word(&self.jid);
    }
}

fn key(place: &JobLocation) -> String {
    match place {
        JobLocation::Queue(name) => format!("queue:{name}"),
        JobLocation::Scheduled => "schedule".into(),
        JobLocation::Retry => "retry".into(),
        JobLocation::Dead => "dead".into(),
    }
}

fn kind(place: &JobLocation) -> &'static str {
    match place {
        JobLocation::Queue(_) => "list",
        _ => "zset",
    }
}

fn entry(payload: Vec<u8>, score: f64) -> JobEntry {
    JobEntry { score, row: 0, payload }
}

fn is_job(payload: &[u8], jid: &str) -> bool {
    let named = payload.windows(jid.len()).any(|part| part == jid.as_bytes());
    named && Fields::parse(payload).is_ok_and(|f| f.text("jid").as_deref() == Some(jid))
}
