//! `date`, `datetime` and `timedelta`, without time zones.

#![expect(
    clippy::needless_pass_by_value,
    reason = "everything in the catalog has one shape"
)]

use super::{
    ast::BinaryOperator,
    builtins::BuiltinCall,
    calendar::{
        MAX_DATE_ORDINAL, MICROS_PER_DAY, date_ordinal, datetime_fields, format_micros,
        parse_iso_format, parse_with_format, year_month_day,
    },
    collections::expect_i64,
    error::{Result, UnlocatedError, overflow_error, type_error, value_error},
    evaluator::Evaluator,
    limits::ResourceMeter,
    operators::to_float,
    strings::expect_text,
    value::{DateOrdinal, Value},
};

/// The Unix epoch in microseconds since 0001-01-01.
const UNIX_EPOCH_MICROS: i64 = 719_162 * MICROS_PER_DAY;

pub(super) fn make_date(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [year, month, day] = call.bind(3, ["year", "month", "day"])?;
    let [year, month, day] = integer_parts([year, month, day], 0)?;
    date_ordinal(year, month, day).map(Value::Date)
}

pub(super) fn make_datetime(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let names = [
        "year",
        "month",
        "day",
        "hour",
        "minute",
        "second",
        "microsecond",
    ];
    let parts = integer_parts(call.bind(3, names)?, 0)?;
    datetime_to_micros(parts).map(Value::DateTime)
}

pub(super) fn make_delta(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let names = [
        "days",
        "seconds",
        "microseconds",
        "milliseconds",
        "minutes",
        "hours",
        "weeks",
    ];
    let sizes = [
        MICROS_PER_DAY,
        1_000_000,
        1,
        1000,
        60_000_000,
        3_600_000_000,
        7 * MICROS_PER_DAY,
    ];
    let mut total = 0_i128;
    for (part, size) in call.bind(0, names)?.into_iter().zip(sizes) {
        total += match part {
            None => 0,
            Some(Value::Float(part)) => round_micros(part * size as f64)?,
            Some(part) => i128::from(expect_i64(&part)?) * i128::from(size),
        };
    }
    checked_delta(total)
}

pub(super) fn today(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let Value::DateTime(now) = now(evaluator, call)? else {
        return Err(value_error("there is no clock here"));
    };
    Ok(Value::Date(now.div_euclid(MICROS_PER_DAY) + 1))
}

pub(super) fn now(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    let Some(now) = evaluator.meter.limits.now else {
        return Err(value_error("there is no clock here"));
    };
    let local = now.unix_microseconds + i64::from(now.offset_seconds) * 1_000_000;
    checked_datetime(i128::from(local) + i128::from(UNIX_EPOCH_MICROS))
}

pub(super) fn date_from_iso(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [text] = call.take_exactly()?;
    let text = expect_text(&text, "fromisoformat")?;
    evaluator.meter.charge_scan(text.body.len())?;
    match text.body.len() {
        10 | 8 => {
            parse_iso_format(&text.body).map(|it| Value::Date(it.div_euclid(MICROS_PER_DAY) + 1))
        }
        _ => Err(value_error(format!(
            "Invalid isoformat string: '{}'",
            text.body
        ))),
    }
}

pub(super) fn datetime_from_iso(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
) -> Result<Value> {
    let [text] = call.take_exactly()?;
    let text = expect_text(&text, "fromisoformat")?;
    evaluator.meter.charge_scan(text.body.len())?;
    parse_iso_format(&text.body).map(Value::DateTime)
}

pub(super) fn date_from_ordinal(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [days] = call.take_exactly()?;
    checked_date(expect_i64(&days)?)
}

pub(super) fn strptime(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [text, format] = call.take_exactly()?;
    let (text, format) = (
        expect_text(&text, "strptime")?,
        expect_text(&format, "strptime")?,
    );
    evaluator
        .meter
        .charge_scan(text.body.len() + format.body.len() * 64)?;
    parse_with_format(&text.body, &format.body).map(Value::DateTime)
}

