//! The time of day, as it is stored and shown.

use jiff::Timestamp;

/// Milliseconds of a day.
pub const DAY_MS: i64 = 86_400_000;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// The moment as `2026-11-16T09:30:00Z`; one beyond the year 9999 as the last of it.
pub fn format_rfc3339(milliseconds: i64) -> String {
    let moment = Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX);
    format!("{moment:.0}")
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
            (i64::MAX, "9999-12-30T22:00:00Z"),
        ];
        for (moment, expected) in cases {
            assert_eq!(format_rfc3339(moment), expected);
        }
    }
}
