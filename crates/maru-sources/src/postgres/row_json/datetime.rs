//! Days and times, as ISO 8601 has them.
//!
//! The server counts from the first day of 2000. What `jiff` has no name for (years
//! before the first or beyond 9999, `24:00`) gives none; the server then writes it.

use std::io::Write;

use jiff::{
    SignedDuration,
    civil::{Date, DateTime, Time, date},
};

const FIRST_DAY: Date = date(2000, 1, 1);

pub(super) fn write_date(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let days = i32::from_be_bytes(bytes.try_into().ok()?);
    if days == i32::MAX || days == i32::MIN {
        return write_infinity(days > 0, out);
    }
    let since = SignedDuration::from_hours(i64::from(days) * 24);
    let day = FIRST_DAY.checked_add(since).ok()?;
    (day.year() > 0).then_some(())?;
    write!(out, "\"{day}\"").ok()
}

pub(super) fn write_time(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let micros = i64::from_be_bytes(bytes.try_into().ok()?);
    let since = SignedDuration::from_micros(micros);
    let time = Time::midnight().checked_add(since).ok()?;
    write!(out, "\"{time}\"").ok()
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
    let first = DateTime::from_parts(FIRST_DAY, Time::midnight());
    let moment = first
        .checked_add(SignedDuration::from_micros(micros))
        .ok()?;
    (moment.year() > 0).then_some(())?;
    write!(out, "\"{moment}{zone}\"").ok()
}

fn write_infinity(is_future: bool, out: &mut Vec<u8>) -> Option<()> {
    let sign = if is_future { "" } else { "-" };
    write!(out, "\"{sign}infinity\"").ok()
}
