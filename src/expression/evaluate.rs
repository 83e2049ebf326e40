//! Walking the tree.

use std::sync::Arc;

use super::{
    compare,
    fault::{Result, limit, type_error, value_error},
    format, index,
    iterate::{Flow, Visit},
    lazy::{Lazy, Source},
    limits::{Limits, Meter},
    node::{
        Act, Binary, Comparison, Comprehension, Constant, Form, Makes, Node, Piece, Step, Target,
        Unary,
    },
    operate, sets, show,
    value::{Keys, Map, Value, key},
};

/// How deep evaluation goes: generators can evaluate each other.
const MAX_DEPTH: u32 = 160;

/// One run of a program.
pub(super) struct Run<'a> {
    pub(super) meter: Meter<'a>,
    pub(super) slots: Vec<Value>,
    depth: u32,
}

impl<'a> Run<'a> {
    pub(super) fn new(limits: &'a Limits, slots: usize) -> Self {
        Self {
            meter: Meter::new(limits),
            slots: vec![Value::None; slots],
            depth: 0,
        }
    }

    pub(super) fn enter(&mut self) -> Result<()> {
        if self.depth >= MAX_DEPTH {
            return Err(limit("evaluation nested too deeply"));
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn value(&mut self, node: &Node) -> Result<Value> {
        self.meter.step(1)?;
        match &node.form {
            Form::Slot(slot) => Ok(self.slots[*slot].clone()),
            Form::Constant(constant) => {
                if let Constant::Big(number) = constant {
                    self.meter
                        .bits(number.bits())
                        .map_err(|it| it.at(node.at))?;
                }
                Ok(constant.into())
            }
            _ => {
                self.enter().map_err(|it| it.at(node.at))?;
                let done = self.form(node);
                self.leave();
                done.map_err(|it| it.at(node.at))
            }
        }
    }

    pub(super) fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Slot(slot) => {
                self.slots[*slot] = value;
                Ok(())
            }
            Target::Several(targets, rest) => self.unpack(targets, *rest, value),
            Target::Name(..) => Ok(()),
        }
    }

