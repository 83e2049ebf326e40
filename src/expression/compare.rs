//! Comparisons, charged for what they look at.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_traits::FromPrimitive as _;

use super::{
    fault::{Result, type_error},
    limits::Meter,
    node::Comparison,
    sets,
    value::{Key, Value, same_number},
};

/// `left == right`
pub(super) fn equal(meter: &mut Meter<'_>, left: &Value, right: &Value) -> Result<bool> {
    meter.step(1)?;
    if left.is_number() && right.is_number() {
        return Ok(same_number(left, right));
    }
    match (left, right) {
        (Value::Text(a), Value::Text(b)) => {
            meter.scan(a.body.len().min(b.body.len()))?;
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
                match b.map.get(key) {
                    Some(other) if value.same(other) || equal(meter, value, other)? => (),
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        _ if sets::is_operand(left) && sets::is_operand(right) => {
            let order = sets::order(meter, left, right)?;
            Ok(order == Some(Ordering::Equal))
        }
        (Value::Range(a), Value::Range(b)) => {
            let same_ends = a.len <= 1 || a.step == b.step;
            Ok(a.len == b.len && (a.len == 0 || (a.start == b.start && same_ends)))
        }
        (Value::None, Value::None) => Ok(true),
        (Value::Date(a), Value::Date(b))
        | (Value::DateTime(a), Value::DateTime(b))
        | (Value::Delta(a), Value::Delta(b)) => Ok(a == b),
        _ => Ok(left.same(right)),
    }
}

/// `left < right` and its like.
pub(super) fn ordered(
    meter: &mut Meter<'_>,
    comparison: Comparison,
    left: &Value,
    right: &Value,
) -> Result<bool> {
    meter.step(1)?;
    if left.is_number() && right.is_number() {
        let order = number_order(left, right);
        return Ok(order.is_some_and(|it| holds(comparison, it)));
    }
    match (left, right) {
        (Value::Text(a), Value::Text(b)) => {
            meter.scan(a.body.len().min(b.body.len()))?;
            Ok(holds(comparison, a.body.cmp(&b.body)))
        }
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
            match first_difference(meter, &a.items, &b.items)? {
                Some(at) => ordered(meter, comparison, &a.items[at], &b.items[at]),
                None => Ok(holds(comparison, a.items.len().cmp(&b.items.len()))),
            }
        }
        (Value::Date(a), Value::Date(b))
        | (Value::DateTime(a), Value::DateTime(b))
        | (Value::Delta(a), Value::Delta(b)) => Ok(holds(comparison, a.cmp(b))),
        _ if sets::is_operand(left) && sets::is_operand(right) => {
            let order = sets::order(meter, left, right)?;
            Ok(order.is_some_and(|it| holds(comparison, it)))
        }
        _ => Err(type_error(format!(
            "'{}' not supported between instances of '{}' and '{}'",
            symbol(comparison),
            left.type_name(),
            right.type_name()
        ))),
    }
}

pub(super) fn charge_key(meter: &mut Meter<'_>, key: &Key) -> Result<()> {
    match &key.0 {
        Value::Text(text) => meter.scan(text.body.len()),
        Value::Tuple(tuple) => {
            meter.step(1)?;
            tuple
                .items
                .iter()
                .try_for_each(|it| charge_key(meter, &Key(it.clone())))
        }
        _ => meter.step(1),
    }
}

/// Where both stop being equal; `None` if the shorter one begins the other.
fn first_difference(
    meter: &mut Meter<'_>,
    left: &[Value],
    right: &[Value],
) -> Result<Option<usize>> {
    for (at, (a, b)) in left.iter().zip(right).enumerate() {
        meter.step(1)?;
        if !a.same(b) && !equal(meter, a, b)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// The order of two numbers; none if one is NaN.
fn number_order(left: &Value, right: &Value) -> Option<Ordering> {
    if let (Some(a), Some(b)) = (left.small(), right.small()) {
        return Some(a.cmp(&b));
    }
    match (left, right) {
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Float(a), b) => float_order(*a, &b.integer()?),
        (a, Value::Float(b)) => float_order(*b, &a.integer()?).map(Ordering::reverse),
        (a, b) => Some(a.integer()?.cmp(&b.integer()?)),
    }
}

/// The exact order of a float and an integer.
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

fn holds(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Less => order.is_lt(),
        Comparison::LessEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterEqual => order.is_ge(),
        _ => order.is_eq(),
    }
}

fn symbol(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Less => "<",
        Comparison::LessEqual => "<=",
        Comparison::Greater => ">",
        _ => ">=",
    }
}
