//! `X-Request-Start`: when a proxy in front got the request.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::head::RequestHead;

/// The oldest stamp that is believed; an older one is that of a clock that is wrong.
const AGE_MAX: Duration = Duration::from_secs(3600);

/// How long a request was on its way before it arrived here, `took` ago; zero without a stamp, or
/// with one that cannot be.
pub(crate) fn waited_before(head: &RequestHead, took: Duration) -> Duration {
    let stamp = head.header("x-request-start").and_then(stamp);
    let waited = stamp.and_then(|stamp| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        now.checked_sub(took)?.checked_sub(stamp)
    });
    waited.filter(|waited| *waited <= AGE_MAX).unwrap_or_default()
}

/// A time since 1970, with or without `t=` before it: seconds, or without a point milliseconds,
/// microseconds or nanoseconds. Today they have 10, 13, 16 and 19 digits.
fn stamp(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let text = text.strip_prefix("t=").unwrap_or(text);
    let number: f64 = text.parse().ok()?;
    let per_second = match number {
        ..1e11 => 1.0,
        ..1e14 => 1e3,
        ..1e17 => 1e6,
        _ => 1e9,
    };
    Duration::try_from_secs_f64(number / per_second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head;
    use crate::limits::Limits;

    fn waited(header: &str) -> Duration {
        let mut head = RequestHead::default();
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n");
        head::parse(text.as_bytes(), &Limits::for_tests(), &mut head).unwrap();
        waited_before(&head, Duration::from_secs(1))
    }

    #[test]
    fn a_stamp_in_any_unit_is_understood() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let then = now - Duration::from_secs(100);
        for text in [
            format!("t={:.3}", then.as_secs_f64()),
            format!("{}", then.as_secs()),
            format!("{}", then.as_millis()),
            format!("t={}", then.as_micros()),
            format!("{}", then.as_nanos()),
        ] {
            let waited = waited(&format!("X-Request-Start: {text}"));
            // One second of it was here. A busy machine makes it longer.
            assert!((98..1000).contains(&waited.as_secs()), "{text}: {waited:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_no_wait() {
        let later = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 100;
        for text in ["", "yesterday", "t=", "-5", "0", "NaN", "1e300", &later.to_string()] {
            assert_eq!(waited(&format!("X-Request-Start: {text}")), Duration::ZERO, "{text}");
        }
        assert_eq!(waited("X-Other: 1"), Duration::ZERO);
    }
}