    /// The values of `nodes`, with what is starred spread out.
    pub(super) fn spread(&mut self, nodes: &[Node]) -> Result<Vec<Value>> {
        self.meter.items(nodes.len())?;
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Form::Star(inner) = &node.form else {
                values.push(self.value(node)?);
                continue;
            };
            let source = self.value(inner)?;
            let more = self.collect(source).map_err(|it| it.at(node.at))?;
            self.meter.items(values.len() + more.len())?;
            values.extend(more);
        }
        Ok(values)
    }

    /// Runs the clauses of a generator over `first`.
    pub(super) fn generate(
        &mut self,
        form: &Comprehension,
        first: Value,
        visit: Visit<'_, 'a>,
    ) -> Result<Flow> {
        self.clause(form, 0, first, &mut |run| {
            let item = run.value(&form.item)?;
            visit(run, item)
        })
    }

    fn form(&mut self, node: &Node) -> Result<Value> {
        match &node.form {
            Form::Chain(first, rest) => self.chain(first, rest),
            Form::Power(base, exponent) => self.power(base, exponent),
            Form::Compare(first, rest) => self.compare(first, rest),
            Form::Unary(operators, operand) => self.unary(operators, operand),
            Form::And(all) => self.until(all, false),
            Form::Or(all) => self.until(all, true),
            Form::If(parts) => self.conditional(parts),
            Form::Postfix(base, steps) => self.postfix(base, steps),
            Form::Call(function, arguments) => self.call(function, arguments),
            Form::List(items) => {
                let items = self.spread(items)?;
                Value::list(&self.meter, items)
            }
            Form::Tuple(items) => {
                let items = self.spread(items)?;
                Value::tuple(&self.meter, items)
            }
            Form::Set(items) => self.set(items),
            Form::Dict(entries) => self.dict(entries),
            Form::Comprehension(form) => self.comprehension(form),
            Form::Template(pieces) => self.template(pieces).map(Value::text),
            Form::Slot(_) | Form::Constant(_) => self.value(node),
            Form::Name(_) | Form::Star(_) | Form::Lambda(_) => Err(type_error("not a value")),
        }
    }

    fn chain(&mut self, first: &Node, rest: &[(Binary, u32, Node)]) -> Result<Value> {
        let mut left = self.value(first)?;
        for (operator, at, right) in rest {
            let right = self.value(right)?;
            left = operate::binary(&mut self.meter, *operator, &left, &right)
                .map_err(|it| it.at(*at))?;
        }
        Ok(left)
    }

    fn power(&mut self, base: &Node, exponent: &Node) -> Result<Value> {
        let base = self.value(base)?;
        let exponent = self.value(exponent)?;
        operate::binary(&mut self.meter, Binary::Power, &base, &exponent)
    }

    fn unary(&mut self, operators: &[Unary], operand: &Node) -> Result<Value> {
        let mut value = self.value(operand)?;
        for operator in operators.iter().rev() {
            self.meter.step(1)?;
            value = operate::unary(&mut self.meter, *operator, &value)?;
        }
        Ok(value)
    }

    fn compare(&mut self, first: &Node, rest: &[(Comparison, u32, Node)]) -> Result<Value> {
        let mut left = self.value(first)?;
        for (comparison, at, right) in rest {
            let right = self.value(right)?;
            let holds = self
                .holds(*comparison, &left, right.clone())
                .map_err(|it| it.at(*at))?;
            if !holds {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn holds(&mut self, comparison: Comparison, left: &Value, right: Value) -> Result<bool> {
        let meter = &mut self.meter;
        match comparison {
            Comparison::Equal => compare::equal(meter, left, &right),
            Comparison::Different => Ok(!compare::equal(meter, left, &right)?),
            Comparison::Is => Ok(left.same(&right)),
            Comparison::IsNot => Ok(!left.same(&right)),
            Comparison::In => self.contains(right, left),
            Comparison::NotIn => Ok(!self.contains(right, left)?),
            _ => compare::ordered(meter, comparison, left, &right),
        }
    }

    /// The first value that is as true as `wanted`, or the last.
    fn until(&mut self, all: &[Node], wanted: bool) -> Result<Value> {
        let mut value = Value::Bool(!wanted);
        for node in all {
            value = self.value(node)?;
            if value.truth() == wanted {
                break;
            }
        }
        Ok(value)
    }

    fn conditional(&mut self, parts: &[Node; 3]) -> Result<Value> {
        let [condition, then, otherwise] = parts;
        match self.value(condition)?.truth() {
            true => self.value(then),
            false => self.value(otherwise),
        }
    }

    fn postfix(&mut self, base: &Node, steps: &[Step]) -> Result<Value> {
        let mut value = self.value(base)?;
        for step in steps {
            value = self.step(value, step).map_err(|it| it.at(step.at))?;
        }
        Ok(value)
    }

    fn step(&mut self, value: Value, step: &Step) -> Result<Value> {
        self.meter.step(1)?;
        match &step.act {
            Act::Method(method, arguments) => self.method(value, method, arguments),
            Act::Field(method) => self.field(value, method),
            Act::Index(node) => {
                let at = self.value(node)?;
                index::item(&mut self.meter, &value, at)
            }
            Act::Slice(parts) => {
                let mut bounds = [None, None, None];
                for (bound, part) in bounds.iter_mut().zip(parts.iter()) {
                    *bound = part.as_ref().map(|it| self.value(it)).transpose()?;
                }
                index::slice(&mut self.meter, &value, &bounds)
            }
            Act::Attribute(_) | Act::Call(_) => Err(type_error(format!(
                "'{}' object is not callable",
                value.type_name()
            ))),
        }
    }

    fn set(&mut self, items: &[Node]) -> Result<Value> {
        let mut keys = Keys::default();
        for item in self.spread(items)? {
            let key = key(&mut self.meter, item)?;
            sets::add(&mut self.meter, &mut keys, key)?;
        }
        Value::set(&self.meter, keys)
    }

    fn dict(&mut self, entries: &[(Option<Node>, Node)]) -> Result<Value> {
        let mut map = Map::default();
        for (name, value) in entries {
            let Some(name) = name else {
                self.merge(&mut map, value)?;
                continue;
            };
            let name = self.value(name)?;
            let value = self.value(value)?;
            self.insert(&mut map, name, value)?;
        }
        Value::dict(&self.meter, map)
    }

    fn merge(&mut self, map: &mut Map, source: &Node) -> Result<()> {
        let Value::Dict(more) = self.value(source)? else {
            return Err(type_error("what follows ** is not a dict").at(source.at));
        };
        self.meter.table(map.len() + more.map.len())?;
        let more = more.map.iter();
        map.extend(more.map(|(key, value)| (key.clone(), value.clone())));
        Ok(())
    }

    pub(super) fn insert(&mut self, map: &mut Map, name: Value, value: Value) -> Result<()> {
        let name = key(&mut self.meter, name)?;
        self.meter.entry(map.len())?;
        map.insert(name, value);
        Ok(())
    }

    fn comprehension(&mut self, form: &Arc<Comprehension>) -> Result<Value> {
        let Some(clause) = form.clauses.first() else {
            return Err(type_error("not a value"));
        };
        let first = self.value(&clause.source)?;
        match form.makes {
            Makes::Generator => {
                let source = Source::Generator(first, Arc::clone(form));
                Lazy::value(&mut self.meter, "generator", source)
            }
            Makes::List => {
                let mut items = Vec::new();
                self.clause(form, 0, first, &mut |run| {
                    run.meter.item(items.len())?;
                    items.push(run.value(&form.item)?);
                    Ok(Flow::Continue)
                })?;
                Value::list(&self.meter, items)
            }
            Makes::Set => {
                let mut keys = Keys::default();
                self.clause(form, 0, first, &mut |run| {
                    let item = run.value(&form.item)?;
                    let item = key(&mut run.meter, item)?;
                    sets::add(&mut run.meter, &mut keys, item)?;
                    Ok(Flow::Continue)
                })?;
                Value::set(&self.meter, keys)
            }
            Makes::Dict => self.dict_comprehension(form, first),
        }
    }

    fn dict_comprehension(&mut self, form: &Comprehension, first: Value) -> Result<Value> {
        let mut map = Map::default();
        self.clause(form, 0, first, &mut |run| {
            let name = match &form.key {
                Some(node) => run.value(node)?,
                None => Value::None,
            };
            let value = run.value(&form.item)?;
            run.insert(&mut map, name, value)?;
            Ok(Flow::Continue)
        })?;
        Value::dict(&self.meter, map)
    }

    fn clause(
        &mut self,
        form: &Comprehension,
        number: usize,
        source: Value,
        visit: &mut dyn FnMut(&mut Self) -> Result<Flow>,
    ) -> Result<Flow> {
        let clause = &form.clauses[number];
        let at = clause.source.at;
        let flow = self.each(source, &mut |run, item| {
            run.assign(&clause.target, item)?;
            for condition in &clause.conditions {
                if !run.value(condition)?.truth() {
                    return Ok(Flow::Continue);
                }
            }
            let Some(next) = form.clauses.get(number + 1) else {
                return visit(run);
            };
            run.enter()?;
            let source = run.value(&next.source)?;
            let flow = run.clause(form, number + 1, source, visit);
            run.leave();
            flow
        });
        flow.map_err(|it| it.at(at))
    }

    fn unpack(&mut self, targets: &[Target], rest: Option<usize>, value: Value) -> Result<()> {
        let mut items = self.collect(value)?;
        let (wanted, found) = (targets.len(), items.len());
        let Some(at) = rest else {
            if found > wanted {
                let message = format!("too many values to unpack (expected {wanted})");
                return Err(value_error(message));
            }
            if found < wanted {
                return Err(too_few(wanted, found, ""));
            }
            let pairs = targets.iter().zip(items);
            return pairs
                .into_iter()
                .try_for_each(|(target, item)| self.assign(target, item));
        };
        if found + 1 < wanted {
            return Err(too_few(wanted - 1, found, "at least "));
        }
        let after = items.split_off(found + 1 - wanted + at);
        let middle = items.split_off(at);
        items.push(Value::list(&self.meter, middle)?);
        items.extend(after);
        let pairs = targets.iter().zip(items);
        pairs
            .into_iter()
            .try_for_each(|(target, item)| self.assign(target, item))
    }

    fn template(&mut self, pieces: &[Piece]) -> Result<String> {
        let mut out = String::new();
        let mut chars = 0;
        for piece in pieces {
            let more = match piece {
                Piece::Text(text) => text.clone(),
                Piece::Value(shown) => {
                    let value = self.value(&shown.value)?;
                    self.shown(&value, shown)
                        .map_err(|it| it.at(shown.value.at))?
                }
            };
            chars += more.chars().count();
            self.meter.text(chars, more.len())?;
            out.push_str(&more);
        }
        Ok(out)
    }

    fn shown(&mut self, value: &Value, shown: &super::node::Shown) -> Result<String> {
        self.enter()?;
        let spec = self.template(&shown.spec);
        self.leave();
        let converted = match shown.conversion {
            Some('r') => Value::text(show::repr(&mut self.meter, value)?),
            Some('a') => Value::text(show::ascii(&mut self.meter, value)?),
            Some(_) => Value::text(show::text(&mut self.meter, value)?),
            None => value.clone(),
        };
        format::format(&mut self.meter, &converted, &spec?)
    }
}

fn too_few(wanted: usize, found: usize, least: &str) -> super::fault::Trouble {
    value_error(format!(
        "not enough values to unpack (expected {least}{wanted}, got {found})"
    ))
}

impl From<&Constant> for Value {
    fn from(constant: &Constant) -> Self {
        match constant {
            Constant::None => Self::None,
            Constant::Bool(it) => Self::Bool(*it),
            Constant::Int(it) => Self::Int(*it),
            Constant::Big(it) => Self::Big(Arc::clone(it)),
            Constant::Float(it) => Self::Float(*it),
            Constant::Text(it) => Self::Text(Arc::clone(it)),
        }
    }
}
