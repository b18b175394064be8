//! The `Date` header (RFC 9110 section 5.6.7), formatted once a second and thread.

use std::cell::Cell;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;
use rustix::time::{clock_gettime, ClockId};

/// Length of `Sun, 06 Nov 1994 08:49:37 GMT`.
const DATE_BYTES: usize = 29;

thread_local! {
    static DATE: Cell<(i64, [u8; DATE_BYTES])> = const { Cell::new((i64::MAX, [0; DATE_BYTES])) };
}

/// The value of `Date` in this second.
#[inline]
pub fn now() -> [u8; DATE_BYTES] {
    // The coarse clock is a few ms late and costs a fifth of the exact one;
    // this runs once a response under Ruby's lock.
    let now_s = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    let (cached_s, mut date) = DATE.get();
    if cached_s != now_s {
        date = http_date(u64::try_from(now_s).unwrap_or(0));
        DATE.set((now_s, date));
    }
    date
}

/// The second `unix_s` after 1970 as an HTTP date, `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn http_date(unix_s: u64) -> [u8; DATE_BYTES] {
    /// HTTP dates end with the year 9999.
    const LAST_S: u64 = 253_402_300_799;
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_S)));
    let mut text = [0; 29];
    // An HTTP date always has 29 bytes.
    let _ = write!(&mut text[..], "{date}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_http() {
        for (unix_s, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 GMT"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(unix_s), date.as_bytes());
        }
    }

    #[test]
    fn the_cached_date_is_that_of_now() {
        // The second may turn between two readings; then the next try fits.
        let fits = (0..3).any(|_| {
            let date = now();
            date == http_date(clock_gettime(ClockId::RealtimeCoarse).tv_sec.unsigned_abs())
        });
        assert!(fits);
    }
}
