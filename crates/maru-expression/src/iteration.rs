//! Going through the items of a value.
//!
//! Whoever goes through gives a closure, which may stop early. A generator that
//! nobody else holds runs as it is asked; one that was given a name is
//! evaluated first, and hands out what is left of it.

use std::rc::Rc;

use super::{
    ast::BinaryOperator,
    call::BoundCallable,
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

/// Whether whoever goes through wants more.
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

impl<'a> Evaluator<'a> {
    /// Hands each item to `visit` until that has enough.
    pub(super) fn for_each_item(
        &mut self,
        source: Value,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        match &source {
            Value::Text(text) => {
                for c in text.body.chars() {
                    self.meter.charge_memory(64)?;
                    self.meter.charge_steps(1)?;
                    if visit(self, Value::text(c.to_string()))?.is_break() {
                        return Ok(IterationFlow::Break);
                    }
                }
                CONTINUE
            }
            Value::List(items) | Value::Tuple(items) => {
                self.visit_all(items.items.iter().cloned(), visit)
            }
            Value::Range(range) => self.visit_all((0..range.len).map(|at| range.get(at)), visit),
            Value::Set(set) => self.visit_all(set.keys.iter().map(|it| it.0.clone()), visit),
            Value::Dict(dict) => self.visit_all(dict.map.keys().map(|it| it.0.clone()), visit),
            Value::DictView(view) => self.visit_view(&view.dict, view.kind, visit),
            Value::LazyIterator(_) => self.visit_lazy(source, visit),
            _ => Err(type_error(format!(
                "'{}' object is not iterable",
                source.type_name()
            ))),
        }
    }

    /// All items.
    pub(super) fn collect_items(&mut self, source: Value) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        if let Value::List(list) | Value::Tuple(list) = &source {
            self.meter.charge_items(list.items.len())?;
            return Ok(list.items.clone());
        }
        self.for_each_item(source, &mut |run, item| {
            run.meter.charge_item(items.len())?;
            items.push(item);
            CONTINUE
        })?;
        Ok(items)
    }

    /// The next item of something that is used up.
    pub(super) fn next_item(&mut self, source: Value) -> Result<Option<Value>> {
        if !matches!(source, Value::LazyIterator(_)) {
            let name = source.type_name();
            return Err(type_error(format!("'{name}' object is not an iterator")));
        }
        let mut found = None;
        self.for_each_item(source, &mut |_, item| {
            found = Some(item);
            Ok(IterationFlow::Break)
        })?;
        Ok(found)
    }

    fn visit_all(
        &mut self,
        items: impl Iterator<Item = Value>,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        for item in items {
            self.meter.charge_steps(1)?;
            if visit(self, item)?.is_break() {
                return Ok(IterationFlow::Break);
            }
        }
        CONTINUE
    }

    fn visit_view(
        &mut self,
        dict: &DictValue,
        part: DictViewKind,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        for (key, value) in &dict.map {
            self.meter.charge_steps(1)?;
            let item = match part {
                DictViewKind::Keys => key.0.clone(),
                DictViewKind::Values => value.clone(),
                DictViewKind::Items => pair_tuple(&mut self.meter, key.0.clone(), value.clone())?,
            };
            if visit(self, item)?.is_break() {
                return Ok(IterationFlow::Break);
            }
        }
        CONTINUE
    }

    fn visit_lazy(&mut self, source: Value, visit: ItemVisitor<'_, 'a>) -> Result<IterationFlow> {
        let Value::LazyIterator(lazy) = source else {
            return CONTINUE;
        };
        let state = lazy.state.replace(IteratorState::Executing);
        let left = match state {
            IteratorState::Executing => return Err(value_error("generator already executing")),
            IteratorState::NotStarted(source) if Rc::strong_count(&lazy) == 1 => {
                return self.run_source(source, visit);
            }
            IteratorState::NotStarted(source) => {
                let items = self.collect_source(source)?;
                items.into_iter()
            }
            IteratorState::Buffered(left) => left,
        };
        self.visit_buffered(&lazy, left, visit)
    }

    fn visit_buffered(
        &mut self,
        lazy: &LazyIterator,
        mut left: std::vec::IntoIter<Value>,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        let mut flow = IterationFlow::Continue;
        for item in left.by_ref() {
            self.meter.charge_steps(1)?;
            flow = visit(self, item)?;
            if flow.is_break() {
                break;
            }
        }
        lazy.state.replace(IteratorState::Buffered(left));
        Ok(flow)
    }

    fn collect_source(&mut self, source: IteratorSource) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        self.run_source(source, &mut |run, item| {
            run.meter.charge_item(items.len())?;
            items.push(item);
            CONTINUE
        })?;
        Ok(items)
    }

    fn run_source(
        &mut self,
        source: IteratorSource,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        self.enter_level()?;
        let flow = match source {
            IteratorSource::Generator(first, form) => self.run_generator(&form, first, visit),
            IteratorSource::Map(function, inputs) => self.run_map(&function, inputs, visit),
            IteratorSource::Filter(function, input) => {
                self.for_each_item(input, &mut |run, item| {
                    if run
                        .apply_callable(&function, vec![item.clone()])?
                        .is_truthy()
                    {
                        visit(run, item)
                    } else {
                        CONTINUE
                    }
                })
            }
            IteratorSource::Zip(inputs, strictness) => self.run_zip(inputs, strictness, visit),
            IteratorSource::Enumerate(input, start) => self.run_enumerate(input, start, visit),
            IteratorSource::Items(items) => self.visit_all(items.into_iter(), visit),
        };
        self.leave_level();
        flow
    }

    fn run_map(
        &mut self,
        function: &BoundCallable,
        mut inputs: Vec<Value>,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        if inputs.len() > 1 {
            return self.run_zip(inputs, ZipStrictness::Shortest, &mut |run, row| {
                let row = run.collect_items(row)?;
                let done = run.apply_callable(function, row)?;
                visit(run, done)
            });
        }
        let input = inputs.pop().unwrap_or(Value::None);
        self.for_each_item(input, &mut |run, item| {
            let done = run.apply_callable(function, vec![item])?;
            visit(run, done)
        })
    }

    fn run_zip(
        &mut self,
        inputs: Vec<Value>,
        strictness: ZipStrictness,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        let mut columns = Vec::with_capacity(inputs.len());
        for input in inputs {
            columns.push(self.collect_items(input)?);
        }
        let shortest = columns.iter().map(Vec::len).min().unwrap_or_default();
        for row in 0..shortest {
            self.meter.charge_items(columns.len())?;
            let items = columns.iter().map(|it| it[row].clone()).collect();
            let item = Value::tuple(&self.meter, items)?;
            if visit(self, item)?.is_break() {
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

    fn run_enumerate(
        &mut self,
        input: Value,
        start: Value,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        let mut number = start;
        self.for_each_item(input, &mut |run, item| {
            let item = pair_tuple(&mut run.meter, number.clone(), item)?;
            number = operators::apply_binary(
                &mut run.meter,
                BinaryOperator::Add,
                &number,
                &Value::Int(1),
            )?;
            visit(run, item)
        })
    }
}

pub(super) fn pair_tuple(
    meter: &mut ResourceMeter<'_>,
    first: Value,
    second: Value,
) -> Result<Value> {
    meter.charge_items(2)?;
    Value::tuple(meter, vec![first, second])
}
