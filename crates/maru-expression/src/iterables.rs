//! Built-in functions on iterables, such as `sum`, `sorted`, `map` and `zip`.

use std::rc::Rc;

use super::{
    ast::{BinaryOperator, ComparisonOperator},
    builtins::BuiltinCall,
    call::{self, BoundCallable},
    compare,
    error::{ErrorKind, Result, UnlocatedError, type_error, value_error},
    evaluator::Evaluator,
    iteration::{self, IterationFlow},
    lazy_iterator::{IteratorSource, LazyIterator, ZipStrictness},
    limits::VALUE_SLOT_BYTES,
    operators,
    value::Value,
};

pub(super) fn any(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source] = call.take_exactly()?;
    Ok(Value::Bool(any_item_is(evaluator, source, true)?))
}

pub(super) fn all(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source] = call.take_exactly()?;
    Ok(Value::Bool(!any_item_is(evaluator, source, false)?))
}

pub(super) fn sum(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source, start] = call.bind(1, ["", "start"])?;
    let mut total = start.unwrap_or(Value::Int(0));
    if matches!(total, Value::Text(_)) {
        return Err(type_error(
            "sum() can't sum strings [use ''.join(seq) instead]",
        ));
    }
    iteration::for_each_item(
        evaluator,
        source.unwrap_or(Value::None),
        &mut |evaluator, item| {
            total =
                operators::apply_binary(&mut evaluator.meter, BinaryOperator::Add, &total, &item)?;
            Ok(IterationFlow::Continue)
        },
    )?;
    Ok(total)
}

pub(super) fn min(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    find_extreme(evaluator, call, ComparisonOperator::Less)
}

pub(super) fn max(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    find_extreme(evaluator, call, ComparisonOperator::Greater)
}

pub(super) fn sorted(evaluator: &mut Evaluator<'_>, mut call: BuiltinCall<'_>) -> Result<Value> {
    let reverse = call.take_named("reverse").is_some_and(|it| it.is_truthy());
    let function = call.function.take();
    let [source] = call.take_exactly()?;
    let mut items = iteration::collect_items(evaluator, source)?;
    if reverse {
        items.reverse();
    }
    let mut keyed = Vec::with_capacity(items.len());
    evaluator
        .meter
        .charge_memory(items.len().saturating_mul(8 * VALUE_SLOT_BYTES))?;
    for item in items {
        keyed.push((sort_key(evaluator, function.as_ref(), &item)?, item));
    }
    let mut sorted = merge_sort(evaluator, keyed)?;
    if reverse {
        sorted.reverse();
    }
    let items = sorted.into_iter().map(|it| it.1).collect();
    Value::list(&evaluator.meter, items)
}

pub(super) fn map(evaluator: &mut Evaluator<'_>, mut call: BuiltinCall<'_>) -> Result<Value> {
    let function = call.function.take();
    call.expect_no_named()?;
    match function {
        Some(function) if !call.values.is_empty() => {
            check_iterable(&call.values)?;
            LazyIterator::new_value(
                &mut evaluator.meter,
                "map",
                IteratorSource::Map(function, call.values),
            )
        }
        _ => Err(type_error("map() must have at least two arguments.")),
    }
}

pub(super) fn filter(evaluator: &mut Evaluator<'_>, mut call: BuiltinCall<'_>) -> Result<Value> {
    let function = call.function.take();
    let [source] = call.take_exactly()?;
    check_iterable(std::slice::from_ref(&source))?;
    let function = function.unwrap_or_else(|| Rc::new(BoundCallable::Identity));
    LazyIterator::new_value(
        &mut evaluator.meter,
        "filter",
        IteratorSource::Filter(function, source),
    )
}

pub(super) fn zip(evaluator: &mut Evaluator<'_>, mut call: BuiltinCall<'_>) -> Result<Value> {
    let strict = call.take_named("strict").is_some_and(|it| it.is_truthy());
    call.expect_no_named()?;
    check_iterable(&call.values)?;
    let strictness = if strict {
        ZipStrictness::EqualLengths
    } else {
        ZipStrictness::Shortest
    };
    let source = IteratorSource::Zip(call.values, strictness);
    LazyIterator::new_value(&mut evaluator.meter, "zip", source)
}

pub(super) fn enumerate(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source, start] = call.bind(1, ["iterable", "start"])?;
    let source = source.unwrap_or(Value::None);
    check_iterable(std::slice::from_ref(&source))?;
    let start = start.unwrap_or(Value::Int(0));
    let start = start
        .to_bigint()
        .ok_or_else(|| super::scalars::not_an_integer_error(&start))?;
    let source = IteratorSource::Enumerate(source, Value::from_bigint(start));
    LazyIterator::new_value(&mut evaluator.meter, "enumerate", source)
}

