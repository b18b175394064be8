//! The extension's part for background jobs.

pub mod client;
pub mod document;
pub mod engine;
pub mod from_json;
pub mod jid;
pub mod job;
pub mod store_connections;
pub mod to_json;
pub mod to_ruby;

use magnus::{function, prelude::*, Error, RModule, Ruby};

/// Seconds until a retry, by Sidekiq's formula.
fn retry_delay(count: u32, random: f64) -> f64 {
    chaton_jobs::retry::delay_s(count, random)
}

/// Defines the classes.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.define_singleton_method("retry_delay", function!(retry_delay, 2))?;
    client::define(ruby, native)?;
    job::define(ruby, native)?;
    engine::define(ruby, native)?;
    Ok(())
}
