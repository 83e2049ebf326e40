//! Unary and binary operators on values.

use std::rc::Rc;

use super::{
    ast::{BinaryOperator, UnaryOperator},
    dates,
    error::{Result, UnlocatedError, type_error},
    float, format_percent, integer,
    limits::ResourceMeter,
    sets,
    value::{DictMap, SequenceValue, TextValue, Value},
};

pub(super) fn apply_binary(
    meter: &mut ResourceMeter<'_>,
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
) -> Result<Value> {
    if left.is_number() && right.is_number() {
        return apply_to_numbers(meter, operator, left, right);
    }
    match (operator, left, right) {
        (BinaryOperator::Modulo, Value::Text(form), _) => {
            format_percent::format(meter, form, right)
        }
        (BinaryOperator::Add, Value::Text(a), Value::Text(b)) => concat(meter, a, b),
        (BinaryOperator::Add, Value::List(a), Value::List(b)) => {
            let items = concat_items(meter, a, b)?;
            Value::list(meter, items)
        }
        (BinaryOperator::Add, Value::Tuple(a), Value::Tuple(b)) => {
            let items = concat_items(meter, a, b)?;
            Value::tuple(meter, items)
        }
        (BinaryOperator::Multiply, ..) if is_sequence(left) => repeat(meter, left, right),
        (BinaryOperator::Multiply, ..) if is_sequence(right) => repeat(meter, right, left),
        (BinaryOperator::BitOr, Value::Dict(a), Value::Dict(b)) => {
            merge_dicts(meter, &a.map, &b.map)
        }
        _ if sets::is_operand(left) && sets::is_operand(right) => {
            sets::apply_binary(meter, operator, left, right)?
                .ok_or_else(|| unsupported_operand_error(operator, left, right))
        }
        _ => dates::apply_binary(operator, left, right)?
            .ok_or_else(|| unsupported_operand_error(operator, left, right)),
    }
}

pub(super) fn apply_unary(
    meter: &mut ResourceMeter<'_>,
    operator: UnaryOperator,
    value: &Value,
) -> Result<Value> {
    match (operator, value) {
        (UnaryOperator::Not, _) => Ok(Value::Bool(!value.is_truthy())),
        (UnaryOperator::Minus, Value::Float(it)) => Ok(Value::Float(-it)),
        (UnaryOperator::Plus, Value::Float(it)) => Ok(Value::Float(*it)),
        (UnaryOperator::Minus, Value::TimeDelta(it)) => Ok(Value::TimeDelta(-it)),
        (UnaryOperator::Plus, Value::TimeDelta(it)) => Ok(Value::TimeDelta(*it)),
        (UnaryOperator::Minus, _) if value.is_number() => {
            integer::apply_binary(meter, BinaryOperator::Subtract, &Value::Int(0), value)
        }
        (UnaryOperator::Plus, _) if value.is_number() => {
            integer::apply_binary(meter, BinaryOperator::Add, &Value::Int(0), value)
        }
        (UnaryOperator::Invert, Value::Int(_) | Value::Bool(_) | Value::BigInt(_)) => {
            integer::apply_binary(meter, BinaryOperator::Subtract, &Value::Int(-1), value)
        }
        _ => Err(type_error(format!(
            "bad operand type for unary {}: '{}'",
            match operator {
                UnaryOperator::Minus => "-",
                UnaryOperator::Plus => "+",
                _ => "~",
            },
            value.type_name()
        ))),
    }
}

/// Converts a number to a float.
pub(super) fn to_float(value: &Value) -> Result<f64> {
    match value {
        Value::Float(it) => Ok(*it),
        Value::Bool(it) => Ok(f64::from(*it)),
        Value::Int(it) => Ok(*it as f64),
        Value::BigInt(it) => integer::to_float(it),
        _ => Err(type_error(format!(
            "must be real number, not {}",
            value.type_name()
        ))),
    }
}

pub(super) fn operator_symbol(operator: BinaryOperator) -> &'static str {
    match operator {
        BinaryOperator::Add => "+",
        BinaryOperator::Subtract => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::FloorDivide => "//",
        BinaryOperator::Modulo => "%",
        BinaryOperator::Power => "** or pow()",
        BinaryOperator::ShiftLeft => "<<",
        BinaryOperator::ShiftRight => ">>",
        BinaryOperator::BitAnd => "&",
        BinaryOperator::BitOr => "|",
        BinaryOperator::BitXor => "^",
    }
}