pub(super) fn combine(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [date, time] = call.take_exactly()?;
    match (&date, &time) {
        (Value::Date(days), Value::DateTime(micros)) => Ok(Value::DateTime(
            (days - 1) * MICROS_PER_DAY + micros.rem_euclid(MICROS_PER_DAY),
        )),
        _ => Err(type_error(
            "combine() takes a date and the time of a datetime",
        )),
    }
}

pub(super) fn isoformat(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    Ok(Value::text(match call.receiver {
        Value::DateTime(micros) => datetime_text(micros, 'T'),
        other => date_text(to_date_ordinal(&other)),
    }))
}

pub(super) fn strftime(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let receiver = call.receiver.clone();
    let [format] = call.take_exactly()?;
    let format = expect_text(&format, "strftime")?;
    format_datetime(&mut evaluator.meter, &receiver, &format.body).map(Value::text)
}

pub(super) fn weekday(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    Ok(Value::Int(
        (to_date_ordinal(&call.receiver) + 6).rem_euclid(7),
    ))
}

pub(super) fn isoweekday(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    Ok(Value::Int(
        (to_date_ordinal(&call.receiver) + 6).rem_euclid(7) + 1,
    ))
}

pub(super) fn toordinal(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    Ok(Value::Int(to_date_ordinal(&call.receiver)))
}

pub(super) fn date_of(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    Ok(Value::Date(to_date_ordinal(&call.receiver)))
}

pub(super) fn replace_date(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let (year, month, day) = year_month_day(to_date_ordinal(&call.receiver));
    let [new_year, new_month, new_day] = call.bind(0, ["year", "month", "day"])?;
    let pick = |new: Option<Value>, old| new.map_or(Ok(old), |it| expect_i64(&it));
    date_ordinal(
        pick(new_year, year)?,
        pick(new_month, month)?,
        pick(new_day, day)?,
    )
    .map(Value::Date)
}

