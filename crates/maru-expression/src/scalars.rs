//! Built-in functions on single values: numbers, strings and conversions.

#![expect(
    clippy::needless_pass_by_value,
    reason = "everything in the catalog has one shape"
)]

use num_bigint::BigInt;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};

use super::{
    ast::BinaryOperator,
    builtins::BuiltinCall,
    error::{Result, UnlocatedError, overflow_error, type_error, value_error},
    evaluator::Evaluator,
    float as floats, format_spec as formats, integer,
    operators::{self, to_float},
    repr,
    value::Value,
};

pub(super) fn abs(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    match &value {
        Value::Float(it) => Ok(Value::Float(it.abs())),
        Value::TimeDelta(it) => Ok(Value::TimeDelta(it.abs())),
        _ => match value.to_bigint() {
            Some(number) => integer::into_value(&mut evaluator.meter, number.abs()),
            None => Err(type_error(format!(
                "bad operand type for abs(): '{}'",
                value.type_name()
            ))),
        },
    }
}

pub(super) fn bool(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.bind(0, [""])?;
    Ok(Value::Bool(value.is_some_and(|it| it.is_truthy())))
}

pub(super) fn str(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.bind(0, ["object"])?;
    match value {
        None => Ok(Value::text("")),
        Some(Value::Text(text)) => Ok(Value::Text(text)),
        Some(value) => Ok(Value::text(repr::to_text(&mut evaluator.meter, &value)?)),
    }
}

pub(super) fn repr(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    Ok(Value::text(repr::repr(&mut evaluator.meter, &value)?))
}

pub(super) fn ascii(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    Ok(Value::text(repr::to_ascii(&mut evaluator.meter, &value)?))
}

pub(super) fn format(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value, spec] = call.bind(1, ["", ""])?;
    let value = value.unwrap_or(Value::None);
    let done = match spec {
        None => formats::format(&mut evaluator.meter, &value, "")?,
        Some(Value::Text(spec)) => formats::format(&mut evaluator.meter, &value, &spec.body)?,
        Some(other) => {
            let name = other.type_name();
            return Err(type_error(format!(
                "format() argument 2 must be str, not {name}"
            )));
        }
    };
    Ok(Value::text(done))
}

pub(super) fn int(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value, base] = call.bind(0, ["", "base"])?;
    let Some(value) = value else {
        return Ok(Value::Int(0));
    };
    if let Some(base) = base {
        return match (&value, base.to_i64()) {
            (Value::Text(text), Some(base @ (0 | 2..=36))) => {
                evaluator.meter.charge_scan(text.body.len() * 8)?;
                parse_integer(evaluator, &text.body, base as u32)
            }
            (Value::Text(_), Some(_)) => {
                Err(value_error("int() base must be >= 2 and <= 36, or 0"))
            }
            (Value::Text(_), None) => Err(not_an_integer_error(&base)),
            _ => Err(type_error(
                "int() can't convert non-string with explicit base",
            )),
        };
    }
    match &value {
        Value::Float(it) => integer::into_value(
            &mut evaluator.meter,
            floats::integral_to_bigint(it.trunc())?,
        ),
        Value::Text(text) => parse_integer(evaluator, &text.body, 10),
        _ => match value.to_bigint() {
            Some(number) => integer::into_value(&mut evaluator.meter, number),
            None => Err(type_error(format!(
                "int() argument must be a string, a bytes-like object or a real number, not '{}'",
                value.type_name()
            ))),
        },
    }
}

pub(super) fn float(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.bind(0, [""])?;
    match value {
        None => Ok(Value::Float(0.0)),
        Some(Value::Text(text)) => {
            evaluator.meter.charge_scan(text.body.len() * 8)?;
            match parse_float(&text.body) {
                Some(number) => Ok(Value::Float(number)),
                None => {
                    let shown = repr::repr(&mut evaluator.meter, &Value::Text(text))?;
                    Err(value_error(format!(
                        "could not convert string to float: {shown}"
                    )))
                }
            }
        }
        Some(value) if value.is_number() => to_float(&value).map(Value::Float),
        Some(value) => Err(type_error(format!(
            "float() argument must be a string or a real number, not '{}'",
            value.type_name()
        ))),
    }
}

pub(super) fn chr(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let number = value
        .to_bigint()
        .ok_or_else(|| not_an_integer_error(&value))?;
    match number.to_u32().and_then(char::from_u32) {
        Some(c) => Ok(Value::text(c.to_string())),
        None if number.to_i32().is_none() => {
            Err(overflow_error("Python int too large to convert to C int"))
        }
        None => Err(value_error("chr() arg not in range(0x110000)")),
    }
}

