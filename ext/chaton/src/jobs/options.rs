//! A store's settings out of a Ruby Hash.

use chaton_jobs::store::StoreOptions;
use magnus::Error;

use crate::error;
use crate::settings::Settings;

/// Generations of Sidekiq's format that can be written.
const FORMATS: [u8; 3] = [6, 7, 8];

/// Reads the settings of a store.
///
/// # Errors
/// `ArgumentError` naming the key.
pub fn store_options(settings: &Settings) -> Result<StoreOptions, Error> {
    let format: u8 = settings.get("format")?;
    if !FORMATS.contains(&format) {
        return Err(error::argument(format!("setting format: {format} is none of 6, 7, 8")));
    }
    Ok(StoreOptions {
        url: settings.get("url")?,
        username: settings.optional("username")?,
        password: settings.optional("password")?,
        tls_ca_file: settings.optional("tls_ca_file")?,
        connect_timeout: settings.seconds("connect_timeout_s")?,
        answer_timeout: settings.seconds("answer_timeout_s")?,
        durable: settings.get("durable")?,
        lock_timeout: settings.seconds("lock_timeout_s")?,
        format,
        lease: settings.seconds("lease_s")?,
        dead_max: settings.get("dead_max")?,
        dead_age: settings.seconds("dead_age_s")?,
    })
}
