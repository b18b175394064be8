//! Messages, and their bytes in a stream of events.

use bytes::Bytes;
use memchr::memchr2;

/// Longest name. A position in a stream carries its names.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Longest type of an event, and longest key.
const WORD_BYTES_MAX: usize = 255;
/// Largest message: what a browser can still show at once, and a small part of the log.
const DATA_BYTES_MAX: usize = 16 << 20;

/// A message that can be added to the log.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Who gets it: the subscribers of this name.
    pub name: &'a str,
    /// Its text.
    pub data: &'a str,
    /// Its type; browsers take none for `message`.
    pub event: Option<&'a str>,
    /// A second message of the same name and key is ignored.
    pub key: Option<&'a str>,
}

impl<'a> Message<'a> {
    /// Checks the parts of a message.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn new(
        name: &'a str,
        data: &'a str,
        event: Option<&'a str>,
        key: Option<&'a str>,
    ) -> Result<Self, String> {
        check_name(name)?;
        if data.len() > DATA_BYTES_MAX {
            let len = data.len();
            return Err(format!("a message has at most {DATA_BYTES_MAX} bytes, not {len}"));
        }
        event.map_or(Ok(()), |event| check("the event", event, WORD_BYTES_MAX))?;
        key.map_or(Ok(()), |key| check("the key", key, WORD_BYTES_MAX))?;
        Ok(Self { name, data, event, key })
    }
}

/// Checks the name of a stream.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    check("the name of a stream", name, NAME_BYTES_MAX)
}

/// A line of a stream ends at CR or LF, and browsers ignore an id with NUL.
fn check(what: &str, text: &str, bytes_max: usize) -> Result<(), String> {
    if text.is_empty() || text.len() > bytes_max {
        return Err(format!("{what} must have 1 to {bytes_max} bytes, not {}", text.len()));
    }
    if text.contains(['\r', '\n', '\0']) {
        return Err(format!("{what} must not contain CR, LF or NUL: {text:?}"));
    }
    Ok(())
}

/// The fields of a message behind its id (WHATWG HTML, 9.2.5), with the blank line that ends it.
pub(crate) fn encode(event: Option<&str>, data: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + event.map_or(0, str::len) + 32);
    if let Some(event) = event {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.as_bytes());
        out.push(b'\n');
    }
    let mut rest = data;
    loop {
        out.extend_from_slice(b"data: ");
        let end = memchr2(b'\r', b'\n', rest);
        out.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
        out.push(b'\n');
        let Some(end) = end else { break };
        let is_pair = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + 1 + usize::from(is_pair)..];
    }
    out.push(b'\n');
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_data_is_a_field() {
        let cases = [
            ("", "data: \n\n"),
            ("one", "data: one\n\n"),
            ("one\ntwo", "data: one\ndata: two\n\n"),
            ("one\r\ntwo\rthree\n", "data: one\ndata: two\ndata: three\ndata: \n\n"),
            ("\n\r", "data: \ndata: \ndata: \n\n"),
            ("id: 7", "data: id: 7\n\n"),
        ];
        for (data, encoded) in cases {
            assert_eq!(encode(None, data.as_bytes()), encoded.as_bytes(), "{data:?}");
        }
        assert_eq!(encode(Some("token"), b"a"), &b"event: token\ndata: a\n\n"[..]);
    }

    #[test]
    fn what_would_end_a_line_is_refused_in_name_event_and_key() {
        assert!(Message::new("a/7", "x\ny\0", Some("e"), Some("k")).is_ok());
        for bad in ["", "a\nb", "a\rb", "a\0b", &"x".repeat(256)] {
            assert!(Message::new(bad, "", None, None).is_err(), "{bad:?}");
            assert!(Message::new("a", "", Some(bad), None).is_err(), "{bad:?}");
            assert!(Message::new("a", "", None, Some(bad)).is_err(), "{bad:?}");
        }
        assert!(Message::new("a", &"x".repeat(DATA_BYTES_MAX + 1), None, None).is_err());
    }
}
