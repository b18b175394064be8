//! How a GET or HEAD for a file is answered: with all of it, a part, or nothing of it, as its conditions and its `Range`
//! say (RFC 9110 sections 13 and 14).

use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use crate::byte_range::{self, ByteRange};
use crate::date::http_date;
use crate::head::class::trim;
use crate::head::framing::parse_length;
use crate::head::RequestHead;
use crate::preconditions::{date_of, is_dated, Precondition, Validators};
use crate::response_head::{ResponseError, ResponseHead};

/// Headers about the content, which 304, 412 and 416 do not send.
const OF_CONTENT: [&str; 4] =
    ["accept-ranges", "content-disposition", "content-length", "content-type"];
/// A cache that kept a 412 or 416 would give it to clients that sent no such condition or range.
const OF_CACHES: [&str; 4] = ["cache-control", "etag", "expires", "last-modified"];

/// The strong ETag of a version of a file; `form` distinguishes it from others of the same content. Empty: its time of
/// modification tells nothing.
pub(crate) fn etag_of(modified_s: u64, modified_ns: u64, len: u64, form: &str) -> String {
    match is_dated(modified_s) {
        true => format!("\"{modified_s:x}{modified_ns:08x}-{len:x}{form}\""),
        false => String::new(),
    }
}

/// The status of the answer, and the bytes of the file that it sends.
pub(crate) fn select(head: &RequestHead, of: Validators<'_>, len: u64) -> (u16, Range<u64>) {
    let range = match head.header("range") {
        Some(value) if !head.is_head() && of.range_applies(head) => byte_range::parse(value, len),
        _ => ByteRange::Whole,
    };
    match (of.check(head), range) {
        (Precondition::Failed, _) => (412, 0..0),
        (Precondition::NotModified, _) => (304, 0..0),
        (Precondition::Holds, ByteRange::Unsatisfiable) => (416, 0..0),
        (Precondition::Holds, ByteRange::Part { start, end }) => (206, start..end),
        (Precondition::Holds, ByteRange::Whole) => (200, 0..len),
    }
}

/// Says which part of `len` bytes a 206 holds, or how many there are with a 416.
pub(crate) fn append_range(
    out: &mut ResponseHead<'_>,
    status: u16,
    part: &Range<u64>,
    len: u64,
) -> Result<(), ResponseError> {
    let value = match status {
        206 => format!("bytes {}-{}/{len}", part.start, part.end - 1),
        416 => format!("bytes */{len}"),
        _ => return Ok(()),
    };
    out.header(b"Content-Range", value.as_bytes())
}

/// A response of the application whose body is a file. Its 200 to a GET or HEAD becomes what the request asks for,
/// unless its headers say that the file is not the whole content. [`note`](Self::note) each header, then
/// [`select`](Self::select).
#[derive(Debug)]
pub struct FileAnswer {
    /// The status to be sent.
    pub status: u16,
    /// The bytes of the file to be sent.
    pub range: Range<u64>,
    len: u64,
    etag: Vec<u8>,
    modified_s: u64,
    has_etag: bool,
    has_modified: bool,
    is_named: bool,
    says_ranges: bool,
    /// The application refuses ranges.
    is_indivisible: bool,
    /// What is sent is this module's choice.
    is_selected: bool,
}

impl FileAnswer {
    /// An answer of that status with the file. `is_named` says that the application named the file in a header, and so
    /// leaves the answer to the server.
    pub fn new(status: u16, file: &Metadata, is_named: bool) -> Self {
        let (len, modified_s) = (file.len(), u64::try_from(file.mtime()).unwrap_or(0));
        Self {
            status,
            range: 0..len,
            len,
            etag: etag_of(modified_s, file.mtime_nsec() as u64, len, "").into_bytes(),
            modified_s,
            has_etag: false,
            has_modified: false,
            is_named,
            says_ranges: false,
            is_indivisible: false,
            is_selected: status == 200,
        }
    }

    /// Notes a header of the application.
    pub fn note(&mut self, name: &[u8], value: &[u8]) {
        let (is, value) = (|other: &str| name.eq_ignore_ascii_case(other.as_bytes()), trim(value));
        if is("etag") {
            (self.has_etag, self.etag) = (true, value.to_vec());
        } else if is("last-modified") {
            self.has_modified = true;
            let age = date_of(value).and_then(|date| date.duration_since(UNIX_EPOCH).ok());
            self.modified_s = age.map_or(self.modified_s, |age| age.as_secs());
        } else if is("accept-ranges") {
            self.says_ranges = true;
            self.is_indivisible |= value.eq_ignore_ascii_case(b"none");
        } else if is("content-digest") || is("content-md5") {
            // It is the one of the whole content.
            self.is_indivisible = true;
        } else if is("content-range") || is("transfer-encoding") {
            self.is_selected = false;
        } else if is("content-length") {
            self.is_selected &= parse_length(value) == Some(self.len);
        }
    }

