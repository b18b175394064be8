//! Conditional requests (RFC 9110 section 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::head::class::trim;
use crate::head::RequestHead;

/// Nix and Bazel give each file of an image one of the first two seconds of 1970, whatever it holds, so these times tell
/// nothing; Caddy, too, makes no ETag of them.
const UNDATED_S: u64 = 1;

/// What identifies a version of a representation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validators<'a> {
    /// With its quotes; it may be a weak one. Empty: there is none.
    pub etag: &'a [u8],
    /// Seconds after 1970.
    pub modified_s: u64,
}

/// Whether a file's time of modification distinguishes its versions.
pub(crate) fn is_dated(modified_s: u64) -> bool {
    modified_s > UNDATED_S
}

/// How a conditional GET or HEAD goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// As without conditions.
    Holds,
    /// 304: the client has this version.
    NotModified,
    /// 412
    Failed,
}

impl Validators<'_> {
    /// Evaluates the conditions in the order of section 13.2.2.
    pub fn check(&self, head: &RequestHead) -> Precondition {
        if let Some(value) = head.header("if-match") {
            if !self.matches(value, false) {
                return Precondition::Failed;
            }
        } else if let Some(date) = head.header("if-unmodified-since").and_then(date_of) {
            // Without a date of ours the condition is ignored (section 13.1.4), as the next one is (13.1.3).
            if self.modified() > Some(date) {
                return Precondition::Failed;
            }
        }
        let unchanged = match head.header("if-none-match") {
            Some(value) => self.matches(value, true),
            None => {
                let since = head.header("if-modified-since").and_then(date_of);
                since.zip(self.modified()).is_some_and(|(date, modified)| modified <= date)
            }
        };
        if unchanged {
            Precondition::NotModified
        } else {
            Precondition::Holds
        }
    }

    /// Whether the `Range` of the request is about this version.
    pub fn range_applies(&self, head: &RequestHead) -> bool {
        match head.header("if-range") {
            None => true,
            Some(value) if value.starts_with(b"\"") => value == self.etag,
            Some(value) => date_of(value).is_some_and(|date| Some(date) == self.modified()),
        }
    }

    fn modified(&self) -> Option<SystemTime> {
        is_dated(self.modified_s).then(|| UNIX_EPOCH + Duration::from_secs(self.modified_s))
    }

    /// Whether a list of tags names this version. A tag holds no comma in practice; one that does
    /// never equals ours.
    fn matches(&self, list: &[u8], weakly: bool) -> bool {
        let opaque = |tag| <[u8]>::strip_prefix(tag, b"W/").unwrap_or(tag);
        list.split(|&byte| byte == b',').map(trim).any(|tag| {
            let is_same = match weakly {
                true => opaque(tag) == opaque(self.etag),
                false => tag == self.etag && !tag.starts_with(b"W/"),
            };
            tag == b"*" || is_same && !self.etag.is_empty()
        })
    }
}

pub(crate) fn date_of(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head;
    use crate::limits::Limits;

    const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn head_of(headers: &[(&str, &str)]) -> RequestHead {
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut head = RequestHead::default();
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        head::parse(text.as_bytes(), &Limits::for_tests(), &mut head).unwrap();
        head
    }

    const VERSION: Validators<'_> = Validators { etag: b"\"a-1\"", modified_s: 784_111_777 };

    #[test]
    fn conditions_are_evaluated_in_their_order() {
        use Precondition::{Failed, Holds, NotModified};
        for (headers, outcome) in [
            (&[][..], Holds),
            (&[("If-None-Match", "\"a-1\"")], NotModified),
            (&[("If-None-Match", "W/\"a-1\"")], NotModified),
            (&[("If-None-Match", "\"b\", W/\"a-1\" ,\"c\"")], NotModified),
            (&[("If-None-Match", "*")], NotModified),
            (&[("If-None-Match", "a-1")], Holds),
            (&[("If-None-Match", "\"a-2\"")], Holds),
            (&[("If-Modified-Since", AT)], NotModified),
            (&[("If-Modified-Since", AFTER)], NotModified),
            (&[("If-Modified-Since", BEFORE)], Holds),
            (&[("If-Modified-Since", "yesterday")], Holds),
            (&[("If-None-Match", "\"b\""), ("If-Modified-Since", AT)], Holds),
            (&[("If-Match", "\"a-1\"")], Holds),
            (&[("If-Match", "*")], Holds),
            (&[("If-Match", "W/\"a-1\"")], Failed),
            (&[("If-Match", "\"b\"")], Failed),
            (&[("If-Match", "\"b\""), ("If-None-Match", "*")], Failed),
            (&[("If-Unmodified-Since", BEFORE)], Failed),
            (&[("If-Unmodified-Since", AT)], Holds),
            (&[("If-Match", "*"), ("If-Unmodified-Since", BEFORE)], Holds),
        ] {
            assert_eq!(VERSION.check(&head_of(headers)), outcome, "{headers:?}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_ignored() {
        for (value, applies) in [
            ("\"a-1\"", true),
            ("W/\"a-1\"", false),
            ("\"b\"", false),
            (AT, true),
            (AFTER, false),
            (BEFORE, false),
            ("x", false),
        ] {
            assert_eq!(VERSION.range_applies(&head_of(&[("If-Range", value)])), applies, "{value}");
        }
        assert!(VERSION.range_applies(&head_of(&[])));
    }
}
