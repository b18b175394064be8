//! Pushing jobs.

use std::time::Duration;

use super::resp::{Pipeline, RespValue};
use super::scripts::Script;
use super::store::{ms, RedisStore};
use crate::store::traits::Result;
use crate::store::types::{NewJob, PushResult};

impl RedisStore {
    pub(super) fn push_jobs(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        if jobs.iter().any(|job| job.lock.is_some() || job.bid.is_some()) {
            let answers = self.push_script("", Duration::ZERO, jobs)?.items();
            let pushed = |holder: RespValue| match holder.text() {
                holder if holder.is_empty() => PushResult::Stored,
                holder => PushResult::Locked(holder),
            };
            return Ok(answers.into_iter().map(pushed).collect());
        }
        let mut pipeline = Pipeline::new();
        let mut groups = 0;
        for group in jobs.chunk_by(same_target) {
            groups += 1;
            push_group(&mut pipeline, group);
        }
        // A single group is one command, atomic by itself. The queue's name is
        // added before it and does no harm if the command fails.
        if groups == 1 {
            self.conn.run(&pipeline)?;
        } else {
            self.conn.atomic(&pipeline)?;
        }
        Ok(vec![PushResult::Stored; jobs.len()])
    }

    pub(super) fn push_tick(&mut self, key: &str, ttl: Duration, job: &NewJob<'_>) -> Result<bool> {
        let answers = self.push_script(key, ttl, std::slice::from_ref(job))?.items();
        Ok(answers.into_iter().next().is_some_and(|holder| holder.text().is_empty()))
    }

    fn push_script(&mut self, once: &str, ttl: Duration, jobs: &[NewJob<'_>]) -> Result<RespValue> {
        let mut pipeline = Pipeline::new();
        self.conn.script(&mut pipeline, Script::Push, 2 + 7 * jobs.len())?;
        pipeline.word(once).number(ms(ttl));
        for job in jobs {
            pipeline.word(job.queue).word(job.payload);
            match job.at {
                Some(at) => pipeline.float(at),
                None => pipeline.word(""),
            };
            match job.lock {
                Some(lock) => pipeline.word(lock.key).word(lock.jid).number(ms(lock.ttl)),
                None => pipeline.word("").word("").word(""),
            };
            pipeline.word(job.bid.unwrap_or_default());
        }
        Ok(self.run(&pipeline)?.next().unwrap_or(RespValue::Nil))
    }
}

/// Whether one command can add both jobs.
fn same_target(a: &NewJob<'_>, b: &NewJob<'_>) -> bool {
    match (a.at, b.at) {
        (None, None) => a.queue == b.queue,
        (Some(_), Some(_)) => true,
        _ => false,
    }
}

fn push_group(pipeline: &mut Pipeline, group: &[NewJob<'_>]) {
    let first = &group[0];
    if first.at.is_some() {
        pipeline.begin(2 + 2 * group.len()).word("ZADD").word("schedule");
        for job in group {
            pipeline.float(job.at.unwrap_or_default()).word(job.payload);
        }
    } else {
        pipeline.begin(3).word("SADD").word("queues").word(first.queue);
        pipeline.begin(2 + group.len()).word("LPUSH").parts(&[b"queue:", first.queue.as_bytes()]);
        for job in group {
            pipeline.word(job.payload);
        }
    }
}