    /// Decides what is sent.
    pub fn select(&mut self, head: &RequestHead) {
        self.is_selected &= matches!(head.get(head.method), b"GET" | b"HEAD");
        if !self.is_selected {
            return;
        }
        let validators = Validators { etag: &self.etag, modified_s: self.modified_s };
        (self.status, self.range) = match select(head, validators, self.len) {
            (206 | 416, _) if self.is_indivisible => (200, 0..self.len),
            selected => selected,
        };
    }

    /// Whether a header of the application is sent.
    pub fn keeps(&self, name: &[u8]) -> bool {
        let among = |list: &[&str]| list.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()));
        match self.status {
            _ if !self.is_selected => true,
            206 => !among(&["content-length"]),
            304 => !among(&OF_CONTENT),
            412 | 416 => !among(&OF_CONTENT) && !among(&OF_CACHES),
            _ => true,
        }
    }

    /// Adds the headers that the application has left to the server.
    pub fn append(&self, out: &mut ResponseHead<'_>) -> Result<(), ResponseError> {
        if !self.is_selected {
            return Ok(());
        }
        if matches!(self.status, 200 | 206) && !self.says_ranges && !self.is_indivisible {
            out.header(b"Accept-Ranges", b"bytes")?;
        }
        if matches!(self.status, 200 | 206 | 304) {
            let may_add = !self.has_etag && (self.is_named || !self.has_modified);
            if may_add && !self.etag.is_empty() {
                out.header(b"ETag", &self.etag)?;
            }
            // Caches keep an answer with a Last-Modified alone for a tenth of its age (RFC 9111 section 4.2.2). That is
            // usual for files that a server sends; an application that sends one itself has not asked for it.
            if !self.has_modified && self.is_named && is_dated(self.modified_s) {
                out.header(b"Last-Modified", &http_date(self.modified_s))?;
            }
        }
        append_range(out, self.status, &self.range, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head;
    use crate::limits::Limits;

    /// The status and the bytes of an answer to a GET that has `own` headers of the application.
    fn answer(status: u16, own: &[(&str, &str)], asked: &str, method: &str) -> (u16, Range<u64>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(100).unwrap();
        let mut head = RequestHead::default();
        let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{asked}\r\n");
        head::parse(text.as_bytes(), &Limits::for_tests(), &mut head).unwrap();
        let mut answer = FileAnswer::new(status, &file.as_file().metadata().unwrap(), true);
        own.iter().for_each(|(name, value)| answer.note(name.as_bytes(), value.as_bytes()));
        answer.select(&head);
        (answer.status, answer.range)
    }

    #[test]
    fn the_headers_of_the_application_decide_with() {
        let part = "Range: bytes=10-19\r\n";
        let same = "If-None-Match: \"a\"\r\n";
        for (own, asked, status, range) in [
            (&[][..], part, 206, 10..20),
            (&[("Content-Length", "100"), ("Content-Encoding", "gzip")], part, 206, 10..20),
            (&[("content-length", "99")], part, 200, 0..100),
            (&[("Content-Range", "bytes 0-99/200")], part, 200, 0..100),
            (&[("Transfer-Encoding", "chunked")], part, 200, 0..100),
            (&[("Accept-Ranges", "none")], part, 200, 0..100),
            (&[("Accept-Ranges", "none"), ("ETag", "\"a\"")], same, 304, 0..0),
            (&[("Content-Digest", "sha-256=:x:")], part, 200, 0..100),
            (&[("ETag", "\"a\"")], same, 304, 0..0),
            (&[("ETag", "W/\"a\"")], same, 304, 0..0),
            (&[("ETag", "W/\"a\"")], "If-Match: W/\"a\"\r\n", 412, 0..0),
            (&[("ETag", "\"b\"")], same, 200, 0..100),
            (&[("ETag", "\"b\"")], "If-Range: \"a\"\r\nRange: bytes=0-0\r\n", 200, 0..100),
            (&[("ETag", "\"a\"")], "If-Range: \"a\"\r\nRange: bytes=0-0\r\n", 206, 0..1),
            (
                &[("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")],
                "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
                304,
                0..0,
            ),
        ] {
            assert_eq!(answer(200, own, asked, "GET"), (status, range), "{own:?} {asked}");
        }
    }

    #[test]
    fn other_answers_are_left_alone() {
        for (status, method) in [(404, "GET"), (201, "GET"), (200, "POST"), (206, "GET")] {
            let found = answer(status, &[], "Range: bytes=0-0\r\nIf-None-Match: *\r\n", method);
            assert_eq!(found, (status, 0..100), "{method}");
        }
    }
}
