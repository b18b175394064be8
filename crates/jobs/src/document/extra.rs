//! The member `chaton` of a document. Everything of Chaton's is under this one
//! key, so that no other gem's key can clash with it.

use serde::{Deserialize, Serialize};

use super::Fields;
use crate::limit::{Limit, LimitRule};

/// The newest format of the member `chaton` that this version reads. A later version writes a higher number where
/// older ones must not run a job, because they would not do what its members say.
pub const FORMAT: u32 = 1;

/// The member `chaton`. Absent members are left out when written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extra {
    /// Its format; absent: 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub format: u32,
    /// The lock that the job holds (of a unique job).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// When the lock ends: `start` or `success`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The job's limits: `{"key","max","per"?,"bucket"?,"hold"?}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<WireLimit>,
    /// When a limit first denied it (s since 1970), while it waits behind one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
    /// It is not started after this time (s since 1970).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<f64>,
    /// Deaths of workers that were running it, within [`DEATHS_WITHIN_S`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deaths: u32,
    /// When these workers died (s since 1970), and of what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub died: Vec<(f64, String)>,
    /// Stops that ended a run of it: its worker was asked to stop, or vanished with its machine.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stops: u32,
    /// Since when no release that claimed it could run it (s since 1970).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_since: Option<f64>,
    /// Those of these stops that its supervisor did not ask for: a signal came from somewhere else, or from the job.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unasked: u32,
    /// How often it had to run alone and found no moment for it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub visits: u32,
    /// Seconds of run time after which `cancelled?` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<f64>,
}

impl Default for Extra {
    fn default() -> Self {
        Self {
            format: FORMAT,
            lock: None,
            until: None,
            limits: vec![],
            since: None,
            expires_at: None,
            deaths: 0,
            died: vec![],
            stops: 0,
            unasked: 0,
            visits: 0,
            unknown_since: None,
            deadline: None,
        }
    }
}

/// What is read of a member of a newer format: which one it is, and what engines count.
#[derive(Deserialize)]
struct NewerExtra {
    format: u32,
    #[serde(default)]
    deaths: u32,
    #[serde(default)]
    died: Vec<(f64, String)>,
    #[serde(default)]
    stops: u32,
    #[serde(default)]
    unasked: u32,
    #[serde(default)]
    visits: u32,
    #[serde(default)]
    unknown_since: Option<f64>,
}

/// A limit as the document has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WireLimit {
    /// What is limited.
    pub key: String,
    /// How many.
    pub max: u32,
    /// Seconds of the window or bucket; `None`: `max` jobs run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<f64>,
    /// A bucket that refills evenly instead of a sliding window.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bucket: bool,
    /// Longest hold of a slot in seconds (default 3,600).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<f64>,
}

/// How long a death counts (s).
const DEATHS_WITHIN_S: f64 = 72.0 * 3600.0;

/// Longest hold of a concurrency slot by default.
const HOLD_S: f64 = 3600.0;

/// After so many visits a job that has to run alone gets its turn: its process claims nothing until it has run.
const VISITS_MAX: u32 = 3;
/// The limit that gives this turn to one process at a time.
const TURN_KEY: &str = "chaton:alone";

impl WireLimit {
    /// The limit as stores take it.
    pub fn limit(&self) -> Limit {
        let rule = match self.per {
            None => LimitRule::Concurrent { max: self.max, hold_s: self.hold.unwrap_or(HOLD_S) },
            Some(per_s) if self.bucket => LimitRule::Bucket { max: self.max, per_s },
            Some(per_s) => LimitRule::Window { max: self.max, per_s },
        };
        Limit { key: self.key.clone(), rule }
    }
}

