//! The `Date` header, formatted once a second and thread, and the calendar
//! behind it.

use std::cell::Cell;

/// `Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n` (RFC 9110 section 5.6.7).
const LINE_BYTES: usize = 37;

const WEEKDAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

thread_local! {
    static LINE: Cell<(u64, [u8; LINE_BYTES])> = const { Cell::new((u64::MAX, [0; LINE_BYTES])) };
}

/// Appends the line `Date: …` of this second, with its CRLF.
pub fn append_date_line(out: &mut Vec<u8>) {
    let now_s = unix_s();
    let (cached_s, mut line) = LINE.get();
    if cached_s != now_s {
        line = date_line(now_s);
        LINE.set((now_s, line));
    }
    out.extend_from_slice(&line);
}

/// Seconds since 1970 as of the last timer tick: a few ms late, a fifth of the
/// cost of the exact clock, and this runs once a reply under Ruby's lock.
fn unix_s() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is ours and the clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut at) };
    u64::try_from(at.tv_sec).unwrap_or(0)
}

fn date_line(unix_s: u64) -> [u8; LINE_BYTES] {
    let civil = Civil::from_unix(unix_s);
    let mut line = *b"Date: Sun, 00 Jan 0000 00:00:00 GMT\r\n";
    line[6..9].copy_from_slice(WEEKDAYS[usize::from(civil.weekday)]);
    two_digits(&mut line[11..13], civil.day);
    line[14..17].copy_from_slice(civil.month_name());
    two_digits(&mut line[18..20], (civil.year / 100 % 100) as u8);
    two_digits(&mut line[20..22], (civil.year % 100) as u8);
    two_digits(&mut line[23..25], civil.hour);
    two_digits(&mut line[26..28], civil.minute);
    two_digits(&mut line[29..31], civil.second);
    line
}

fn two_digits(out: &mut [u8], value: u8) {
    out.copy_from_slice(&[b'0' + value / 10, b'0' + value % 10]);
}

/// A moment as the calendar shows it, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year.
    pub year: u64,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, 1 to 31.
    pub day: u8,
    /// The day of the week, 0 for Sunday.
    pub weekday: u8,
    /// The hour, 0 to 23.
    pub hour: u8,
    /// The minute, 0 to 59.
    pub minute: u8,
    /// The second, 0 to 59.
    pub second: u8,
}

impl Civil {
    /// The moment so many seconds after the beginning of 1970.
    pub fn from_unix(unix_s: u64) -> Self {
        let (days, second_of_day) = (unix_s / 86_400, unix_s % 86_400);
        // Years are counted from March, so that the leap day is a year's last:
        // then month and day follow from the day of the year by division alone.
        let day = days + 719_468;
        let (era, day_of_era) = (day / 146_097, day % 146_097);
        let leap_days = day_of_era / 1_460 + day_of_era / 146_096 - day_of_era / 36_524;
        let year_of_era = (day_of_era - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * from_march + 2) / 5 + 1) as u8,
            weekday: ((days + 4) % 7) as u8,
            hour: (second_of_day / 3_600) as u8,
            minute: (second_of_day / 60 % 60) as u8,
            second: (second_of_day % 60) as u8,
        }
    }

    /// `Jan` to `Dec`.
    pub fn month_name(&self) -> &'static [u8; 3] {
        MONTHS[usize::from(self.month) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unix_s: u64) -> String {
        String::from_utf8(date_line(unix_s).to_vec()).unwrap()
    }

    #[test]
    fn known_moments() {
        for (unix_s, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(text(unix_s), format!("Date: {date}\r\n"));
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = Civil::from_unix(0);
        for day in 1..100_000u64 {
            let next = Civil::from_unix(day * 86_400);
            assert_eq!(next.weekday, (last.weekday + 1) % 7);
            let same_month = (next.year, next.month) == (last.year, last.month);
            assert_eq!(next.day, if same_month { last.day + 1 } else { 1 });
            last = next;
        }
        assert_eq!((last.year, last.month, last.day), (2243, 10, 16));
    }

    #[test]
    fn the_cached_line_is_that_of_now() {
        // The second may turn between two readings; then the next try fits.
        let fits = (0..3).any(|_| {
            let mut out = b"x".to_vec();
            append_date_line(&mut out);
            out[1..] == date_line(unix_s())
        });
        assert!(fits);
    }
}
