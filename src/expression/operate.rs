//! What operators do to two values.

use std::rc::Rc;

use super::{
    dates,
    fault::{Result, Trouble, type_error},
    float, integer,
    limits::Meter,
    node::{Binary, Unary},
    percent, sets,
    value::{Map, Sequence, Text, Value},
};

pub(super) fn binary(
    meter: &mut Meter<'_>,
    operator: Binary,
    left: &Value,
    right: &Value,
) -> Result<Value> {
    if left.is_number() && right.is_number() {
        return numbers(meter, operator, left, right);
    }
    match (operator, left, right) {
        (Binary::Modulo, Value::Text(form), _) => percent::format(meter, form, right),
        (Binary::Add, Value::Text(a), Value::Text(b)) => concat(meter, a, b),
        (Binary::Add, Value::List(a), Value::List(b)) => {
            let items = joined(meter, a, b)?;
            Value::list(meter, items)
        }
        (Binary::Add, Value::Tuple(a), Value::Tuple(b)) => {
            let items = joined(meter, a, b)?;
            Value::tuple(meter, items)
        }
        (Binary::Multiply, ..) if is_sequence(left) => repeat(meter, left, right),
        (Binary::Multiply, ..) if is_sequence(right) => repeat(meter, right, left),
        (Binary::Or, Value::Dict(a), Value::Dict(b)) => merge(meter, &a.map, &b.map),
        _ if sets::is_operand(left) && sets::is_operand(right) => {
            sets::binary(meter, operator, left, right)?
                .ok_or_else(|| unsupported(operator, left, right))
        }
        _ => {
            dates::binary(operator, left, right)?.ok_or_else(|| unsupported(operator, left, right))
        }
    }
}

pub(super) fn unary(meter: &mut Meter<'_>, operator: Unary, value: &Value) -> Result<Value> {
    match (operator, value) {
        (Unary::Not, _) => Ok(Value::Bool(!value.truth())),
        (Unary::Minus, Value::Float(it)) => Ok(Value::Float(-it)),
        (Unary::Plus, Value::Float(it)) => Ok(Value::Float(*it)),
        (Unary::Minus, Value::Delta(it)) => Ok(Value::Delta(-it)),
        (Unary::Plus, Value::Delta(it)) => Ok(Value::Delta(*it)),
        (Unary::Minus, _) if value.is_number() => {
            integer::binary(meter, Binary::Subtract, &Value::Int(0), value)
        }
        (Unary::Plus, _) if value.is_number() => {
            integer::binary(meter, Binary::Add, &Value::Int(0), value)
        }
        (Unary::Invert, Value::Int(_) | Value::Bool(_) | Value::Big(_)) => {
            integer::binary(meter, Binary::Subtract, &Value::Int(-1), value)
        }
        _ => Err(type_error(format!(
            "bad operand type for unary {}: '{}'",
            match operator {
                Unary::Minus => "-",
                Unary::Plus => "+",
                _ => "~",
            },
            value.type_name()
        ))),
    }
}

/// The float that a number is.
pub(super) fn to_float(value: &Value) -> Result<f64> {
    match value {
        Value::Float(it) => Ok(*it),
        Value::Bool(it) => Ok(f64::from(*it)),
        Value::Int(it) => Ok(*it as f64),
        Value::Big(it) => integer::to_float(it),
        _ => Err(type_error(format!(
            "must be real number, not {}",
            value.type_name()
        ))),
    }
}

pub(super) fn symbol(operator: Binary) -> &'static str {
    match operator {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "*",
        Binary::Divide => "/",
        Binary::Floor => "//",
        Binary::Modulo => "%",
        Binary::Power => "** or pow()",
        Binary::Left => "<<",
        Binary::Right => ">>",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
    }
}

