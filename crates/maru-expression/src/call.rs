//! Calls: arguments, and functions that call functions.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use super::{
    ast::{ArgumentList, Callable, ExpressionKind, ExpressionNode},
    builtins::{BuiltinFunction, BuiltinMethod, EvaluatedArguments, ReceiverType},
    error::{ErrorKind, Result, UnlocatedError, type_error},
    evaluator::Evaluator,
    value::Value,
};

/// A function with what it is bound to.
#[derive(Debug)]
pub(super) enum BoundCallable {
    Lambda(Arc<Callable>),
    Function(BuiltinFunction),
    UnboundMethod(BuiltinMethod),
    BoundMethod(Value, BuiltinMethod),
    Identity,
}

impl Evaluator<'_> {
    pub(super) fn call_function(
        &mut self,
        function: &BuiltinFunction,
        arguments: &ArgumentList,
    ) -> Result<Value> {
        let given = self.evaluate_arguments(function.name, Value::None, arguments)?;
        (function.run)(self, given)
    }

    pub(super) fn call_method(
        &mut self,
        receiver: Value,
        method: &BuiltinMethod,
        arguments: &ArgumentList,
    ) -> Result<Value> {
        let run = method
            .implementation_for(&receiver)
            .ok_or_else(|| missing_attribute_error(&receiver, method.name))?;
        let given = self.evaluate_arguments(method.name, receiver, arguments)?;
        run(self, given)
    }

    pub(super) fn read_field(&mut self, receiver: Value, method: &BuiltinMethod) -> Result<Value> {
        let run = method
            .implementation_for(&receiver)
            .ok_or_else(|| missing_attribute_error(&receiver, method.name))?;
        run(
            self,
            EvaluatedArguments::new(method.name, receiver, Vec::new()),
        )
    }

    /// Calls `function` with `values`.
    pub(super) fn apply_callable(
        &mut self,
        function: &BoundCallable,
        mut values: Vec<Value>,
    ) -> Result<Value> {
        self.meter.charge_steps(1)?;
        match function {
            BoundCallable::Identity => Ok(values.pop().unwrap_or(Value::None)),
            BoundCallable::Function(function) => (function.run)(
                self,
                EvaluatedArguments::new(function.name, Value::None, values),
            ),
            BoundCallable::BoundMethod(receiver, method) => {
                self.apply_method(method, receiver.clone(), values)
            }
            BoundCallable::UnboundMethod(method) => {
                if values.is_empty() {
                    return Err(type_error("a method needs something to work on"));
                }
                let receiver = values.remove(0);
                self.apply_method(method, receiver, values)
            }
            BoundCallable::Lambda(callable) => self.apply_lambda(callable, values),
        }
    }

    fn apply_method(
        &mut self,
        method: &BuiltinMethod,
        receiver: Value,
        values: Vec<Value>,
    ) -> Result<Value> {
        match method.implementation_for(&receiver) {
            Some(run) => run(self, EvaluatedArguments::new(method.name, receiver, values)),
            None => Err(missing_attribute_error(&receiver, method.name)),
        }
    }

    fn apply_lambda(&mut self, callable: &Callable, values: Vec<Value>) -> Result<Value> {
        let Callable::Lambda(lambda) = callable else {
            return Err(type_error("not a function"));
        };
        if lambda.slots.len() != values.len() {
            return Err(type_error(format!(
                "<lambda>() takes {} positional arguments but {} were given",
                lambda.slots.len(),
                values.len()
            )));
        }
        for (slot, value) in lambda.slots.iter().zip(values) {
            self.slots[*slot] = value;
        }
        self.evaluate(&lambda.body)
    }

    fn evaluate_arguments<'n>(
        &mut self,
        name: &'static str,
        receiver: Value,
        arguments: &'n ArgumentList,
    ) -> Result<EvaluatedArguments<'n>> {
        let function = self.bind_callable(arguments.function.as_ref())?;
        let values = self.evaluate_spread(&arguments.positional)?;
        let mut named = Vec::new();
        for (name, node) in &arguments.named {
            match name {
                Some(name) => named.push((Cow::Borrowed(name.as_str()), self.evaluate(node)?)),
                None => self.spread_named(node, &mut named)?,
            }
        }
        Ok(EvaluatedArguments {
            name,
            receiver,
            values,
            named,
            function,
        })
    }

    fn spread_named(
        &mut self,
        node: &ExpressionNode,
        named: &mut Vec<(Cow<'_, str>, Value)>,
    ) -> Result<()> {
        let Value::Dict(dict) = self.evaluate(node)? else {
            return Err(type_error("argument after ** must be a mapping").at(node.at));
        };
        self.meter.charge_table(named.len() + dict.map.len())?;
        // The names of one dict differ; they can only clash with earlier ones.
        let before = named.len();
        for (key, value) in &dict.map {
            self.meter.charge_steps(1 + before as u64)?;
            let Value::Text(name) = &key.0 else {
                return Err(type_error("keywords must be strings").at(node.at));
            };
            self.meter.charge_memory(name.body.len())?;
            if named[..before].iter().any(|it| it.0 == *name.body) {
                let message = format!("got multiple values for keyword argument '{}'", name.body);
                return Err(type_error(message).at(node.at));
            }
            named.push((Cow::Owned(name.body.to_string()), value.clone()));
        }
        Ok(())
    }

    fn bind_callable(
        &mut self,
        function: Option<&Arc<Callable>>,
    ) -> Result<Option<Rc<BoundCallable>>> {
        let Some(callable) = function else {
            return Ok(None);
        };
        Ok(Some(Rc::new(match &**callable {
            Callable::Lambda(_) => BoundCallable::Lambda(Arc::clone(callable)),
            Callable::Function(function) => BoundCallable::Function(*function),
            Callable::UnboundMethod(method) => BoundCallable::UnboundMethod(method.clone()),
            Callable::Identity => BoundCallable::Identity,
            Callable::BoundMethod(node, method) => {
                let receiver = self.evaluate(node)?;
                if method.implementation_for(&receiver).is_none() {
                    return Err(missing_attribute_error(&receiver, method.name));
                }
                BoundCallable::BoundMethod(receiver, method.clone())
            }
        })))
    }
}

fn missing_attribute_error(receiver: &Value, name: &str) -> UnlocatedError {
    let owner = receiver.type_name();
    let hint = match (ReceiverType::of(receiver), name) {
        (Some(ReceiverType::List), "append" | "extend" | "insert" | "remove" | "pop" | "clear") => {
            "; values do not change, make a new list: items + [x]"
        }
        (Some(ReceiverType::List), "sort" | "reverse") => {
            "; values do not change, use sorted(…) or reversed(…)"
        }
        _ => "",
    };
    let message = format!("'{owner}' object has no attribute '{name}'{hint}");
    UnlocatedError::new(ErrorKind::Attribute, message)
}

/// Whether a node is `None`, which stands for no function.
pub(super) fn is_none_literal(node: &ExpressionNode) -> bool {
    matches!(
        &node.kind,
        ExpressionKind::Constant(super::ast::Constant::None)
    )
}
