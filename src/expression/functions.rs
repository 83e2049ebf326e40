//! Functions of one value: numbers, texts and conversions.

#![expect(
    clippy::needless_pass_by_value,
    reason = "everything in the catalog has one shape"
)]

use num_bigint::BigInt;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};

use super::{
    catalog::Given,
    evaluate::Run,
    fault::{Result, Trouble, overflow, type_error, value_error},
    float as floats, format as formats, integer,
    node::Binary,
    operate::{self, to_float},
    show,
    value::Value,
};

pub(super) fn abs(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value] = given.take()?;
    match &value {
        Value::Float(it) => Ok(Value::Float(it.abs())),
        Value::Delta(it) => Ok(Value::Delta(it.abs())),
        _ => match value.integer() {
            Some(number) => integer::made(&mut run.meter, number.abs()),
            None => Err(type_error(format!(
                "bad operand type for abs(): '{}'",
                value.type_name()
            ))),
        },
    }
}

pub(super) fn bool(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value] = given.bind(0, [""])?;
    Ok(Value::Bool(value.is_some_and(|it| it.truth())))
}

pub(super) fn str(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value] = given.bind(0, ["object"])?;
    match value {
        None => Ok(Value::text("")),
        Some(Value::Text(text)) => Ok(Value::Text(text)),
        Some(value) => Ok(Value::text(show::text(&mut run.meter, &value)?)),
    }
}

pub(super) fn repr(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value] = given.take()?;
    Ok(Value::text(show::repr(&mut run.meter, &value)?))
}

pub(super) fn ascii(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value] = given.take()?;
    Ok(Value::text(show::ascii(&mut run.meter, &value)?))
}

pub(super) fn format(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value, spec] = given.bind(1, ["", ""])?;
    let value = value.unwrap_or(Value::None);
    let done = match spec {
        None => formats::format(&mut run.meter, &value, "")?,
        Some(Value::Text(spec)) => formats::format(&mut run.meter, &value, &spec.body)?,
        Some(other) => {
            let name = other.type_name();
            return Err(type_error(format!(
                "format() argument 2 must be str, not {name}"
            )));
        }
    };
    Ok(Value::text(done))
}

pub(super) fn int(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value, base] = given.bind(0, ["", "base"])?;
    let Some(value) = value else {
        return Ok(Value::Int(0));
    };
    if let Some(base) = base {
        return match (&value, base.small()) {
            (Value::Text(text), Some(base @ (0 | 2..=36))) => {
                run.meter.scan(text.body.len() * 8)?;
                parse_integer(run, &text.body, base as u32)
            }
            (Value::Text(_), Some(_)) => {
                Err(value_error("int() base must be >= 2 and <= 36, or 0"))
            }
            (Value::Text(_), None) => Err(not_an_integer(&base)),
            _ => Err(type_error(
                "int() can't convert non-string with explicit base",
            )),
        };
    }
    match &value {
        Value::Float(it) => integer::made(&mut run.meter, floats::whole(it.trunc())?),
        Value::Text(text) => parse_integer(run, &text.body, 10),
        _ => match value.integer() {
            Some(number) => integer::made(&mut run.meter, number),
            None => Err(type_error(format!(
                "int() argument must be a string, a bytes-like object or a real number, not '{}'",
                value.type_name()
            ))),
        },
    }
}

