//! Jobs in the store: lists of them, and what a person does with them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::config::CronEntry;

/// How long a request waits for the store.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Entries that one search looks at, and the time after which it ends, so that its request is answered. It says
/// when it has stopped before the end.
const SEARCHED_MAX: usize = 10_000;
const SEARCH_MAX: Duration = Duration::from_secs(2);
/// Entries that a search reads at once.
const SEARCH_PAGE: usize = 500;
/// Groups that are told apart, and those that are shown: the largest.
const GROUPS_MAX: usize = 2000;
const GROUPS_SHOWN_MAX: usize = 50;
/// Characters by which errors are told apart.
const GROUP_ERROR_MAX: usize = 200;

/// A job of a list. Its arguments, which may be secret, are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoredJob {
    /// Its id.
    pub jid: String,
    /// Its class.
    pub class: String,
    /// Its queue.
    pub queue: String,
    /// When it is due, or died (s since 1970); 0 in a queue.
    pub at: f64,
    /// When it was enqueued (s since 1970).
    pub enqueued_at: Option<f64>,
    /// How often it has failed.
    pub failures: Option<u64>,
    /// Its last error.
    pub error: Option<String>,
}

/// More about a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobDetails {
    /// The same as in a list, the error in full.
    #[serde(flatten)]
    pub job: StoredJob,
    /// When it was made, when it failed first and last (s since 1970).
    pub created_at: Option<f64>,
    #[allow(missing_docs)]
    pub failed_at: Option<f64>,
    #[allow(missing_docs)]
    pub retried_at: Option<f64>,
    /// Its batch.
    pub bid: Option<String>,
    /// The arguments by their kinds, such as `a string, an object of 2`.
    pub arguments: String,
    /// The arguments as JSON, before the filters; `None`: they are too long.
    #[serde(skip)]
    pub raw_arguments: Option<String>,
    /// Their values, filtered; `None`: not known, with the reason.
    pub values: Option<Value>,
    #[allow(missing_docs)]
    pub values_error: Option<String>,
    /// Where the last error was raised, if the job keeps that.
    pub backtrace: Vec<String>,
}

/// A batch of jobs that has not succeeded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobBatch {
    /// Its id, and the id of the one that it is nested in.
    pub bid: String,
    #[allow(missing_docs)]
    pub parent: Option<String>,
    /// For people.
    pub description: String,
    /// When it was made (s since 1970).
    pub created_at: f64,
    /// All its jobs, those that have not succeeded, and those whose last run failed.
    pub total: u64,
    #[allow(missing_docs)]
    pub pending: u64,
    #[allow(missing_docs)]
    pub failures: u64,
    /// Nested batches that have not succeeded.
    pub children_pending: u64,
    /// All of them ran at least once.
    pub complete: bool,
    /// One of its jobs died.
    pub dead: bool,
}

/// The last tick of a cron entry and the next one (s since 1970).
pub type CronTicks = (Option<f64>, Option<f64>);

/// What is done with stored jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    /// They go back to their queues.
    Retry,
    /// They are removed.
    Delete,
    /// They become dead.
    Kill,
}

/// Which jobs of a list are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Their class, queue, id or error contains it, in any case.
    text: Option<String>,
    /// They are of this group.
    group: Option<String>,
}

impl JobFilter {
    /// Of a request.
    pub fn new(text: Option<String>, group: Option<String>) -> Self {
        Self { text: text.map(|text| text.to_lowercase()), group }
    }

    /// Whether it takes all jobs.
    pub fn is_empty(&self) -> bool {
        self.text.is_none() && self.group.is_none()
    }

    /// Whether it takes this one.
    pub fn takes(&self, job: &StoredJob) -> bool {
        let error = job.error.as_deref().unwrap_or_default();
        let has = |text: &String| {
            let all = [&job.class, &job.queue, &job.jid, error];
            all.iter().any(|one| one.to_lowercase().contains(text))
        };
        self.text.as_ref().is_none_or(has)
            && self.group.as_ref().is_none_or(|group| *group == group_of(job))
    }
}

