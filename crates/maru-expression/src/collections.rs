//! Constructors and methods of lists, tuples, dicts, sets and ranges.

#![expect(
    clippy::needless_pass_by_value,
    reason = "everything in the catalog has one shape"
)]

use std::rc::Rc;

use num_traits::ToPrimitive as _;

use super::{
    builtins::BuiltinCall,
    compare,
    error::{Result, limit_error, type_error, value_error},
    evaluator::Evaluator,
    iteration::{self, IterationFlow},
    operators,
    scalars::not_an_integer_error,
    sets,
    value::{DictMap, DictView, DictViewKind, RangeValue, Value, hash_key},
};

pub(super) fn len(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let length = match &value {
        Value::Text(it) => it.chars,
        Value::List(it) | Value::Tuple(it) => it.items.len(),
        Value::Dict(it) => it.map.len(),
        Value::Set(it) => it.keys.len(),
        Value::Range(it) => it.len,
        Value::DictView(it) => it.dict.map.len(),
        _ => {
            let name = value.type_name();
            return Err(type_error(format!("object of type '{name}' has no len()")));
        }
    };
    Ok(Value::Int(length as i64))
}

pub(super) fn list(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let items = collect_argument(evaluator, call)?;
    Value::list(&evaluator.meter, items)
}

pub(super) fn tuple(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let items = collect_argument(evaluator, call)?;
    Value::tuple(&evaluator.meter, items)
}

pub(super) fn set(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source] = call.bind(0, [""])?;
    let keys = match source {
        Some(source) => sets::collect_keys(evaluator, source)?,
        None => Default::default(),
    };
    Value::set(&evaluator.meter, keys)
}

pub(super) fn dict(evaluator: &mut Evaluator<'_>, mut call: BuiltinCall<'_>) -> Result<Value> {
    let named = std::mem::take(&mut call.named);
    let [source] = call.bind(0, [""])?;
    let mut map = match source {
        Some(Value::Dict(dict)) => {
            evaluator.meter.charge_table(dict.map.len())?;
            dict.map.clone()
        }
        Some(source) => dict_from_pairs(evaluator, source)?,
        None => DictMap::default(),
    };
    for (name, value) in named {
        evaluator.insert_entry(&mut map, Value::text(name.as_ref()), value)?;
    }
    Value::dict(&evaluator.meter, map)
}

pub(super) fn from_keys(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source, value] = call.bind(1, ["", ""])?;
    let value = value.unwrap_or(Value::None);
    let mut map = DictMap::default();
    iteration::for_each_item(
        evaluator,
        source.unwrap_or(Value::None),
        &mut |evaluator, name| {
            evaluator.insert_entry(&mut map, name, value.clone())?;
            Ok(IterationFlow::Continue)
        },
    )?;
    Value::dict(&evaluator.meter, map)
}

pub(super) fn range(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [first, second, step] = call.bind(1, ["", "", ""])?;
    let (start, stop) = match (first, second) {
        (Some(start), Some(stop)) => (expect_i64(&start)?, expect_i64(&stop)?),
        (Some(stop), None) => (0, expect_i64(&stop)?),
        (None, _) => (0, 0),
    };
    let step = step.map_or(Ok(1), |it| expect_i64(&it))?;
    if step == 0 {
        return Err(value_error("range() arg 3 must not be zero"));
    }
    let span = if step > 0 {
        i128::from(stop) - i128::from(start)
    } else {
        i128::from(start) - i128::from(stop)
    };
    let count = u128::try_from(span).unwrap_or_default();
    let len = count.div_ceil(u128::from(step.unsigned_abs()));
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    evaluator.meter.check_item_count(len)?;
    evaluator.meter.charge_memory(64)?;
    Ok(Value::Range(Rc::new(RangeValue {
        start,
        stop,
        step,
        len,
    })))
}

pub(super) fn copy(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    Ok(call.receiver)
}

