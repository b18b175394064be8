//! Limits that a job is under: below documents and stores, which both use them.

/// One limit that a job is under.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// What is limited, shared by all jobs that name it.
    pub key: String,
    /// How.
    pub rule: LimitRule,
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
