//! Limits that a job is under: below documents and stores, which both use them.

/// One limit that a job is under.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// What is limited, shared by all jobs that name it.
    pub key: String,
    /// How.
    pub rule: LimitRule,
}

impl Limit {
    /// The name of its line: kinds have keys of their own.
    pub fn line(&self) -> String {
        format!("{}:{}", self.rule.kind(), self.key)
    }
}

/// How something is limited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitRule {
    /// At most `max` jobs run at once. A slot is held by (owner, ticket) until
    /// the job ends with it in [`SideEffects::release`](crate::outcome::SideEffects::release), at most `hold_s`.
    Concurrent {
        /// Jobs at once.
        max: u32,
        /// Longest hold in seconds.
        hold_s: f64,
    },
    /// At most `max` starts in any `per_s` seconds (sliding).
    Window {
        /// Starts.
        max: u32,
        /// Seconds.
        per_s: f64,
    },
    /// A bucket of `max` that refills evenly within `per_s`.
    Bucket {
        /// Size of the bucket.
        max: u32,
        /// Seconds to fill it.
        per_s: f64,
    },
}

impl LimitRule {
    /// Its kind, as keys of stores name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Concurrent { .. } => SLOTS,
            Self::Window { .. } => "window",
            Self::Bucket { .. } => "bucket",
        }
    }

    /// Whether it is a limit of jobs at once, not of starts in a time.
    pub fn is_concurrent(&self) -> bool {
        matches!(self, Self::Concurrent { .. })
    }

    /// How many, and the seconds of the hold, the window or the bucket.
    pub fn size(&self) -> (u32, f64) {
        match *self {
            Self::Concurrent { max, hold_s: span_s }
            | Self::Window { max, per_s: span_s }
            | Self::Bucket { max, per_s: span_s } => (max, span_s),
        }
    }

    /// The rule of this kind and size.
    pub fn of(kind: &str, max: u32, span_s: f64) -> Self {
        match kind {
            SLOTS => Self::Concurrent { max, hold_s: span_s },
            "window" => Self::Window { max, per_s: span_s },
            _ => Self::Bucket { max, per_s: span_s },
        }
    }
}

/// The kind of a limit of jobs at once.
const SLOTS: &str = "slots";

/// The name of the line of a limit of jobs at once.
pub fn line_of_slots(key: &str) -> String {
    format!("{SLOTS}:{key}")
}
