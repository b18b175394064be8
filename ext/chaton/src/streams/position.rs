//! Positions in a partition as Ruby values.

use chaton_streams::log::Position;
use magnus::{prelude::*, Error, RArray, TryConvert, Value};

use crate::error;

/// `"earliest"`, `"latest"`, an offset, or `["time", ms since 1970]`.
///
/// # Errors
/// `ArgumentError` for anything else.
pub fn position(from: Value) -> Result<Position, Error> {
    if let Ok(offset) = i64::try_convert(from) {
        return Ok(Position::Offset(offset));
    }
    if let Some(pair) = RArray::from_value(from) {
        let (word, ms) = <(String, i64)>::try_convert(pair.as_value())?;
        if word == "time" {
            return Ok(Position::Time(ms));
        }
    }
    match String::try_convert(from).as_deref() {
        Ok("earliest") => Ok(Position::Earliest),
        Ok("latest") => Ok(Position::Latest),
        _ => Err(error::argument(format!(
            "{from:?} is not a position in a topic; use \"earliest\", \"latest\", an offset or [\"time\", ms]"
        ))),
    }
}
