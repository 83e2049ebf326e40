//! Evaluates the resolved syntax tree.

use std::sync::Arc;

use super::{
    ast::{
        AssignmentTarget, BinaryOperator, ComparisonOperator, Comprehension, ComprehensionKind,
        Constant, ExpressionKind, ExpressionNode, FStringPart, PostfixKind, PostfixStep,
        UnaryOperator,
    },
    call, compare,
    error::{Result, limit_error, type_error, value_error},
    format_spec,
    iteration::{self, ItemVisitor, IterationFlow},
    lazy_iterator::{IteratorSource, LazyIterator},
    limits::{EvaluationLimits, ResourceMeter},
    operators, repr, sets, subscript,
    value::{DictMap, KeySet, Value, hash_key},
};

/// Maximum evaluation depth: generators can evaluate each other.
const MAX_EVALUATION_DEPTH: u32 = 160;

/// The state of one evaluation.
pub(super) struct Evaluator<'a> {
    pub(super) meter: ResourceMeter<'a>,
    pub(super) slots: Vec<Value>,
    depth: u32,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(limits: &'a EvaluationLimits, slots: usize) -> Self {
        Self {
            meter: ResourceMeter::new(limits),
            slots: vec![Value::None; slots],
            depth: 0,
        }
    }

    pub(super) fn enter_level(&mut self) -> Result<()> {
        if self.depth >= MAX_EVALUATION_DEPTH {
            return Err(limit_error("evaluation nested too deeply"));
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave_level(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn evaluate(&mut self, node: &ExpressionNode) -> Result<Value> {
        self.meter.charge_steps(1)?;
        match &node.kind {
            ExpressionKind::Slot(slot) => Ok(self.slots[*slot].clone()),
            ExpressionKind::Constant(constant) => {
                if let Constant::BigInt(number) = constant {
                    self.meter
                        .charge_integer(number.bits())
                        .map_err(|it| it.at(node.at))?;
                }
                Ok(constant.into())
            }
            _ => {
                self.enter_level().map_err(|it| it.at(node.at))?;
                let result = self.evaluate_compound(node);
                self.leave_level();
                result.map_err(|it| it.at(node.at))
            }
        }
    }

    pub(super) fn assign(&mut self, target: &AssignmentTarget, value: Value) -> Result<()> {
        match target {
            AssignmentTarget::Slot(slot) => {
                self.slots[*slot] = value;
                Ok(())
            }
            AssignmentTarget::Unpack(targets, rest) => self.unpack(targets, *rest, value),
            AssignmentTarget::Name(..) => Ok(()),
        }
    }

    /// Evaluates `nodes` and unpacks the starred ones.
    pub(super) fn evaluate_spread(&mut self, nodes: &[ExpressionNode]) -> Result<Vec<Value>> {
        self.meter.charge_items(nodes.len())?;
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            let ExpressionKind::Starred(inner) = &node.kind else {
                values.push(self.evaluate(node)?);
                continue;
            };
            let source = self.evaluate(inner)?;
            let more = iteration::collect_items(self, source).map_err(|it| it.at(node.at))?;
            self.meter.charge_items(values.len() + more.len())?;
            values.extend(more);
        }
        Ok(values)
    }

    /// Runs the clauses of a generator over `first`, the items of its first clause.
    pub(super) fn run_generator(
        &mut self,
        comprehension: &Comprehension,
        first: Value,
        visit: ItemVisitor<'_, 'a>,
    ) -> Result<IterationFlow> {
        self.run_clause(comprehension, 0, first, &mut |evaluator| {
            let item = evaluator.evaluate(&comprehension.item)?;
            visit(evaluator, item)
        })
    }

    fn evaluate_compound(&mut self, node: &ExpressionNode) -> Result<Value> {
        match &node.kind {
            ExpressionKind::BinaryChain(first, rest) => self.evaluate_chain(first, rest),
            ExpressionKind::Power(base, exponent) => self.evaluate_power(base, exponent),
            ExpressionKind::ComparisonChain(first, rest) => self.evaluate_comparisons(first, rest),
            ExpressionKind::Unary(operators, operand) => self.evaluate_unary(operators, operand),
            ExpressionKind::And(all) => self.evaluate_until(all, false),
            ExpressionKind::Or(all) => self.evaluate_until(all, true),
            ExpressionKind::Conditional(parts) => self.evaluate_conditional(parts),
            ExpressionKind::Postfix(base, steps) => self.evaluate_postfix(base, steps),
            ExpressionKind::Call(function, arguments) => {
                call::call_function(self, function, arguments)
            }
            ExpressionKind::List(items) => {
                let items = self.evaluate_spread(items)?;
                Value::list(&self.meter, items)
            }
            ExpressionKind::Tuple(items) => {
                let items = self.evaluate_spread(items)?;
                Value::tuple(&self.meter, items)
            }
            ExpressionKind::Set(items) => self.build_set(items),
            ExpressionKind::Dict(entries) => self.build_dict(entries),
            ExpressionKind::Comprehension(comprehension) => {
                self.evaluate_comprehension(comprehension)
            }
            ExpressionKind::FString(parts) => self.evaluate_fstring(parts).map(Value::text),
            ExpressionKind::Slot(_) | ExpressionKind::Constant(_) => self.evaluate(node),
            ExpressionKind::Name(_) | ExpressionKind::Starred(_) | ExpressionKind::Lambda(_) => {
                Err(type_error("not a value"))
            }
        }
    }

    fn evaluate_chain(
        &mut self,
        first: &ExpressionNode,
        rest: &[(BinaryOperator, u32, ExpressionNode)],
    ) -> Result<Value> {
        let mut left = self.evaluate(first)?;
        for (operator, at, right) in rest {
            let right = self.evaluate(right)?;
            left = operators::apply_binary(&mut self.meter, *operator, &left, &right)
                .map_err(|it| it.at(*at))?;
        }
        Ok(left)
    }

    fn evaluate_power(
        &mut self,
        base: &ExpressionNode,
        exponent: &ExpressionNode,
    ) -> Result<Value> {
        let base = self.evaluate(base)?;
        let exponent = self.evaluate(exponent)?;
        operators::apply_binary(&mut self.meter, BinaryOperator::Power, &base, &exponent)
    }

    fn evaluate_unary(
        &mut self,
        operators: &[UnaryOperator],
        operand: &ExpressionNode,
    ) -> Result<Value> {
        let mut value = self.evaluate(operand)?;
        for operator in operators.iter().rev() {
            self.meter.charge_steps(1)?;
            value = operators::apply_unary(&mut self.meter, *operator, &value)?;
        }
        Ok(value)
    }

    fn evaluate_comparisons(
        &mut self,
        first: &ExpressionNode,
        rest: &[(ComparisonOperator, u32, ExpressionNode)],
    ) -> Result<Value> {
        let mut left = self.evaluate(first)?;
        for (comparison, at, right) in rest {
            let right = self.evaluate(right)?;
            let holds = self
                .compare_pair(*comparison, &left, right.clone())
                .map_err(|it| it.at(*at))?;
            if !holds {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn compare_pair(
        &mut self,
        comparison: ComparisonOperator,
        left: &Value,
        right: Value,
    ) -> Result<bool> {
        let meter = &mut self.meter;
        match comparison {
            ComparisonOperator::Equal => compare::values_equal(meter, left, &right),
            ComparisonOperator::NotEqual => Ok(!compare::values_equal(meter, left, &right)?),
            ComparisonOperator::Is => Ok(left.is_identical(&right)),
            ComparisonOperator::IsNot => Ok(!left.is_identical(&right)),
            ComparisonOperator::In => subscript::contains(self, right, left),
            ComparisonOperator::NotIn => Ok(!subscript::contains(self, right, left)?),
            _ => compare::satisfies_order(meter, comparison, left, &right),
        }
    }

    /// Evaluates `and` and `or`: the first value whose truth is `wanted`, or the last
    /// value.
    fn evaluate_until(&mut self, all: &[ExpressionNode], expected: bool) -> Result<Value> {
        let mut value = Value::Bool(!expected);
        for node in all {
            value = self.evaluate(node)?;
            if value.is_truthy() == expected {
                break;
            }
        }
        Ok(value)
    }

    fn evaluate_conditional(&mut self, parts: &[ExpressionNode; 3]) -> Result<Value> {
        let [condition, then, otherwise] = parts;
        if self.evaluate(condition)?.is_truthy() {
            self.evaluate(then)
        } else {
            self.evaluate(otherwise)
        }
    }

    fn evaluate_postfix(&mut self, base: &ExpressionNode, steps: &[PostfixStep]) -> Result<Value> {
        let mut value = self.evaluate(base)?;
        for step in steps {
            value = self.apply_step(value, step).map_err(|it| it.at(step.at))?;
        }
        Ok(value)
    }

    fn apply_step(&mut self, value: Value, step: &PostfixStep) -> Result<Value> {
        self.meter.charge_steps(1)?;
        match &step.kind {
            PostfixKind::Method(method, arguments) => {
                call::call_method(self, value, method, arguments)
            }
            PostfixKind::Field(method) => call::read_field(self, value, method),
            PostfixKind::Index(node) => {
                let at = self.evaluate(node)?;
                subscript::get_item(&mut self.meter, &value, at)
            }
            PostfixKind::Slice(parts) => {
                let mut bounds = [None, None, None];
                for (bound, part) in bounds.iter_mut().zip(parts.iter()) {
                    *bound = part.as_ref().map(|it| self.evaluate(it)).transpose()?;
                }
                subscript::get_slice(&mut self.meter, &value, &bounds)
            }
            PostfixKind::Attribute(_) | PostfixKind::Call(_) => Err(type_error(format!(
                "'{}' object is not callable",
                value.type_name()
            ))),
        }
    }

    fn build_set(&mut self, items: &[ExpressionNode]) -> Result<Value> {
        let mut keys = KeySet::default();
        for item in self.evaluate_spread(items)? {
            let key = hash_key(&mut self.meter, item)?;
            sets::insert_key(&mut self.meter, &mut keys, key)?;
        }
        Value::set(&self.meter, keys)
    }

    fn build_dict(
        &mut self,
        entries: &[(Option<ExpressionNode>, ExpressionNode)],
    ) -> Result<Value> {
        let mut map = DictMap::default();
        for (name, value) in entries {
            let Some(name) = name else {
                self.merge_unpacked_dict(&mut map, value)?;
                continue;
            };
            let name = self.evaluate(name)?;
            let value = self.evaluate(value)?;
            self.insert_entry(&mut map, name, value)?;
        }
        Value::dict(&self.meter, map)
    }

    fn merge_unpacked_dict(&mut self, map: &mut DictMap, source: &ExpressionNode) -> Result<()> {
        let Value::Dict(more) = self.evaluate(source)? else {
            return Err(type_error("what follows ** is not a dict").at(source.at));
        };
        self.meter.charge_table(map.len() + more.map.len())?;
        let more = more.map.iter();
        map.extend(more.map(|(key, value)| (key.clone(), value.clone())));
        Ok(())
    }

    pub(super) fn insert_entry(
        &mut self,
        map: &mut DictMap,
        name: Value,
        value: Value,
    ) -> Result<()> {
        let name = hash_key(&mut self.meter, name)?;
        self.meter.charge_entry(map.len())?;
        map.insert(name, value);
        Ok(())
    }

    fn evaluate_comprehension(&mut self, comprehension: &Arc<Comprehension>) -> Result<Value> {
        let Some(clause) = comprehension.clauses.first() else {
            return Err(type_error("not a value"));
        };
        let first = self.evaluate(&clause.source)?;
        match comprehension.kind {
            ComprehensionKind::Generator => {
                let source = IteratorSource::Generator(first, Arc::clone(comprehension));
                LazyIterator::new_value(&mut self.meter, "generator", source)
            }
            ComprehensionKind::List => {
                let mut items = Vec::new();
                self.run_clause(comprehension, 0, first, &mut |evaluator| {
                    evaluator.meter.charge_item(items.len())?;
                    items.push(evaluator.evaluate(&comprehension.item)?);
                    Ok(IterationFlow::Continue)
                })?;
                Value::list(&self.meter, items)
            }
            ComprehensionKind::Set => {
                let mut keys = KeySet::default();
                self.run_clause(comprehension, 0, first, &mut |evaluator| {
                    let item = evaluator.evaluate(&comprehension.item)?;
                    let item = hash_key(&mut evaluator.meter, item)?;
                    sets::insert_key(&mut evaluator.meter, &mut keys, item)?;
                    Ok(IterationFlow::Continue)
                })?;
                Value::set(&self.meter, keys)
            }
            ComprehensionKind::Dict => self.evaluate_dict_comprehension(comprehension, first),
        }
    }

    fn evaluate_dict_comprehension(
        &mut self,
        comprehension: &Comprehension,
        first: Value,
    ) -> Result<Value> {
        let mut map = DictMap::default();
        self.run_clause(comprehension, 0, first, &mut |evaluator| {
            let name = match &comprehension.key {
                Some(node) => evaluator.evaluate(node)?,
                None => Value::None,
            };
            let value = evaluator.evaluate(&comprehension.item)?;
            evaluator.insert_entry(&mut map, name, value)?;
            Ok(IterationFlow::Continue)
        })?;
        Value::dict(&self.meter, map)
    }

    fn run_clause(
        &mut self,
        comprehension: &Comprehension,
        number: usize,
        source: Value,
        visit: &mut dyn FnMut(&mut Self) -> Result<IterationFlow>,
    ) -> Result<IterationFlow> {
        let clause = &comprehension.clauses[number];
        let at = clause.source.at;
        let flow = iteration::for_each_item(self, source, &mut |evaluator, item| {
            evaluator.assign(&clause.target, item)?;
            for condition in &clause.conditions {
                if !evaluator.evaluate(condition)?.is_truthy() {
                    return Ok(IterationFlow::Continue);
                }
            }
            let Some(next) = comprehension.clauses.get(number + 1) else {
                return visit(evaluator);
            };
            evaluator.enter_level()?;
            let source = evaluator.evaluate(&next.source)?;
            let flow = evaluator.run_clause(comprehension, number + 1, source, visit);
            evaluator.leave_level();
            flow
        });
        flow.map_err(|it| it.at(at))
    }

    fn unpack(
        &mut self,
        targets: &[AssignmentTarget],
        rest: Option<usize>,
        value: Value,
    ) -> Result<()> {
        let mut items = iteration::collect_items(self, value)?;
        let (expected, found) = (targets.len(), items.len());
        let Some(at) = rest else {
            if found > expected {
                let message = format!("too many values to unpack (expected {expected})");
                return Err(value_error(message));
            }
            if found < expected {
                return Err(too_few_values_error(expected, found, ""));
            }
            let pairs = targets.iter().zip(items);
            return pairs
                .into_iter()
                .try_for_each(|(target, item)| self.assign(target, item));
        };
        if found + 1 < expected {
            return Err(too_few_values_error(expected - 1, found, "at least "));
        }
        let after = items.split_off(found + 1 - expected + at);
        let middle = items.split_off(at);
        items.push(Value::list(&self.meter, middle)?);
        items.extend(after);
        let pairs = targets.iter().zip(items);
        pairs
            .into_iter()
            .try_for_each(|(target, item)| self.assign(target, item))
    }

    fn evaluate_fstring(&mut self, parts: &[FStringPart]) -> Result<String> {
        let mut out = String::new();
        let mut chars = 0;
        for part in parts {
            let more = match part {
                FStringPart::Text(text) => text.clone(),
                FStringPart::Field(field) => {
                    let value = self.evaluate(&field.value)?;
                    self.format_replacement_field(&value, field)
                        .map_err(|it| it.at(field.value.at))?
                }
            };
            chars += more.chars().count();
            self.meter.charge_text(chars, more.len())?;
            out.push_str(&more);
        }
        Ok(out)
    }

    fn format_replacement_field(
        &mut self,
        value: &Value,
        field: &super::ast::ReplacementField,
    ) -> Result<String> {
        self.enter_level()?;
        let spec = self.evaluate_fstring(&field.spec);
        self.leave_level();
        let converted = match field.conversion {
            Some('r') => Value::text(repr::repr(&mut self.meter, value)?),
            Some('a') => Value::text(repr::to_ascii(&mut self.meter, value)?),
            Some(_) => Value::text(repr::to_text(&mut self.meter, value)?),
            None => value.clone(),
        };
        format_spec::format(&mut self.meter, &converted, &spec?)
    }
}

fn too_few_values_error(
    expected: usize,
    found: usize,
    least: &str,
) -> super::error::UnlocatedError {
    value_error(format!(
        "not enough values to unpack (expected {least}{expected}, got {found})"
    ))
}

impl From<&Constant> for Value {
    fn from(constant: &Constant) -> Self {
        match constant {
            Constant::None => Self::None,
            Constant::Bool(it) => Self::Bool(*it),
            Constant::Int(it) => Self::Int(*it),
            Constant::BigInt(it) => Self::BigInt(Arc::clone(it)),
            Constant::Float(it) => Self::Float(*it),
            Constant::Text(it) => Self::Text(Arc::clone(it)),
        }
    }
}
