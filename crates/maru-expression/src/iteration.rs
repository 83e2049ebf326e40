//! Iteration over the items of a value.
//!
//! Items are passed to a closure, which may stop early. A generator without another
//! reference runs lazily; one that is bound to a name is collected first, and keeps the
//! items that were not consumed.

use std::rc::Rc;

use super::{
    ast::BinaryOperator,
    call::{self, BoundCallable},
    error::{Result, type_error, value_error},
    evaluator::Evaluator,
    lazy_iterator::{IteratorSource, IteratorState, LazyIterator, ZipStrictness},
    limits::ResourceMeter,
    operators,
    value::{DictValue, DictViewKind, Value},
};

pub(super) type ItemVisitor<'v, 'a> =
    &'v mut dyn FnMut(&mut Evaluator<'a>, Value) -> Result<IterationFlow>;

const CONTINUE: Result<IterationFlow> = Ok(IterationFlow::Continue);

/// Whether the visitor wants more items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IterationFlow {
    Continue,
    Break,
}

impl IterationFlow {
    pub(super) fn is_break(self) -> bool {
        self == Self::Break
    }
}

/// Passes each item to `visit` until it breaks.
pub(super) fn for_each_item<'a>(
    evaluator: &mut Evaluator<'a>,
    source: Value,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    match &source {
        Value::Text(text) => {
            for c in text.body.chars() {
                evaluator.meter.charge_memory(64)?;
                evaluator.meter.charge_steps(1)?;
                if visit(evaluator, Value::text(c.to_string()))?.is_break() {
                    return Ok(IterationFlow::Break);
                }
            }
            CONTINUE
        }
        Value::List(items) | Value::Tuple(items) => {
            visit_all(evaluator, items.items.iter().cloned(), visit)
        }
        Value::Range(range) => visit_all(evaluator, (0..range.len).map(|at| range.get(at)), visit),
        Value::Set(set) => visit_all(evaluator, set.keys.iter().map(|it| it.0.clone()), visit),
        Value::Dict(dict) => visit_all(evaluator, dict.map.keys().map(|it| it.0.clone()), visit),
        Value::DictView(view) => visit_view(evaluator, &view.dict, view.kind, visit),
        Value::LazyIterator(_) => visit_lazy(evaluator, source, visit),
        _ => Err(type_error(format!(
            "'{}' object is not iterable",
            source.type_name()
        ))),
    }
}

/// Collects all items.
pub(super) fn collect_items(evaluator: &mut Evaluator<'_>, source: Value) -> Result<Vec<Value>> {
    let mut items = Vec::new();
    if let Value::List(list) | Value::Tuple(list) = &source {
        evaluator.meter.charge_items(list.items.len())?;
        return Ok(list.items.clone());
    }
    for_each_item(evaluator, source, &mut |evaluator, item| {
        evaluator.meter.charge_item(items.len())?;
        items.push(item);
        CONTINUE
    })?;
    Ok(items)
}

/// Returns the next item of an iterator.
pub(super) fn next_item(evaluator: &mut Evaluator<'_>, source: Value) -> Result<Option<Value>> {
    if !matches!(source, Value::LazyIterator(_)) {
        let name = source.type_name();
        return Err(type_error(format!("'{name}' object is not an iterator")));
    }
    let mut found = None;
    for_each_item(evaluator, source, &mut |_, item| {
        found = Some(item);
        Ok(IterationFlow::Break)
    })?;
    Ok(found)
}

fn visit_all<'a>(
    evaluator: &mut Evaluator<'a>,
    items: impl Iterator<Item = Value>,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    for item in items {
        evaluator.meter.charge_steps(1)?;
        if visit(evaluator, item)?.is_break() {
            return Ok(IterationFlow::Break);
        }
    }
    CONTINUE
}

fn visit_view<'a>(
    evaluator: &mut Evaluator<'a>,
    dict: &DictValue,
    part: DictViewKind,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    for (key, value) in &dict.map {
        evaluator.meter.charge_steps(1)?;
        let item = match part {
            DictViewKind::Keys => key.0.clone(),
            DictViewKind::Values => value.clone(),
            DictViewKind::Items => pair_tuple(&mut evaluator.meter, key.0.clone(), value.clone())?,
        };
        if visit(evaluator, item)?.is_break() {
            return Ok(IterationFlow::Break);
        }
    }
    CONTINUE
}

