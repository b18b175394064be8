//! Jobs into the store.

use std::time::Duration;

use super::resp::{Pack, Value};
use super::scripts::Script;
use super::{ms, RedisStore};
use crate::store::{NewJob, PushResult, Result};

impl RedisStore {
    pub(super) fn push_jobs(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        if jobs.iter().any(|job| job.lock.is_some() || job.bid.is_some()) {
            let answers = self.push_script("", Duration::ZERO, jobs)?.items();
            let pushed = |holder: Value| match holder.text() {
                holder if holder.is_empty() => PushResult::Stored,
                holder => PushResult::Locked(holder),
            };
            return Ok(answers.into_iter().map(pushed).collect());
        }
        let mut pack = Pack::new();
        let mut groups = 0;
        for group in jobs.chunk_by(same_place) {
            groups += 1;
            push_group(&mut pack, group);
        }
        // One group is one command, all or nothing by itself: the name of the
        // queue comes before it and harms nobody if it stands alone.
        if groups == 1 {
            self.conn.run(&pack)?;
        } else {
            self.conn.atomic(&pack)?;
        }
        Ok(vec![PushResult::Stored; jobs.len()])
    }

    pub(super) fn push_tick(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        let answers = self.push_script(key, ttl, std::slice::from_ref(job))?.items();
        Ok(answers.into_iter().next().is_some_and(|holder| holder.text().is_empty()))
    }

    fn push_script(&mut self, once: &str, ttl: Duration, jobs: &[NewJob<'_>]) -> Result<Value> {
        let mut pack = Pack::new();
        self.conn.script(&mut pack, Script::Push, 2 + 7 * jobs.len())?;
        pack.word(once).number(ms(ttl));
        for job in jobs {
            pack.word(job.queue).word(job.payload);
            match job.at {
                Some(at) => pack.float(at),
                None => pack.word(""),
            };
            match job.lock {
                Some(lock) => pack.word(lock.key).word(lock.jid).number(ms(lock.ttl)),
                None => pack.word("").word("").word(""),
            };
            pack.word(job.bid.unwrap_or_default());
        }
        Ok(self.run(&pack)?.next().unwrap_or(Value::Nil))
    }
}

/// Whether both go into the same list or set by one command.
fn same_place(a: &NewJob<'_>, b: &NewJob<'_>) -> bool {
    match (a.at, b.at) {
        (None, None) => a.queue == b.queue,
        (Some(_), Some(_)) => true,
        _ => false,
    }
}

fn push_group(pack: &mut Pack, group: &[NewJob<'_>]) {
    let first = &group[0];
    if first.at.is_some() {
        pack.begin(2 + 2 * group.len()).word("ZADD").word("schedule");
        for job in group {
            pack.float(job.at.unwrap_or_default()).word(job.payload);
        }
    } else {
        pack.begin(3).word("SADD").word("queues").word(first.queue);
        pack.begin(2 + group.len()).word("LPUSH").parts(&[b"queue:", first.queue.as_bytes()]);
        for job in group {
            pack.word(job.payload);
        }
    }
}
