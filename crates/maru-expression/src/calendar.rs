//! The proleptic Gregorian calendar: day numbers, date fields, formatting and parsing.

use super::{
    dates::datetime_to_micros,
    error::{Result, UnlocatedError, value_error},
    value::DateOrdinal,
};

/// Microseconds per day.
pub(super) const MICROS_PER_DAY: i64 = 86_400_000_000;
/// The day number of 9999-12-31.
pub(super) const MAX_DATE_ORDINAL: DateOrdinal = 3_652_059;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

pub(super) fn date_ordinal(year: i64, month: i64, day: i64) -> Result<DateOrdinal> {
    if !(1..=9999).contains(&year) {
        return Err(value_error(format!("year {year} is out of range")));
    }
    if !(1..=12).contains(&month) {
        return Err(value_error("month must be in 1..12"));
    }
    if !(1..=month_length(year, month)).contains(&day) {
        return Err(value_error("day is out of range for month"));
    }
    Ok(days_before_year(year) + days_before_month(year, month) + day)
}

pub(super) fn year_month_day(days: DateOrdinal) -> (i64, i64, i64) {
    // A year has 365.2425 days on average; this estimate is at most one too high.
    let mut year = ((days - 1) * 400 / 146_097 + 1).clamp(1, 9999);
    while days_before_year(year) >= days {
        year -= 1;
    }
    while days_before_year(year + 1) < days {
        year += 1;
    }
    let mut rest = days - days_before_year(year);
    let mut month = 1;
    while rest > month_length(year, month) && month < 12 {
        rest -= month_length(year, month);
        month += 1;
    }
    (year, month, rest)
}

/// Splits microseconds into year, month, day, hour, minute, second and microsecond.
pub(super) fn datetime_fields(micros: i64) -> [i64; 7] {
    let (year, month, day) = year_month_day(micros.div_euclid(MICROS_PER_DAY) + 1);
    let rest = micros.rem_euclid(MICROS_PER_DAY);
    let seconds = rest / 1_000_000;
    [
        year,
        month,
        day,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        rest % 1_000_000,
    ]
}

pub(super) fn month_length(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Formats like `strftime`.
pub(super) fn format_micros(micros: i64, format: &str) -> Result<String> {
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let Some(directive) = rest.next() else {
            out.push('%');
            break;
        };
        out.push_str(&format_directive(micros, directive)?);
    }
    Ok(out)
}

fn format_directive(micros: i64, directive: char) -> Result<String> {
    let [year, month, day, hour, minute, second, micro] = datetime_fields(micros);
    let days = micros.div_euclid(MICROS_PER_DAY) + 1;
    let weekday = (days + 6).rem_euclid(7);
    let of_year = days - days_before_year(year);
    let half = (hour + 11) % 12 + 1;
    let month_name = MONTHS[(month - 1).clamp(0, 11) as usize];
    let day_name = WEEKDAYS[weekday.clamp(0, 6) as usize];
    Ok(match directive {
        'Y' => format!("{year}"),
        'y' => format!("{:02}", year % 100),
        'm' => format!("{month:02}"),
        'd' => format!("{day:02}"),
        'H' => format!("{hour:02}"),
        'I' => format!("{half:02}"),
        'M' => format!("{minute:02}"),
        'S' => format!("{second:02}"),
        'f' => format!("{micro:06}"),
        'j' => format!("{of_year:03}"),
        'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
        'B' => month_name.to_owned(),
        'b' => month_name[..3].to_owned(),
        'A' => day_name.to_owned(),
        'a' => day_name[..3].to_owned(),
        'w' => ((weekday + 1) % 7).to_string(),
        'u' => (weekday + 1).to_string(),
        'F' => format!("{year}-{month:02}-{day:02}"),
        'T' => format!("{hour:02}:{minute:02}:{second:02}"),
        '%' => "%".to_owned(),
        _ => return Err(value_error(format!("'%{directive}' is not supported"))),
    })
}

/// Parses like `fromisoformat`: `YYYY-MM-DD[?HH:MM[:SS[.ffffff]]]`.
pub(super) fn parse_iso_format(text: &str) -> Result<i64> {
    let mismatch_error = || value_error(format!("Invalid isoformat string: '{text}'"));
    if !text.is_ascii() {
        return Err(mismatch_error());
    }
    let compact = text.len() == 8 && text.bytes().all(|c| c.is_ascii_digit());
    let digits = |from: usize, to: usize| -> Option<i64> {
        let part = text.get(from..to)?;
        let is_number = part.bytes().all(|c| c.is_ascii_digit());
        part.parse().ok().filter(|_| is_number)
    };
    let mark = |at: usize, wanted: &str| text.get(at..=at) == Some(wanted);
    let mut parts = [0; 7];
    let ranges: [(usize, usize); 3] = if compact {
        [(0, 4), (4, 6), (6, 8)]
    } else {
        [(0, 4), (5, 7), (8, 10)]
    };
    for (part, (from, to)) in parts.iter_mut().zip(ranges) {
        *part = digits(from, to).ok_or_else(mismatch_error)?;
    }
    let marked = mark(4, "-") && mark(7, "-");
    if !compact && !marked {
        return Err(mismatch_error());
    }
    let times = [(11, 13, ""), (14, 16, ":"), (17, 19, ":")];
    let length = text.len();
    if !compact && length > 10 {
        for (part, (from, to, before)) in parts[3..].iter_mut().zip(times) {
            if length >= to {
                *part = digits(from, to).ok_or_else(mismatch_error)?;
                if !before.is_empty() && !mark(from - 1, before) {
                    return Err(mismatch_error());
                }
            }
        }
        parts[6] = parse_fraction(text).ok_or_else(mismatch_error)?;
    }
    datetime_to_micros(parts)
}

