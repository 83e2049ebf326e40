//! Comparison of values, charged by the size of what is compared.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_traits::FromPrimitive as _;

use super::{
    ast::ComparisonOperator,
    error::{Result, type_error},
    limits::ResourceMeter,
    sets,
    value::{HashKey, Value, numbers_equal},
};

/// Evaluates `left == right`.
pub(super) fn values_equal(
    meter: &mut ResourceMeter<'_>,
    left: &Value,
    right: &Value,
) -> Result<bool> {
    meter.charge_steps(1)?;
    if left.is_number() && right.is_number() {
        return Ok(numbers_equal(left, right));
    }
    match (left, right) {
        (Value::Text(a), Value::Text(b)) => {
            meter.charge_scan(a.body.len().min(b.body.len()))?;
            Ok(a.body == b.body)
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            if a.items.len() != b.items.len() {
                return Ok(false);
            }
            Ok(first_difference(meter, &a.items, &b.items)?.is_none())
        }
        (Value::Dict(a), Value::Dict(b)) => {
            if a.map.len() != b.map.len() {
                return Ok(false);
            }
            for (key, value) in &a.map {
                charge_key(meter, key)?;
                let Some(other) = b.map.get(key) else {
                    return Ok(false);
                };
                if !value.is_identical(other) && !values_equal(meter, value, other)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ if sets::is_operand(left) && sets::is_operand(right) => {
            let order = sets::subset_order(meter, left, right)?;
            Ok(order == Some(Ordering::Equal))
        }
        (Value::Range(a), Value::Range(b)) => {
            let same_ends = a.len <= 1 || a.step == b.step;
            Ok(a.len == b.len && (a.len == 0 || (a.start == b.start && same_ends)))
        }
        (Value::None, Value::None) => Ok(true),
        (Value::Date(a), Value::Date(b))
        | (Value::DateTime(a), Value::DateTime(b))
        | (Value::TimeDelta(a), Value::TimeDelta(b)) => Ok(a == b),
        _ => Ok(left.is_identical(right)),
    }
}

/// Evaluates `<`, `<=`, `>` and `>=`.
pub(super) fn satisfies_order(
    meter: &mut ResourceMeter<'_>,
    comparison: ComparisonOperator,
    left: &Value,
    right: &Value,
) -> Result<bool> {
    meter.charge_steps(1)?;
    if left.is_number() && right.is_number() {
        let order = number_order(left, right);
        return Ok(order.is_some_and(|it| matches_ordering(comparison, it)));
    }
    match (left, right) {
        (Value::Text(a), Value::Text(b)) => {
            meter.charge_scan(a.body.len().min(b.body.len()))?;
            Ok(matches_ordering(comparison, a.body.cmp(&b.body)))
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            match first_difference(meter, &a.items, &b.items)? {
                Some(at) => satisfies_order(meter, comparison, &a.items[at], &b.items[at]),
                None => Ok(matches_ordering(
                    comparison,
                    a.items.len().cmp(&b.items.len()),
                )),
            }
        }
        (Value::Date(a), Value::Date(b))
        | (Value::DateTime(a), Value::DateTime(b))
        | (Value::TimeDelta(a), Value::TimeDelta(b)) => Ok(matches_ordering(comparison, a.cmp(b))),
        _ if sets::is_operand(left) && sets::is_operand(right) => {
            let order = sets::subset_order(meter, left, right)?;
            Ok(order.is_some_and(|it| matches_ordering(comparison, it)))
        }
        _ => Err(type_error(format!(
            "'{}' not supported between instances of '{}' and '{}'",
            comparison_symbol(comparison),
            left.type_name(),
            right.type_name()
        ))),
    }
}

pub(super) fn charge_key(meter: &mut ResourceMeter<'_>, key: &HashKey) -> Result<()> {
    match &key.0 {
        Value::Text(text) => meter.charge_scan(text.body.len()),
        Value::Tuple(tuple) => {
            meter.charge_steps(1)?;
            tuple
                .items
                .iter()
                .try_for_each(|it| charge_key(meter, &HashKey(it.clone())))
        }
        _ => meter.charge_steps(1),
    }
}

/// Returns the first position at which both sequences differ; `None` if one is a prefix
/// of the other.
fn first_difference(
    meter: &mut ResourceMeter<'_>,
    left: &[Value],
    right: &[Value],
) -> Result<Option<usize>> {
    for (at, (a, b)) in left.iter().zip(right).enumerate() {
        meter.charge_steps(1)?;
        if !a.is_identical(b) && !values_equal(meter, a, b)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Compares two numbers; `None` if one is NaN.
fn number_order(left: &Value, right: &Value) -> Option<Ordering> {
    if let (Some(a), Some(b)) = (left.to_i64(), right.to_i64()) {
        return Some(a.cmp(&b));
    }
    match (left, right) {
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Float(a), b) => float_order(*a, &b.to_bigint()?),
        (a, Value::Float(b)) => float_order(*b, &a.to_bigint()?).map(Ordering::reverse),
        (a, b) => Some(a.to_bigint()?.cmp(&b.to_bigint()?)),
    }
}

/// Compares a float and an integer exactly.
fn float_order(float: f64, integer: &BigInt) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    let Some(whole) = BigInt::from_f64(float.trunc()) else {
        return float.partial_cmp(&0.0);
    };
    let fraction = float.fract().partial_cmp(&0.0)?;
    Some(whole.cmp(integer).then(fraction))
}

fn matches_ordering(comparison: ComparisonOperator, order: Ordering) -> bool {
    match comparison {
        ComparisonOperator::Less => order.is_lt(),
        ComparisonOperator::LessEqual => order.is_le(),
        ComparisonOperator::Greater => order.is_gt(),
        ComparisonOperator::GreaterEqual => order.is_ge(),
        _ => order.is_eq(),
    }
}

fn comparison_symbol(comparison: ComparisonOperator) -> &'static str {
    match comparison {
        ComparisonOperator::Less => "<",
        ComparisonOperator::LessEqual => "<=",
        ComparisonOperator::Greater => ">",
        _ => ">=",
    }
}
