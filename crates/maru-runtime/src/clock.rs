//! Wall-clock time in milliseconds and its RFC 3339 form.

use jiff::Timestamp;

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
}
