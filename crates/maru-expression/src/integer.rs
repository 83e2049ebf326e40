//! Arithmetic of integers of any size, charged before it is computed.

use num_bigint::{BigInt, Sign};
use num_integer::Integer as _;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};

use super::{
    ast::BinaryOperator,
    error::{Result, overflow_error, value_error, zero_division_error},
    limits::ResourceMeter,
    value::Value,
};

/// Applies an operator to two integers.
pub(super) fn apply_binary(
    meter: &mut ResourceMeter<'_>,
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
) -> Result<Value> {
    if let (Some(left), Some(right)) = (left.to_i64(), right.to_i64())
        && let Some(result) = apply_small(operator, left, right)
    {
        return Ok(Value::Int(result));
    }
    let (Some(left), Some(right)) = (left.to_bigint(), right.to_bigint()) else {
        return Err(value_error("not an integer"));
    };
    charge_operation(meter, operator, &left, &right)?;
    let result = apply_big(meter, operator, &left, &right)?;
    into_value(meter, result)
}

/// Evaluates `base ** exponent`; a negative exponent gives a float.
pub(super) fn power(
    meter: &mut ResourceMeter<'_>,
    base: &Value,
    exponent: &Value,
) -> Result<Value> {
    let (Some(base), Some(exponent)) = (base.to_bigint(), exponent.to_bigint()) else {
        return Err(value_error("not an integer"));
    };
    if exponent.is_negative() {
        let (base, exponent) = (to_float(&base)?, to_float(&exponent)?);
        return super::float::power(base, exponent).map(Value::Float);
    }
    // Powers of 0, 1 and -1 are small for any exponent.
    if base.bits() <= 1 {
        let odd = exponent.is_odd();
        return Ok(match base.sign() {
            _ if exponent.is_zero() => Value::Int(1),
            Sign::Minus if odd => Value::Int(-1),
            Sign::NoSign => Value::Int(0),
            _ => Value::Int(1),
        });
    }
    let exponent = exponent.to_u64().unwrap_or(u64::MAX);
    meter.charge_integer((base.bits() - 1).saturating_mul(exponent))?;
    meter.charge_steps(limb_count(&base).saturating_mul(exponent) / 4)?;
    into_value(meter, base.pow(exponent as u32))
}

/// Evaluates `pow(base, exponent, modulus)`.
pub(super) fn power_modulo(meter: &mut ResourceMeter<'_>, numbers: [BigInt; 3]) -> Result<Value> {
    let [base, exponent, modulus] = numbers;
    if modulus.is_zero() {
        return Err(value_error("pow() 3rd argument cannot be 0"));
    }
    let size = limb_count(&modulus);
    let rounds = exponent.bits() + 1;
    meter.charge_steps(rounds.saturating_mul(size * size + 8) / 2)?;
    if !exponent.is_negative() {
        return into_value(meter, base.modpow(&exponent, &modulus));
    }
    match base.modinv(&modulus) {
        Some(inverse) => into_value(meter, inverse.modpow(&-exponent, &modulus)),
        None => Err(value_error("base is not invertible for the given modulus")),
    }
}

/// Charges `number` and converts it to a value.
pub(super) fn into_value(meter: &mut ResourceMeter<'_>, number: BigInt) -> Result<Value> {
    if let Some(small) = number.to_i64() {
        return Ok(Value::Int(small));
    }
    meter.charge_integer(number.bits())?;
    Ok(Value::from_bigint(number))
}

pub(super) fn to_float(number: &BigInt) -> Result<f64> {
    match number.to_f64() {
        Some(float) if float.is_finite() => Ok(float),
        _ => Err(overflow_error("int too large to convert to float")),
    }
}

/// Returns the float nearest to `left / right`.
pub(super) fn divide(left: &BigInt, right: &BigInt) -> Result<f64> {
    if right.is_zero() {
        return Err(zero_division_error("division by zero"));
    }
    // A quotient of at least 66 bits whose last bit marks a remainder rounds like the
    // exact quotient.
    let shift = 66 + right.bits() as i64 - left.bits() as i64;
    let scaled = if shift > 0 {
        left.abs() << shift
    } else {
        left.abs()
    };
    let divisor = if shift > 0 {
        right.abs()
    } else {
        right.abs() << -shift
    };
    let (quotient, rest) = scaled.div_rem(&divisor);
    let sticky = (quotient << 1_u32) + u8::from(!rest.is_zero());
    let magnitude = scale(&sticky, -(shift + 1));
    if !magnitude.is_finite() {
        return Err(overflow_error(
            "integer division result too large for a float",
        ));
    }
    let is_negative = left.is_negative() != right.is_negative();
    Ok(if is_negative { -magnitude } else { magnitude })
}