/// Parses the fraction of a second as microseconds.
fn parse_fraction(text: &str) -> Option<i64> {
    match text.len() {
        13 | 16 | 19 => Some(0),
        length if length > 20 && matches!(text.get(19..20), Some("." | ",")) => {
            let digits = text.get(20..)?;
            let is_number = digits.bytes().all(|c| c.is_ascii_digit());
            let micros = format!("{:0<6}", digits.get(..digits.len().min(6))?);
            micros.parse().ok().filter(|_| is_number)
        }
        _ => None,
    }
}

/// Parses like `strptime`.
pub(super) fn parse_with_format(text: &str, format: &str) -> Result<i64> {
    let mismatch_error = || {
        value_error(format!(
            "time data '{text}' does not match format '{format}'"
        ))
    };
    let mut parts = [1900, 1, 1, 0, 0, 0, 0];
    let mut afternoon = None;
    let mut rest = text;
    let mut signs = format.chars();
    while let Some(c) = signs.next() {
        if c != '%' {
            rest = if c.is_whitespace() {
                rest.trim_start()
            } else {
                rest.strip_prefix(c).ok_or_else(mismatch_error)?
            };
            continue;
        }
        let directive = signs.next().ok_or_else(mismatch_error)?;
        rest = parse_directive(directive, rest, &mut parts, &mut afternoon)?
            .ok_or_else(mismatch_error)?;
    }
    if let Some(afternoon) = afternoon {
        parts[3] = parts[3] % 12 + if afternoon { 12 } else { 0 };
    }
    if rest.is_empty() {
        datetime_to_micros(parts)
    } else {
        Err(value_error(format!("unconverted data remains: {rest}")))
    }
}

/// Parses one directive such as `%Y` and returns the rest of the text.
fn parse_directive<'t>(
    directive: char,
    rest: &'t str,
    parts: &mut [i64; 7],
    afternoon: &mut Option<bool>,
) -> Result<Option<&'t str>> {
    let (at, max_digits) = match directive {
        'Y' => (0, 4),
        'y' => (0, 2),
        'm' => (1, 2),
        'd' => (2, 2),
        'H' | 'I' => (3, 2),
        'M' => (4, 2),
        'S' => (5, 2),
        'f' => (6, 6),
        '%' => return Ok(rest.strip_prefix('%')),
        'p' => {
            let half = rest.get(..2).map(str::to_ascii_uppercase);
            *afternoon = Some(half.as_deref() == Some("PM"));
            let is_valid = matches!(half.as_deref(), Some("AM" | "PM"));
            return Ok(is_valid.then(|| &rest[2..]));
        }
        'b' | 'B' => return Ok(parse_month_name(directive, rest, parts)),
        _ => return Err(unsupported_directive(directive)),
    };
    let length = rest
        .bytes()
        .take(max_digits)
        .take_while(u8::is_ascii_digit)
        .count();
    let Ok(number) = rest[..length].parse::<i64>() else {
        return Ok(None);
    };
    if directive == 'Y' && length < 4 {
        return Ok(None);
    }
    parts[at] = match directive {
        'y' => number + if number < 69 { 2000 } else { 1900 },
        'f' => number * 10_i64.pow(6 - length as u32),
        _ => number,
    };
    Ok(Some(&rest[length..]))
}

fn parse_month_name<'t>(directive: char, rest: &'t str, parts: &mut [i64; 7]) -> Option<&'t str> {
    let found = MONTHS.iter().position(|name| {
        let name = if directive == 'b' { &name[..3] } else { name };
        rest.get(..name.len())
            .is_some_and(|it| it.eq_ignore_ascii_case(name))
    })?;
    parts[1] = found as i64 + 1;
    let length = if directive == 'b' {
        3
    } else {
        MONTHS[found].len()
    };
    Some(&rest[length..])
}

fn unsupported_directive(directive: char) -> UnlocatedError {
    value_error(format!("'%{directive}' is not supported"))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_before_year(year: i64) -> DateOrdinal {
    let year = year - 1;
    year * 365 + year / 4 - year / 100 + year / 400
}

fn days_before_month(year: i64, month: i64) -> DateOrdinal {
    (1..month).map(|it| month_length(year, it)).sum()
}

#[cfg(test)]
mod tests {
    use crate::testing::check_texts;

    #[test]
    fn leap_years_and_weekdays_are_those_of_the_gregorian_calendar() {
        check_texts(&[
            ("date(2024, 2, 29) + timedelta(days=1)", "2024-03-01"),
            ("date(2000, 2, 29).weekday()", "1"),
            ("(date(2026, 11, 19) - date(2024, 2, 29)).days", "994"),
            ("date(1, 1, 1).isoweekday()", "1"),
        ]);
    }
}