pub(super) fn count(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let receiver = call.receiver.clone();
    let [target] = call.take_exactly()?;
    let mut count = 0;
    iteration::for_each_item(evaluator, receiver, &mut |evaluator, item| {
        let same = item.is_identical(&target)
            || compare::values_equal(&mut evaluator.meter, &item, &target)?;
        count += i64::from(same);
        Ok(IterationFlow::Continue)
    })?;
    Ok(Value::Int(count))
}

pub(super) fn index(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let receiver = call.receiver.clone();
    let [target, from, to] = call.bind(1, ["", "", ""])?;
    let target = target.unwrap_or(Value::None);
    let Some(sequence) = operators::as_sequence(&receiver) else {
        return Err(type_error("not a sequence"));
    };
    let length = sequence.items.len() as i64;
    let clamp = |value: Option<Value>, default: i64| -> Result<usize> {
        let at = value.map_or(Ok(default), |it| expect_i64(&it))?;
        let at = if at < 0 {
            at.saturating_add(length)
        } else {
            at
        };
        Ok(at.clamp(0, length) as usize)
    };
    let (from, to) = (clamp(from, 0)?, clamp(to, length)?);
    for (at, item) in sequence.items.iter().enumerate().take(to).skip(from) {
        evaluator.meter.charge_steps(1)?;
        if item.is_identical(&target) || compare::values_equal(&mut evaluator.meter, item, &target)?
        {
            return Ok(Value::Int(at as i64));
        }
    }
    Err(value_error(match receiver {
        Value::Tuple(_) => "tuple.index(x): x not in tuple".to_owned(),
        _ => format!(
            "{} is not in list",
            super::repr::repr(&mut evaluator.meter, &target)?
        ),
    }))
}

pub(super) fn get(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let Value::Dict(dict) = call.receiver.clone() else {
        return Err(type_error("not a dict"));
    };
    let [name, default] = call.bind(1, ["", ""])?;
    let name = hash_key(&mut evaluator.meter, name.unwrap_or(Value::None))?;
    let found = dict.map.get(&name).cloned();
    Ok(found.or(default).unwrap_or(Value::None))
}

pub(super) fn keys(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    make_view(evaluator, &call, DictViewKind::Keys)
}

pub(super) fn values(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    make_view(evaluator, &call, DictViewKind::Values)
}

pub(super) fn items(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    make_view(evaluator, &call, DictViewKind::Items)
}

/// Returns an integer argument; fails if it does not fit into 64 bits.
pub(super) fn expect_i64(value: &Value) -> Result<i64> {
    let number = value
        .to_bigint()
        .ok_or_else(|| not_an_integer_error(value))?;
    number
        .to_i64()
        .ok_or_else(|| limit_error("a number that is too large to count with"))
}

fn make_view(
    evaluator: &mut Evaluator<'_>,
    call: &BuiltinCall<'_>,
    part: DictViewKind,
) -> Result<Value> {
    call.expect_count(0)?;
    let Value::Dict(dict) = &call.receiver else {
        return Err(type_error("not a dict"));
    };
    evaluator.meter.charge_memory(48)?;
    let dict = Rc::clone(dict);
    Ok(Value::DictView(Rc::new(DictView { dict, kind: part })))
}

fn collect_argument(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Vec<Value>> {
    let [source] = call.bind(0, [""])?;
    match source {
        Some(source) => iteration::collect_items(evaluator, source),
        None => Ok(Vec::new()),
    }
}

fn dict_from_pairs(evaluator: &mut Evaluator<'_>, source: Value) -> Result<DictMap> {
    let mut map = DictMap::default();
    let mut at = 0;
    iteration::for_each_item(evaluator, source, &mut |evaluator, item| {
        if item.is_number() || matches!(item, Value::None) {
            return Err(type_error(format!(
                "cannot convert dictionary update sequence element #{at} to a sequence"
            )));
        }
        let found = iteration::collect_items(evaluator, item)?;
        let length = found.len();
        let Ok([name, value]) = <[Value; 2]>::try_from(found) else {
            return Err(value_error(format!(
                "dictionary update sequence element #{at} has length {length}; 2 is required"
            )));
        };
        evaluator.insert_entry(&mut map, name, value)?;
        at += 1;
        Ok(IterationFlow::Continue)
    })?;
    Ok(map)
}
