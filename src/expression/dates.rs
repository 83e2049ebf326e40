//! `date`, `datetime` and `timedelta`, without time zones.

#![expect(
    clippy::needless_pass_by_value,
    reason = "everything in the catalog has one shape"
)]

use super::{
    calendar::{DAY, LAST_DAY, days_from, fields, from_text, parsed, text_by, year_month_day},
    catalog::Given,
    collections::number,
    evaluate::Run,
    fault::{Result, Trouble, overflow, type_error, value_error},
    limits::Meter,
    node::Binary,
    operate::to_float,
    strings::text_of,
    value::{Days, Value},
};

/// From 0001-01-01 to 1970-01-01.
const UNIX_EPOCH: i64 = 719_162 * DAY;

pub(super) fn make_date(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [year, month, day] = given.bind(3, ["year", "month", "day"])?;
    let [year, month, day] = counted([year, month, day], 0)?;
    days_from(year, month, day).map(Value::Date)
}

pub(super) fn make_datetime(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let names = [
        "year",
        "month",
        "day",
        "hour",
        "minute",
        "second",
        "microsecond",
    ];
    let parts = counted(given.bind(3, names)?, 0)?;
    moment(parts).map(Value::DateTime)
}

pub(super) fn make_delta(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let names = [
        "days",
        "seconds",
        "microseconds",
        "milliseconds",
        "minutes",
        "hours",
        "weeks",
    ];
    let sizes = [DAY, 1_000_000, 1, 1000, 60_000_000, 3_600_000_000, 7 * DAY];
    let mut total = 0_i128;
    for (part, size) in given.bind(0, names)?.into_iter().zip(sizes) {
        total += match part {
            None => 0,
            Some(Value::Float(part)) => rounded(part * size as f64)?,
            Some(part) => i128::from(number(&part)?) * i128::from(size),
        };
    }
    delta(total)
}

pub(super) fn today(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let Value::DateTime(now) = now(run, given)? else {
        return Err(value_error("there is no clock here"));
    };
    Ok(Value::Date(now.div_euclid(DAY) + 1))
}

pub(super) fn now(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    let Some(now) = run.meter.limits.now else {
        return Err(value_error("there is no clock here"));
    };
    let local = now.unix_microseconds + i64::from(now.offset_seconds) * 1_000_000;
    at_moment(i128::from(local) + i128::from(UNIX_EPOCH))
}

pub(super) fn date_from_iso(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [text] = given.take()?;
    let text = text_of(&text, "fromisoformat")?;
    run.meter.scan(text.body.len())?;
    match text.body.len() {
        10 | 8 => from_text(&text.body).map(|it| Value::Date(it.div_euclid(DAY) + 1)),
        _ => Err(value_error(format!(
            "Invalid isoformat string: '{}'",
            text.body
        ))),
    }
}

pub(super) fn datetime_from_iso(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [text] = given.take()?;
    let text = text_of(&text, "fromisoformat")?;
    run.meter.scan(text.body.len())?;
    from_text(&text.body).map(Value::DateTime)
}

pub(super) fn date_from_ordinal(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [days] = given.take()?;
    at_day(number(&days)?)
}

pub(super) fn strptime(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [text, form] = given.take()?;
    let (text, form) = (text_of(&text, "strptime")?, text_of(&form, "strptime")?);
    run.meter.scan(text.body.len() + form.body.len() * 64)?;
    parsed(&text.body, &form.body).map(Value::DateTime)
}

pub(super) fn combine(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [date, time] = given.take()?;
    match (&date, &time) {
        (Value::Date(days), Value::DateTime(micros)) => {
            Ok(Value::DateTime((days - 1) * DAY + micros.rem_euclid(DAY)))
        }
        _ => Err(type_error(
            "combine() takes a date and the time of a datetime",
        )),
    }
}

