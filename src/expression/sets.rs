//! Sets and what is like one: `keys()` and `items()` of a dict.

use std::cmp::Ordering;

use super::{
    catalog::Given,
    compare::charge_key,
    evaluate::Run,
    fault::Result,
    iterate::Flow,
    limits::Meter,
    node::Binary,
    value::{Key, Keys, Part, Value, key},
};

/// Whether the operators of sets take it.
pub(super) fn is_operand(value: &Value) -> bool {
    match value {
        Value::Set(_) => true,
        Value::View(view) => view.part != Part::Values,
        _ => false,
    }
}

pub(super) fn binary(
    meter: &mut Meter<'_>,
    operator: Binary,
    left: &Value,
    right: &Value,
) -> Result<Option<Value>> {
    let (left, right) = (keys(meter, left)?, keys(meter, right)?);
    let found = match operator {
        Binary::Or => union(&left, &right),
        Binary::And => left.intersection(&right).cloned().collect(),
        Binary::Subtract => left.difference(&right).cloned().collect(),
        Binary::Xor => left.symmetric_difference(&right).cloned().collect(),
        _ => return Ok(None),
    };
    made(meter, found).map(Some)
}

/// Less is a subset; `None` if neither contains the other.
pub(super) fn order(
    meter: &mut Meter<'_>,
    left: &Value,
    right: &Value,
) -> Result<Option<Ordering>> {
    let (left, right) = (keys(meter, left)?, keys(meter, right)?);
    Ok(match (left.is_subset(&right), right.is_subset(&left)) {
        (true, true) => Some(Ordering::Equal),
        (true, false) => Some(Ordering::Less),
        (false, true) => Some(Ordering::Greater),
        (false, false) => None,
    })
}

pub(super) fn union_of(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    folded(run, given, union)
}

pub(super) fn intersection(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    folded(run, given, |a, b| a.intersection(b).cloned().collect())
}

pub(super) fn difference(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    folded(run, given, |a, b| a.difference(b).cloned().collect())
}

pub(super) fn symmetric_difference(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    given.exactly(1)?;
    folded(run, given, |a, b| {
        a.symmetric_difference(b).cloned().collect()
    })
}

pub(super) fn is_subset(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [mine, other] = both(run, given)?;
    Ok(Value::Bool(mine.is_subset(&other)))
}

pub(super) fn is_superset(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [mine, other] = both(run, given)?;
    Ok(Value::Bool(mine.is_superset(&other)))
}

pub(super) fn is_disjoint(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [mine, other] = both(run, given)?;
    Ok(Value::Bool(mine.is_disjoint(&other)))
}

/// All that `source` gives, as keys.
pub(super) fn gather(run: &mut Run<'_>, source: Value) -> Result<Keys> {
    let mut keys = Keys::default();
    run.each(source, &mut |run, item| {
        let key = key(&mut run.meter, item)?;
        add(&mut run.meter, &mut keys, key)?;
        Ok(Flow::Continue)
    })?;
    Ok(keys)
}

pub(super) fn add(meter: &mut Meter<'_>, keys: &mut Keys, key: Key) -> Result<()> {
    meter.entry(keys.len())?;
    keys.insert(key);
    Ok(())
}

fn keys(meter: &mut Meter<'_>, value: &Value) -> Result<Keys> {
    match value {
        Value::Set(set) => {
            meter.table(set.keys.len())?;
            set.keys.iter().try_for_each(|it| charge_key(meter, it))?;
            Ok(set.keys.clone())
        }
        Value::View(view) if view.part == Part::Keys => {
            meter.table(view.dict.map.len())?;
            Ok(view.dict.map.keys().cloned().collect())
        }
        Value::View(view) => {
            let mut found = Keys::default();
            for (name, value) in &view.dict.map {
                let pair = Value::tuple(meter, vec![name.0.clone(), value.clone()])?;
                let pair = key(meter, pair)?;
                add(meter, &mut found, pair)?;
            }
            Ok(found)
        }
        _ => Ok(Keys::default()),
    }
}

fn union(left: &Keys, right: &Keys) -> Keys {
    left.union(right).cloned().collect()
}

fn made(meter: &mut Meter<'_>, keys: Keys) -> Result<Value> {
    meter.table(keys.len())?;
    Value::set(meter, keys)
}

fn folded(run: &mut Run<'_>, given: Given<'_>, step: fn(&Keys, &Keys) -> Keys) -> Result<Value> {
    let mut found = keys(&mut run.meter, &given.receiver)?;
    for other in given.values {
        let other = gather(run, other)?;
        run.meter.step(1 + found.len() as u64)?;
        found = step(&found, &other);
    }
    made(&mut run.meter, found)
}

fn both(run: &mut Run<'_>, given: Given<'_>) -> Result<[Keys; 2]> {
    let mine = keys(&mut run.meter, &given.receiver)?;
    let [other] = given.take()?;
    Ok([mine, gather(run, other)?])
}