pub(super) fn reversed(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source] = call.take_exactly()?;
    if matches!(source, Value::Set(_) | Value::LazyIterator(_)) {
        let name = source.type_name();
        return Err(type_error(format!("'{name}' object is not reversible")));
    }
    if !is_iterable(&source) {
        let name = source.type_name();
        return Err(type_error(format!("'{name}' object is not reversible")));
    }
    let mut items = iteration::collect_items(evaluator, source)?;
    items.reverse();
    LazyIterator::new_value(
        &mut evaluator.meter,
        "reversed",
        IteratorSource::Items(items),
    )
}

pub(super) fn iter(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source] = call.take_exactly()?;
    if matches!(source, Value::LazyIterator(_)) {
        return Ok(source);
    }
    let items = iteration::collect_items(evaluator, source)?;
    LazyIterator::new_value(
        &mut evaluator.meter,
        "iterator",
        IteratorSource::Items(items),
    )
}

pub(super) fn next(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source, default] = call.bind(1, ["", ""])?;
    let found = iteration::next_item(evaluator, source.unwrap_or(Value::None))?;
    found
        .or(default)
        .ok_or_else(|| UnlocatedError::new(ErrorKind::StopIteration, ""))
}

fn any_item_is(evaluator: &mut Evaluator<'_>, source: Value, truth: bool) -> Result<bool> {
    let flow = iteration::for_each_item(evaluator, source, &mut |_, item| {
        Ok(if item.is_truthy() == truth {
            IterationFlow::Break
        } else {
            IterationFlow::Continue
        })
    })?;
    Ok(flow.is_break())
}

fn find_extreme(
    evaluator: &mut Evaluator<'_>,
    mut call: BuiltinCall<'_>,
    better: ComparisonOperator,
) -> Result<Value> {
    let name = call.name;
    let function = call.function.take();
    let default = call.take_named("default");
    call.expect_no_named()?;
    let source = match (call.values.len(), default.is_some()) {
        (0, _) => {
            return Err(type_error(format!(
                "{name} expected at least 1 argument, got 0"
            )));
        }
        (1, _) => call.values.swap_remove(0),
        (_, true) => {
            return Err(type_error(format!(
                "Cannot specify a default for {name}() with multiple positional arguments"
            )));
        }
        _ => Value::list(&evaluator.meter, call.values)?,
    };
    let mut best: Option<(Value, Value)> = None;
    iteration::for_each_item(evaluator, source, &mut |evaluator, item| {
        let key = sort_key(evaluator, function.as_ref(), &item)?;
        let wins = match &best {
            Some((other, _)) => {
                compare::satisfies_order(&mut evaluator.meter, better, &key, other)?
            }
            None => true,
        };
        if wins {
            best = Some((key, item));
        }
        Ok(IterationFlow::Continue)
    })?;
    let best = best.map(|it| it.1).or(default);
    best.ok_or_else(|| value_error(format!("{name}() arg is an empty sequence")))
}

fn sort_key(
    evaluator: &mut Evaluator<'_>,
    function: Option<&Rc<BoundCallable>>,
    item: &Value,
) -> Result<Value> {
    match function {
        Some(function) => call::apply_callable(evaluator, function, vec![item.clone()]),
        None => Ok(item.clone()),
    }
}

/// Stable merge sort; fails at the first pair that cannot be compared.
fn merge_sort(
    evaluator: &mut Evaluator<'_>,
    mut items: Vec<(Value, Value)>,
) -> Result<Vec<(Value, Value)>> {
    let mut width = 1;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        let mut rest = items.into_iter().peekable();
        while rest.peek().is_some() {
            let left: Vec<_> = rest.by_ref().take(width).collect();
            let right: Vec<_> = rest.by_ref().take(width).collect();
            merge(evaluator, left, right, &mut merged)?;
        }
        items = merged;
        width *= 2;
    }
    Ok(items)
}

fn merge(
    evaluator: &mut Evaluator<'_>,
    left: Vec<(Value, Value)>,
    right: Vec<(Value, Value)>,
    out: &mut Vec<(Value, Value)>,
) -> Result<()> {
    let mut left = left.into_iter().peekable();
    let mut right = right.into_iter().peekable();
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let swap =
            compare::satisfies_order(&mut evaluator.meter, ComparisonOperator::Less, &b.0, &a.0)?;
        out.extend(if swap { right.next() } else { left.next() });
    }
    out.extend(left);
    out.extend(right);
    Ok(())
}

fn check_iterable(values: &[Value]) -> Result<()> {
    match values.iter().find(|it| !is_iterable(it)) {
        None => Ok(()),
        Some(value) => Err(type_error(format!(
            "'{}' object is not iterable",
            value.type_name()
        ))),
    }
}

pub(super) fn is_iterable(value: &Value) -> bool {
    matches!(
        value,
        Value::Text(_)
            | Value::List(_)
            | Value::Tuple(_)
            | Value::Dict(_)
            | Value::Set(_)
            | Value::Range(_)
            | Value::DictView(_)
            | Value::LazyIterator(_)
    )
}