pub(super) fn replace_datetime(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
) -> Result<Value> {
    let Value::DateTime(micros) = call.receiver else {
        return replace_date(evaluator, call);
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
    let mut parts = datetime_fields(micros);
    for (part, new) in parts.iter_mut().zip(call.bind(0, names)?) {
        if let Some(new) = new {
            *part = expect_i64(&new)?;
        }
    }
    datetime_to_micros(parts).map(Value::DateTime)
}

pub(super) fn total_seconds(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    let micros = to_micros(&call.receiver).into();
    super::integer::divide(&micros, &1_000_000.into()).map(Value::Float)
}

pub(super) fn year(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    Ok(Value::Int(
        year_month_day(to_date_ordinal(&call.receiver)).0,
    ))
}

pub(super) fn month(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    Ok(Value::Int(
        year_month_day(to_date_ordinal(&call.receiver)).1,
    ))
}

pub(super) fn day(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    Ok(Value::Int(
        year_month_day(to_date_ordinal(&call.receiver)).2,
    ))
}

pub(super) fn hour(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    Ok(Value::Int(datetime_fields(to_micros(&call.receiver))[3]))
}

pub(super) fn minute(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    Ok(Value::Int(datetime_fields(to_micros(&call.receiver))[4]))
}

pub(super) fn second(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    Ok(Value::Int(datetime_fields(to_micros(&call.receiver))[5]))
}

pub(super) fn microsecond(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    Ok(Value::Int(datetime_fields(to_micros(&call.receiver))[6]))
}

pub(super) fn delta_days(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    Ok(Value::Int(
        to_micros(&call.receiver).div_euclid(MICROS_PER_DAY),
    ))
}

pub(super) fn delta_seconds(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let rest = to_micros(&call.receiver).rem_euclid(MICROS_PER_DAY);
    Ok(Value::Int(rest / 1_000_000))
}

pub(super) fn delta_microseconds(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let rest = to_micros(&call.receiver).rem_euclid(1_000_000);
    Ok(Value::Int(rest))
}

/// Applies an operator to dates; `None` if the operands are not dates.
pub(super) fn apply_binary(
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
) -> Result<Option<Value>> {
    use Value::{Date, DateTime, TimeDelta};
    let wide = |a: i64, b: i64| i128::from(a) + i128::from(b);
    let result = match (operator, left, right) {
        (BinaryOperator::Add, Date(days), TimeDelta(by))
        | (BinaryOperator::Add, TimeDelta(by), Date(days)) => {
            checked_date(days.saturating_add(by.div_euclid(MICROS_PER_DAY)))
        }
        (BinaryOperator::Subtract, Date(days), TimeDelta(by)) => {
            checked_date(days.saturating_sub(by.div_euclid(MICROS_PER_DAY)))
        }
        (BinaryOperator::Subtract, Date(a), Date(b)) => {
            checked_delta(i128::from(a - b) * i128::from(MICROS_PER_DAY))
        }
        (BinaryOperator::Add, DateTime(at), TimeDelta(by))
        | (BinaryOperator::Add, TimeDelta(by), DateTime(at)) => checked_datetime(wide(*at, *by)),
        (BinaryOperator::Subtract, DateTime(at), TimeDelta(by)) => checked_datetime(wide(*at, -by)),
        (BinaryOperator::Subtract, DateTime(a), DateTime(b)) => checked_delta(wide(*a, -b)),
        (BinaryOperator::Add, TimeDelta(a), TimeDelta(b)) => checked_delta(wide(*a, *b)),
        (BinaryOperator::Subtract, TimeDelta(a), TimeDelta(b)) => checked_delta(wide(*a, -b)),
        (BinaryOperator::Multiply, TimeDelta(it), by)
        | (BinaryOperator::Multiply, by, TimeDelta(it))
            if by.is_number() =>
        {
            multiply_delta(*it, by)
        }
        (BinaryOperator::Divide, TimeDelta(a), TimeDelta(b)) if *b != 0 => {
            Ok(Value::Float(*a as f64 / *b as f64))
        }
        (BinaryOperator::FloorDivide, TimeDelta(a), TimeDelta(b)) if *b != 0 => {
            Ok(Value::Int(floor_divide(*a, *b)))
        }
        (BinaryOperator::Modulo, TimeDelta(a), TimeDelta(b)) if *b != 0 => {
            Ok(TimeDelta(a - floor_divide(*a, *b) * b))
        }
        (BinaryOperator::Divide | BinaryOperator::FloorDivide, TimeDelta(it), by)
            if by.is_number() =>
        {
            divide_delta(operator, *it, by)
        }
        (
            BinaryOperator::Divide | BinaryOperator::FloorDivide | BinaryOperator::Modulo,
            TimeDelta(_),
            TimeDelta(_),
        ) => Err(zero_divisor_error()),
        _ => return Ok(None),
    };
    result.map(Some)
}

pub(super) fn date_text(days: DateOrdinal) -> String {
    let (year, month, day) = year_month_day(days);
    format!("{year:04}-{month:02}-{day:02}")
}

pub(super) fn datetime_text(micros: i64, between: char) -> String {
    let [.., hour, minute, second, micro] = datetime_fields(micros);
    let date = date_text(micros.div_euclid(MICROS_PER_DAY) + 1);
    let time = format!("{hour:02}:{minute:02}:{second:02}");
    match micro {
        0 => format!("{date}{between}{time}"),
        micro => format!("{date}{between}{time}.{micro:06}"),
    }
}

pub(super) fn delta_text(micros: i64) -> String {
    let days = micros.div_euclid(MICROS_PER_DAY);
    let [.., hour, minute, second, micro] = datetime_fields(micros.rem_euclid(MICROS_PER_DAY));
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
            let [year, month, day, hour, minute, second, micro] = datetime_fields(*micros);
            let rest = match (second, micro) {
                (0, 0) => String::new(),
                (second, 0) => format!(", {second}"),
                (second, micro) => format!(", {second}, {micro}"),
            };
            format!("datetime.datetime({year}, {month}, {day}, {hour}, {minute}{rest})")
        }
        other => {
            let micros = to_micros(other);
            let rest = micros.rem_euclid(MICROS_PER_DAY);
            let parts = [
                ("days", micros.div_euclid(MICROS_PER_DAY)),
                ("seconds", rest / 1_000_000),
                ("microseconds", rest % 1_000_000),
            ];
            let parts = parts.iter().filter(|it| it.1 != 0);
            let parts: Vec<String> = parts.map(|(name, it)| format!("{name}={it}")).collect();
            if parts.is_empty() {
                "datetime.timedelta(0)".to_owned()
            } else {
                format!("datetime.timedelta({})", parts.join(", "))
            }
        }
    }
}