/// The name of the group of jobs of a class that have failed alike: numbers, also hexadecimal ones of eight and more
/// digits, do not tell errors apart.
fn group_of(job: &StoredJob) -> String {
    let error = job.error.as_deref().unwrap_or_default();
    let words = error.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let mut alike = String::new();
    for word in words {
        let (word, end) = match word.char_indices().next_back() {
            Some((at, last)) if !last.is_ascii_alphanumeric() => word.split_at(at),
            _ => (word, ""),
        };
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let hex = digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hex || word.starts_with("0x") {
            alike.push('#');
        } else {
            let digit = |c: char| if c.is_ascii_digit() { '#' } else { c };
            word.chars().map(digit).for_each(|c| {
                if c != '#' || !alike.ends_with('#') {
                    alike.push(c);
                }
            });
        }
        alike.push_str(end);
    }
    format!("{}: {}", job.class, alike.chars().take(GROUP_ERROR_MAX).collect::<String>())
}

/// A part of a list.
#[derive(Debug, Serialize)]
pub(crate) struct JobPage {
    pub offset: usize,
    pub jobs: Vec<PlacedJob>,
    /// Where the next part begins; `None`: there is none.
    pub next: Option<usize>,
    /// How many entries were looked at, and whether the search stopped before it had found enough.
    pub searched: usize,
    pub stopped: bool,
}

/// A job and its number in its list.
#[derive(Debug, Serialize)]
pub(crate) struct PlacedJob {
    #[serde(flatten)]
    pub job: StoredJob,
    pub offset: usize,
}

/// Reads a list from `from` on, until it has found `count` jobs that are wanted.
pub(crate) fn search(
    source: &mut dyn JobSource,
    place: &str,
    from: usize,
    count: usize,
    filter: &JobFilter,
) -> Result<JobPage, String> {
    let mut jobs = Vec::new();
    let at_once = if filter.is_empty() { count } else { SEARCH_PAGE };
    let walked = walk(source, place, from, at_once, |offset, job| {
        if filter.takes(&job) {
            jobs.push(PlacedJob { job, offset });
        }
        jobs.len() < count
    })?;
    let (at, end) = (walked.at, walked.end);
    let enough = jobs.len() >= count;
    Ok(JobPage {
        offset: from,
        jobs,
        next: Some(at).filter(|_| !end),
        searched: at - from,
        stopped: !end && !enough,
    })
}

/// Jobs that have failed alike.
#[derive(Debug, Serialize)]
pub(crate) struct JobGroup {
    /// Its name, for a [`JobFilter`].
    pub group: String,
    pub class: String,
    /// The error of one of them.
    pub error: Option<String>,
    pub count: usize,
    /// The times of the first and last one.
    pub from: f64,
    pub to: f64,
}

/// The largest groups of a list, how many entries were looked at, and whether that stopped before the end.
pub(crate) fn groups(
    source: &mut dyn JobSource,
    place: &str,
    filter: &JobFilter,
) -> Result<(Vec<JobGroup>, usize, bool), String> {
    let mut groups = HashMap::<String, JobGroup>::new();
    let walked = walk(source, place, 0, SEARCH_PAGE, |_, job| {
        if !filter.takes(&job) {
            return true;
        }
        let name = group_of(&job);
        if groups.len() >= GROUPS_MAX && !groups.contains_key(&name) {
            return false;
        }
        let at = job.at;
        let group = groups.entry(name).or_insert_with_key(|name| JobGroup {
            group: name.clone(),
            class: job.class,
            error: job.error,
            count: 0,
            from: at,
            to: at,
        });
        group.count += 1;
        (group.from, group.to) = (group.from.min(at), group.to.max(at));
        true
    })?;
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.group.cmp(&b.group)));
    let hidden = groups.len() > GROUPS_SHOWN_MAX;
    groups.truncate(GROUPS_SHOWN_MAX);
    Ok((groups, walked.at, !walked.end || hidden))
}

/// How far a walk came.
struct Walked {
    at: usize,
    end: bool,
}

/// Shows a list's jobs with their numbers to `see`, until it wants no more of them, or the time is up.
fn walk(
    source: &mut dyn JobSource,
    place: &str,
    from: usize,
    at_once: usize,
    mut see: impl FnMut(usize, StoredJob) -> bool,
) -> Result<Walked, String> {
    let until = Instant::now() + SEARCH_MAX;
    let mut at = from;
    loop {
        let jobs = source.list(place, at, at_once)?;
        let end = jobs.len() < at_once;
        for job in jobs {
            at += 1;
            if !see(at - 1, job) {
                return Ok(Walked { at, end: false });
            }
        }
        if end || at - from >= SEARCHED_MAX || Instant::now() >= until {
            return Ok(Walked { at, end });
        }
    }
}

