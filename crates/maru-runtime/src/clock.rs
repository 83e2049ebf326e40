//! Wall-clock time in milliseconds and its RFC 3339 form.

use jiff::{Timestamp, ToSpan as _, civil::Date};

/// Milliseconds in a day.
pub const DAY_MS: i64 = 86_400_000;

/// Returns the current time in milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Formats a Unix time in milliseconds as `2026-11-16T09:30:00Z`. Times after the year
/// 9999 give the last representable moment.
pub fn format_rfc3339(milliseconds: i64) -> String {
    let timestamp = Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX);
    format!("{timestamp:.0}")
}

/// Returns the current day, counted from the Unix epoch, in UTC.
pub fn today() -> i64 {
    now_ms().div_euclid(DAY_MS)
}

/// Formats a day as `2026-11-16`.
pub fn format_day(day: i64) -> String {
    civil_date(day).to_string()
}

/// Parses `2026-11-16`.
pub fn parse_day(text: &str) -> Option<i64> {
    let date: Date = text.parse().ok()?;
    Some(i64::from(EPOCH.until(date).ok()?.get_days()))
}

/// Returns the first day of the month of `day`.
pub fn month_start(day: i64) -> i64 {
    day + 1 - i64::from(civil_date(day).day())
}

/// Returns the first day of the month after the one of `day`.
pub fn next_month_start(day: i64) -> i64 {
    let start = month_start(day);
    start + i64::from(civil_date(start).days_in_month())
}

const EPOCH: Date = Date::constant(1970, 1, 1);

/// Days that no calendar has give the epoch.
fn civil_date(day: i64) -> Date {
    let span = 0.days().try_days(day);
    span.and_then(|it| EPOCH.checked_add(it)).unwrap_or(EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_is_formatted_as_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59Z"),
            (1_794_787_200_000, "2026-11-16T00:00:00Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-30T22:00:00Z"),
        ];
        for (timestamp, expected) in cases {
            assert_eq!(format_rfc3339(timestamp), expected);
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (text, month, next) in [
            ("1970-01-01", "1970-01-01", "1970-02-01"),
            ("2026-11-18", "2026-11-01", "2026-12-01"),
            ("2024-02-29", "2024-02-01", "2024-03-01"),
            ("2026-12-31", "2026-12-01", "2027-01-01"),
        ] {
            let day = parse_day(text).unwrap();
            assert_eq!(format_day(day), text);
            assert_eq!(format_day(month_start(day)), month);
            assert_eq!(format_day(next_month_start(day)), next);
        }
        assert_eq!(parse_day("2024-02-29"), Some(19_782));
        assert_eq!(parse_day("2026-02-30"), None);
        assert_eq!(format_day(i64::MAX), "1970-01-01");
    }
}