impl Extra {
    /// Reads the member. Of one with a newer format what does not fit is left out.
    ///
    /// # Errors
    /// Names what is wrong.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json).or_else(|error| match serde_json::from_str::<NewerExtra>(json) {
            Ok(newer) if newer.format > FORMAT => {
                let NewerExtra { format, deaths, died, stops, unasked, visits, unknown_since } =
                    newer;
                let counts = Self { format, deaths, died, stops, ..Self::default() };
                Ok(Self { unasked, visits, unknown_since, ..counts })
            }
            _ => Err(error),
        })
    }

    /// Whether a later version wrote it, in a format that says more than this one reads.
    pub fn is_newer(&self) -> bool {
        self.format > FORMAT
    }

    /// Writes what engines count into the member `json` (`None`: there is none) and keeps all else in it.
    ///
    /// # Errors
    /// When it is no object.
    pub fn counted_in(&self, json: Option<&str>) -> Result<String, serde_json::Error> {
        let mut fields = Fields::parse(json.unwrap_or("{}").as_bytes())?;
        let number = |n: u32| (n > 0).then(|| n.to_string());
        let counts = [
            ("deaths", number(self.deaths)),
            (
                "died",
                (!self.died.is_empty()).then(|| serde_json::to_string(&self.died)).transpose()?,
            ),
            ("stops", number(self.stops)),
            ("unasked", number(self.unasked)),
            ("visits", number(self.visits)),
            ("unknown_since", self.unknown_since.map(|since| format!("{since:.3}"))),
        ];
        for (name, value) in counts {
            match value {
                Some(value) => fields.set(name, value),
                None => fields.remove(name),
            }
        }
        Ok(String::from_utf8_lossy(&fields.to_vec()).into_owned())
    }

    /// Writes it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".into())
    }

    /// Counts a death of a worker that was running the job, and no longer those that are too old.
    pub fn count_death(&mut self, at_s: f64, cause: &str) {
        let before = self.died.len();
        self.died.retain(|(died_at_s, _)| at_s - died_at_s < DEATHS_WITHIN_S);
        self.deaths = self.deaths.saturating_sub((before - self.died.len()) as u32) + 1;
        self.died.push((at_s, cause.to_string()));
    }

    /// Whether its lock ends when the job starts.
    pub fn unlocks_at_start(&self) -> bool {
        self.until.as_deref() == Some("start")
    }

    /// Whether it has waited so often that its process claims nothing until it has run.
    pub fn has_turn(&self) -> bool {
        self.visits >= VISITS_MAX
    }

    /// Whether it is under any limit.
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty() || self.has_turn()
    }

    /// The limits as stores take them.
    pub fn limits(&self) -> Vec<Limit> {
        let rule = LimitRule::Concurrent { max: 1, hold_s: HOLD_S };
        let turn = self.has_turn().then(|| Limit { key: TURN_KEY.into(), rule });
        self.limits.iter().map(WireLimit::limit).chain(turn).collect()
    }
}

fn first() -> u32 {
    1
}

fn is_first(format: &u32) -> bool {
    *format == first()
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_exactly_the_members_it_read() {
        let json =
            r#"{"lock":"k","until":"start","limits":[{"key":"api","max":3,"per":1.5}],"deaths":2}"#;
        let extra = Extra::parse(json).unwrap();
        assert_eq!(extra.to_json(), json);
        assert!(extra.unlocks_at_start());
        assert_eq!(extra.limits()[0].rule, LimitRule::Window { max: 3, per_s: 1.5 });
        assert_eq!(Extra::default().to_json(), "{}");
    }

    #[test]
    fn counting_keeps_members_that_a_later_version_wrote() {
        let json = r#"{"lock":"k","later":{"a":1.50},"deaths":1,"limits":[{"key":"a","max":1,"more":true}]}"#;
        let mut extra = Extra::parse(json).unwrap();
        assert!(!extra.is_newer());
        extra.stops = 2;
        extra.deaths = 0;
        extra.unknown_since = Some(1.5);
        assert_eq!(
            extra.counted_in(Some(json)).unwrap(),
            r#"{"lock":"k","later":{"a":1.50},"limits":[{"key":"a","max":1,"more":true}],"stops":2,"unknown_since":1.500}"#
        );
        assert_eq!(Extra::default().counted_in(None).unwrap(), "{}");
        assert!(extra.counted_in(Some("[]")).is_err());
    }

    #[test]
    fn a_newer_format_is_recognized_whatever_else_it_has() {
        let newer = Extra::parse(r#"{"format":2,"limits":"other","deaths":1,"unknown_since":7.5}"#)
            .unwrap();
        assert!(newer.is_newer() && newer.limits.is_empty());
        assert_eq!((newer.deaths, newer.unknown_since), (1, Some(7.5)));
        assert!(Extra::parse(r#"{"format":2,"lock":"k"}"#).unwrap().is_newer());
        for bad in
            [r#"{"format":1,"limits":"other"}"#, r#"{"limits":"other"}"#, r#"{"format":"x"}"#, "3"]
        {
            assert!(Extra::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_death_counts_for_three_days() {
        let mut extra = Extra::default();
        let counts = [0.0, 100.0, DEATHS_WITHIN_S + 50.0, 3.0 * DEATHS_WITHIN_S].map(|at_s| {
            extra.count_death(at_s, "SIGSEGV");
            (extra.deaths, extra.died.len())
        });
        assert_eq!(counts, [(1, 1), (2, 2), (2, 2), (1, 1)]);
        // A document of 0.1 has a number and no times.
        let mut old = Extra::parse(r#"{"deaths":2}"#).unwrap();
        old.count_death(1.0, "exit 1");
        assert_eq!(old.deaths, 3);
    }
}
