//! One line in the log for each job that ended, up to a number a second, and one line a second about the others. The
//! fetcher writes the lines of jobs that ran well. Those of failed jobs have an error to show, so Ruby writes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use chaton_core::clock;
use chaton_core::log::{self, FieldValue, Output};
use serde::Deserialize;

use super::job::{Job, Run};

const SECOND_NS: u64 = 1_000_000_000;

/// Settings of the lines about ended jobs.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobLogSettings {
    /// Lines a second about jobs that ran well, and as many about those that failed; 0: none about jobs that ran
    /// well, and all about those that failed.
    pub per_s: usize,
    /// Whether lines of the level info are written.
    pub info: bool,
}

/// A job that ran well and has no line yet.
pub(super) struct EndedJob {
    job: Arc<Job>,
    ran_ns: u64,
}

/// What is to be written.
#[derive(Default)]
pub(super) struct JobLogLines {
    ended: Vec<EndedJob>,
    /// Jobs without a line of their own: those that ran well, and those that failed.
    more: Option<(u64, u64)>,
}

/// Counts lines about jobs that failed.
pub(super) struct FailedLines {
    per_s: u64,
    /// The second in which they are counted, and above its lower half how many.
    counted: AtomicU64,
}

impl FailedLines {
    pub fn new(settings: JobLogSettings) -> Self {
        Self { per_s: settings.per_s as u64, counted: AtomicU64::new(0) }
    }

    /// Counts one; whether it gets a line.
    pub fn add(&self) -> bool {
        let second = (clock::now_ns() / SECOND_NS) & u64::from(u32::MAX);
        let count = |counted: u64| match counted & u64::from(u32::MAX) == second {
            true => counted.checked_add(1 << 32),
            false => Some(second | 1 << 32),
        };
        let before = self.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        let shown = before.map_or(u64::MAX, |before| count(before).unwrap_or(u64::MAX) >> 32);
        self.per_s == 0 || shown <= self.per_s
    }
}

/// The lines that are not written yet. They belong to the fetcher.
#[derive(Default)]
pub(super) struct JobLog {
    settings: JobLogSettings,
    /// The second in which the lines are counted.
    second: u64,
    done: usize,
    lines: JobLogLines,
    /// When the first job without a line ended (ns).
    more_since_ns: u64,
}

impl JobLog {
    pub fn new(settings: JobLogSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Notes a job that ran well.
    pub fn add_done(&mut self, job: &Arc<Job>, run: Run) {
        let per_s = self.settings.per_s;
        if per_s == 0 || !self.settings.info {
            return;
        }
        self.begin_second(run.ended_ns);
        self.done += 1;
        // The fetcher may wait for the store, and write nothing meanwhile.
        if self.done <= per_s && self.lines.ended.len() < per_s {
            self.lines.ended.push(EndedJob { job: job.clone(), ran_ns: run.ran_ns });
        } else {
            self.add_more(run.ended_ns, |more| more.0 += 1);
        }
    }

    /// Notes a job that failed and got no line.
    pub fn add_failed(&mut self) {
        self.add_more(clock::now_ns(), |more| more.1 += 1);
    }

    fn begin_second(&mut self, now_ns: u64) {
        let second = now_ns / SECOND_NS;
        if second != self.second {
            (self.second, self.done) = (second, 0);
        }
    }

    fn add_more(&mut self, now_ns: u64, count: impl FnOnce(&mut (u64, u64))) {
        if self.lines.more.is_none() {
            self.more_since_ns = now_ns;
        }
        count(self.lines.more.get_or_insert_default());
    }

    /// When the line about further jobs is due (ns).
    pub fn due_ns(&self) -> Option<u64> {
        self.lines.more.map(|_| self.more_since_ns + SECOND_NS)
    }

    /// Whether half of the lines that may wait do so.
    pub fn is_urgent(&self) -> bool {
        2 * self.lines.ended.len() >= self.settings.per_s
    }

    /// Takes what is to be written now; `last`: also what is not due yet.
    pub fn take(&mut self, last: bool) -> Option<JobLogLines> {
        let is_due = last || self.due_ns().is_some_and(|due_ns| clock::now_ns() >= due_ns);
        let more = if is_due { self.lines.more.take() } else { None };
        let ended = std::mem::take(&mut self.lines.ended);
        (!ended.is_empty() || more.is_some()).then_some(JobLogLines { ended, more })
    }
}

impl JobLogLines {
    /// Writes them to standard output, as Ruby's log does.
    pub fn write(self) {
        let mut out = vec![];
        for EndedJob { job, ran_ns } in self.ended {
            let (doc, seconds) = (job.document(), ran_ns as f64 / 1e9);
            let fields = [
                ("class", FieldValue::Text(&doc.display_class())),
                ("jid", FieldValue::Text(doc.jid())),
                ("queue", FieldValue::Text(job.queue())),
                ("seconds", FieldValue::Number((seconds * 1e3).round() / 1e3)),
            ];
            out.extend(log::line("INFO", "job done", &fields));
        }
        if let Some((done, failed)) = self.more {
            let fields = [("done", FieldValue::Count(done)), ("failed", FieldValue::Count(failed))];
            let message = "more jobs ended within a second than log_jobs_per_s shows";
            out.extend(log::line("INFO", message, &fields));
        }
        log::write(Output::Stdout, &out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_past_the_bound_are_only_counted() {
        let settings = JobLogSettings { per_s: 1, info: true };
        let (mut log, failed) = (JobLog::new(settings), FailedLines::new(settings));
        let mut adds = || {
            failed.add() || {
                log.add_failed();
                false
            }
        };
        let shown = (0..1000).filter(|_| adds()).count() as u64;
        let more = log.take(true).and_then(|lines| lines.more).unwrap();
        // A second may have ended meanwhile.
        assert_eq!((shown + more.1, more.0), (1000, 0));
        assert!((1..500).contains(&shown), "{shown}");
        assert!(log.take(true).is_none());
        let off = FailedLines::new(JobLogSettings::default());
        assert!((0..1000).all(|_| off.add()));
    }
}
