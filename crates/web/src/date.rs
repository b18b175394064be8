//! The `Date` header (RFC 9110 section 5.6.7), formatted once a second and thread.

use std::cell::Cell;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;
use rustix::time::{clock_gettime, ClockId};

/// Length of `Date: Sun, 06 Nov 1994 08:49:37 GMT` with its CRLF.
const LINE_BYTES: usize = 37;

thread_local! {
    static LINE: Cell<(i64, [u8; LINE_BYTES])> = const { Cell::new((i64::MAX, [0; LINE_BYTES])) };
}

/// Appends the `Date` line of this second, with its CRLF.
pub fn append_date_line(out: &mut Vec<u8>) {
    // The coarse clock is a few ms late and costs a fifth of the exact one;
    // this runs once a response under Ruby's lock.
    let now_s = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    let (cached_s, mut line) = LINE.get();
    if cached_s != now_s {
        line = date_line(now_s);
        LINE.set((now_s, line));
    }
    out.extend_from_slice(&line);
}

fn date_line(unix_s: i64) -> [u8; LINE_BYTES] {
    let mut line = *b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    line[6..35].copy_from_slice(&http_date(u64::try_from(unix_s).unwrap_or(0)));
    line
}

/// The second `unix_s` after 1970 as an HTTP date, `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn http_date(unix_s: u64) -> [u8; 29] {
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
    fn a_line_has_the_http_date_of_its_second() {
        for (unix_s, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(date_line(unix_s), format!("Date: {date}\r\n").as_bytes());
        }
    }

    #[test]
    fn the_cached_line_is_that_of_now() {
        // The second may turn between two readings; then the next try fits.
        let fits = (0..3).any(|_| {
            let mut out = b"x".to_vec();
            append_date_line(&mut out);
            out[1..] == date_line(clock_gettime(ClockId::RealtimeCoarse).tv_sec)
        });
        assert!(fits);
    }
}
