//! The time of day, as it is stored and shown.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds of a day.
pub const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    i64::try_from(since).unwrap_or(i64::MAX)
}

/// The moment as `2026-11-16T09:30:00Z`.
pub fn format_rfc3339(milliseconds: i64) -> String {
    let seconds = milliseconds.rem_euclid(DAY_MS) / 1000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "{}T{hour:02}:{minute:02}:{second:02}Z",
        format_date(milliseconds.div_euclid(DAY_MS))
    )
}

/// The day, counted from 1970-01-01, as `2026-11-16`.
pub fn format_date(day: i64) -> String {
    let (year, month, day) = civil_from_days(day);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of the month of a day, counted from 1970-01-01. The year
/// before the first is 0.
///
/// Counts in cycles of 400 years that begin in March, so that the leap day is
/// the last of its year.
pub fn civil_from_days(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (cycle, of_cycle) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    (cycle * 400 + year + i64::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_people_read_them() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59Z"),
            (1_794_787_200_000, "2026-11-16T00:00:00Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ];
        for (moment, expected) in cases {
            assert_eq!(format_rfc3339(moment), expected);
        }
    }
}