pub(super) fn isoformat(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    Ok(Value::text(match given.receiver {
        Value::DateTime(micros) => datetime_text(micros, 'T'),
        other => date_text(days(&other)),
    }))
}

pub(super) fn strftime(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let receiver = given.receiver.clone();
    let [form] = given.take()?;
    let form = text_of(&form, "strftime")?;
    formatted(&mut run.meter, &receiver, &form.body).map(Value::text)
}

pub(super) fn weekday(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    Ok(Value::Int((days(&given.receiver) + 6).rem_euclid(7)))
}

pub(super) fn isoweekday(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    Ok(Value::Int((days(&given.receiver) + 6).rem_euclid(7) + 1))
}

pub(super) fn toordinal(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    Ok(Value::Int(days(&given.receiver)))
}

pub(super) fn date_of(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    Ok(Value::Date(days(&given.receiver)))
}

pub(super) fn replace_date(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let (year, month, day) = year_month_day(days(&given.receiver));
    let [new_year, new_month, new_day] = given.bind(0, ["year", "month", "day"])?;
    let pick = |new: Option<Value>, old| new.map_or(Ok(old), |it| number(&it));
    days_from(
        pick(new_year, year)?,
        pick(new_month, month)?,
        pick(new_day, day)?,
    )
    .map(Value::Date)
}

pub(super) fn replace_datetime(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let Value::DateTime(micros) = given.receiver else {
        return replace_date(run, given);
    };
    let names = [
        "year",
        "month",
        "day",
        "hour",
        "minute",
        "second",
        "microsecond",
    ];
    let mut parts = fields(micros);
    for (part, new) in parts.iter_mut().zip(given.bind(0, names)?) {
        if let Some(new) = new {
            *part = number(&new)?;
        }
    }
    moment(parts).map(Value::DateTime)
}

pub(super) fn total_seconds(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    let micros = micros(&given.receiver).into();
    super::integer::divide(&micros, &1_000_000.into()).map(Value::Float)
}

pub(super) fn year(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    Ok(Value::Int(year_month_day(days(&given.receiver)).0))
}

pub(super) fn month(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    Ok(Value::Int(year_month_day(days(&given.receiver)).1))
}

pub(super) fn day(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    Ok(Value::Int(year_month_day(days(&given.receiver)).2))
}

pub(super) fn hour(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    Ok(Value::Int(fields(micros(&given.receiver))[3]))
}

pub(super) fn minute(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    Ok(Value::Int(fields(micros(&given.receiver))[4]))
}

pub(super) fn second(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    Ok(Value::Int(fields(micros(&given.receiver))[5]))
}

pub(super) fn microsecond(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    Ok(Value::Int(fields(micros(&given.receiver))[6]))
}

pub(super) fn delta_days(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    Ok(Value::Int(micros(&given.receiver).div_euclid(DAY)))
}

pub(super) fn delta_seconds(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let rest = micros(&given.receiver).rem_euclid(DAY);
    Ok(Value::Int(rest / 1_000_000))
}

pub(super) fn delta_microseconds(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let rest = micros(&given.receiver).rem_euclid(1_000_000);
    Ok(Value::Int(rest))
}