pub(super) fn float(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value] = given.bind(0, [""])?;
    match value {
        None => Ok(Value::Float(0.0)),
        Some(Value::Text(text)) => {
            run.meter.scan(text.body.len() * 8)?;
            match parse_float(&text.body) {
                Some(number) => Ok(Value::Float(number)),
                None => {
                    let shown = show::repr(&mut run.meter, &Value::Text(text))?;
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

pub(super) fn chr(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value] = given.take()?;
    let number = value.integer().ok_or_else(|| not_an_integer(&value))?;
    match number.to_u32().and_then(char::from_u32) {
        Some(c) => Ok(Value::text(c.to_string())),
        None if number.to_i32().is_none() => {
            Err(overflow("Python int too large to convert to C int"))
        }
        None => Err(value_error("chr() arg not in range(0x110000)")),
    }
}

pub(super) fn ord(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value] = given.take()?;
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

pub(super) fn hex(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    radix(run, given, "#x")
}

pub(super) fn oct(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    radix(run, given, "#o")
}

pub(super) fn bin(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    radix(run, given, "#b")
}

pub(super) fn divmod(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [left, right] = given.take()?;
    let meter = &mut run.meter;
    if let (true, true) = (left.is_number(), right.is_number())
        && (matches!(left, Value::Float(_)) || matches!(right, Value::Float(_)))
    {
        let (a, b) = (to_float(&left)?, to_float(&right)?);
        if b == 0.0 {
            return Err(super::fault::zero_division("float divmod()"));
        }
        let (quotient, rest) = floats::divide_floor(a, b);
        return super::iterate::pair(meter, Value::Float(quotient), Value::Float(rest));
    }
    let quotient = operate::binary(meter, Binary::Floor, &left, &right)
        .map_err(|it| relabel(it, &left, &right))?;
    let rest = operate::binary(meter, Binary::Modulo, &left, &right)?;
    super::iterate::pair(meter, quotient, rest)
}

pub(super) fn pow(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [base, exponent, modulus] = given.bind(2, ["base", "exp", "mod"])?;
    let base = base.unwrap_or(Value::None);
    let exponent = exponent.unwrap_or(Value::None);
    let Some(modulus) = modulus.filter(|it| !matches!(it, Value::None)) else {
        return operate::binary(&mut run.meter, Binary::Power, &base, &exponent);
    };
    match (base.integer(), exponent.integer(), modulus.integer()) {
        (Some(base), Some(exponent), Some(modulus)) => {
            integer::power_modulo(&mut run.meter, [base, exponent, modulus])
        }
        _ => Err(type_error(
            "pow() 3rd argument not allowed unless all arguments are integers",
        )),
    }
}

pub(super) fn round(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [value, digits] = given.bind(1, ["number", "ndigits"])?;
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
            Value::Float(it) => integer::made(&mut run.meter, floats::round_whole(*it)?),
            _ => integer::made(&mut run.meter, value.integer().unwrap_or_default()),
        };
    };
    let digits = digits.integer().ok_or_else(|| not_an_integer(&digits))?;
    let digits = digits.to_i64().unwrap_or(match digits.is_negative() {
        true => i64::MIN,
        false => i64::MAX,
    });
    run.meter.step(20)?;
    if let Value::Float(number) = value {
        return floats::round_digits(number, digits).map(Value::Float);
    }
    round_integer(run, value.integer().unwrap_or_default(), digits)
}

pub(super) fn bit_length(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    let number = given.receiver.integer().unwrap_or_default();
    Ok(Value::Int(number.bits() as i64))
}

pub(super) fn bit_count(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    let number = given.receiver.integer().unwrap_or_default();
    let ones: u64 = number
        .iter_u64_digits()
        .map(|it| u64::from(it.count_ones()))
        .sum();
    Ok(Value::Int(ones as i64))
}

pub(super) fn is_integer(_: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(0)?;
    let number = to_float(&given.receiver)?;
    Ok(Value::Bool(number.is_finite() && number.fract() == 0.0))
}

/// What is no integer where one is asked for.
pub(super) fn not_an_integer(value: &Value) -> Trouble {
    type_error(format!(
        "'{}' object cannot be interpreted as an integer",
        value.type_name()
    ))
}

fn round_integer(run: &mut Run<'_>, number: BigInt, digits: i64) -> Result<Value> {
    if digits >= 0 || number.is_zero() {
        return integer::made(&mut run.meter, number);
    }
    // Beyond its digits there is nothing left of it.
    let places = digits.unsigned_abs();
    if places > number.bits() / 3 + 2 {
        return Ok(Value::Int(0));
    }
    run.meter.bits(places * 4)?;
    let unit = BigInt::from(10).pow(places as u32);
    integer::made(&mut run.meter, floats::round_to(&number, &unit, false))
}

fn radix(run: &mut Run<'_>, given: Given<'_>, spec: &str) -> Result<Value> {
    let [value] = given.take()?;
    let number = value.integer().ok_or_else(|| not_an_integer(&value))?;
    let number = Value::big(number);
    Ok(Value::text(formats::format(&mut run.meter, &number, spec)?))
}

fn relabel(trouble: Trouble, left: &Value, right: &Value) -> Trouble {
    match trouble.kind() {
        super::fault::Kind::Type => type_error(format!(
            "unsupported operand type(s) for divmod(): '{}' and '{}'",
            left.type_name(),
            right.type_name()
        )),
        _ => trouble,
    }
}

fn parse_integer(run: &mut Run<'_>, text: &str, base: u32) -> Result<Value> {
    run.meter.scan(text.len())?;
    // Reading takes time by the square of the digits.
    let most = run.meter.limits.integer_bits as usize;
    let trimmed = text.trim_matches(super::strings::is_blank);
    if trimmed.len() > most + 8 {
        return Err(super::fault::limit(format!(
            "an integer of more than {most} bits"
        )));
    }
    run.meter
        .step((trimmed.len() * trimmed.len()) as u64 / 1024)?;
    match digits_of(trimmed, base) {
        Some(number) => integer::made(&mut run.meter, number),
        None => {
            let shown = show::repr(&mut run.meter, &Value::text(text))?;
            Err(value_error(format!(
                "invalid literal for int() with base {base}: {shown}"
            )))
        }
    }
}

fn digits_of(text: &str, base: u32) -> Option<BigInt> {
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

/// The ASCII digit of a decimal digit of any script that is in common use.
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
    match (word || digits) && underscores {
        true => trimmed.replace('_', "").parse().ok(),
        false => None,
    }
}

/// Charges and refuses what does not fit a float.
pub(super) fn real(value: &Value) -> Result<f64> {
    to_float(value).map_err(|it| match it.kind() {
        super::fault::Kind::Overflow => overflow("int too large to convert to float"),
        _ => it,
    })
}
