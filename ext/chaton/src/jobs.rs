//! The jobs engine's side of the boundary.

pub mod client;
pub mod document;
pub mod engine;
pub mod from_json;
pub mod jid;
pub mod options;
pub mod pool;
pub mod shown;
pub mod to_json;
pub mod unit;

use magnus::{function, prelude::*, Error, RModule, Ruby};

/// Sidekiq's formula, for retries that a job decides on itself.
fn retry_delay(count: u32, random: f64) -> f64 {
    chaton_jobs::retry::delay_s(count, random)
}

/// Defines the classes.
///
/// # Errors
/// What Ruby raises.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    native.define_singleton_method("retry_delay", function!(retry_delay, 2))?;
    client::define(ruby, native)?;
    unit::define(ruby, native)?;
    engine::define(ruby, native)?;
    Ok(())
}