/// What operators do to dates; `None` if they do nothing.
pub(super) fn binary(operator: Binary, left: &Value, right: &Value) -> Result<Option<Value>> {
    use Value::{Date, DateTime, Delta};
    let wide = |a: i64, b: i64| i128::from(a) + i128::from(b);
    let done = match (operator, left, right) {
        (Binary::Add, Date(days), Delta(by)) | (Binary::Add, Delta(by), Date(days)) => {
            at_day(days.saturating_add(by.div_euclid(DAY)))
        }
        (Binary::Subtract, Date(days), Delta(by)) => {
            at_day(days.saturating_sub(by.div_euclid(DAY)))
        }
        (Binary::Subtract, Date(a), Date(b)) => delta(i128::from(a - b) * i128::from(DAY)),
        (Binary::Add, DateTime(at), Delta(by)) | (Binary::Add, Delta(by), DateTime(at)) => {
            at_moment(wide(*at, *by))
        }
        (Binary::Subtract, DateTime(at), Delta(by)) => at_moment(wide(*at, -by)),
        (Binary::Subtract, DateTime(a), DateTime(b)) => delta(wide(*a, -b)),
        (Binary::Add, Delta(a), Delta(b)) => delta(wide(*a, *b)),
        (Binary::Subtract, Delta(a), Delta(b)) => delta(wide(*a, -b)),
        (Binary::Multiply, Delta(it), by) | (Binary::Multiply, by, Delta(it)) if by.is_number() => {
            times(*it, by)
        }
        (Binary::Divide, Delta(a), Delta(b)) if *b != 0 => Ok(Value::Float(*a as f64 / *b as f64)),
        (Binary::Floor, Delta(a), Delta(b)) if *b != 0 => Ok(Value::Int(floor(*a, *b))),
        (Binary::Modulo, Delta(a), Delta(b)) if *b != 0 => Ok(Delta(a - floor(*a, *b) * b)),
        (Binary::Divide | Binary::Floor, Delta(it), by) if by.is_number() => {
            divided(operator, *it, by)
        }
        (Binary::Divide | Binary::Floor | Binary::Modulo, Delta(_), Delta(_)) => Err(by_zero()),
        _ => return Ok(None),
    };
    done.map(Some)
}

pub(super) fn date_text(days: Days) -> String {
    let (year, month, day) = year_month_day(days);
    format!("{year:04}-{month:02}-{day:02}")
}

pub(super) fn datetime_text(micros: i64, between: char) -> String {
    let [.., hour, minute, second, micro] = fields(micros);
    let date = date_text(micros.div_euclid(DAY) + 1);
    let time = format!("{hour:02}:{minute:02}:{second:02}");
    match micro {
        0 => format!("{date}{between}{time}"),
        micro => format!("{date}{between}{time}.{micro:06}"),
    }
}

pub(super) fn delta_text(micros: i64) -> String {
    let days = micros.div_euclid(DAY);
    let [.., hour, minute, second, micro] = fields(micros.rem_euclid(DAY));
    let many = if days.abs() == 1 { "" } else { "s" };
    let days = match days {
        0 => String::new(),
        days => format!("{days} day{many}, "),
    };
    match micro {
        0 => format!("{days}{hour}:{minute:02}:{second:02}"),
        micro => format!("{days}{hour}:{minute:02}:{second:02}.{micro:06}"),
    }
}

pub(super) fn repr(value: &Value) -> String {
    match value {
        Value::Date(days) => {
            let (year, month, day) = year_month_day(*days);
            format!("datetime.date({year}, {month}, {day})")
        }
        Value::DateTime(micros) => {
            let [year, month, day, hour, minute, second, micro] = fields(*micros);
            let rest = match (second, micro) {
                (0, 0) => String::new(),
                (second, 0) => format!(", {second}"),
                (second, micro) => format!(", {second}, {micro}"),
            };
            format!("datetime.datetime({year}, {month}, {day}, {hour}, {minute}{rest})")
        }
        other => {
            let micros = micros(other);
            let rest = micros.rem_euclid(DAY);
            let parts = [
                ("days", micros.div_euclid(DAY)),
                ("seconds", rest / 1_000_000),
                ("microseconds", rest % 1_000_000),
            ];
            let parts = parts.iter().filter(|it| it.1 != 0);
            let parts: Vec<String> = parts.map(|(name, it)| format!("{name}={it}")).collect();
            match parts.is_empty() {
                true => "datetime.timedelta(0)".to_owned(),
                false => format!("datetime.timedelta({})", parts.join(", ")),
            }
        }
    }
}

