//! Reads settings out of a Ruby Hash with Symbol keys, naming the key in errors.

use std::time::Duration;

use magnus::{Error, RHash, Ruby, TryConvert, Value};

/// A Hash of settings.
pub struct Settings(pub RHash);

impl Settings {
    /// The value of `key`.
    ///
    /// # Errors
    /// `ArgumentError` naming the key when it is missing or of another type.
    pub fn get<T: TryConvert>(&self, key: &'static str) -> Result<T, Error> {
        let ruby = Ruby::get_with(self.0);
        let value: Option<Value> = self.0.lookup(ruby.to_symbol(key))?;
        let value = value.ok_or_else(|| {
            Error::new(ruby.exception_arg_error(), format!("setting {key}: is missing"))
        })?;
        T::try_convert(value).map_err(|error| {
            Error::new(ruby.exception_arg_error(), format!("setting {key}: {error}"))
        })
    }

    /// The value of `key`; `None` when it is missing or nil.
    ///
    /// # Errors
    /// `ArgumentError` naming the key when it is of another type.
    pub fn optional<T: TryConvert>(&self, key: &'static str) -> Result<Option<T>, Error> {
        let value: Option<Value> = self.0.lookup(Ruby::get_with(self.0).to_symbol(key))?;
        match value {
            Some(_) => self.get(key).map(Some),
            None => Ok(None),
        }
    }

    /// A time given in seconds, as a Float.
    ///
    /// # Errors
    /// `ArgumentError` naming the key when it is no time that can be waited for.
    pub fn seconds(&self, key: &'static str) -> Result<Duration, Error> {
        let seconds: f64 = self.get(key)?;
        Duration::try_from_secs_f64(seconds).map_err(|error| {
            let ruby = Ruby::get_with(self.0);
            Error::new(ruby.exception_arg_error(), format!("setting {key}: {error}"))
        })
    }
}
