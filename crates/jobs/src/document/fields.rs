//! The members of a document in their order, to change one and keep the bytes of the others.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The members of a JSON object, in order, values as they were written.
#[derive(Debug)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

struct Pairs<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(FieldName(key)) = map.next_key()? {
                    pairs.push((key, map.next_value()?));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl<'a> Fields<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// When it is no object.
    pub fn parse(json: &'a [u8]) -> Result<Self, serde_json::Error> {
        let pairs: Pairs<'a> = serde_json::from_slice(json)?;
        Ok(Self(pairs.0.into_iter().map(|(key, raw)| (key, Cow::Borrowed(raw.get()))).collect()))
    }

    /// The value of a member as it is written.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_ref())
    }

    /// The value of a member that is a string.
    pub fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// The value of a member that is a number.
    pub fn number(&self, key: &str) -> Option<f64> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// Replaces a member in its place, or adds it at the end. `json` is written as it is.
    pub fn set(&mut self, key: &'a str, json: impl Into<Cow<'a, str>>) {
        let json = json.into();
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, value)) => *value = json,
            None => self.0.push((Cow::Borrowed(key), json)),
        }
    }

    /// Removes a member.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(k, _)| k != key);
    }

    /// Writes the object.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.push(b'{');
        for (index, (key, value)) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            // A string always has a JSON form.
            out.extend_from_slice(serde_json::to_string(key).unwrap_or_default().as_bytes());
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_a_member_keeps_the_bytes_of_the_others() {
        let json = br#"{"a":1.50,"b":{"x" : 12345678901234567890123},"c":"\u00e9"}"#;
        let mut fields = Fields::parse(json).unwrap();
        assert_eq!(fields.number("a"), Some(1.5));
        assert_eq!(fields.text("c").as_deref(), Some("é"));
        fields.set("a", "2");
        fields.set("new", "[]".to_string());
        let out = String::from_utf8(fields.to_vec()).unwrap();
        assert_eq!(out, r#"{"a":2,"b":{"x" : 12345678901234567890123},"c":"\u00e9","new":[]}"#);
        fields.remove("b");
        assert!(!String::from_utf8(fields.to_vec()).unwrap().contains("\"b\""));
        assert!(Fields::parse(b"[1]").is_err());
    }
}
