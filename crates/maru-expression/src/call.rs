//! Calls of functions, methods and lambdas.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use super::{
    ast::{ArgumentList, Callable, ExpressionKind, ExpressionNode},
    builtins::{BuiltinCall, BuiltinFunction, BuiltinMethod, ReceiverType},
    error::{ErrorKind, Result, UnlocatedError, type_error},
    evaluator::Evaluator,
    value::Value,
};

/// A function that is passed to another one, with its receiver if it has one.
#[derive(Debug)]
pub(super) enum BoundCallable {
    Lambda(Arc<Callable>),
    Function(BuiltinFunction),
    UnboundMethod(BuiltinMethod),
    BoundMethod(Value, BuiltinMethod),
    Identity,
}

pub(super) fn call_function(
    evaluator: &mut Evaluator<'_>,
    function: &BuiltinFunction,
    arguments: &ArgumentList,
) -> Result<Value> {
    let arguments = evaluate_arguments(evaluator, function.name, Value::None, arguments)?;
    (function.implementation)(evaluator, arguments)
}

pub(super) fn call_method(
    evaluator: &mut Evaluator<'_>,
    receiver: Value,
    method: &BuiltinMethod,
    arguments: &ArgumentList,
) -> Result<Value> {
    let implementation = method
        .implementation_for(&receiver)
        .ok_or_else(|| missing_attribute_error(&receiver, method.name))?;
    let arguments = evaluate_arguments(evaluator, method.name, receiver, arguments)?;
    implementation(evaluator, arguments)
}

pub(super) fn read_field(
    evaluator: &mut Evaluator<'_>,
    receiver: Value,
    method: &BuiltinMethod,
) -> Result<Value> {
    let implementation = method
        .implementation_for(&receiver)
        .ok_or_else(|| missing_attribute_error(&receiver, method.name))?;
    implementation(
        evaluator,
        BuiltinCall::new(method.name, receiver, Vec::new()),
    )
}

/// Calls `function` with positional values.
pub(super) fn apply_callable(
    evaluator: &mut Evaluator<'_>,
    function: &BoundCallable,
    mut values: Vec<Value>,
) -> Result<Value> {
    evaluator.meter.charge_steps(1)?;
    match function {
        BoundCallable::Identity => Ok(values.pop().unwrap_or(Value::None)),
        BoundCallable::Function(function) => (function.implementation)(
            evaluator,
            BuiltinCall::new(function.name, Value::None, values),
        ),
        BoundCallable::BoundMethod(receiver, method) => {
            apply_method(evaluator, method, receiver.clone(), values)
        }
        BoundCallable::UnboundMethod(method) => {
            if values.is_empty() {
                return Err(type_error("an unbound method needs an argument"));
            }
            let receiver = values.remove(0);
            apply_method(evaluator, method, receiver, values)
        }
        BoundCallable::Lambda(callable) => apply_lambda(evaluator, callable, values),
    }
}

fn apply_method(
    evaluator: &mut Evaluator<'_>,
    method: &BuiltinMethod,
    receiver: Value,
    values: Vec<Value>,
) -> Result<Value> {
    match method.implementation_for(&receiver) {
        Some(implementation) => {
            implementation(evaluator, BuiltinCall::new(method.name, receiver, values))
        }
        None => Err(missing_attribute_error(&receiver, method.name)),
    }
}

fn apply_lambda(
    evaluator: &mut Evaluator<'_>,
    callable: &Callable,
    values: Vec<Value>,
) -> Result<Value> {
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
        evaluator.slots[*slot] = value;
    }
    evaluator.evaluate(&lambda.body)
}

fn evaluate_arguments<'n>(
    evaluator: &mut Evaluator<'_>,
    name: &'static str,
    receiver: Value,
    arguments: &'n ArgumentList,
) -> Result<BuiltinCall<'n>> {
    let function = bind_callable(evaluator, arguments.function.as_ref())?;
    let values = evaluator.evaluate_spread(&arguments.positional)?;
    let mut named = Vec::new();
    for (name, node) in &arguments.named {
        match name {
            Some(name) => named.push((Cow::Borrowed(name.as_str()), evaluator.evaluate(node)?)),
            None => spread_named(evaluator, node, &mut named)?,
        }
    }
    Ok(BuiltinCall {
        name,
        receiver,
        values,
        named,
        function,
    })
}

fn spread_named(
    evaluator: &mut Evaluator<'_>,
    node: &ExpressionNode,
    named: &mut Vec<(Cow<'_, str>, Value)>,
) -> Result<()> {
    let Value::Dict(dict) = evaluator.evaluate(node)? else {
        return Err(type_error("argument after ** must be a mapping").at(node.at));
    };
    evaluator.meter.charge_table(named.len() + dict.map.len())?;
    // The keys of one dict are distinct; they can only clash with earlier names.
    let before = named.len();
    for (key, value) in &dict.map {
        evaluator.meter.charge_steps(1 + before as u64)?;
        let Value::Text(name) = &key.0 else {
            return Err(type_error("keywords must be strings").at(node.at));
        };
        evaluator.meter.charge_memory(name.body.len())?;
        if named[..before].iter().any(|it| it.0 == *name.body) {
            let message = format!("got multiple values for keyword argument '{}'", name.body);
            return Err(type_error(message).at(node.at));
        }
        named.push((Cow::Owned(name.body.to_string()), value.clone()));
    }
    Ok(())
}

fn bind_callable(
    evaluator: &mut Evaluator<'_>,
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
            let receiver = evaluator.evaluate(node)?;
            if method.implementation_for(&receiver).is_none() {
                return Err(missing_attribute_error(&receiver, method.name));
            }
            BoundCallable::BoundMethod(receiver, method.clone())
        }
    })))
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

/// Whether a node is the literal `None`, which means no function.
pub(super) fn is_none_literal(node: &ExpressionNode) -> bool {
    matches!(
        &node.kind,
        ExpressionKind::Constant(super::ast::Constant::None)
    )
}
