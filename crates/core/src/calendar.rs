//! Days of the civil calendar, in UTC.
//!
//! Years are counted from March, so that the leap day is a year's last day (Howard Hinnant,
//! "chrono-compatible low-level date algorithms").

/// Days of 400 years.
const ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;

/// Year, month and day of a day since 1970-01-01.
pub fn date(day: i64) -> (i64, i64, i64) {
    let (era, of_era) = ((day + EPOCH).div_euclid(ERA), (day + EPOCH).rem_euclid(ERA));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The day since 1970-01-01 of a date; the month from 1 to 12.
pub fn day(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * ERA + 365 * of_era + of_era / 4 - of_era / 100 + of_year - EPOCH
}

/// A day of Unix time as `2026-11-21`.
pub fn date_text(unix_s: f64) -> String {
    let (year, month, day) = date((unix_s / 86_400.0).floor() as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// A time since 1970 as `2026-11-21T19:08:32.123Z`.
pub fn iso_8601(ms: i64) -> String {
    let (days, ms) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date_text(0.0), "1970-01-01");
        assert_eq!(date_text(951_782_400.0), "2000-02-29");
        assert_eq!(date_text(1_700_000_000.5), "2023-11-14");
        assert_eq!(date_text(4_107_542_399.0), "2100-02-28");
    }

    #[test]
    fn each_day_of_two_eras_is_found_again() {
        let mut before = date(-ERA - 1);
        for number in -ERA..ERA {
            let (year, month, of_month) = date(number);
            assert_eq!(day(year, month, of_month), number);
            assert!((year, month, of_month) > before, "day {number}");
            before = (year, month, of_month);
        }
    }

    #[test]
    fn times_are_written_as_iso_8601() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_826_153_007, "2000-02-29T12:09:13.007Z"),
            (1_795_288_112_123, "2026-11-21T19:08:32.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso_8601(ms), text);
        }
    }
}
