//! Names → slots, functions and methods. What cannot be resolved is refused
//! here, before anything runs.

use std::sync::Arc;

use super::{
    call::is_none,
    catalog::{self, Function},
    fault::{Kind, Result, Trouble, syntax, type_error},
    mathematics,
    node::{
        Act, Arguments, Callable, Clause, Comprehension, Constant, Form, Lambda, Node, Piece,
        Statement, Step, Target,
    },
};

/// Names of Python that are left out on purpose, and why.
const LEFT_OUT: [(&str, &str); 13] = [
    (
        "isinstance",
        "types are not values here; parameters have declared types",
    ),
    (
        "type",
        "types are not values here; parameters have declared types",
    ),
    ("print", "the value of the expression is the result"),
    ("input", "declare a parameter"),
    ("open", "there are no files"),
    ("eval", "write the expression itself"),
    ("exec", "write the expression itself"),
    ("frozenset", "use set(…)"),
    ("bytes", "there are no bytes"),
    ("complex", "there are no complex numbers"),
    ("object", "types are not values here"),
    ("getattr", "use record['key']"),
    ("hasattr", "use 'key' in record"),
];
/// What `max(…, key=f)` and `map(f, …)` take a function for.
const BY_KEY: [&str; 3] = ["sorted", "min", "max"];
const BY_PLACE: [&str; 2] = ["map", "filter"];

pub(super) struct Resolver<'p> {
    parameters: &'p [&'p str],
    /// Names in reach, innermost last, with their slots.
    scope: Vec<(String, usize)>,
    pub(super) slots: usize,
    /// By parameter.
    pub(super) used: Vec<bool>,
}