pub(super) fn ord(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    match &value {
        Value::Text(text) => match (text.chars, text.body.chars().next()) {
            (1, Some(c)) => Ok(Value::Int(i64::from(c as u32))),
            (length, _) => Err(type_error(format!(
                "ord() expected a character, but string of length {length} found"
            ))),
        },
        _ => Err(type_error(format!(
            "ord() expected string of length 1, but {} found",
            value.type_name()
        ))),
    }
}

pub(super) fn hex(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    format_radix(evaluator, call, "#x")
}

pub(super) fn oct(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    format_radix(evaluator, call, "#o")
}

pub(super) fn bin(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    format_radix(evaluator, call, "#b")
}

pub(super) fn divmod(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [left, right] = call.take_exactly()?;
    let meter = &mut evaluator.meter;
    if let (true, true) = (left.is_number(), right.is_number())
        && (matches!(left, Value::Float(_)) || matches!(right, Value::Float(_)))
    {
        let (a, b) = (to_float(&left)?, to_float(&right)?);
        if b == 0.0 {
            return Err(super::error::zero_division_error("float divmod()"));
        }
        let (quotient, rest) = floats::div_mod_floor(a, b);
        return super::iteration::pair_tuple(meter, Value::Float(quotient), Value::Float(rest));
    }
    let quotient = operators::apply_binary(meter, BinaryOperator::FloorDivide, &left, &right)
        .map_err(|it| relabel_divmod_error(it, &left, &right))?;
    let rest = operators::apply_binary(meter, BinaryOperator::Modulo, &left, &right)?;
    super::iteration::pair_tuple(meter, quotient, rest)
}

pub(super) fn pow(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [base, exponent, modulus] = call.bind(2, ["base", "exp", "mod"])?;
    let base = base.unwrap_or(Value::None);
    let exponent = exponent.unwrap_or(Value::None);
    let Some(modulus) = modulus.filter(|it| !matches!(it, Value::None)) else {
        return operators::apply_binary(
            &mut evaluator.meter,
            BinaryOperator::Power,
            &base,
            &exponent,
        );
    };
    match (base.to_bigint(), exponent.to_bigint(), modulus.to_bigint()) {
        (Some(base), Some(exponent), Some(modulus)) => {
            integer::power_modulo(&mut evaluator.meter, [base, exponent, modulus])
        }
        _ => Err(type_error(
            "pow() 3rd argument not allowed unless all arguments are integers",
        )),
    }
}

pub(super) fn round(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value, digits] = call.bind(1, ["number", "ndigits"])?;
    let value = value.unwrap_or(Value::None);
    let digits = digits.filter(|it| !matches!(it, Value::None));
    if !value.is_number() {
        return Err(type_error(format!(
            "type {} doesn't define __round__ method",
            value.type_name()
        )));
    }
    let Some(digits) = digits else {
        return match &value {
            Value::Float(it) => {
                integer::into_value(&mut evaluator.meter, floats::round_to_integer(*it)?)
            }
            _ => integer::into_value(&mut evaluator.meter, value.to_bigint().unwrap_or_default()),
        };
    };
    let digits = digits
        .to_bigint()
        .ok_or_else(|| not_an_integer_error(&digits))?;
    let digits = digits.to_i64().unwrap_or(if digits.is_negative() {
        i64::MIN
    } else {
        i64::MAX
    });
    evaluator.meter.charge_steps(20)?;
    if let Value::Float(number) = value {
        return floats::round_digits(number, digits).map(Value::Float);
    }
    round_integer(evaluator, value.to_bigint().unwrap_or_default(), digits)
}

pub(super) fn bit_length(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    let number = call.receiver.to_bigint().unwrap_or_default();
    Ok(Value::Int(number.bits() as i64))
}

pub(super) fn bit_count(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    let number = call.receiver.to_bigint().unwrap_or_default();
    let ones: u64 = number
        .iter_u64_digits()
        .map(|it| u64::from(it.count_ones()))
        .sum();
    Ok(Value::Int(ones as i64))
}

pub(super) fn is_integer(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    let number = to_float(&call.receiver)?;
    Ok(Value::Bool(number.is_finite() && number.fract() == 0.0))
}

/// The error for a value that must be an integer.
pub(super) fn not_an_integer_error(value: &Value) -> UnlocatedError {
    type_error(format!(
        "'{}' object cannot be interpreted as an integer",
        value.type_name()
    ))
}

