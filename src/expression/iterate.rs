//! Going through the items of a value.
//!
//! Whoever goes through gives a closure, which may stop early. A generator that
//! nobody else holds runs as it is asked; one that was given a name is
//! evaluated first, and hands out what is left of it.

use std::rc::Rc;

use super::{
    call::Ready,
    evaluate::Run,
    fault::{Result, type_error, value_error},
    lazy::{Lazy, Source, State, Strictness},
    limits::Meter,
    node::Binary,
    operate,
    value::{Dict, Part, Value},
};

pub(super) type Visit<'v, 'a> = &'v mut dyn FnMut(&mut Run<'a>, Value) -> Result<Flow>;

const ON: Result<Flow> = Ok(Flow::Continue);

/// Whether whoever goes through wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Break,
}

impl Flow {
    pub(super) fn is_break(self) -> bool {
        self == Self::Break
    }
}

impl<'a> Run<'a> {
    /// Hands each item to `visit` until that has enough.
    pub(super) fn each(&mut self, source: Value, visit: Visit<'_, 'a>) -> Result<Flow> {
        match &source {
            Value::Text(text) => {
                for c in text.body.chars() {
                    self.meter.memory(64)?;
                    self.meter.step(1)?;
                    if visit(self, Value::text(c.to_string()))?.is_break() {
                        return Ok(Flow::Break);
                    }
                }
                ON
            }
            Value::List(items) | Value::Tuple(items) => {
                self.feed(items.items.iter().cloned(), visit)
            }
            Value::Range(range) => self.feed((0..range.len).map(|at| range.get(at)), visit),
            Value::Set(set) => self.feed(set.keys.iter().map(|it| it.0.clone()), visit),
            Value::Dict(dict) => self.feed(dict.map.keys().map(|it| it.0.clone()), visit),
            Value::View(view) => self.view(&view.dict, view.part, visit),
            Value::Lazy(_) => self.lazy(source, visit),
            _ => Err(type_error(format!(
                "'{}' object is not iterable",
                source.type_name()
            ))),
        }
    }

