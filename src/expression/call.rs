//! Calls: arguments, and functions that call functions.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use super::{
    catalog::{Function, Given, Method, Type},
    evaluate::Run,
    fault::{Kind, Result, Trouble, type_error},
    node::{Arguments, Callable, Form, Node},
    value::Value,
};

/// A function with what it is bound to.
#[derive(Debug)]
pub(super) enum Ready {
    Lambda(Arc<Callable>),
    Function(Function),
    Method(Method),
    Bound(Value, Method),
    Nothing,
}

impl Run<'_> {
    pub(super) fn call(&mut self, function: &Function, arguments: &Arguments) -> Result<Value> {
        let given = self.given(function.name, Value::None, arguments)?;
        (function.run)(self, given)
    }

    pub(super) fn method(
        &mut self,
        receiver: Value,
        method: &Method,
        arguments: &Arguments,
    ) -> Result<Value> {
        let run = method
            .of(&receiver)
            .ok_or_else(|| missing(&receiver, method.name))?;
        let given = self.given(method.name, receiver, arguments)?;
        run(self, given)
    }

    pub(super) fn field(&mut self, receiver: Value, method: &Method) -> Result<Value> {
        let run = method
            .of(&receiver)
            .ok_or_else(|| missing(&receiver, method.name))?;
        run(self, Given::new(method.name, receiver, Vec::new()))
    }

    /// Calls `function` with `values`.
    pub(super) fn apply(&mut self, function: &Ready, mut values: Vec<Value>) -> Result<Value> {
        self.meter.step(1)?;
        match function {
            Ready::Nothing => Ok(values.pop().unwrap_or(Value::None)),
            Ready::Function(function) => {
                (function.run)(self, Given::new(function.name, Value::None, values))
            }
            Ready::Bound(receiver, method) => self.apply_method(method, receiver.clone(), values),
            Ready::Method(method) => {
                if values.is_empty() {
                    return Err(type_error("a method needs something to work on"));
                }
                let receiver = values.remove(0);
                self.apply_method(method, receiver, values)
            }
            Ready::Lambda(callable) => self.apply_lambda(callable, values),
        }
    }

    fn apply_method(
        &mut self,
        method: &Method,
        receiver: Value,
        values: Vec<Value>,
    ) -> Result<Value> {
        match method.of(&receiver) {
            Some(run) => run(self, Given::new(method.name, receiver, values)),
            None => Err(missing(&receiver, method.name)),
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
        self.value(&lambda.body)
    }

    fn given<'n>(
        &mut self,
        name: &'static str,
        receiver: Value,
        arguments: &'n Arguments,
    ) -> Result<Given<'n>> {
        let function = self.ready(arguments.function.as_ref())?;
        let values = self.spread(&arguments.positional)?;
        let mut named = Vec::new();
        for (name, node) in &arguments.named {
            match name {
                Some(name) => named.push((Cow::Borrowed(name.as_str()), self.value(node)?)),
                None => self.spread_named(node, &mut named)?,
            }
        }
        Ok(Given {
            name,
            receiver,
            values,
            named,
            function,
        })
    }

    fn spread_named(&mut self, node: &Node, named: &mut Vec<(Cow<'_, str>, Value)>) -> Result<()> {
        let Value::Dict(dict) = self.value(node)? else {
            return Err(type_error("argument after ** must be a mapping").at(node.at));
        };
        self.meter.table(named.len() + dict.map.len())?;
        // The names of one dict differ; they can only clash with earlier ones.
        let before = named.len();
        for (key, value) in &dict.map {
            self.meter.step(1 + before as u64)?;
            let Value::Text(name) = &key.0 else {
                return Err(type_error("keywords must be strings").at(node.at));
            };
            self.meter.memory(name.body.len())?;
            if named[..before].iter().any(|it| it.0 == *name.body) {
                let message = format!("got multiple values for keyword argument '{}'", name.body);
                return Err(type_error(message).at(node.at));
            }
            named.push((Cow::Owned(name.body.to_string()), value.clone()));
        }
        Ok(())
    }

    fn ready(&mut self, function: Option<&Arc<Callable>>) -> Result<Option<Rc<Ready>>> {
        let Some(callable) = function else {
            return Ok(None);
        };
        Ok(Some(Rc::new(match &**callable {
            Callable::Lambda(_) => Ready::Lambda(Arc::clone(callable)),
            Callable::Function(function) => Ready::Function(*function),
            Callable::Method(method) => Ready::Method(method.clone()),
            Callable::Nothing => Ready::Nothing,
            Callable::Bound(node, method) => {
                let receiver = self.value(node)?;
                if method.of(&receiver).is_none() {
                    return Err(missing(&receiver, method.name));
                }
                Ready::Bound(receiver, method.clone())
            }
        })))
    }
}

fn missing(receiver: &Value, name: &str) -> Trouble {
    let owner = receiver.type_name();
    let hint = match (Type::of(receiver), name) {
        (Some(Type::List), "append" | "extend" | "insert" | "remove" | "pop" | "clear") => {
            "; values do not change, make a new list: items + [x]"
        }
        (Some(Type::List), "sort" | "reverse") => {
            "; values do not change, use sorted(…) or reversed(…)"
        }
        _ => "",
    };
    let message = format!("'{owner}' object has no attribute '{name}'{hint}");
    Trouble::new(Kind::Attribute, message)
}

/// Whether a node is `None`, which stands for no function.
pub(super) fn is_none(node: &Node) -> bool {
    matches!(&node.form, Form::Constant(super::node::Constant::None))
}