fn numbers(meter: &mut Meter<'_>, operator: Binary, left: &Value, right: &Value) -> Result<Value> {
    if matches!(left, Value::Float(_)) || matches!(right, Value::Float(_)) {
        let (a, b) = (to_float(left)?, to_float(right)?);
        return match float::binary(operator, a, b)? {
            Some(done) => Ok(Value::Float(done)),
            None => Err(unsupported(operator, left, right)),
        };
    }
    match operator {
        Binary::Divide => divide(left, right).map(Value::Float),
        Binary::Power => integer::power(meter, left, right),
        Binary::And | Binary::Or | Binary::Xor => {
            let done = integer::binary(meter, operator, left, right)?;
            match (left, right, &done) {
                (Value::Bool(_), Value::Bool(_), Value::Int(it)) => Ok(Value::Bool(*it != 0)),
                _ => Ok(done),
            }
        }
        _ => integer::binary(meter, operator, left, right),
    }
}

fn divide(left: &Value, right: &Value) -> Result<f64> {
    /// Up to here a float is exact.
    const EXACT: i64 = 1 << 53;
    if let (Some(a), Some(b)) = (left.small(), right.small())
        && b != 0
        && a.abs_diff(0) <= EXACT as u64
        && b.abs_diff(0) <= EXACT as u64
    {
        return Ok(a as f64 / b as f64);
    }
    let (a, b) = (left.integer(), right.integer());
    integer::divide(&a.unwrap_or_default(), &b.unwrap_or_default())
}

fn concat(meter: &mut Meter<'_>, left: &Text, right: &Text) -> Result<Value> {
    meter.text(left.chars + right.chars, left.body.len() + right.body.len())?;
    Ok(Value::text([&*left.body, &*right.body].concat()))
}

fn joined(meter: &mut Meter<'_>, left: &Sequence, right: &Sequence) -> Result<Vec<Value>> {
    meter.items(left.items.len() + right.items.len())?;
    Ok([left.items.as_slice(), right.items.as_slice()].concat())
}

fn is_sequence(value: &Value) -> bool {
    matches!(value, Value::Text(_) | Value::List(_) | Value::Tuple(_))
}

fn repeat(meter: &mut Meter<'_>, sequence: &Value, count: &Value) -> Result<Value> {
    let Some(count) = count.integer() else {
        return Err(type_error(format!(
            "can't multiply sequence by non-int of type '{}'",
            count.type_name()
        )));
    };
    let count = match count.sign() {
        num_bigint::Sign::Minus => 0,
        _ => usize::try_from(count).unwrap_or(usize::MAX),
    };
    match sequence {
        Value::Text(text) => {
            let bytes = text.body.len().saturating_mul(count);
            meter.text(text.chars.saturating_mul(count), bytes)?;
            Ok(Value::text(text.body.repeat(if bytes == 0 {
                0
            } else {
                count
            })))
        }
        Value::List(items) => {
            let items = repeated(meter, &items.items, count)?;
            Value::list(meter, items)
        }
        Value::Tuple(items) => {
            let items = repeated(meter, &items.items, count)?;
            Value::tuple(meter, items)
        }
        _ => Err(unsupported(Binary::Multiply, sequence, sequence)),
    }
}

fn repeated(meter: &mut Meter<'_>, items: &[Value], count: usize) -> Result<Vec<Value>> {
    let length = items.len().saturating_mul(count);
    meter.items(length)?;
    Ok(items.iter().cycle().take(length).cloned().collect())
}

fn merge(meter: &mut Meter<'_>, left: &Map, right: &Map) -> Result<Value> {
    meter.table(left.len() + right.len())?;
    let mut map = left.clone();
    map.extend(
        right
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Value::dict(meter, map)
}

fn unsupported(operator: Binary, left: &Value, right: &Value) -> Trouble {
    let (a, b) = (left.type_name(), right.type_name());
    type_error(match (operator, left) {
        (Binary::Add, Value::Text(_) | Value::List(_) | Value::Tuple(_)) => {
            format!("can only concatenate {a} (not \"{b}\") to {a}")
        }
        _ => {
            let symbol = symbol(operator);
            format!("unsupported operand type(s) for {symbol}: '{a}' and '{b}'")
        }
    })
}

/// A list or tuple, shared.
pub(super) fn sequence(value: &Value) -> Option<&Rc<Sequence>> {
    match value {
        Value::List(it) | Value::Tuple(it) => Some(it),
        _ => None,
    }
}
