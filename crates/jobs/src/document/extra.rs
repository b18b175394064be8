//! The member `chaton` of a document. Everything of Chaton's is under this one
//! key, so that no other gem's key can clash with it.

use serde::{Deserialize, Serialize};

use crate::limit::{Limit, LimitRule};

/// The member `chaton`. Absent members are left out when written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extra {
    /// The lock that the job holds (of a unique job).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// When the lock ends: `start` or `success`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The job's limits: `{"key","max","per"?,"bucket"?,"hold"?}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<WireLimit>,
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
    /// Seconds of run time after which `cancelled?` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<f64>,
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
    /// Reads the member.
    ///
    /// # Errors
    /// Names what is wrong.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
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

    /// The limits as stores take them.
    pub fn limits(&self) -> Vec<Limit> {
        self.limits.iter().map(WireLimit::limit).collect()
    }
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
