//! Cron jobs. The crates croner and chrono-tz read expressions and time zones.

use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, TimeZone, Utc};
use chrono_tz::Tz;
use croner::parser::{CronParser, Seconds};

use crate::document::stamp;

/// One cron job.
#[derive(Clone, Debug)]
pub struct Cron {
    /// Its name, unique in the configuration.
    pub name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// Expression and time zone, to see whether they have changed.
    pub schedule: String,
    head: Arc<str>,
    pattern: croner::Cron,
    zone: Tz,
}

impl Cron {
    /// `expression`: five fields, or six with seconds first, or `@daily` and
    /// the like. `zone`: a name such as `Europe/Berlin`. `head`: the documents'
    /// JSON without `jid`, times and the closing brace.
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
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let pattern = parser
            .parse(expression)
            .map_err(|e| format!("cron {name:?}: {expression:?} is no cron expression: {e}"))?;
        let zone = Tz::from_str(zone).map_err(|_| {
            format!("cron {name:?}: {zone:?} is no time zone; write one as Europe/Berlin or UTC")
        })?;
        let (name, queue) = (name.to_string(), queue.to_string());
        let schedule = format!("{expression} {zone}");
        Ok(Self { name, queue, schedule, head: head.into(), pattern, zone })
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

    /// The document of one tick.
    pub fn document(&self, jid: &str, now_s: f64, format: u8) -> Vec<u8> {
        let now = stamp(now_s, format);
        let head = &self.head;
        format!(r#"{head},"jid":"{jid}","created_at":{now},"enqueued_at":{now}}}"#).into_bytes()
    }
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
        let first = nine.next(BEFORE).unwrap();
        assert_eq!(first, BEFORE + 19.0 * 3600.0, "9:00 of summer time is 7:00 UTC");
        let six = cron("*/30 * * * * *", "UTC").unwrap();
        assert_eq!(six.next(BEFORE + 0.5), Some(BEFORE + 30.0));
        assert_eq!(cron("@hourly", "UTC").unwrap().next(BEFORE), Some(BEFORE + 3600.0));
    }

    #[test]
    fn a_time_skipped_by_summer_time_runs_after_the_change() {
        let skipped = cron("30 2 * * *", "Europe/Berlin").unwrap();
        let first = skipped.next(BEFORE).unwrap();
        let jump = BEFORE + 13.0 * 3600.0;
        assert!(first >= jump && first < jump + 3600.0, "{}", first - jump);
    }

    #[test]
    fn the_last_tick_is_within_its_bounds() {
        let noon = cron("0 12 * * *", "UTC").unwrap();
        assert_eq!(noon.last(BEFORE - 600.0, BEFORE + 599.0), Some(BEFORE));
        assert_eq!(noon.last(BEFORE, BEFORE + 599.0), None, "not the one at the beginning");
        let minutes = cron("* * * * *", "UTC").unwrap();
        assert_eq!(minutes.last(BEFORE - 600.0, BEFORE + 59.0), Some(BEFORE), "only the last");
    }

    #[test]
    fn its_documents_can_be_parsed() {
        let cron = cron("* * * * *", "UTC").unwrap();
        for format in [6, 7, 8] {
            let doc = cron.document("abc", BEFORE, format);
            let doc = Document::parse(doc.into()).unwrap();
            assert_eq!((doc.class(), doc.jid()), ("A", "abc"));
        }
    }

    #[test]
    fn refuses_wrong_expressions_and_zones() {
        assert!(cron("every day", "UTC").unwrap_err().contains("every day"));
        assert!(cron("61 * * * *", "UTC").is_err());
        assert!(cron("* * * * *", "Mars/Base").unwrap_err().contains("Mars/Base"));
    }
}
