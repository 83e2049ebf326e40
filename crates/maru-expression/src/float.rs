//! Float arithmetic, rounding and formatting as in Python.

use num_bigint::BigInt;
use num_traits::{FromPrimitive as _, One as _, Zero as _};

use super::{
    ast::BinaryOperator,
    error::{Result, overflow_error, value_error, zero_division_error},
};

pub(super) fn apply_binary(operator: BinaryOperator, left: f64, right: f64) -> Result<Option<f64>> {
    Ok(Some(match operator {
        BinaryOperator::Add => left + right,
        BinaryOperator::Subtract => left - right,
        BinaryOperator::Multiply => left * right,
        BinaryOperator::Divide if right == 0.0 => {
            return Err(zero_division_error("float division by zero"));
        }
        BinaryOperator::Divide => left / right,
        BinaryOperator::FloorDivide if right == 0.0 => {
            return Err(zero_division_error("float floor division by zero"));
        }
        BinaryOperator::FloorDivide => div_mod_floor(left, right).0,
        BinaryOperator::Modulo if right == 0.0 => return Err(zero_division_error("float modulo")),
        BinaryOperator::Modulo => div_mod_floor(left, right).1,
        BinaryOperator::Power => power(left, right)?,
        _ => return Ok(None),
    }))
}

/// Returns quotient and remainder like `divmod`.
pub(super) fn div_mod_floor(left: f64, right: f64) -> (f64, f64) {
    let mut rest = left % right;
    let mut quotient = (left - rest) / right;
    if rest != 0.0 {
        if (right < 0.0) != (rest < 0.0) {
            rest += right;
            quotient -= 1.0;
        }
    } else {
        rest = 0.0_f64.copysign(right);
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(left / right), rest);
    }
    let mut floor = quotient.floor();
    if quotient - floor > 0.5 {
        floor += 1.0;
    }
    (floor, rest)
}

pub(super) fn power(base: f64, exponent: f64) -> Result<f64> {
    if base == 0.0 && exponent < 0.0 {
        return Err(zero_division_error(
            "0.0 cannot be raised to a negative power",
        ));
    }
    if base < 0.0 && base.is_finite() && exponent.is_finite() && exponent.fract() != 0.0 {
        return Err(value_error("complex numbers are not supported"));
    }
    let result = base.powf(exponent);
    if result.is_infinite() && base.is_finite() && exponent.is_finite() {
        Err(overflow_error("(34, 'Numerical result out of range')"))
    } else {
        Ok(result)
    }
}

/// Formats like `repr()`: the shortest digits that parse to the same float.
pub(super) fn repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let written = shortest(number);
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        return without_exponent(mantissa, exponent);
    }
    format!("{mantissa}e{}", signed_exponent(exponent))
}

/// Returns the shortest digits that parse to the same float, in scientific notation.
fn shortest(number: f64) -> String {
    let written = format!("{number:e}");
    let digits = written.split('e').next().unwrap_or_default();
    let digits = digits.bytes().filter(u8::is_ascii_digit).count();
    if digits < 16 {
        return written;
    }
    // Of two equally near candidates, Python takes the even one.
    let even = format!("{number:.*e}", digits - 1);
    if even.parse() == Ok(number) {
        even
    } else {
        written
    }
}

/// Writes a number without an exponent.
fn without_exponent(mantissa: &str, exponent: i32) -> String {
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => ("-", digits.replace('.', "")),
        None => ("", mantissa.replace('.', "")),
    };
    match usize::try_from(exponent) {
        Err(_) => {
            let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
            format!("{sign}0.{zeros}{digits}")
        }
        Ok(exponent) if digits.len() <= exponent + 1 => {
            format!("{sign}{digits:0<0$}.0", exponent + 1)
        }
        Ok(exponent) => {
            let (whole, fraction) = digits.split_at(exponent + 1);
            format!("{sign}{whole}.{fraction}")
        }
    }
}

/// Formats an exponent with sign and at least two digits, such as `+05`.
pub(super) fn signed_exponent(exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{:02}", exponent.unsigned_abs())
}

/// Evaluates `round(number)`: half to even.
pub(super) fn round_to_integer(number: f64) -> Result<BigInt> {
    integral_to_bigint(number.round_ties_even())
}

/// Converts a float without a fraction to an integer.
pub(super) fn integral_to_bigint(number: f64) -> Result<BigInt> {
    if number.is_nan() {
        return Err(value_error("cannot convert float NaN to integer"));
    }
    BigInt::from_f64(number)
        .ok_or_else(|| overflow_error("cannot convert float infinity to integer"))
}

/// Evaluates `round(number, digits)` on the exact value, half to even.
pub(super) fn round_digits(number: f64, digits: i64) -> Result<f64> {
    if !number.is_finite() || number == 0.0 || digits > 323 {
        return Ok(number);
    }
    if digits < -308 {
        return Ok(0.0_f64.copysign(number));
    }
    if digits >= 0 {
        let written = format!("{number:.*}", digits as usize);
        return Ok(written.parse().unwrap_or(number));
    }
    let unit = BigInt::from(10).pow(digits.unsigned_abs() as u32);
    let (whole, fraction) = (number.trunc(), number.fract());
    let exact = BigInt::from_f64(whole).unwrap_or_default();
    let rounded = round_to_multiple(&exact, &unit, fraction != 0.0);
    let float = super::integer::to_float(&rounded)
        .map_err(|_| overflow_error("rounded value too large to represent"))?;
    Ok(float.abs().copysign(number))
}

/// Rounds to the nearest multiple of `unit`, half to even; `is_inexact` says that the
/// true value is slightly further from zero.
pub(super) fn round_to_multiple(number: &BigInt, unit: &BigInt, is_inexact: bool) -> BigInt {
    let negative = number.sign() == num_bigint::Sign::Minus;
    let magnitude = number.magnitude();
    let unit = unit.magnitude();
    let quotient = magnitude / unit;
    let double = (magnitude % unit) * 2_u32;
    let even = !quotient.bit(0);
    let up = match double.cmp(unit) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => is_inexact || !even,
        std::cmp::Ordering::Greater => true,
    };
    let rounded = BigInt::from((quotient + u8::from(up)) * unit);
    if negative { -rounded } else { rounded }
}

/// Evaluates `number >> by`, rounded half to even.
pub(super) fn round_shift(number: &BigInt, by: i64) -> BigInt {
    if number.is_zero() || by <= 0 {
        return number.clone();
    }
    round_to_multiple(number, &(BigInt::one() << by), false) >> by
}

/// Evaluates `number * 2 ** exponent`, rounded at most once.
pub(super) fn scale(number: f64, exponent: i64) -> f64 {
    let mut number = number;
    let mut left = exponent.clamp(-4000, 4000);
    while left > 0 {
        let by = left.min(1000);
        number *= 2.0_f64.powi(by as i32);
        left -= by;
    }
    // Stop one step above the subnormal range, so that it is rounded only once.
    while left < 0 {
        let by = left.max(-1000);
        let by = if left < -1000 && left > -2000 {
            left + 1000
        } else {
            by
        };
        number *= 2.0_f64.powi(by as i32);
        left -= by;
    }
    number
}