/// A connection to the store. A call may block for as long as the store's own time limits allow. Places are
/// `queue:NAME`, `scheduled`, `retry` and `dead`; errors are for people.
pub trait JobSource: Send {
    /// A page of a place.
    ///
    /// # Errors
    /// Why the store gives none.
    fn list(&mut self, place: &str, offset: usize, count: usize) -> Result<Vec<StoredJob>, String>;

    /// More about one job, which stood at about `offset`; `None`: it is gone.
    ///
    /// # Errors
    /// Why the store does not.
    fn details(
        &mut self,
        place: &str,
        jid: &str,
        offset: usize,
    ) -> Result<Option<JobDetails>, String>;

    /// Acts on one job, which stood at about `offset`; false: it is gone.
    ///
    /// # Errors
    /// Why the store does not.
    fn act(
        &mut self,
        action: JobAction,
        place: &str,
        jid: &str,
        offset: usize,
    ) -> Result<bool, String>;

    /// Acts on the jobs of a place that are wanted, of `count` entries from `offset` on at most and for a few seconds
    /// at most; returns on how many, and where the next entries stand then; `None`: there are no more.
    ///
    /// # Errors
    /// Why the store does not.
    fn act_on_all(
        &mut self,
        action: JobAction,
        place: &str,
        offset: usize,
        count: usize,
        filter: &JobFilter,
    ) -> Result<(usize, Option<usize>), String>;

    /// The last tick that was enqueued and the next one of each entry (s since 1970), if there is one.
    ///
    /// # Errors
    /// Why the store does not know.
    fn crons(&mut self, application: &str, entries: &[CronEntry])
        -> Result<Vec<CronTicks>, String>;

    /// Batches that have not succeeded, `max` at most.
    ///
    /// # Errors
    /// Why the store gives none.
    fn batches(&mut self, max: usize) -> Result<Vec<JobBatch>, String>;

    /// Stops or resumes the claiming of a queue's jobs.
    ///
    /// # Errors
    /// Why the store does not.
    fn pause(&mut self, queue: &str, paused: bool) -> Result<(), String>;
}

/// Makes calls to a [`JobSource`], one at a time.
#[derive(Clone)]
pub(crate) struct StoredJobs(Arc<Mutex<Box<dyn JobSource>>>);

impl StoredJobs {
    pub fn new(source: Box<dyn JobSource>) -> Self {
        Self(Arc::new(Mutex::new(source)))
    }

