//! The form of a line: for people, or a JSON object. Ruby's lines have the same forms
//! (`lib/chaton/telemetry/line_format.rb`).

use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whether the lines of this process are JSON objects, set by `log_format`.
static JSON: AtomicBool = AtomicBool::new(false);

/// Makes all further lines JSON objects, or lines for people.
pub fn set_json(json: bool) {
    JSON.store(json, Ordering::Relaxed);
}

/// A fact in a line.
#[derive(Clone, Copy, Debug)]
pub enum FieldValue<'a> {
    /// Text of anybody; it is escaped.
    Text(&'a str),
    /// A number with decimals.
    Number(f64),
    /// A whole number.
    Count(u64),
}

/// A line in the form that `log_format` sets. `level` is one of `INFO` and `WARN`.
pub fn line(level: &str, message: &str, fields: &[(&str, FieldValue<'_>)]) -> Vec<u8> {
    let text = if JSON.load(Ordering::Relaxed) { json } else { human };
    text(level, message, fields).into_bytes()
}

fn human(level: &str, message: &str, fields: &[(&str, FieldValue<'_>)]) -> String {
    let (day, time) = now(libc::localtime_r);
    let mut line =
        format!("{day} {time} [{}] {level:<5} {}", std::process::id(), one_line(message));
    for (index, (name, value)) in fields.iter().enumerate() {
        line.push_str(if index == 0 { "  " } else { " " });
        line.push_str(name);
        line.push('=');
        match value {
            FieldValue::Text(text) if is_plain(text) => line.push_str(text),
            value => push_value(&mut line, *value),
        }
    }
    line.push('\n');
    line
}

fn json(level: &str, message: &str, fields: &[(&str, FieldValue<'_>)]) -> String {
    let (day, time) = now(libc::gmtime_r);
    let (pid, level) = (std::process::id(), level.to_lowercase());
    let mut line =
        format!("{{\"time\":\"{day}T{time}Z\",\"pid\":{pid},\"level\":\"{level}\",\"message\":");
    push_json_text(&mut line, one_line(message).as_bytes());
    for (name, value) in fields {
        let _ = write!(line, ",\"{name}\":");
        push_value(&mut line, *value);
    }
    line.push_str("}\n");
    line
}

type Convert = unsafe extern "C" fn(*const libc::time_t, *mut libc::tm) -> *mut libc::tm;

/// The day and the time of day, to the millisecond.
fn now(convert: Convert) -> (String, String) {
    let now: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, mut tm) = (now.as_secs() as libc::time_t, MaybeUninit::zeroed());
    // SAFETY: both pointers are to locals; all-zero bytes are a valid `tm` if it fails.
    let tm: libc::tm = unsafe {
        convert(&seconds, tm.as_mut_ptr());
        tm.assume_init()
    };
    let (year, month, ms) = (tm.tm_year + 1900, tm.tm_mon + 1, now.subsec_millis());
    (
        format!("{year:04}-{month:02}-{:02}", tm.tm_mday),
        format!("{:02}:{:02}:{:02}.{ms:03}", tm.tm_hour, tm.tm_min, tm.tm_sec),
    )
}

/// Text of a client must not begin a second line.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for piece in text.split(['\r', '\n']).filter(|piece| !piece.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(piece);
    }
    line
}

/// Whether the text needs no quotes in a line for people.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|c| matches!(c, ' ' | '"' | '=') || c.is_control())
}

fn push_value(line: &mut String, value: FieldValue<'_>) {
    let _ = match value {
        FieldValue::Text(text) => return push_json_text(line, text.as_bytes()),
        FieldValue::Number(number) => write!(line, "{number:?}"),
        FieldValue::Count(count) => write!(line, "{count}"),
    };
}

/// Appends bytes as a JSON string, as Ruby's JSON does; bytes that are no UTF-8 become `?`.
pub fn push_json_text(line: &mut String, bytes: &[u8]) {
    line.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => line.extend(['\\', c]),
                '\n' => line.push_str("\\n"),
                '\r' => line.push_str("\\r"),
                '\t' => line.push_str("\\t"),
                '\u{8}' => line.push_str("\\b"),
                '\u{c}' => line.push_str("\\f"),
                '\0'..='\u{1f}' => {
                    let _ = write!(line, "\\u{:04x}", u32::from(c));
                }
                _ => line.push(c),
            }
        }
        if !chunk.invalid().is_empty() {
            line.push('?');
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [(&str, FieldValue<'_>); 4] = [
        ("class", FieldValue::Text("A::B")),
        ("queue", FieldValue::Text("a \"b\"\n\u{1}é")),
        ("seconds", FieldValue::Number(0.0)),
        ("done", FieldValue::Count(7)),
    ];

    #[test]
    fn a_line_for_people_has_a_time_stamp_and_quotes_where_they_are_needed() {
        let line = human("WARN", "it is\r\nlate", &FIELDS);
        let (time, rest) = line.split_once(" [").unwrap();
        let digits: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(digits, "0000-00-00 00:00:00.000");
        let pid = std::process::id();
        assert_eq!(
            rest,
            format!(
                "{pid}] WARN  it is late  class=A::B queue=\"a \\\"b\\\"\\n\\u0001é\" seconds=0.0 done=7\n"
            )
        );
    }

    #[test]
    fn a_json_line_has_the_same_fields() {
        let line = json("WARN", "say \"no\"\nnow", &FIELDS);
        let (time, rest) =
            line.strip_prefix("{\"time\":\"").unwrap().split_once("\",\"pid\":").unwrap();
        assert_eq!(time.len(), "2025-11-21T09:30:00.123Z".len());
        let pid = std::process::id();
        assert_eq!(
            rest,
            format!(
                "{pid},\"level\":\"warn\",\"message\":\"say \\\"no\\\" now\",\"class\":\"A::B\",\
                 \"queue\":\"a \\\"b\\\"\\n\\u0001é\",\"seconds\":0.0,\"done\":7}}\n"
            )
        );
    }

    #[test]
    fn bytes_that_are_no_text_become_question_marks() {
        let mut text = String::new();
        push_json_text(&mut text, b"/a\xff\xfe\"\x7f");
        assert_eq!(text, "\"/a??\\\"\u{7f}\"");
    }
}