/// `value.strftime(form)`
pub(super) fn formatted(meter: &mut Meter<'_>, value: &Value, form: &str) -> Result<String> {
    // No sign of a format becomes more than 26 characters.
    meter.text(form.chars().count(), form.len() * 26)?;
    text_by(micros(value), form)
}

/// Microseconds of year, month, day, hour, minute, second, microsecond.
pub(super) fn moment(parts: [i64; 7]) -> Result<i64> {
    let [year, month, day, hour, minute, second, micro] = parts;
    let days = days_from(year, month, day)?;
    let limits = [
        ("hour", hour, 24),
        ("minute", minute, 60),
        ("second", second, 60),
    ];
    for (name, part, end) in limits {
        if !(0..end).contains(&part) {
            return Err(value_error(format!("{name} must be in 0..{}", end - 1)));
        }
    }
    if !(0..1_000_000).contains(&micro) {
        return Err(value_error("microsecond must be in 0..999999"));
    }
    let seconds = (hour * 60 + minute) * 60 + second;
    Ok((days - 1) * DAY + seconds * 1_000_000 + micro)
}

fn counted<const N: usize>(parts: [Option<Value>; N], default: i64) -> Result<[i64; N]> {
    let mut found = [default; N];
    for (found, part) in found.iter_mut().zip(parts) {
        if let Some(part) = part {
            *found = number(&part)?;
        }
    }
    Ok(found)
}

fn days(value: &Value) -> Days {
    match value {
        Value::Date(days) => *days,
        other => micros(other).div_euclid(DAY) + 1,
    }
}

fn micros(value: &Value) -> i64 {
    match value {
        Value::DateTime(it) | Value::Delta(it) => *it,
        Value::Date(days) => (days - 1) * DAY,
        _ => 0,
    }
}

fn at_day(days: Days) -> Result<Value> {
    match (1..=LAST_DAY).contains(&days) {
        true => Ok(Value::Date(days)),
        false => Err(overflow("date value out of range")),
    }
}

fn at_moment(micros: i128) -> Result<Value> {
    match i64::try_from(micros) {
        Ok(micros) if (0..LAST_DAY * DAY).contains(&micros) => Ok(Value::DateTime(micros)),
        _ => Err(overflow("date value out of range")),
    }
}

fn delta(micros: i128) -> Result<Value> {
    match i64::try_from(micros) {
        // So that its negative fits too.
        Ok(micros) if micros > i64::MIN => Ok(Value::Delta(micros)),
        _ => Err(overflow("timedelta out of range")),
    }
}

fn rounded(micros: f64) -> Result<i128> {
    match micros.is_finite() && micros.abs() < 1e30 {
        true => Ok(micros.round_ties_even() as i128),
        false => Err(overflow("timedelta out of range")),
    }
}

fn times(micros: i64, by: &Value) -> Result<Value> {
    match by.small() {
        Some(by) => delta(i128::from(micros) * i128::from(by)),
        None => delta(rounded(micros as f64 * to_float(by)?)?),
    }
}

fn divided(operator: Binary, micros: i64, by: &Value) -> Result<Value> {
    let divisor = to_float(by)?;
    if divisor == 0.0 {
        return Err(super::fault::zero_division(
            "integer division or modulo by zero",
        ));
    }
    match (operator, by.small()) {
        (Binary::Floor, Some(by)) => Ok(Value::Delta(floor(micros, by))),
        (Binary::Floor, None) => Err(type_error(
            "unsupported operand type(s) for //: 'datetime.timedelta' and 'float'",
        )),
        _ => delta(rounded(micros as f64 / divisor)?),
    }
}

fn floor(left: i64, right: i64) -> i64 {
    let wide = i128::from(left);
    let right = i128::from(right);
    let down = wide.rem_euclid(right) != 0 && right < 0;
    (wide.div_euclid(right) - i128::from(down)) as i64
}

fn by_zero() -> Trouble {
    super::fault::zero_division("integer division or modulo by zero")
}