    /// All items.
    pub(super) fn collect(&mut self, source: Value) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        if let Value::List(list) | Value::Tuple(list) = &source {
            self.meter.items(list.items.len())?;
            return Ok(list.items.clone());
        }
        self.each(source, &mut |run, item| {
            run.meter.item(items.len())?;
            items.push(item);
            ON
        })?;
        Ok(items)
    }

    /// The next item of something that is used up.
    pub(super) fn next(&mut self, source: Value) -> Result<Option<Value>> {
        if !matches!(source, Value::Lazy(_)) {
            let name = source.type_name();
            return Err(type_error(format!("'{name}' object is not an iterator")));
        }
        let mut found = None;
        self.each(source, &mut |_, item| {
            found = Some(item);
            Ok(Flow::Break)
        })?;
        Ok(found)
    }

    fn feed(&mut self, items: impl Iterator<Item = Value>, visit: Visit<'_, 'a>) -> Result<Flow> {
        for item in items {
            self.meter.step(1)?;
            if visit(self, item)?.is_break() {
                return Ok(Flow::Break);
            }
        }
        ON
    }

    fn view(&mut self, dict: &Dict, part: Part, visit: Visit<'_, 'a>) -> Result<Flow> {
        for (key, value) in &dict.map {
            self.meter.step(1)?;
            let item = match part {
                Part::Keys => key.0.clone(),
                Part::Values => value.clone(),
                Part::Items => pair(&mut self.meter, key.0.clone(), value.clone())?,
            };
            if visit(self, item)?.is_break() {
                return Ok(Flow::Break);
            }
        }
        ON
    }

    fn lazy(&mut self, source: Value, visit: Visit<'_, 'a>) -> Result<Flow> {
        let Value::Lazy(lazy) = source else { return ON };
        let state = lazy.state.replace(State::Busy);
        let left = match state {
            State::Busy => return Err(value_error("generator already executing")),
            State::Fresh(source) if Rc::strong_count(&lazy) == 1 => {
                return self.run_source(source, visit);
            }
            State::Fresh(source) => {
                let items = self.evaluated(source)?;
                items.into_iter()
            }
            State::Kept(left) => left,
        };
        self.hand_out(&lazy, left, visit)
    }

    fn hand_out(
        &mut self,
        lazy: &Lazy,
        mut left: std::vec::IntoIter<Value>,
        visit: Visit<'_, 'a>,
    ) -> Result<Flow> {
        let mut flow = Flow::Continue;
        for item in left.by_ref() {
            self.meter.step(1)?;
            flow = visit(self, item)?;
            if flow.is_break() {
                break;
            }
        }
        lazy.state.replace(State::Kept(left));
        Ok(flow)
    }

    fn evaluated(&mut self, source: Source) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        self.run_source(source, &mut |run, item| {
            run.meter.item(items.len())?;
            items.push(item);
            ON
        })?;
        Ok(items)
    }

    fn run_source(&mut self, source: Source, visit: Visit<'_, 'a>) -> Result<Flow> {
        self.enter()?;
        let flow = match source {
            Source::Generator(first, form) => self.generate(&form, first, visit),
            Source::Map(function, inputs) => self.run_map(&function, inputs, visit),
            Source::Filter(function, input) => self.each(input, &mut |run, item| match run
                .apply(&function, vec![item.clone()])?
                .truth()
            {
                true => visit(run, item),
                false => ON,
            }),
            Source::Zip(inputs, strictness) => self.run_zip(inputs, strictness, visit),
            Source::Enumerate(input, start) => self.run_enumerate(input, start, visit),
            Source::Items(items) => self.feed(items.into_iter(), visit),
        };
        self.leave();
        flow
    }

    fn run_map(
        &mut self,
        function: &Ready,
        mut inputs: Vec<Value>,
        visit: Visit<'_, 'a>,
    ) -> Result<Flow> {
        if inputs.len() > 1 {
            return self.run_zip(inputs, Strictness::Shortest, &mut |run, row| {
                let row = run.collect(row)?;
                let done = run.apply(function, row)?;
                visit(run, done)
            });
        }
        let input = inputs.pop().unwrap_or(Value::None);
        self.each(input, &mut |run, item| {
            let done = run.apply(function, vec![item])?;
            visit(run, done)
        })
    }

    fn run_zip(
        &mut self,
        inputs: Vec<Value>,
        strictness: Strictness,
        visit: Visit<'_, 'a>,
    ) -> Result<Flow> {
        let mut columns = Vec::with_capacity(inputs.len());
        for input in inputs {
            columns.push(self.collect(input)?);
        }
        let shortest = columns.iter().map(Vec::len).min().unwrap_or_default();
        for row in 0..shortest {
            self.meter.items(columns.len())?;
            let items = columns.iter().map(|it| it[row].clone()).collect();
            let item = Value::tuple(&self.meter, items)?;
            if visit(self, item)?.is_break() {
                return Ok(Flow::Break);
            }
        }
        let uneven = columns.iter().any(|it| it.len() != shortest);
        match strictness == Strictness::Same && uneven {
            true => Err(value_error("zip() arguments have different lengths")),
            false => ON,
        }
    }

    fn run_enumerate(&mut self, input: Value, start: Value, visit: Visit<'_, 'a>) -> Result<Flow> {
        let mut number = start;
        self.each(input, &mut |run, item| {
            let item = pair(&mut run.meter, number.clone(), item)?;
            number = operate::binary(&mut run.meter, Binary::Add, &number, &Value::Int(1))?;
            visit(run, item)
        })
    }
}

pub(super) fn pair(meter: &mut Meter<'_>, first: Value, second: Value) -> Result<Value> {
    meter.items(2)?;
    Value::tuple(meter, vec![first, second])
}
