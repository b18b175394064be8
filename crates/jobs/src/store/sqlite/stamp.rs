//! A document's time of enqueueing, written anew.

use crate::document::Fields;

/// Its queue and its document with a new time of enqueueing, `retry_count` one
/// less if asked (a run asked for by hand is not counted twice); `None` for
/// what is no JSON object with a queue. The other members keep their bytes.
pub(super) fn stamped(
    payload: &[u8],
    now_s: f64,
    format: u8,
    one_less: bool,
) -> Option<(String, Vec<u8>)> {
    let mut fields = Fields::parse(payload).ok()?;
    let queue = fields.text("queue").filter(|queue| !queue.is_empty())?;
    // Sidekiq 8 tells milliseconds from seconds by the point.
    let stamp = if format >= 8 {
        format!("{}", (now_s * 1000.0).round() as i64)
    } else {
        format!("{now_s:?}")
    };
    fields.set("enqueued_at", stamp);
    if let (true, Some(count)) = (one_less, fields.number("retry_count")) {
        fields.set("retry_count", format!("{}", count as i64 - 1));
    }
    Some((queue, fields.to_vec()))
}

/// Age of a job that waits (s): by a float in seconds or an integer in ms.
pub(super) fn age_s(payload: &[u8], now_s: f64) -> f64 {
    let Ok(fields) = Fields::parse(payload) else { return 0.0 };
    let Some(text) = fields.get("enqueued_at") else { return 0.0 };
    let Ok(at) = text.trim_matches('"').parse::<f64>() else { return 0.0 };
    let at = if text.contains(['.', 'e', 'E']) { at } else { at / 1e3 };
    (now_s - at).max(0.0)
}
