//! Cron jobs. The crates croner and chrono-tz read expressions and time zones.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeZone, Utc};
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds};
use serde::{Deserialize, Serialize};

use crate::document::{stamp, Extra, Fields};
use crate::store::{Result as StoreResult, Store};

/// When something ticks: an expression in a time zone.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Expression and time zone, to see whether they have changed.
    pub text: String,
    pattern: croner::Cron,
    zone: Tz,
}

impl Schedule {
    /// `expression`: five fields, or six with seconds first, or `@daily` and
    /// the like. `zone`: a name such as `Europe/Berlin`.
    ///
    /// # Errors
    /// Names the entry and what is wrong.
    pub fn new(name: &str, expression: &str, zone: &str) -> Result<Self, String> {
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let pattern = parser
            .parse(expression)
            .map_err(|e| format!("cron {name:?}: {expression:?} is no cron expression: {e}"))?;
        let zone = Tz::from_str(zone).map_err(|_| {
            format!("cron {name:?}: {zone:?} is no time zone; write one as Europe/Berlin or UTC")
        })?;
        Ok(Self { text: format!("{expression} {zone}"), pattern, zone })
    }

    /// The last tick after `after_s` that is not after `now_s`.
    pub fn last(&self, after_s: f64, now_s: f64) -> Option<f64> {
        let next = |at: &f64| self.next(*at).filter(|tick| tick > at && *tick <= now_s);
        std::iter::successors(next(&after_s), next).last()
    }

    /// The first tick after `after_s` (s since 1970). A time that summer time
    /// skips runs right after the change; one that comes twice runs once.
    pub fn next(&self, after_s: f64) -> Option<f64> {
        let after: DateTime<Utc> =
            DateTime::from_timestamp(after_s.floor() as i64, (after_s.fract() * 1e9) as u32)?;
        let after = self.zone.from_utc_datetime(&after.naive_utc());
        let next = self.pattern.find_next_occurrence(&after, false).ok()?;
        Some(next.timestamp() as f64)
    }
}

/// One cron job.
#[derive(Clone, Debug)]
pub struct Cron {
    /// Its name, unique in the configuration.
    pub name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// The class of its jobs.
    pub class: String,
    /// When it ticks.
    pub schedule: Schedule,
    head: Arc<str>,
    extra: Option<Extra>,
    lock_ttl: Option<Duration>,
}

/// The job of one tick.
pub struct TickJob {
    /// Its document.
    pub payload: Vec<u8>,
    /// Key and time to live of its lock.
    pub lock: Option<(String, Duration)>,
}

impl Cron {
    /// `head`: the documents' JSON without `jid`, times, the member `chaton` and the closing brace.
    ///
    /// # Errors
    /// Names the entry and what is wrong.
    pub fn new(
        name: &str,
        expression: &str,
        zone: &str,
        queue: &str,
        head: &str,
    ) -> Result<Self, String> {
        let schedule = Schedule::new(name, expression, zone)?;
        let whole = format!("{head}}}");
        let fields = Fields::parse(whole.as_bytes());
        let class = fields.ok().and_then(|fields| fields.text("class"));
        let class = class.ok_or_else(|| format!("cron {name:?}: {whole:?} is no job document"))?;
        let (name, queue) = (name.to_string(), queue.to_string());
        Ok(Self { name, queue, class, schedule, head: head.into(), extra: None, lock_ttl: None })
    }

    /// With the options of its class: the member `chaton` of a job that is pushed at the time 0, and the time to
    /// live of its lock.
    ///
    /// # Errors
    /// Names the entry and what is wrong.
    pub fn with_options(
        mut self,
        chaton: &str,
        lock_ttl: Option<Duration>,
    ) -> Result<Self, String> {
        let extra = Extra::parse(chaton);
        self.extra = Some(extra.map_err(|e| format!("cron {:?}: key chaton: {e}", self.name))?);
        self.lock_ttl = lock_ttl;
        Ok(self)
    }

