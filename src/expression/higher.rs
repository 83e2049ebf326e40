//! Functions that go through the items of others, some with a function to call.

use std::rc::Rc;

use super::{
    call::Ready,
    catalog::Given,
    compare,
    evaluate::Run,
    fault::{Kind, Result, Trouble, type_error, value_error},
    iterate::Flow,
    lazy::{Lazy, Source, Strictness},
    limits::SLOT,
    node::{Binary, Comparison},
    operate,
    value::Value,
};

pub(super) fn any(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [source] = given.take()?;
    Ok(Value::Bool(finds(run, source, true)?))
}

pub(super) fn all(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [source] = given.take()?;
    Ok(Value::Bool(!finds(run, source, false)?))
}

pub(super) fn sum(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [source, start] = given.bind(1, ["", "start"])?;
    let mut total = start.unwrap_or(Value::Int(0));
    if matches!(total, Value::Text(_)) {
        return Err(type_error(
            "sum() can't sum strings [use ''.join(seq) instead]",
        ));
    }
    run.each(source.unwrap_or(Value::None), &mut |run, item| {
        total = operate::binary(&mut run.meter, Binary::Add, &total, &item)?;
        Ok(Flow::Continue)
    })?;
    Ok(total)
}

pub(super) fn min(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    extreme(run, given, Comparison::Less)
}

pub(super) fn max(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    extreme(run, given, Comparison::Greater)
}

pub(super) fn sorted(run: &mut Run<'_>, mut given: Given<'_>) -> Result<Value> {
    let reverse = given.named("reverse").is_some_and(|it| it.truth());
    let function = given.function.take();
    let [source] = given.take()?;
    let mut items = run.collect(source)?;
    if reverse {
        items.reverse();
    }
    let mut keyed = Vec::with_capacity(items.len());
    run.meter.memory(items.len().saturating_mul(8 * SLOT))?;
    for item in items {
        keyed.push((key_of(run, function.as_ref(), &item)?, item));
    }
    let mut sorted = merge_sort(run, keyed)?;
    if reverse {
        sorted.reverse();
    }
    let items = sorted.into_iter().map(|it| it.1).collect();
    Value::list(&run.meter, items)
}

pub(super) fn map(run: &mut Run<'_>, mut given: Given<'_>) -> Result<Value> {
    let function = given.function.take();
    given.none_named()?;
    match function {
        Some(function) if !given.values.is_empty() => {
            check_iterable(&given.values)?;
            Lazy::value(&mut run.meter, "map", Source::Map(function, given.values))
        }
        _ => Err(type_error("map() must have at least two arguments.")),
    }
}

pub(super) fn filter(run: &mut Run<'_>, mut given: Given<'_>) -> Result<Value> {
    let function = given.function.take();
    let [source] = given.take()?;
    check_iterable(std::slice::from_ref(&source))?;
    let function = function.unwrap_or_else(|| Rc::new(Ready::Nothing));
    Lazy::value(&mut run.meter, "filter", Source::Filter(function, source))
}

pub(super) fn zip(run: &mut Run<'_>, mut given: Given<'_>) -> Result<Value> {
    let strict = given.named("strict").is_some_and(|it| it.truth());
    given.none_named()?;
    check_iterable(&given.values)?;
    let strictness = if strict {
        Strictness::Same
    } else {
        Strictness::Shortest
    };
    let source = Source::Zip(given.values, strictness);
    Lazy::value(&mut run.meter, "zip", source)
}

pub(super) fn enumerate(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [source, start] = given.bind(1, ["iterable", "start"])?;
    let source = source.unwrap_or(Value::None);
    check_iterable(std::slice::from_ref(&source))?;
    let start = start.unwrap_or(Value::Int(0));
    let start = start
        .integer()
        .ok_or_else(|| super::functions::not_an_integer(&start))?;
    let source = Source::Enumerate(source, Value::big(start));
    Lazy::value(&mut run.meter, "enumerate", source)
}

pub(super) fn reversed(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [source] = given.take()?;
    if matches!(source, Value::Set(_) | Value::Lazy(_)) {
        let name = source.type_name();
        return Err(type_error(format!("'{name}' object is not reversible")));
    }
    if !is_iterable(&source) {
        let name = source.type_name();
        return Err(type_error(format!("'{name}' object is not reversible")));
    }
    let mut items = run.collect(source)?;
    items.reverse();
    Lazy::value(&mut run.meter, "reversed", Source::Items(items))
}

pub(super) fn iter(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [source] = given.take()?;
    if matches!(source, Value::Lazy(_)) {
        return Ok(source);
    }
    let items = run.collect(source)?;
    Lazy::value(&mut run.meter, "iterator", Source::Items(items))
}

pub(super) fn next(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let [source, default] = given.bind(1, ["", ""])?;
    let found = run.next(source.unwrap_or(Value::None))?;
    found
        .or(default)
        .ok_or_else(|| Trouble::new(Kind::StopIteration, ""))
}

fn finds(run: &mut Run<'_>, source: Value, wanted: bool) -> Result<bool> {
    let flow = run.each(source, &mut |_, item| {
        Ok(match item.truth() == wanted {
            true => Flow::Break,
            false => Flow::Continue,
        })
    })?;
    Ok(flow.is_break())
}

fn extreme(run: &mut Run<'_>, mut given: Given<'_>, better: Comparison) -> Result<Value> {
    let name = given.name;
    let function = given.function.take();
    let default = given.named("default");
    given.none_named()?;
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
    run.each(source, &mut |run, item| {
        let key = key_of(run, function.as_ref(), &item)?;
        let wins = match &best {
            Some((other, _)) => compare::ordered(&mut run.meter, better, &key, other)?,
            None => true,
        };
        if wins {
            best = Some((key, item));
        }
        Ok(Flow::Continue)
    })?;
    let best = best.map(|it| it.1).or(default);
    best.ok_or_else(|| value_error(format!("{name}() arg is an empty sequence")))
}

fn key_of(run: &mut Run<'_>, function: Option<&Rc<Ready>>, item: &Value) -> Result<Value> {
    match function {
        Some(function) => run.apply(function, vec![item.clone()]),
        None => Ok(item.clone()),
    }
}

/// Stable; stops at the first two that cannot be compared.
fn merge_sort(run: &mut Run<'_>, mut items: Vec<(Value, Value)>) -> Result<Vec<(Value, Value)>> {
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
    run: &mut Run<'_>,
    left: Vec<(Value, Value)>,
    right: Vec<(Value, Value)>,
    out: &mut Vec<(Value, Value)>,
) -> Result<()> {
    let mut left = left.into_iter().peekable();
    let mut right = right.into_iter().peekable();
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let swap = compare::ordered(&mut run.meter, Comparison::Less, &b.0, &a.0)?;
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
            | Value::View(_)
            | Value::Lazy(_)
    )
}
