//! Days and times, as ISO 8601 has them.

use std::io::Write;

use maru_runtime::clock::civil_from_days;

use super::number::write_padded;

/// Days from 1970 to 2000, from where the server counts.
const UNIX_DAYS_TO_2000: i64 = 10_957;
const MICROS_PER_DAY: i64 = 86_400_000_000;

pub(super) fn write_date(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let days = i32::from_be_bytes(bytes.try_into().ok()?);
    if days == i32::MAX || days == i32::MIN {
        return write_infinity(days > 0, out);
    }
    let era = write_quoted_date(i64::from(days), out)?;
    write!(out, "{era}\"").ok()
}

pub(super) fn write_time(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.push(b'"');
    write_time_of_day(i64::from_be_bytes(bytes.try_into().ok()?), out)?;
    out.push(b'"');
    Some(())
}

pub(super) fn write_timestamp(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write_datetime(bytes, "", out)
}

/// In UTC.
pub(super) fn write_timestamptz(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write_datetime(bytes, "+00:00", out)
}

fn write_datetime(bytes: &[u8], zone: &str, out: &mut Vec<u8>) -> Option<()> {
    let micros = i64::from_be_bytes(bytes.try_into().ok()?);
    if micros == i64::MAX || micros == i64::MIN {
        return write_infinity(micros > 0, out);
    }
    let era = write_quoted_date(micros.div_euclid(MICROS_PER_DAY), out)?;
    out.push(b'T');
    write_time_of_day(micros.rem_euclid(MICROS_PER_DAY), out)?;
    for part in [zone, era, "\""] {
        out.extend_from_slice(part.as_bytes());
    }
    Some(())
}

fn write_infinity(is_future: bool, out: &mut Vec<u8>) -> Option<()> {
    let sign = if is_future { "" } else { "-" };
    write!(out, "\"{sign}infinity\"").ok()
}

/// Writes a quote and the day that is so many after the first of 2000; gives what
/// stands at the end for a year before the first.
fn write_quoted_date(days: i64, out: &mut Vec<u8>) -> Option<&'static str> {
    let (year, month, day) = civil_from_days(UNIX_DAYS_TO_2000 + days);
    let (year, era) = if year > 0 {
        (year, "")
    } else {
        (1 - year, " BC")
    };
    match year {
        ..10_000 => {
            out.push(b'"');
            write_padded::<4>(year, out);
        }
        _ => write!(out, "\"{year}").ok()?,
    }
    for part in [month, day] {
        out.push(b'-');
        write_padded::<2>(part, out);
    }
    Some(era)
}

/// Writes a time of day, with as much of its second as there is.
fn write_time_of_day(micros: i64, out: &mut Vec<u8>) -> Option<()> {
    let seconds = micros / 1_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write_padded::<2>(hour, out);
    for part in [minute, second] {
        out.push(b':');
        write_padded::<2>(part, out);
    }
    let fraction = micros % 1_000_000;
    if fraction != 0 {
        out.push(b'.');
        write_padded::<6>(fraction, out);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
    Some(())
}