fn visit_lazy<'a>(
    evaluator: &mut Evaluator<'a>,
    source: Value,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    let Value::LazyIterator(lazy) = source else {
        return CONTINUE;
    };
    let state = lazy.state.replace(IteratorState::Executing);
    let remaining = match state {
        IteratorState::Executing => return Err(value_error("generator already executing")),
        IteratorState::NotStarted(source) if Rc::strong_count(&lazy) == 1 => {
            return run_source(evaluator, source, visit);
        }
        IteratorState::NotStarted(source) => {
            let items = collect_source(evaluator, source)?;
            items.into_iter()
        }
        IteratorState::Buffered(items) => items,
    };
    visit_buffered(evaluator, &lazy, remaining, visit)
}

fn visit_buffered<'a>(
    evaluator: &mut Evaluator<'a>,
    lazy: &LazyIterator,
    mut remaining: std::vec::IntoIter<Value>,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    let mut flow = IterationFlow::Continue;
    for item in remaining.by_ref() {
        evaluator.meter.charge_steps(1)?;
        flow = visit(evaluator, item)?;
        if flow.is_break() {
            break;
        }
    }
    lazy.state.replace(IteratorState::Buffered(remaining));
    Ok(flow)
}

fn collect_source(evaluator: &mut Evaluator<'_>, source: IteratorSource) -> Result<Vec<Value>> {
    let mut items = Vec::new();
    run_source(evaluator, source, &mut |evaluator, item| {
        evaluator.meter.charge_item(items.len())?;
        items.push(item);
        CONTINUE
    })?;
    Ok(items)
}

fn run_source<'a>(
    evaluator: &mut Evaluator<'a>,
    source: IteratorSource,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    evaluator.enter_level()?;
    let flow = match source {
        IteratorSource::Generator(first, form) => evaluator.run_generator(&form, first, visit),
        IteratorSource::Map(function, inputs) => run_map(evaluator, &function, inputs, visit),
        IteratorSource::Filter(function, input) => {
            for_each_item(evaluator, input, &mut |evaluator, item| {
                if call::apply_callable(evaluator, &function, vec![item.clone()])?.is_truthy() {
                    visit(evaluator, item)
                } else {
                    CONTINUE
                }
            })
        }
        IteratorSource::Zip(inputs, strictness) => run_zip(evaluator, inputs, strictness, visit),
        IteratorSource::Enumerate(input, start) => run_enumerate(evaluator, input, start, visit),
        IteratorSource::Items(items) => visit_all(evaluator, items.into_iter(), visit),
    };
    evaluator.leave_level();
    flow
}

fn run_map<'a>(
    evaluator: &mut Evaluator<'a>,
    function: &BoundCallable,
    mut inputs: Vec<Value>,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    if inputs.len() > 1 {
        return run_zip(
            evaluator,
            inputs,
            ZipStrictness::Shortest,
            &mut |evaluator, row| {
                let row = collect_items(evaluator, row)?;
                let result = call::apply_callable(evaluator, function, row)?;
                visit(evaluator, result)
            },
        );
    }
    let input = inputs.pop().unwrap_or(Value::None);
    for_each_item(evaluator, input, &mut |evaluator, item| {
        let result = call::apply_callable(evaluator, function, vec![item])?;
        visit(evaluator, result)
    })
}

fn run_zip<'a>(
    evaluator: &mut Evaluator<'a>,
    inputs: Vec<Value>,
    strictness: ZipStrictness,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    let mut columns = Vec::with_capacity(inputs.len());
    for input in inputs {
        columns.push(collect_items(evaluator, input)?);
    }
    let shortest = columns.iter().map(Vec::len).min().unwrap_or_default();
    for row in 0..shortest {
        evaluator.meter.charge_items(columns.len())?;
        let items = columns.iter().map(|it| it[row].clone()).collect();
        let item = Value::tuple(&evaluator.meter, items)?;
        if visit(evaluator, item)?.is_break() {
            return Ok(IterationFlow::Break);
        }
    }
    let uneven = columns.iter().any(|it| it.len() != shortest);
    if strictness == ZipStrictness::EqualLengths && uneven {
        Err(value_error("zip() arguments have different lengths"))
    } else {
        CONTINUE
    }
}

fn run_enumerate<'a>(
    evaluator: &mut Evaluator<'a>,
    input: Value,
    start: Value,
    visit: ItemVisitor<'_, 'a>,
) -> Result<IterationFlow> {
    let mut number = start;
    for_each_item(evaluator, input, &mut |evaluator, item| {
        let item = pair_tuple(&mut evaluator.meter, number.clone(), item)?;
        number = operators::apply_binary(
            &mut evaluator.meter,
            BinaryOperator::Add,
            &number,
            &Value::Int(1),
        )?;
        visit(evaluator, item)
    })
}

pub(super) fn pair_tuple(
    meter: &mut ResourceMeter<'_>,
    first: Value,
    second: Value,
) -> Result<Value> {
    meter.charge_items(2)?;
    Value::tuple(meter, vec![first, second])
}
