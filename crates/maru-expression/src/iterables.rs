//! Functions that go through the items of others, some with a function to call.

use std::rc::Rc;

use super::{
    ast::{BinaryOperator, ComparisonOperator},
    builtins::EvaluatedArguments,
    call::BoundCallable,
    compare,
    error::{ErrorKind, Result, UnlocatedError, type_error, value_error},
    evaluator::Evaluator,
    iteration::IterationFlow,
    lazy_iterator::{IteratorSource, LazyIterator, ZipStrictness},
    limits::VALUE_SLOT_BYTES,
    operators,
    value::Value,
};

pub(super) fn any(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let [source] = given.take_exactly()?;
    Ok(Value::Bool(any_item_is(run, source, true)?))
}

pub(super) fn all(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let [source] = given.take_exactly()?;
    Ok(Value::Bool(!any_item_is(run, source, false)?))
}

pub(super) fn sum(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let [source, start] = given.bind(1, ["", "start"])?;
    let mut total = start.unwrap_or(Value::Int(0));
    if matches!(total, Value::Text(_)) {
        return Err(type_error(
            "sum() can't sum strings [use ''.join(seq) instead]",
        ));
    }
    run.for_each_item(source.unwrap_or(Value::None), &mut |run, item| {
        total = operators::apply_binary(&mut run.meter, BinaryOperator::Add, &total, &item)?;
        Ok(IterationFlow::Continue)
    })?;
    Ok(total)
}

pub(super) fn min(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    find_extreme(run, given, ComparisonOperator::Less)
}

pub(super) fn max(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    find_extreme(run, given, ComparisonOperator::Greater)
}

pub(super) fn sorted(run: &mut Evaluator<'_>, mut given: EvaluatedArguments<'_>) -> Result<Value> {
    let reverse = given.take_named("reverse").is_some_and(|it| it.is_truthy());
    let function = given.function.take();
    let [source] = given.take_exactly()?;
    let mut items = run.collect_items(source)?;
    if reverse {
        items.reverse();
    }
    let mut keyed = Vec::with_capacity(items.len());
    run.meter
        .charge_memory(items.len().saturating_mul(8 * VALUE_SLOT_BYTES))?;
    for item in items {
        keyed.push((sort_key(run, function.as_ref(), &item)?, item));
    }
    let mut sorted = merge_sort(run, keyed)?;
    if reverse {
        sorted.reverse();
    }
    let items = sorted.into_iter().map(|it| it.1).collect();
    Value::list(&run.meter, items)
}

pub(super) fn map(run: &mut Evaluator<'_>, mut given: EvaluatedArguments<'_>) -> Result<Value> {
    let function = given.function.take();
    given.expect_no_named()?;
    match function {
        Some(function) if !given.values.is_empty() => {
            check_iterable(&given.values)?;
            LazyIterator::new_value(
                &mut run.meter,
                "map",
                IteratorSource::Map(function, given.values),
            )
        }
        _ => Err(type_error("map() must have at least two arguments.")),
    }
}

pub(super) fn filter(run: &mut Evaluator<'_>, mut given: EvaluatedArguments<'_>) -> Result<Value> {
    let function = given.function.take();
    let [source] = given.take_exactly()?;
    check_iterable(std::slice::from_ref(&source))?;
    let function = function.unwrap_or_else(|| Rc::new(BoundCallable::Identity));
    LazyIterator::new_value(
        &mut run.meter,
        "filter",
        IteratorSource::Filter(function, source),
    )
}

pub(super) fn zip(run: &mut Evaluator<'_>, mut given: EvaluatedArguments<'_>) -> Result<Value> {
    let strict = given.take_named("strict").is_some_and(|it| it.is_truthy());
    given.expect_no_named()?;
    check_iterable(&given.values)?;
    let strictness = if strict {
        ZipStrictness::EqualLengths
    } else {
        ZipStrictness::Shortest
    };
    let source = IteratorSource::Zip(given.values, strictness);
    LazyIterator::new_value(&mut run.meter, "zip", source)
}