    /// The job of one tick. `enqueued`: it goes to its queue at once.
    pub fn job(&self, jid: &str, now_s: f64, format: u8, enqueued: bool) -> TickJob {
        let mut payload = self.head.to_string();
        let mut extra = self.extra.clone();
        if let Some(extra) = &mut extra {
            extra.expires_at = extra.expires_at.map(|after_s| now_s + after_s);
            payload.push_str(&format!(r#","chaton":{}"#, extra.to_json()));
        }
        let now = stamp(now_s, format);
        payload.push_str(&format!(r#","jid":"{jid}","created_at":{now}"#));
        if enqueued {
            payload.push_str(&format!(r#","enqueued_at":{now}"#));
        }
        payload.push('}');
        TickJob {
            payload: payload.into_bytes(),
            lock: extra.and_then(|e| e.lock).zip(self.lock_ttl),
        }
    }
}

/// What the store remembers of an entry, in the field of its name of the hash [`memory_key`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CronRecord {
    queue: String,
    class: String,
    schedule: String,
    /// Since when the entry is as it is (s): it has no older ticks.
    pub since: f64,
    /// How often its ticks were forgotten because they lay in the future: part of the keys of its ticks.
    pub forgotten: u64,
}

impl CronRecord {
    /// A new entry.
    pub fn new(cron: &Cron, since: f64, forgotten: u64) -> Self {
        let (queue, class) = (cron.queue.clone(), cron.class.clone());
        Self { queue, class, schedule: cron.schedule.text.clone(), since, forgotten }
    }

    /// Whether the entry has changed since.
    pub fn is_of(&self, cron: &Cron) -> bool {
        *self == Self::new(cron, self.since, self.forgotten)
    }

    /// The key of a tick. Entries of one name that differ otherwise do not take each other's ticks.
    pub fn tick_key(&self, application: &str, name: &str, at_s: f64) -> String {
        let Self { queue, class, schedule, forgotten, .. } = self;
        format!("{application}:{name}:{queue}:{class}:{schedule}:{forgotten}:{}", at_s as i64)
    }
}

/// The store's records of all entries of an application.
#[derive(Default)]
pub struct CronMemory(HashMap<String, Vec<u8>>);

impl CronMemory {
    /// Reads them.
    ///
    /// # Errors
    /// Those of the store.
    pub fn load(store: &mut dyn Store, application: &str) -> StoreResult<Self> {
        Ok(Self(store.load(&memory_key(application))?.into_iter().collect()))
    }

    /// The record of an entry.
    pub fn record(&self, name: &str) -> Option<CronRecord> {
        serde_json::from_slice(self.0.get(name)?).ok()
    }

    /// The last tick of an entry that was enqueued (s).
    pub fn last_tick(&self, name: &str) -> Option<f64> {
        let text = std::str::from_utf8(self.0.get(&last_field(name))?).ok()?;
        text.parse().ok().filter(|at: &f64| *at > 0.0)
    }
}

/// The hash with the records of an application's entries.
pub fn memory_key(application: &str) -> String {
    format!("chaton:cron:{application}")
}

/// The field of an entry's last tick; names have no spaces. It holds seconds, or 0 for none.
pub fn last_field(name: &str) -> String {
    format!("{name} last")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn cron(expression: &str, zone: &str) -> Result<Cron, String> {
        Cron::new("n", expression, zone, "q", r#"{"class":"A","args":[],"queue":"q""#)
    }

    /// 2026-03-28 12:00 UTC, the day before summer time in Berlin.
    const BEFORE: f64 = 1_774_699_200.0;

    #[test]
    fn ticks_follow_the_time_zone() {
        let nine = cron("0 9 * * *", "Europe/Berlin").unwrap();
        let first = nine.schedule.next(BEFORE).unwrap();
        assert_eq!(first, BEFORE + 19.0 * 3600.0, "9:00 of summer time is 7:00 UTC");
        let six = cron("*/30 * * * * *", "UTC").unwrap();
        assert_eq!(six.schedule.next(BEFORE + 0.5), Some(BEFORE + 30.0));
        assert_eq!(cron("@hourly", "UTC").unwrap().schedule.next(BEFORE), Some(BEFORE + 3600.0));
    }

    #[test]
    fn a_time_skipped_by_summer_time_runs_after_the_change() {
        let skipped = cron("30 2 * * *", "Europe/Berlin").unwrap();
        let first = skipped.schedule.next(BEFORE).unwrap();
        let jump = BEFORE + 13.0 * 3600.0;
        assert!(first >= jump && first < jump + 3600.0, "{}", first - jump);
    }

    #[test]
    fn the_last_tick_is_within_its_bounds() {
        let noon = cron("0 12 * * *", "UTC").unwrap();
        assert_eq!(noon.schedule.last(BEFORE - 600.0, BEFORE + 599.0), Some(BEFORE));
        assert_eq!(
            noon.schedule.last(BEFORE, BEFORE + 599.0),
            None,
            "not the one at the beginning"
        );
        let minutes = cron("* * * * *", "UTC").unwrap();
        assert_eq!(
            minutes.schedule.last(BEFORE - 600.0, BEFORE + 59.0),
            Some(BEFORE),
            "only the last"
        );
    }

    #[test]
    fn its_documents_can_be_parsed() {
        let cron = cron("* * * * *", "UTC").unwrap();
        assert_eq!(cron.class, "A");
        for format in [6, 7, 8] {
            for enqueued in [true, false] {
                let job = cron.job("abc", BEFORE, format, enqueued);
                assert!(job.lock.is_none());
                let doc = Document::parse(job.payload.into()).unwrap();
                assert_eq!((doc.class(), doc.jid()), ("A", "abc"));
                assert_eq!(doc.enqueued_at_s(), enqueued.then_some(BEFORE));
                assert!(doc.extra().is_none());
            }
        }
    }

    #[test]
    fn a_tick_has_the_options_of_its_class_from_its_own_time_on() {
        let chaton =
            r#"{"lock":"k","limits":[{"key":"A","max":1}],"expires_at":60.0,"deadline":5.0}"#;
        let ttl = Duration::from_secs(600);
        let cron = cron("* * * * *", "UTC").unwrap().with_options(chaton, Some(ttl)).unwrap();
        let job = cron.job("abc", BEFORE, 7, true);
        assert_eq!(job.lock, Some(("k".to_string(), ttl)));
        let doc = Document::parse(job.payload.into()).unwrap();
        let extra = doc.extra().unwrap();
        assert_eq!((extra.expires_at, extra.deadline), (Some(BEFORE + 60.0), Some(5.0)));
        assert_eq!((extra.lock.as_deref(), extra.limits().len()), (Some("k"), 1));
    }

    #[test]
    fn refuses_wrong_expressions_and_zones() {
        assert!(cron("every day", "UTC").unwrap_err().contains("every day"));
        assert!(cron("61 * * * *", "UTC").is_err());
        assert!(cron("* * * * *", "Mars/Base").unwrap_err().contains("Mars/Base"));
        assert!(Cron::new("n", "* * * * *", "UTC", "q", "{")
            .unwrap_err()
            .contains("no job document"));
    }
}
