//! The access log: lines are gathered while the IO thread works and written to
//! standard output before it sleeps.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chaton_core::log::{self, Output};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::date::http_date;
use crate::head::{RequestHead, Version};

/// The form of the access log, which goes to descriptor 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLog {
    /// No access log.
    Off,
    /// The common log format followed by the duration in ms.
    Common,
    /// One JSON object a line.
    Json,
}

/// Gathered lines are written early past this size.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The texts of most lines in JSON.
const FIELDS_BYTES: usize = 256;

/// Longest part of a request target that is logged.
const TARGET_BYTES_MAX: usize = 2_048;

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// The content of one line.
pub(crate) struct AccessLogEntry<'a> {
    pub remote: &'a str,
    /// None when no request could be read.
    pub head: Option<&'a RequestHead>,
    /// Its id in the log, made only for JSON.
    pub request_id: Option<String>,
    pub status: u16,
    /// Bytes of the response body as sent, chunk headers included.
    pub sent: u64,
    pub took: Duration,
}

/// Lines that are not written yet.
pub(crate) struct LogBuffer {
    form: AccessLog,
    lines: Mutex<Vec<u8>>,
}

impl LogBuffer {
    pub fn new(form: AccessLog) -> Self {
        Self { form, lines: Mutex::default() }
    }

    /// Whether lines have the request's id: those of the common format have no place for it.
    pub fn has_ids(&self) -> bool {
        self.form == AccessLog::Json
    }

    /// Whether anything is logged at all.
    pub fn is_on(&self) -> bool {
        self.form != AccessLog::Off
    }

    /// Adds a line.
    pub fn add(&self, entry: &AccessLogEntry) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut lines = self.lines.lock();
        match self.form {
            AccessLog::Off => return,
            AccessLog::Common => common(&mut lines, entry, now),
            AccessLog::Json => json(&mut lines, entry, now),
        }
        if lines.len() >= BUFFER_BYTES_MAX {
            write_all(&mut lines);
        }
    }

    /// Writes the gathered lines.
    pub fn flush(&self) {
        if self.is_on() {
            write_all(&mut self.lines.lock());
        }
    }
}

fn write_all(lines: &mut Vec<u8>) {
    if !lines.is_empty() {
        log::write(Output::Stdout, lines);
        lines.clear();
    }
}

fn common(out: &mut Vec<u8>, entry: &AccessLogEntry, now: Duration) {
    let remote = entry.remote;
    let date = http_date(now.as_secs());
    let _ = write!(out, "{remote} - - [");
    out.extend_from_slice(&date[5..7]);
    out.push(b'/');
    out.extend_from_slice(&date[8..11]);
    out.push(b'/');
    out.extend_from_slice(&date[12..16]);
    out.push(b':');
    out.extend_from_slice(&date[17..25]);
    out.extend_from_slice(b" +0000] \"");
    match entry.head {
        Some(head) => {
            push_escaped(out, head.get(head.method));
            out.push(b' ');
            push_escaped(out, logged_target(head));
            let _ = write!(out, " {}", version(head));
        }
        None => out.push(b'-'),
    }
    let took_ms = entry.took.as_secs_f64() * 1000.0;
    let _ = writeln!(out, "\" {} {} {took_ms:.1}", entry.status, entry.sent);
}

fn json(out: &mut Vec<u8>, entry: &AccessLogEntry, now: Duration) {
    let remote = entry.remote;
    let date = http_date(now.as_secs());
    let month = MONTHS.iter().position(|name| **name == date[8..11]).unwrap_or(0) + 1;
    // The first fields are those of the server's other lines (crates/core/src/log/line.rs).
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(&date[12..16]);
    let _ = write!(out, "-{month:02}-");
    out.extend_from_slice(&date[5..7]);
    out.push(b'T');
    out.extend_from_slice(&date[17..25]);
    let (ms, pid) = (now.subsec_millis(), std::process::id());
    let _ = write!(
        out,
        ".{ms:03}Z\",\"pid\":{pid},\"level\":\"info\",\"message\":\"request\",\"remote\":\"{remote}\","
    );
    // One allocation for all texts.
    let mut fields = String::with_capacity(FIELDS_BYTES);
    if let Some(head) = entry.head {
        push_field(&mut fields, "method", head.get(head.method));
        push_field(&mut fields, "target", logged_target(head));
        push_field(&mut fields, "version", version(head).as_bytes());
    }
    if let Some(id) = &entry.request_id {
        push_field(&mut fields, "request_id", id.as_bytes());
    }
    out.extend_from_slice(fields.as_bytes());
    let took_ms = entry.took.as_secs_f64() * 1000.0;
    let _ = writeln!(
        out,
        "\"status\":{},\"sent_bytes\":{},\"took_ms\":{took_ms:.3}}}",
        entry.status, entry.sent
    );
}

fn push_field(out: &mut String, name: &str, text: &[u8]) {
    out.extend(["\"", name, "\":"]);
    log::push_json_text(out, text);
    out.push(',');
}

fn logged_target(head: &RequestHead) -> &[u8] {
    let target = head.get(head.target);
    &target[..target.len().min(TARGET_BYTES_MAX)]
}

fn version(head: &RequestHead) -> &'static str {
    match head.version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
    }
}

/// Appends text from a client so that it can't end a field or a line.
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0x20..=0x7e => out.push(*byte),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(head: Option<&RequestHead>) -> AccessLogEntry<'_> {
        AccessLogEntry {
            remote: "10.0.0.7",
            head,
            request_id: None,
            status: 200,
            sent: 120,
            took: Duration::from_micros(1_500),
        }
    }

    #[test]
    fn a_request_that_could_not_be_read_has_a_line_too() {
        let mut out = Vec::new();
        common(&mut out, &entry(None), Duration::from_secs(0));
        let line = String::from_utf8(out).unwrap();
        assert_eq!(line, "10.0.0.7 - - [01/Jan/1970:00:00:00 +0000] \"-\" 200 120 1.5\n");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let mut out = Vec::new();
        let entry = AccessLogEntry { request_id: Some("a\"b".into()), ..entry(None) };
        json(&mut out, &entry, Duration::from_millis(1_007));
        let line = String::from_utf8(out).unwrap();
        let pid = std::process::id();
        assert_eq!(
            line,
            format!(
                "{{\"time\":\"1970-01-01T00:00:01.007Z\",\"pid\":{pid},\"level\":\"info\",\"message\":\"request\",\
                 \"remote\":\"10.0.0.7\",\"request_id\":\"a\\\"b\",\"status\":200,\"sent_bytes\":120,\
                 \"took_ms\":1.500}}\n"
            )
        );
    }

    #[test]
    fn a_client_can_not_end_a_line() {
        let mut out = Vec::new();
        push_escaped(&mut out, b"/a\"b\\c\n\xff");
        assert_eq!(out, b"/a\\\"b\\\\c\\x0a\\xff");
    }
}
