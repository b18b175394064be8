//! Chaton's background jobs: the job document, retries, schedule, leases, and
//! one engine over a [`store::Store`]. Knows no Ruby.
//!
//! The format on Redis is that of the gem `sidekiq` (LGPL). Keys for what Sidekiq
//! does not specify (in-flight sets, limits, batches) begin with `chaton:`.

pub mod cron;
pub mod document;
pub mod engine;
pub mod limit;
pub mod outcome;
pub mod push_buffer;
pub mod retry;
pub mod store;