/// Returns the float nearest to `number * 2 ** exponent`.
fn scale(number: &BigInt, exponent: i64) -> f64 {
    let lowest = exponent + number.bits() as i64;
    // Near the subnormal range the integer is rounded first, so that it is rounded only
    // once.
    if lowest >= -1021 {
        let float = number.to_f64().unwrap_or(f64::INFINITY);
        return super::float::scale(float, exponent);
    }
    let drop = (-1074 - exponent).max(0);
    let half_up = super::float::round_shift(number, drop);
    super::float::scale(half_up.to_f64().unwrap_or_default(), exponent + drop)
}

fn apply_small(operator: BinaryOperator, left: i64, right: i64) -> Option<i64> {
    match operator {
        BinaryOperator::Add => left.checked_add(right),
        BinaryOperator::Subtract => left.checked_sub(right),
        BinaryOperator::Multiply => left.checked_mul(right),
        BinaryOperator::BitAnd => Some(left & right),
        BinaryOperator::BitOr => Some(left | right),
        BinaryOperator::BitXor => Some(left ^ right),
        BinaryOperator::FloorDivide if right > 0 => Some(left.div_euclid(right)),
        BinaryOperator::Modulo if right > 0 => Some(left.rem_euclid(right)),
        BinaryOperator::ShiftRight if (0..64).contains(&right) => Some(left >> right),
        _ => None,
    }
}

fn charge_operation(
    meter: &mut ResourceMeter<'_>,
    operator: BinaryOperator,
    left: &BigInt,
    right: &BigInt,
) -> Result<()> {
    let (wide, high) = (limb_count(left), limb_count(right));
    match operator {
        BinaryOperator::Multiply => {
            meter.charge_integer((left.bits() + right.bits()).saturating_sub(1))?;
            meter.charge_steps(wide * high / 8)
        }
        BinaryOperator::FloorDivide | BinaryOperator::Modulo => {
            meter.charge_steps(1 + wide * high / 8)
        }
        BinaryOperator::ShiftLeft if right.is_positive() && !left.is_zero() => {
            let by = right.to_u64().unwrap_or(u64::MAX);
            meter.charge_integer(left.bits().saturating_add(by))
        }
        _ => meter.charge_steps(1 + (wide + high) / 8),
    }
}

fn apply_big(
    meter: &mut ResourceMeter<'_>,
    operator: BinaryOperator,
    left: &BigInt,
    right: &BigInt,
) -> Result<BigInt> {
    Ok(match operator {
        BinaryOperator::Add => left + right,
        BinaryOperator::Subtract => left - right,
        BinaryOperator::Multiply => left * right,
        BinaryOperator::BitAnd => left & right,
        BinaryOperator::BitOr => left | right,
        BinaryOperator::BitXor => left ^ right,
        BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight => {
            return shift(operator, left, right);
        }
        _ if right.is_zero() => return Err(zero_divisor_error(operator)),
        BinaryOperator::Modulo => left.mod_floor(right),
        _ => {
            meter.charge_steps(1)?;
            left.div_floor(right)
        }
    })
}

fn zero_divisor_error(operator: BinaryOperator) -> super::error::UnlocatedError {
    match operator {
        BinaryOperator::Modulo => zero_division_error("integer modulo by zero"),
        _ => zero_division_error("integer division or modulo by zero"),
    }
}

fn shift(operator: BinaryOperator, left: &BigInt, right: &BigInt) -> Result<BigInt> {
    if right.is_negative() {
        return Err(value_error("negative shift count"));
    }
    let by = right.to_u64().unwrap_or(u64::MAX);
    match operator {
        _ if left.is_zero() => Ok(BigInt::ZERO),
        BinaryOperator::ShiftLeft => Ok(left << by),
        _ if by > left.bits() => Ok(BigInt::from(-i64::from(left.is_negative()))),
        _ => Ok(left >> by),
    }
}

fn limb_count(number: &BigInt) -> u64 {
    number.bits() / 64 + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{evaluate, to_map};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn quotient_and_rest_make_the_number_again(a in any::<i64>(), b in any::<i64>()) {
            prop_assume!(b != 0);
            let arguments = to_map(&json!({"a": a, "b": b}));
            let law = "(a // b) * b + a % b == a and (a ** 2 - b ** 2) == (a - b) * (a + b) and abs(a % b) < abs(b)";
            let done = evaluate(law, &arguments).unwrap();
            prop_assert_eq!(done.json.get(), "true");
        }
    }
}