pub(super) fn enumerate(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let [source, start] = given.bind(1, ["iterable", "start"])?;
    let source = source.unwrap_or(Value::None);
    check_iterable(std::slice::from_ref(&source))?;
    let start = start.unwrap_or(Value::Int(0));
    let start = start
        .to_bigint()
        .ok_or_else(|| super::scalars::not_an_integer_error(&start))?;
    let source = IteratorSource::Enumerate(source, Value::from_bigint(start));
    LazyIterator::new_value(&mut run.meter, "enumerate", source)
}

pub(super) fn reversed(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let [source] = given.take_exactly()?;
    if matches!(source, Value::Set(_) | Value::LazyIterator(_)) {
        let name = source.type_name();
        return Err(type_error(format!("'{name}' object is not reversible")));
    }
    if !is_iterable(&source) {
        let name = source.type_name();
        return Err(type_error(format!("'{name}' object is not reversible")));
    }
    let mut items = run.collect_items(source)?;
    items.reverse();
    LazyIterator::new_value(&mut run.meter, "reversed", IteratorSource::Items(items))
}

pub(super) fn iter(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let [source] = given.take_exactly()?;
    if matches!(source, Value::LazyIterator(_)) {
        return Ok(source);
    }
    let items = run.collect_items(source)?;
    LazyIterator::new_value(&mut run.meter, "iterator", IteratorSource::Items(items))
}

pub(super) fn next(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let [source, default] = given.bind(1, ["", ""])?;
    let found = run.next_item(source.unwrap_or(Value::None))?;
    found
        .or(default)
        .ok_or_else(|| UnlocatedError::new(ErrorKind::StopIteration, ""))
}

fn any_item_is(run: &mut Evaluator<'_>, source: Value, wanted: bool) -> Result<bool> {
    let flow = run.for_each_item(source, &mut |_, item| {
        Ok(if item.is_truthy() == wanted {
            IterationFlow::Break
        } else {
            IterationFlow::Continue
        })
    })?;
    Ok(flow.is_break())
}

fn find_extreme(
    run: &mut Evaluator<'_>,
    mut given: EvaluatedArguments<'_>,
    better: ComparisonOperator,
) -> Result<Value> {
    let name = given.name;
    let function = given.function.take();
    let default = given.take_named("default");
    given.expect_no_named()?;
    let source = match (given.values.len(), default.is_some()) {
        (0, _) => {
            return Err(type_error(format!(
                "{name} expected at least 1 argument, got 0"
            )));
        }
        (1, _) => given.values.swap_remove(0),
        (_, true) => {
            return Err(type_error(format!(
                "Cannot specify a default for {name}() with multiple positional arguments"
            )));
        }
        _ => Value::list(&run.meter, given.values)?,
    };
    let mut best: Option<(Value, Value)> = None;
    run.for_each_item(source, &mut |run, item| {
        let key = sort_key(run, function.as_ref(), &item)?;
        let wins = match &best {
            Some((other, _)) => compare::satisfies_order(&mut run.meter, better, &key, other)?,
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
    run: &mut Evaluator<'_>,
    function: Option<&Rc<BoundCallable>>,
    item: &Value,
) -> Result<Value> {
    match function {
        Some(function) => run.apply_callable(function, vec![item.clone()]),
        None => Ok(item.clone()),
    }
}

/// Stable; stops at the first two that cannot be compared.
fn merge_sort(
    run: &mut Evaluator<'_>,
    mut items: Vec<(Value, Value)>,
) -> Result<Vec<(Value, Value)>> {
    let mut width = 1;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        let mut rest = items.into_iter().peekable();
        while rest.peek().is_some() {
            let left: Vec<_> = rest.by_ref().take(width).collect();
            let right: Vec<_> = rest.by_ref().take(width).collect();
            merge(run, left, right, &mut merged)?;
        }
        items = merged;
        width *= 2;
    }
    Ok(items)
}

fn merge(
    run: &mut Evaluator<'_>,
    left: Vec<(Value, Value)>,
    right: Vec<(Value, Value)>,
    out: &mut Vec<(Value, Value)>,
) -> Result<()> {
    let mut left = left.into_iter().peekable();
    let mut right = right.into_iter().peekable();
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let swap = compare::satisfies_order(&mut run.meter, ComparisonOperator::Less, &b.0, &a.0)?;
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