    /// A call that lasts too long goes on, and the next one waits for it.
    pub async fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn JobSource) -> Result<R, String> + Send + 'static,
    ) -> Result<R, String> {
        let source = self.0.clone();
        let called = async move {
            let mut source = source.lock_owned().await;
            tokio::task::spawn_blocking(move || call(source.as_mut())).await
        };
        let seconds = ANSWER_MAX.as_secs();
        match tokio::time::timeout(ANSWER_MAX, called).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the call to the store has failed".to_owned()),
            Err(_) => Err(format!("the store has not answered within {seconds} s")),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Each place has these jobs, and there is nothing else.
    pub struct Listed(pub Vec<StoredJob>);

    impl JobSource for Listed {
        fn list(&mut self, _: &str, at: usize, count: usize) -> Result<Vec<StoredJob>, String> {
            Ok(self.0.iter().skip(at).take(count).cloned().collect())
        }

        fn details(&mut self, _: &str, _: &str, _: usize) -> Result<Option<JobDetails>, String> {
            Ok(None)
        }

        fn act(&mut self, _: JobAction, _: &str, _: &str, _: usize) -> Result<bool, String> {
            Ok(false)
        }

        fn act_on_all(
            &mut self,
            _: JobAction,
            _: &str,
            _: usize,
            _: usize,
            _: &JobFilter,
        ) -> Result<(usize, Option<usize>), String> {
            Ok((0, None))
        }

        fn crons(&mut self, _: &str, _: &[CronEntry]) -> Result<Vec<CronTicks>, String> {
            Ok(vec![])
        }

        fn batches(&mut self, _: usize) -> Result<Vec<JobBatch>, String> {
            Ok(vec![])
        }

        fn pause(&mut self, _: &str, _: bool) -> Result<(), String> {
            Ok(())
        }
    }

    fn job(number: usize, class: &str, error: &str) -> StoredJob {
        StoredJob {
            jid: format!("{number:024x}"),
            class: class.to_owned(),
            queue: "default".to_owned(),
            at: number as f64,
            error: Some(error.to_owned()),
            ..StoredJob::default()
        }
    }

    fn text(text: &str) -> JobFilter {
        JobFilter::new(Some(text.to_owned()), None)
    }

    fn offsets(page: &JobPage) -> Vec<usize> {
        page.jobs.iter().map(|one| one.offset).collect()
    }

    #[test]
    fn a_filter_takes_what_contains_the_text_in_any_case() {
        let one = job(0xabc, "Mail::SendJob", "Net::ReadTimeout: Größe 12");
        for found in ["sendjob", "SENDJOB", "abc", "default", "readtimeout: gröSSe", "größe"] {
            assert_eq!(text(found).takes(&one), found != "readtimeout: gröSSe", "{found}");
        }
        assert!(!text("other").takes(&one) && JobFilter::default().takes(&one));
    }

    #[test]
    fn a_search_goes_on_where_it_stopped_and_says_so() {
        let class = |number| if number % 4000 == 3999 { "Rare" } else { "Often" };
        let mut list = Listed((0..25_000).map(|number| job(number, class(number), "")).collect());
        let first = search(&mut list, "dead", 0, 50, &text("rare")).unwrap();
        assert_eq!(offsets(&first), [3999, 7999]);
        assert_eq!((first.searched, first.stopped, first.next), (10_000, true, Some(10_000)));
        let second = search(&mut list, "dead", 10_000, 50, &text("rare")).unwrap();
        assert_eq!((offsets(&second), second.next), (vec![11_999, 15_999, 19_999], Some(20_000)));
        let last = search(&mut list, "dead", 20_000, 50, &text("rare")).unwrap();
        assert_eq!((offsets(&last), last.stopped, last.next), (vec![23_999], false, None));
        let two = search(&mut list, "dead", 0, 2, &text("rare")).unwrap();
        assert_eq!((offsets(&two), two.stopped, two.next), (vec![3999, 7999], false, Some(8000)));
        let all = search(&mut list, "dead", 24_960, 50, &JobFilter::default()).unwrap();
        assert_eq!((all.jobs.len(), all.next, all.searched), (40, None, 40));
    }

    #[test]
    fn jobs_that_failed_alike_are_a_group() {
        let mut list = Listed(vec![
            job(1, "Mail", "Timeout: after 30 s for #<Net:0x00007f3a>"),
            job(2, "Mail", "Timeout: after 5 s for #<Net:0x00001111>"),
            job(3, "Mail", "NoMethodError: undefined method `name'"),
            job(4, "Pay", "Timeout: after 30 s for #<Net:0x00007f3a>"),
            job(5, "Pay", "no order 0a1b2c3d4e5f"),
            job(6, "Pay", "no order ffffffffffff"),
        ]);
        let (found, searched, stopped) = groups(&mut list, "dead", &JobFilter::default()).unwrap();
        let counts: Vec<_> = found.iter().map(|one| (one.class.as_str(), one.count)).collect();
        assert_eq!(counts, [("Mail", 2), ("Pay", 2), ("Mail", 1), ("Pay", 1)]);
        assert_eq!((searched, stopped), (6, false));
        assert_eq!((found[0].from, found[0].to), (1.0, 2.0));
        let group = JobFilter::new(None, Some(found[1].group.clone()));
        let page = search(&mut list, "dead", 0, 50, &group).unwrap();
        assert_eq!(offsets(&page), [4, 5]);
    }

    #[test]
    fn groups_are_bounded() {
        let word = |number: usize| {
            let letter = |power: u32| (b'a' + (number / 20usize.pow(power) % 20) as u8) as char;
            format!("{}{}{}z", letter(0), letter(1), letter(2))
        };
        let mut list = Listed((0..5000).map(|number| job(number, "Odd", &word(number))).collect());
        let (found, searched, stopped) = groups(&mut list, "dead", &JobFilter::default()).unwrap();
        assert_eq!((found.len(), searched, stopped), (GROUPS_SHOWN_MAX, GROUPS_MAX + 1, true));
    }
}