fn apply_to_numbers(
    meter: &mut ResourceMeter<'_>,
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
) -> Result<Value> {
    if matches!(left, Value::Float(_)) || matches!(right, Value::Float(_)) {
        let (a, b) = (to_float(left)?, to_float(right)?);
        return match float::apply_binary(operator, a, b)? {
            Some(done) => Ok(Value::Float(done)),
            None => Err(unsupported_operand_error(operator, left, right)),
        };
    }
    match operator {
        BinaryOperator::Divide => divide(left, right).map(Value::Float),
        BinaryOperator::Power => integer::power(meter, left, right),
        BinaryOperator::BitAnd | BinaryOperator::BitOr | BinaryOperator::BitXor => {
            let done = integer::apply_binary(meter, operator, left, right)?;
            match (left, right, &done) {
                (Value::Bool(_), Value::Bool(_), Value::Int(it)) => Ok(Value::Bool(*it != 0)),
                _ => Ok(done),
            }
        }
        _ => integer::apply_binary(meter, operator, left, right),
    }
}

fn divide(left: &Value, right: &Value) -> Result<f64> {
    /// The largest integer below which floats are exact.
    const MAX_EXACT_INTEGER: i64 = 1 << 53;
    if let (Some(a), Some(b)) = (left.to_i64(), right.to_i64())
        && b != 0
        && a.abs_diff(0) <= MAX_EXACT_INTEGER as u64
        && b.abs_diff(0) <= MAX_EXACT_INTEGER as u64
    {
        return Ok(a as f64 / b as f64);
    }
    let (a, b) = (left.to_bigint(), right.to_bigint());
    integer::divide(&a.unwrap_or_default(), &b.unwrap_or_default())
}

fn concat(meter: &mut ResourceMeter<'_>, left: &TextValue, right: &TextValue) -> Result<Value> {
    meter.charge_text(left.chars + right.chars, left.body.len() + right.body.len())?;
    Ok(Value::text([&*left.body, &*right.body].concat()))
}

fn concat_items(
    meter: &mut ResourceMeter<'_>,
    left: &SequenceValue,
    right: &SequenceValue,
) -> Result<Vec<Value>> {
    meter.charge_items(left.items.len() + right.items.len())?;
    Ok([left.items.as_slice(), right.items.as_slice()].concat())
}

fn is_sequence(value: &Value) -> bool {
    matches!(value, Value::Text(_) | Value::List(_) | Value::Tuple(_))
}

fn repeat(meter: &mut ResourceMeter<'_>, sequence: &Value, count: &Value) -> Result<Value> {
    let Some(count) = count.to_bigint() else {
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
            meter.charge_text(text.chars.saturating_mul(count), bytes)?;
            Ok(Value::text(text.body.repeat(if bytes == 0 {
                0
            } else {
                count
            })))
        }
        Value::List(items) => {
            let items = repeat_items(meter, &items.items, count)?;
            Value::list(meter, items)
        }
        Value::Tuple(items) => {
            let items = repeat_items(meter, &items.items, count)?;
            Value::tuple(meter, items)
        }
        _ => Err(unsupported_operand_error(
            BinaryOperator::Multiply,
            sequence,
            sequence,
        )),
    }
}

fn repeat_items(
    meter: &mut ResourceMeter<'_>,
    items: &[Value],
    count: usize,
) -> Result<Vec<Value>> {
    let length = items.len().saturating_mul(count);
    meter.charge_items(length)?;
    Ok(items.iter().cycle().take(length).cloned().collect())
}

fn merge_dicts(meter: &mut ResourceMeter<'_>, left: &DictMap, right: &DictMap) -> Result<Value> {
    meter.charge_table(left.len() + right.len())?;
    let mut map = left.clone();
    map.extend(
        right
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Value::dict(meter, map)
}

fn unsupported_operand_error(
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
) -> UnlocatedError {
    let (a, b) = (left.type_name(), right.type_name());
    type_error(match (operator, left) {
        (BinaryOperator::Add, Value::Text(_) | Value::List(_) | Value::Tuple(_)) => {
            format!("can only concatenate {a} (not \"{b}\") to {a}")
        }
        _ => {
            let symbol = operator_symbol(operator);
            format!("unsupported operand type(s) for {symbol}: '{a}' and '{b}'")
        }
    })
}

/// Returns the items of a list or tuple.
pub(super) fn as_sequence(value: &Value) -> Option<&Rc<SequenceValue>> {
    match value {
        Value::List(it) | Value::Tuple(it) => Some(it),
        _ => None,
    }
}
