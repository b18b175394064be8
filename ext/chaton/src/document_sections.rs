//! The settings of one process: a JSON document that the configuration writes
//! (`Chaton::Config::EngineDocument`), with one section for the pool and for each
//! engine. A section becomes a struct without defaults, so that a field that is
//! missing, unknown or wrong is reported with its path.

use std::collections::BTreeMap;

use magnus::Error;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error;

/// The sections of a document, as text.
pub struct DocumentSections(BTreeMap<String, Box<RawValue>>);

impl DocumentSections {
    /// Splits a document into its sections.
    ///
    /// # Errors
    /// `ArgumentError` when it is no JSON object.
    pub fn new(json: &str) -> Result<Self, Error> {
        serde_json::from_str(json).map(Self).map_err(|e| error::argument(format!("settings: {e}")))
    }

    /// A section as an engine's settings.
    ///
    /// # Errors
    /// `ArgumentError` naming the path of the field.
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        match self.0.get(name) {
            Some(section) => parse(name, section.get()),
            None => Err(error::argument(format!("settings: {name}: missing section"))),
        }
    }
}

/// Settings out of JSON; `name` begins the path in errors.
///
/// # Errors
/// `ArgumentError` naming the path of the field.
pub fn parse<T: DeserializeOwned>(name: &str, json: &str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|e| error::argument(explain(name, json, &e)))
}

/// Serde names a field only if it is missing or unknown. The path to it is read
/// from the text, up to where the error was found.
fn explain(name: &str, json: &str, error: &serde_json::Error) -> String {
    let lines_before = json.split_inclusive('\n').take(error.line().saturating_sub(1));
    let at = lines_before.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
    let mut keys = keys_at(json.as_bytes(), at);
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    let mut message = text.to_owned();
    for kind in ["missing field", "unknown field"] {
        let named = text.strip_prefix(kind).and_then(|rest| rest.strip_prefix(" `"));
        if let Some((field, rest)) = named.and_then(|rest| rest.split_once('`')) {
            keys.pop();
            keys.push(field.to_owned());
            message = format!("{kind}{rest}");
        }
    }
    let path: String = keys.iter().flat_map(|key| [".", key]).collect();
    format!("settings: {name}{path}: {message}")
}

/// The keys and indexes that lead to this byte of JSON.
fn keys_at(json: &[u8], at: usize) -> Vec<String> {
    let mut keys: Vec<String> = vec![];
    let mut string_from = None;
    let mut latest = "";
    let mut index = 0;
    while index < at.min(json.len()) {
        match (json[index], string_from) {
            (b'\\', Some(_)) => index += 1,
            (b'"', Some(from)) => {
                latest = std::str::from_utf8(&json[from..index]).unwrap_or("");
                string_from = None;
            }
            (_, Some(_)) => {}
            (b'"', None) => string_from = Some(index + 1),
            (b':', None) => keys.last_mut().into_iter().for_each(|key| *key = latest.to_owned()),
            (b'{', None) => keys.push(String::new()),
            (b'[', None) => keys.push("0".to_owned()),
            (b'}' | b']', None) => drop(keys.pop()),
            (b',', None) => {
                if let Some(key) = keys.last_mut() {
                    // After a comma of an object comes another key.
                    *key = key.parse::<usize>().map_or(String::new(), |n| (n + 1).to_string());
                }
            }
            _ => {}
        }
        index += 1;
    }
    keys
}
