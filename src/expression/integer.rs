//! Arithmetic of integers of any size, charged before it is done.

use num_bigint::{BigInt, Sign};
use num_integer::Integer as _;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};

use super::{
    fault::{Result, overflow, value_error, zero_division},
    limits::Meter,
    node::Binary,
    value::Value,
};

/// `left operator right`, both of which are integers.
pub(super) fn binary(
    meter: &mut Meter<'_>,
    operator: Binary,
    left: &Value,
    right: &Value,
) -> Result<Value> {
    if let (Some(left), Some(right)) = (left.small(), right.small())
        && let Some(done) = small(operator, left, right)
    {
        return Ok(Value::Int(done));
    }
    let (Some(left), Some(right)) = (left.integer(), right.integer()) else {
        return Err(value_error("not an integer"));
    };
    charge(meter, operator, &left, &right)?;
    let done = big(meter, operator, &left, &right)?;
    made(meter, done)
}

/// `base ** exponent`; a negative exponent gives a float.
pub(super) fn power(meter: &mut Meter<'_>, base: &Value, exponent: &Value) -> Result<Value> {
    let (Some(base), Some(exponent)) = (base.integer(), exponent.integer()) else {
        return Err(value_error("not an integer"));
    };
    if exponent.is_negative() {
        let (base, exponent) = (to_float(&base)?, to_float(&exponent)?);
        return super::float::power(base, exponent).map(Value::Float);
    }
    // 0, 1 and -1 stay small whatever the exponent.
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
    meter.bits((base.bits() - 1).saturating_mul(exponent))?;
    meter.step(limbs(&base).saturating_mul(exponent) / 4)?;
    made(meter, base.pow(exponent as u32))
}

/// `pow(base, exponent, modulus)`
pub(super) fn power_modulo(meter: &mut Meter<'_>, numbers: [BigInt; 3]) -> Result<Value> {
    let [base, exponent, modulus] = numbers;
    if modulus.is_zero() {
        return Err(value_error("pow() 3rd argument cannot be 0"));
    }
    let size = limbs(&modulus);
    let rounds = exponent.bits() + 1;
    meter.step(rounds.saturating_mul(size * size + 8) / 2)?;
    if !exponent.is_negative() {
        return made(meter, base.modpow(&exponent, &modulus));
    }
    match base.modinv(&modulus) {
        Some(inverse) => made(meter, inverse.modpow(&-exponent, &modulus)),
        None => Err(value_error("base is not invertible for the given modulus")),
    }
}

/// Charges for `number`, and makes it a value.
pub(super) fn made(meter: &mut Meter<'_>, number: BigInt) -> Result<Value> {
    if let Some(small) = number.to_i64() {
        return Ok(Value::Int(small));
    }
    meter.bits(number.bits())?;
    Ok(Value::big(number))
}

pub(super) fn to_float(number: &BigInt) -> Result<f64> {
    match number.to_f64() {
        Some(float) if float.is_finite() => Ok(float),
        _ => Err(overflow("int too large to convert to float")),
    }
}

/// The nearest float to `left / right`.
pub(super) fn divide(left: &BigInt, right: &BigInt) -> Result<f64> {
    if right.is_zero() {
        return Err(zero_division("division by zero"));
    }
    // A quotient of 66 bits or more, with a last bit that says "and more",
    // is rounded as the exact one would be.
    let shift = 66 + right.bits() as i64 - left.bits() as i64;
    let scaled = match shift > 0 {
        true => left.abs() << shift,
        false => left.abs(),
    };
    let divisor = match shift > 0 {
        true => right.abs(),
        false => right.abs() << -shift,
    };
    let (quotient, rest) = scaled.div_rem(&divisor);
    let sticky = (quotient << 1_u32) + u8::from(!rest.is_zero());
    let magnitude = scale(&sticky, -(shift + 1));
    match magnitude.is_finite() {
        true if left.is_negative() != right.is_negative() => Ok(-magnitude),
        true => Ok(magnitude),
        false => Err(overflow("integer division result too large for a float")),
    }
}

/// The nearest float to `number * 2 ** exponent`.
fn scale(number: &BigInt, exponent: i64) -> f64 {
    let lowest = exponent + number.bits() as i64;
    // Where floats lose bits, the number loses them first, so it is rounded once.
    if lowest >= -1021 {
        let float = number.to_f64().unwrap_or(f64::INFINITY);
        return super::float::scale(float, exponent);
    }
    let drop = (-1074 - exponent).max(0);
    let half_up = super::float::round_shift(number, drop);
    super::float::scale(half_up.to_f64().unwrap_or_default(), exponent + drop)
}

fn small(operator: Binary, left: i64, right: i64) -> Option<i64> {
    match operator {
        Binary::Add => left.checked_add(right),
        Binary::Subtract => left.checked_sub(right),
        Binary::Multiply => left.checked_mul(right),
        Binary::And => Some(left & right),
        Binary::Or => Some(left | right),
        Binary::Xor => Some(left ^ right),
        Binary::Floor if right > 0 => Some(left.div_euclid(right)),
        Binary::Modulo if right > 0 => Some(left.rem_euclid(right)),
        Binary::Right if (0..64).contains(&right) => Some(left >> right),
        _ => None,
    }
}

fn charge(meter: &mut Meter<'_>, operator: Binary, left: &BigInt, right: &BigInt) -> Result<()> {
    let (wide, high) = (limbs(left), limbs(right));
    match operator {
        Binary::Multiply => {
            meter.bits((left.bits() + right.bits()).saturating_sub(1))?;
            meter.step(wide * high / 8)
        }
        Binary::Floor | Binary::Modulo => meter.step(1 + wide * high / 8),
        Binary::Left if right.is_positive() && !left.is_zero() => {
            let by = right.to_u64().unwrap_or(u64::MAX);
            meter.bits(left.bits().saturating_add(by))
        }
        _ => meter.step(1 + (wide + high) / 8),
    }
}

fn big(meter: &mut Meter<'_>, operator: Binary, left: &BigInt, right: &BigInt) -> Result<BigInt> {
    Ok(match operator {
        Binary::Add => left + right,
        Binary::Subtract => left - right,
        Binary::Multiply => left * right,
        Binary::And => left & right,
        Binary::Or => left | right,
        Binary::Xor => left ^ right,
        Binary::Left | Binary::Right => return shift(operator, left, right),
        _ if right.is_zero() => return Err(by_zero(operator)),
        Binary::Modulo => left.mod_floor(right),
        _ => {
            meter.step(1)?;
            left.div_floor(right)
        }
    })
}

fn by_zero(operator: Binary) -> super::fault::Trouble {
    match operator {
        Binary::Modulo => zero_division("integer modulo by zero"),
        _ => zero_division("integer division or modulo by zero"),
    }
}

fn shift(operator: Binary, left: &BigInt, right: &BigInt) -> Result<BigInt> {
    if right.is_negative() {
        return Err(value_error("negative shift count"));
    }
    let by = right.to_u64().unwrap_or(u64::MAX);
    match operator {
        _ if left.is_zero() => Ok(BigInt::ZERO),
        Binary::Left => Ok(left << by),
        _ if by > left.bits() => Ok(BigInt::from(-i64::from(left.is_negative()))),
        _ => Ok(left >> by),
    }
}

fn limbs(number: &BigInt) -> u64 {
    number.bits() / 64 + 1
}
