//! How settings are read from the document that the configuration writes. A
//! setting has no default here: its option has it. Serde takes a missing
//! `Option` for `None`; [`nullable`] wants it written as null.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

fn duration<'de, D: Deserializer<'de>>(from: D, per_second: f64) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(from)? / per_second).map_err(D::Error::custom)
}

/// A time in seconds.
///
/// # Errors
/// When it cannot be waited for.
pub fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration(from, 1.0)
}

/// A time in milliseconds.
///
/// # Errors
/// As [`seconds`].
pub fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration(from, 1e3)
}

/// A time limit in seconds; 0 is none.
///
/// # Errors
/// As [`seconds`].
pub fn seconds_or_off<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    Ok(Some(seconds(from)?).filter(|time| !time.is_zero()))
}

/// What the options make of a part of the document when nobody sets them, for tests. `rake docs`
/// writes the file.
#[macro_export]
macro_rules! default_settings {
    ($part:literal $(, $key:literal)*) => {{
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../default_settings.json"));
        let all: serde_json::Value = serde_json::from_str(text).expect("JSON");
        serde_json::from_value(all[$part]$([$key])*.clone()).expect("the settings of this part")
    }};
}

/// A value or null.
///
/// # Errors
/// When it is another value.
pub fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}