fn round_integer(evaluator: &mut Evaluator<'_>, number: BigInt, digits: i64) -> Result<Value> {
    if digits >= 0 || number.is_zero() {
        return integer::into_value(&mut evaluator.meter, number);
    }
    // Rounding beyond its digits gives zero.
    let places = digits.unsigned_abs();
    if places > number.bits() / 3 + 2 {
        return Ok(Value::Int(0));
    }
    evaluator.meter.charge_integer(places * 4)?;
    let unit = BigInt::from(10).pow(places as u32);
    integer::into_value(
        &mut evaluator.meter,
        floats::round_to_multiple(&number, &unit, false),
    )
}

fn format_radix(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>, spec: &str) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let number = value
        .to_bigint()
        .ok_or_else(|| not_an_integer_error(&value))?;
    let number = Value::from_bigint(number);
    Ok(Value::text(formats::format(
        &mut evaluator.meter,
        &number,
        spec,
    )?))
}

fn relabel_divmod_error(trouble: UnlocatedError, left: &Value, right: &Value) -> UnlocatedError {
    match trouble.kind() {
        super::error::ErrorKind::Type => type_error(format!(
            "unsupported operand type(s) for divmod(): '{}' and '{}'",
            left.type_name(),
            right.type_name()
        )),
        _ => trouble,
    }
}

fn parse_integer(evaluator: &mut Evaluator<'_>, text: &str, base: u32) -> Result<Value> {
    evaluator.meter.charge_scan(text.len())?;
    // Parsing takes quadratic time in the number of digits.
    let most = evaluator.meter.limits.integer_bits as usize;
    let trimmed = text.trim_matches(super::strings::is_blank);
    if trimmed.len() > most + 8 {
        return Err(super::error::limit_error(format!(
            "an integer of more than {most} bits"
        )));
    }
    evaluator
        .meter
        .charge_steps((trimmed.len() * trimmed.len()) as u64 / 1024)?;
    match parse_digits(trimmed, base) {
        Some(number) => integer::into_value(&mut evaluator.meter, number),
        None => {
            let shown = repr::repr(&mut evaluator.meter, &Value::text(text))?;
            Err(value_error(format!(
                "invalid literal for int() with base {base}: {shown}"
            )))
        }
    }
}

fn parse_digits(text: &str, base: u32) -> Option<BigInt> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.get(..2).unwrap_or_default().to_ascii_lowercase();
    let prefixed = match lower.as_str() {
        "0x" => 16,
        "0o" => 8,
        "0b" => 2,
        _ => 0,
    };
    let has_prefix = prefixed != 0 && (base == 0 || base == prefixed);
    let (digits, base) = match (has_prefix, base) {
        (true, _) => (
            digits[2..].strip_prefix('_').unwrap_or(&digits[2..]),
            prefixed,
        ),
        (false, 0) if digits.starts_with('0') && !digits.trim_matches(['0', '_']).is_empty() => {
            return None;
        }
        (false, 0) => (digits, 10),
        (false, base) => (digits, base),
    };
    if digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    let plain: Option<String> = digits
        .chars()
        .filter(|c| *c != '_')
        .map(|c| decimal_digit(c).map_or(c.is_ascii().then_some(c), Some))
        .collect();
    let plain = plain.filter(|it| it.chars().all(|c| c.is_digit(base)))?;
    let number = BigInt::parse_bytes(plain.as_bytes(), base)?;
    Some(if negative { -number } else { number })
}

/// Converts a decimal digit of any common script to an ASCII digit.
fn decimal_digit(c: char) -> Option<char> {
    let zero = match c {
        '０'..='９' => '０',
        '٠'..='٩' => '٠',
        '०'..='९' => '०',
        _ => return None,
    };
    char::from_digit(c as u32 - zero as u32, 10)
}

fn parse_float(text: &str) -> Option<f64> {
    let trimmed = text.trim_matches(super::strings::is_blank);
    let unsigned = trimmed.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let word = matches!(unsigned.as_str(), "inf" | "infinity" | "nan");
    let digits = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let around = |at: usize| {
        let bytes = trimmed.as_bytes();
        let digit = |at: Option<&u8>| at.is_some_and(u8::is_ascii_digit);
        at > 0 && digit(bytes.get(at - 1)) && digit(bytes.get(at + 1))
    };
    let underscores = trimmed.match_indices('_').all(|(at, _)| around(at));
    if (word || digits) && underscores {
        trimmed.replace('_', "").parse().ok()
    } else {
        None
    }
}

/// Returns a number as a float; fails if it is too large.
pub(super) fn expect_float(value: &Value) -> Result<f64> {
    to_float(value).map_err(|it| match it.kind() {
        super::error::ErrorKind::Overflow => overflow_error("int too large to convert to float"),
        _ => it,
    })
}
