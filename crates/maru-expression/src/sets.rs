//! Sets, and the set operators of dict views.

use std::cmp::Ordering;

use super::{
    ast::BinaryOperator,
    builtins::BuiltinCall,
    compare::charge_key,
    error::Result,
    evaluator::Evaluator,
    iteration::{self, IterationFlow},
    limits::ResourceMeter,
    value::{DictViewKind, HashKey, KeySet, Value, hash_key},
};

/// Whether set operators accept the value.
pub(super) fn is_operand(value: &Value) -> bool {
    match value {
        Value::Set(_) => true,
        Value::DictView(view) => view.kind != DictViewKind::Values,
        _ => false,
    }
}

pub(super) fn apply_binary(
    meter: &mut ResourceMeter<'_>,
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
) -> Result<Option<Value>> {
    let (left, right) = (keys_of(meter, left)?, keys_of(meter, right)?);
    let found = match operator {
        BinaryOperator::BitOr => union(&left, &right),
        BinaryOperator::BitAnd => left.intersection(&right).cloned().collect(),
        BinaryOperator::Subtract => left.difference(&right).cloned().collect(),
        BinaryOperator::BitXor => left.symmetric_difference(&right).cloned().collect(),
        _ => return Ok(None),
    };
    into_set_value(meter, found).map(Some)
}

/// Compares by inclusion: `Less` is a proper subset, `None` means that neither contains
/// the other.
pub(super) fn subset_order(
    meter: &mut ResourceMeter<'_>,
    left: &Value,
    right: &Value,
) -> Result<Option<Ordering>> {
    let (left, right) = (keys_of(meter, left)?, keys_of(meter, right)?);
    Ok(match (left.is_subset(&right), right.is_subset(&left)) {
        (true, true) => Some(Ordering::Equal),
        (true, false) => Some(Ordering::Less),
        (false, true) => Some(Ordering::Greater),
        (false, false) => None,
    })
}

pub(super) fn union_of(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    fold_operands(evaluator, call, union)
}

pub(super) fn intersection(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    fold_operands(evaluator, call, |a, b| a.intersection(b).cloned().collect())
}

pub(super) fn difference(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    fold_operands(evaluator, call, |a, b| a.difference(b).cloned().collect())
}

pub(super) fn symmetric_difference(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
) -> Result<Value> {
    call.expect_count(1)?;
    fold_operands(evaluator, call, |a, b| {
        a.symmetric_difference(b).cloned().collect()
    })
}

pub(super) fn is_subset(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [mine, other] = receiver_and_argument(evaluator, call)?;
    Ok(Value::Bool(mine.is_subset(&other)))
}

pub(super) fn is_superset(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [mine, other] = receiver_and_argument(evaluator, call)?;
    Ok(Value::Bool(mine.is_superset(&other)))
}

pub(super) fn is_disjoint(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [mine, other] = receiver_and_argument(evaluator, call)?;
    Ok(Value::Bool(mine.is_disjoint(&other)))
}

/// Collects the items of `source` as keys.
pub(super) fn collect_keys(evaluator: &mut Evaluator<'_>, source: Value) -> Result<KeySet> {
    let mut keys = KeySet::default();
    iteration::for_each_item(evaluator, source, &mut |evaluator, item| {
        let key = hash_key(&mut evaluator.meter, item)?;
        insert_key(&mut evaluator.meter, &mut keys, key)?;
        Ok(IterationFlow::Continue)
    })?;
    Ok(keys)
}

pub(super) fn insert_key(
    meter: &mut ResourceMeter<'_>,
    keys: &mut KeySet,
    key: HashKey,
) -> Result<()> {
    meter.charge_entry(keys.len())?;
    keys.insert(key);
    Ok(())
}

fn keys_of(meter: &mut ResourceMeter<'_>, value: &Value) -> Result<KeySet> {
    match value {
        Value::Set(set) => {
            meter.charge_table(set.keys.len())?;
            set.keys.iter().try_for_each(|it| charge_key(meter, it))?;
            Ok(set.keys.clone())
        }
        Value::DictView(view) if view.kind == DictViewKind::Keys => {
            meter.charge_table(view.dict.map.len())?;
            Ok(view.dict.map.keys().cloned().collect())
        }
        Value::DictView(view) => {
            let mut found = KeySet::default();
            for (name, value) in &view.dict.map {
                let pair = Value::tuple(meter, vec![name.0.clone(), value.clone()])?;
                let pair = hash_key(meter, pair)?;
                insert_key(meter, &mut found, pair)?;
            }
            Ok(found)
        }
        _ => Ok(KeySet::default()),
    }
}

fn union(left: &KeySet, right: &KeySet) -> KeySet {
    left.union(right).cloned().collect()
}

fn into_set_value(meter: &mut ResourceMeter<'_>, keys: KeySet) -> Result<Value> {
    meter.charge_table(keys.len())?;
    Value::set(meter, keys)
}

fn fold_operands(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
    step: fn(&KeySet, &KeySet) -> KeySet,
) -> Result<Value> {
    let mut found = keys_of(&mut evaluator.meter, &call.receiver)?;
    for other in call.values {
        let other = collect_keys(evaluator, other)?;
        evaluator.meter.charge_steps(1 + found.len() as u64)?;
        found = step(&found, &other);
    }
    into_set_value(&mut evaluator.meter, found)
}

fn receiver_and_argument(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
) -> Result<[KeySet; 2]> {
    let mine = keys_of(&mut evaluator.meter, &call.receiver)?;
    let [other] = call.take_exactly()?;
    Ok([mine, collect_keys(evaluator, other)?])
}