/// Evaluates `value.strftime(format)`.
pub(super) fn format_datetime(
    meter: &mut ResourceMeter<'_>,
    value: &Value,
    format: &str,
) -> Result<String> {
    // No directive produces more than 26 characters.
    meter.charge_text(format.chars().count(), format.len() * 26)?;
    format_micros(to_micros(value), format)
}

/// Converts year, month, day, hour, minute, second and microsecond to microseconds.
pub(super) fn datetime_to_micros(parts: [i64; 7]) -> Result<i64> {
    let [year, month, day, hour, minute, second, micro] = parts;
    let days = date_ordinal(year, month, day)?;
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
    Ok((days - 1) * MICROS_PER_DAY + seconds * 1_000_000 + micro)
}

fn integer_parts<const N: usize>(parts: [Option<Value>; N], default: i64) -> Result<[i64; N]> {
    let mut found = [default; N];
    for (found, part) in found.iter_mut().zip(parts) {
        if let Some(part) = part {
            *found = expect_i64(&part)?;
        }
    }
    Ok(found)
}

fn to_date_ordinal(value: &Value) -> DateOrdinal {
    match value {
        Value::Date(days) => *days,
        other => to_micros(other).div_euclid(MICROS_PER_DAY) + 1,
    }
}

fn to_micros(value: &Value) -> i64 {
    match value {
        Value::DateTime(it) | Value::TimeDelta(it) => *it,
        Value::Date(days) => (days - 1) * MICROS_PER_DAY,
        _ => 0,
    }
}

fn checked_date(days: DateOrdinal) -> Result<Value> {
    if (1..=MAX_DATE_ORDINAL).contains(&days) {
        Ok(Value::Date(days))
    } else {
        Err(overflow_error("date value out of range"))
    }
}

fn checked_datetime(micros: i128) -> Result<Value> {
    match i64::try_from(micros) {
        Ok(micros) if (0..MAX_DATE_ORDINAL * MICROS_PER_DAY).contains(&micros) => {
            Ok(Value::DateTime(micros))
        }
        _ => Err(overflow_error("date value out of range")),
    }
}

fn checked_delta(micros: i128) -> Result<Value> {
    match i64::try_from(micros) {
        // The negated value must fit too.
        Ok(micros) if micros > i64::MIN => Ok(Value::TimeDelta(micros)),
        _ => Err(overflow_error("timedelta out of range")),
    }
}

fn round_micros(micros: f64) -> Result<i128> {
    if micros.is_finite() && micros.abs() < 1e30 {
        Ok(micros.round_ties_even() as i128)
    } else {
        Err(overflow_error("timedelta out of range"))
    }
}

fn multiply_delta(micros: i64, by: &Value) -> Result<Value> {
    match by.to_i64() {
        Some(by) => checked_delta(i128::from(micros) * i128::from(by)),
        None => checked_delta(round_micros(micros as f64 * to_float(by)?)?),
    }
}

fn divide_delta(operator: BinaryOperator, micros: i64, by: &Value) -> Result<Value> {
    let divisor = to_float(by)?;
    if divisor == 0.0 {
        return Err(super::error::zero_division_error(
            "integer division or modulo by zero",
        ));
    }
    match (operator, by.to_i64()) {
        (BinaryOperator::FloorDivide, Some(by)) => Ok(Value::TimeDelta(floor_divide(micros, by))),
        (BinaryOperator::FloorDivide, None) => Err(type_error(
            "unsupported operand type(s) for //: 'datetime.timedelta' and 'float'",
        )),
        _ => checked_delta(round_micros(micros as f64 / divisor)?),
    }
}

fn floor_divide(left: i64, right: i64) -> i64 {
    let wide = i128::from(left);
    let right = i128::from(right);
    let down = wide.rem_euclid(right) != 0 && right < 0;
    (wide.div_euclid(right) - i128::from(down)) as i64
}

fn zero_divisor_error() -> UnlocatedError {
    super::error::zero_division_error("integer division or modulo by zero")
}
