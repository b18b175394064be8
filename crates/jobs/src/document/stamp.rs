//! The time `enqueued_at` of a document: read in both of Sidekiq's forms, and
//! written in the form of the configured generation.

use super::extra::Extra;
use super::fields::Fields;

/// A time as the format's generation writes it: Sidekiq 8 whole milliseconds,
/// earlier ones seconds with a point.
pub fn stamp(now_s: f64, format: u8) -> String {
    match format {
        8.. => format!("{}", (now_s * 1000.0).round() as i64),
        _ => format!("{now_s:?}"),
    }
}

/// The queue of a document, and the document with a new `enqueued_at` and, if
/// `one_less`, a `retry_count` less by one. `None` when it is no JSON object with
/// a queue. The other members keep their bytes. A job that waits behind a limit keeps its `enqueued_at`:
/// it has waited since then.
pub fn stamped(
    payload: &[u8],
    now_s: f64,
    format: u8,
    one_less: bool,
) -> Option<(String, Vec<u8>)> {
    let mut fields = Fields::parse(payload).ok()?;
    let queue = fields.text("queue").filter(|queue| !queue.is_empty())?;
    let waits = fields.get("chaton").and_then(|chaton| Extra::parse(chaton).ok()?.since).is_some();
    if !waits || fields.get("enqueued_at").is_none() {
        fields.set("enqueued_at", stamp(now_s, format));
    }
    if let (true, Some(count)) = (one_less, fields.number("retry_count")) {
        fields.set("retry_count", format!("{}", count as i64 - 1));
    }
    Some((queue, fields.to_vec()))
}

/// When a job was enqueued (s since 1970); `None` when the document has no such member.
pub fn enqueued_at(payload: &[u8]) -> Option<f64> {
    let fields = Fields::parse(payload).ok()?;
    read_stamp(fields.get("enqueued_at")?)
}

/// A time (s since 1970) that was written in either form.
pub(super) fn read_stamp(written: &str) -> Option<f64> {
    let number: f64 = written.trim_matches('"').parse().ok()?;
    Some(if written.contains(['.', 'e', 'E']) { number } else { number / 1000.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_generations_of_times() {
        let at = |json: &str| enqueued_at(json.as_bytes());
        assert_eq!(at(r#"{"enqueued_at":1700000000.25}"#), Some(1_700_000_000.25));
        assert_eq!(at(r#"{"enqueued_at":1700000000250}"#), Some(1_700_000_000.25));
        assert_eq!(at(r#"{"a":1}"#), None);
        assert_eq!(at("x"), None);
    }

    #[test]
    fn writes_what_it_reads() {
        for format in [6, 7, 8] {
            let (queue, payload) =
                stamped(br#"{"queue":"q","retry_count":3,"z":1.50}"#, 1.7e9, format, true).unwrap();
            assert_eq!((queue.as_str(), enqueued_at(&payload)), ("q", Some(1.7e9)));
            let text = String::from_utf8(payload).unwrap();
            assert!(text.contains(r#""retry_count":2,"z":1.50"#), "{text}");
        }
        let waits = br#"{"queue":"q","enqueued_at":1.5,"chaton":{"since":2.5}}"#;
        assert_eq!(stamped(waits, 1.7e9, 7, false), Some(("q".into(), waits.to_vec())));
        assert!(stamped(b"[]", 1.0, 7, false).is_none());
        assert!(stamped(b"{}", 1.0, 7, false).is_none());
    }
}