impl<'p> Resolver<'p> {
    pub(super) fn new(parameters: &'p [&'p str]) -> Self {
        let named = parameters.iter().enumerate();
        Self {
            parameters,
            scope: named
                .map(|(slot, name)| ((*name).to_owned(), slot))
                .collect(),
            slots: parameters.len(),
            used: vec![false; parameters.len()],
        }
    }

    pub(super) fn statement(&mut self, statement: &mut Statement) -> Result<()> {
        self.node(&mut statement.value)?;
        if let Some(target) = &mut statement.target {
            self.bind_once(target)?;
        }
        Ok(())
    }

    /// Names of an assignment: the same name is the same slot.
    fn bind_once(&mut self, target: &mut Target) -> Result<()> {
        match target {
            Target::Name(name, at) if self.parameters.contains(&name.as_str()) => {
                let message = format!("'{name}' is a parameter; assign to another name");
                Err(syntax(message).at(*at))
            }
            Target::Name(name, _) => {
                let known = self.scope.iter().find(|it| it.0 == *name);
                let slot = known.map(|it| it.1);
                *target = Target::Slot(slot.unwrap_or_else(|| self.declare(name.clone())));
                Ok(())
            }
            Target::Several(targets, _) => targets.iter_mut().try_for_each(|it| self.bind_once(it)),
            Target::Slot(_) => Ok(()),
        }
    }

    /// Names of a `for`: new ones, that hide others.
    fn bind_new(&mut self, target: &mut Target) {
        match target {
            Target::Name(name, _) => *target = Target::Slot(self.declare(name.clone())),
            Target::Several(targets, _) => targets.iter_mut().for_each(|it| self.bind_new(it)),
            Target::Slot(_) => (),
        }
    }

    fn declare(&mut self, name: String) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.scope.push((name, slot));
        slot
    }

    fn node(&mut self, node: &mut Node) -> Result<()> {
        let at = node.at;
        match &mut node.form {
            Form::Constant(_) | Form::Slot(_) => Ok(()),
            Form::Name(name) => {
                node.form = self.name(name).map_err(|it| it.at(at))?;
                Ok(())
            }
            Form::Tuple(all)
            | Form::List(all)
            | Form::Set(all)
            | Form::And(all)
            | Form::Or(all) => self.nodes(all),
            Form::Dict(entries) => {
                for (key, value) in entries {
                    key.iter_mut().try_for_each(|it| self.node(it))?;
                    self.node(value)?;
                }
                Ok(())
            }
            Form::Star(inner) | Form::Unary(_, inner) => self.node(inner),
            Form::Chain(first, rest) => {
                self.node(first)?;
                rest.iter_mut().try_for_each(|it| self.node(&mut it.2))
            }
            Form::Compare(first, rest) => {
                self.node(first)?;
                rest.iter_mut().try_for_each(|it| self.node(&mut it.2))
            }
            Form::Power(base, exponent) => {
                self.node(base)?;
                self.node(exponent)
            }
            Form::If(parts) => self.nodes(parts.as_mut_slice()),
            Form::Postfix(..) => self.postfix(node),
            Form::Comprehension(form) => self.comprehension(form, at),
            Form::Template(pieces) => self.pieces(pieces),
            Form::Call(_, arguments) => self.arguments(arguments),
            Form::Lambda(_) => {
                Err(syntax("a lambda stands only as key=, or first in map() and filter()").at(at))
            }
        }
    }

    fn nodes(&mut self, nodes: &mut [Node]) -> Result<()> {
        nodes.iter_mut().try_for_each(|it| self.node(it))
    }

    fn name(&mut self, name: &str) -> Result<Form> {
        if let Some(slot) = self.slot(name) {
            return Ok(Form::Slot(slot));
        }
        if let Some(number) = mathematics::bare_constant(name) {
            return Ok(Form::Constant(Constant::Float(number)));
        }
        if catalog::function(name).is_some() || name == "math" {
            return Err(type_error(match name {
                "math" => "math is not a value; write math.sqrt(…)".to_owned(),
                _ => format!("{name} is a function; write {name}(…)"),
            }));
        }
        Err(self.unknown(name))
    }

    fn slot(&mut self, name: &str) -> Option<usize> {
        let found = self.scope.iter().rev().find(|it| it.0 == name)?;
        let slot = found.1;
        if let Some(used) = self.used.get_mut(slot) {
            *used = true;
        }
        Some(slot)
    }

    fn is_bound(&self, name: &str) -> bool {
        self.scope.iter().any(|it| it.0 == name)
    }

    fn unknown(&self, name: &str) -> Trouble {
        let message = format!("name '{name}' is not defined");
        if let Some((_, why)) = LEFT_OUT.iter().find(|it| it.0 == name) {
            return Trouble::new(Kind::Name, format!("{message}; {why}"));
        }
        let known = self.scope.iter().map(|it| it.0.as_str());
        let known = known.chain(catalog::FUNCTIONS.iter().map(|it| it.0));
        let known = known.chain(mathematics::FUNCTIONS.iter().map(|it| it.0));
        Trouble::new(Kind::Name, message + &nearest(name, known))
    }

    /// A call of a function takes the first steps of a postfix expression, and
    /// a method two of the rest.
    fn postfix(&mut self, node: &mut Node) -> Result<()> {
        let Form::Postfix(base, steps) = &mut node.form else {
            return Ok(());
        };
        let mut rest = std::mem::take(steps).into_iter().peekable();
        if let Form::Name(name) = &base.form
            && !self.is_bound(name)
        {
            let mut path = name.clone();
            while let Some(step) = rest.next_if(|it| matches!(it.act, Act::Attribute(_))) {
                let Act::Attribute(attribute) = step.act else {
                    continue;
                };
                path = format!("{path}.{attribute}");
            }
            let call = rest.next_if(|it| matches!(it.act, Act::Call(_)));
            base.form = self.global(&path, call).map_err(|it| it.at(base.at))?;
        } else {
            self.node(base)?;
        }
        let mut done = Vec::new();
        while let Some(step) = rest.next() {
            let Act::Attribute(_) = &step.act else {
                done.push(self.other_step(step)?);
                continue;
            };
            let call = rest.next_if(|it| matches!(it.act, Act::Call(_)));
            done.push(self.attribute(step, call)?);
        }
        if done.is_empty() {
            let base = std::mem::replace(&mut **base, Node::new(0, Form::Tuple(Vec::new())));
            *node = base;
        } else {
            *steps = done;
        }
        Ok(())
    }

    /// What `path` or `path(…)` means, if its first name is no variable.
    fn global(&mut self, path: &str, call: Option<Step>) -> Result<Form> {
        let first = path.split('.').next().unwrap_or(path);
        let Some(Step {
            act: Act::Call(mut arguments),
            ..
        }) = call
        else {
            return match mathematics::constant(path) {
                Some(number) => Ok(Form::Constant(Constant::Float(number))),
                None if path == first => self.name(path),
                None => Err(self.unknown_path(path)),
            };
        };
        let Some(function) = catalog::function(path) else {
            return Err(self.unknown_path(path));
        };
        self.take_function(function, &mut arguments)?;
        self.arguments(&mut arguments)?;
        Ok(Form::Call(function, arguments))
    }

    fn unknown_path(&self, path: &str) -> Trouble {
        let Some((first, last)) = path.rsplit_once('.') else {
            return self.unknown(path);
        };
        if first == "math" {
            let known = mathematics::FUNCTIONS.iter().map(|it| it.0);
            let message = format!("module 'math' has no attribute '{last}'");
            return Trouble::new(Kind::Attribute, message + &nearest(last, known));
        }
        let root = first.split('.').next().unwrap_or(first);
        if catalog::function(root).is_none() {
            return self.unknown(root);
        }
        let known = catalog::DOTTED.iter().map(|it| it.0);
        let message = format!("'{first}' has no attribute '{last}'");
        Trouble::new(Kind::Attribute, message + &nearest(path, known))
    }

    /// Takes the argument that is a function out of the others.
    fn take_function(&mut self, function: Function, arguments: &mut Arguments) -> Result<()> {
        let node =
            if BY_PLACE.contains(&function.name) && !arguments.positional.is_empty() {
                arguments.positional.remove(0)
            } else if let Some(at) = arguments.named.iter().position(|(name, _)| {
                name.as_deref() == Some("key") && BY_KEY.contains(&function.name)
            }) {
                arguments.named.remove(at).1
            } else {
                return Ok(());
            };
        let at = node.at;
        let callable = self.callable(node).map_err(|it| it.at(at))?;
        arguments.function = Some(Arc::new(callable));
        Ok(())
    }

    fn callable(&mut self, node: Node) -> Result<Callable> {
        if is_none(&node) {
            return Ok(Callable::Nothing);
        }
        match node.form {
            Form::Lambda(lambda) => {
                let lambda = Arc::unwrap_or_clone(lambda);
                self.lambda(lambda).map(Callable::Lambda)
            }
            Form::Name(name) if !self.is_bound(&name) => match catalog::function(&name) {
                Some(found) if takes_function(&found) => Err(type_error("write a lambda here")),
                Some(found) => Ok(Callable::Function(found)),
                None => Err(self.unknown(&name)),
            },
            Form::Postfix(base, steps) => self.dotted(*base, steps),
            _ => Err(type_error("a function is expected here, as in key=len")),
        }
    }

    /// `math.sqrt`, `str.lower` or `counts.get`
    fn dotted(&mut self, mut base: Node, mut steps: Vec<Step>) -> Result<Callable> {
        let Some(Step {
            act: Act::Attribute(last),
            ..
        }) = steps.pop()
        else {
            return Err(type_error("a function is expected here, as in key=len"));
        };
        if let (Form::Name(name), true) = (&base.form, steps.is_empty())
            && !self.is_bound(name)
        {
            let path = format!("{name}.{last}");
            if let Some(found) = catalog::function(&path) {
                return Ok(Callable::Function(found));
            }
            return match (name.as_str(), catalog::method(&last)) {
                ("str", Some(method)) => Ok(Callable::Method(method)),
                _ => Err(self.unknown_path(&path)),
            };
        }
        if !steps.is_empty() {
            base = Node::new(base.at, Form::Postfix(Box::new(base), steps));
        }
        self.node(&mut base)?;
        match catalog::method(&last) {
            Some(method) => Ok(Callable::Bound(base, method)),
            None => Err(no_attribute(&last)),
        }
    }

    fn lambda(&mut self, mut lambda: Lambda) -> Result<Lambda> {
        let scope = self.scope.len();
        let names = lambda.names.clone();
        lambda.slots = names.into_iter().map(|it| self.declare(it)).collect();
        let done = self.node(&mut lambda.body);
        self.scope.truncate(scope);
        done.map(|()| lambda)
    }

    fn other_step(&mut self, mut step: Step) -> Result<Step> {
        match &mut step.act {
            Act::Index(node) => self.node(node)?,
            Act::Slice(parts) => {
                let parts = parts.iter_mut().flatten();
                parts.into_iter().try_for_each(|it| self.node(it))?;
            }
            Act::Call(_) => {
                let message = "only functions and methods can be called";
                return Err(type_error(message).at(step.at));
            }
            Act::Attribute(_) | Act::Field(_) | Act::Method(..) => (),
        }
        Ok(step)
    }

    fn attribute(&mut self, step: Step, call: Option<Step>) -> Result<Step> {
        let Act::Attribute(name) = &step.act else {
            return Ok(step);
        };
        let act = match call {
            Some(Step {
                act: Act::Call(mut arguments),
                ..
            }) => {
                let method = catalog::method(name).ok_or_else(|| no_attribute(name).at(step.at))?;
                self.arguments(&mut arguments)?;
                Act::Method(method, arguments)
            }
            _ => match catalog::field(name) {
                Some(field) => Act::Field(field),
                None if catalog::method(name).is_some() => {
                    let message = format!("{name} is a method; write .{name}(…)");
                    return Err(type_error(message).at(step.at));
                }
                None => return Err(no_attribute(name).at(step.at)),
            },
        };
        Ok(Step { at: step.at, act })
    }

    fn arguments(&mut self, arguments: &mut Arguments) -> Result<()> {
        self.nodes(&mut arguments.positional)?;
        let named = arguments.named.iter_mut();
        named.into_iter().try_for_each(|it| self.node(&mut it.1))
    }

    fn comprehension(&mut self, form: &mut Arc<Comprehension>, at: u32) -> Result<()> {
        let form = Arc::get_mut(form).ok_or_else(|| syntax("shared too early").at(at))?;
        let scope = self.scope.len();
        let done = self.clauses(&mut form.clauses).and_then(|()| {
            form.key.iter_mut().try_for_each(|it| self.node(it))?;
            self.node(&mut form.item)
        });
        self.scope.truncate(scope);
        done
    }

    fn clauses(&mut self, clauses: &mut [Clause]) -> Result<()> {
        for clause in clauses {
            self.node(&mut clause.source)?;
            self.bind_new(&mut clause.target);
            self.nodes(&mut clause.conditions)?;
        }
        Ok(())
    }

    fn pieces(&mut self, pieces: &mut [Piece]) -> Result<()> {
        for piece in pieces {
            if let Piece::Value(shown) = piece {
                self.node(&mut shown.value)?;
                self.pieces(&mut shown.spec)?;
            }
        }
        Ok(())
    }
}

fn takes_function(function: &Function) -> bool {
    BY_PLACE.contains(&function.name)
}

fn no_attribute(name: &str) -> Trouble {
    if let Some((_, why)) = catalog::CLOSED.iter().find(|it| it.0 == name) {
        return Trouble::new(Kind::Attribute, format!("'{name}' is not offered; {why}"));
    }
    let message = format!("no value has an attribute '{name}'");
    Trouble::new(
        Kind::Attribute,
        message + &nearest(name, catalog::attributes()),
    )
}

/// `; did you mean '…'?`, if something is near.
fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    if name.len() > 40 {
        return String::new();
    }
    let rated = known.map(|it| (strsim::damerau_levenshtein(name, it), it));
    let far = 1 + name.chars().count() / 3;
    match rated.filter(|it| it.0 <= far).min_by_key(|it| it.0) {
        Some((_, near)) => format!("; did you mean '{near}'?"),
        None => String::new(),
    }
}
