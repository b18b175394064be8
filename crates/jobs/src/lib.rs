//! Chaton's background jobs: the job document, retry rules, schedule, leases
//! and one engine over a [`store::Store`]. Knows no Ruby.
//!
//! The format on Redis is Sidekiq's (LGPL gem `sidekiq`, read for its facts);
//! what it does not specify (in-flight sets, limits, batches) has keys that
//! begin with `chaton:`.

pub mod cron;
pub mod document;
pub mod engine;
pub mod limit;
pub mod outcome;
pub mod retry;
pub mod store;
