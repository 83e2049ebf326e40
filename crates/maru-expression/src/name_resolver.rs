//! Resolves names to slots, functions and methods, and fails on unknown names before
//! anything is evaluated.

use std::sync::Arc;

use super::{
    ast::{
        ArgumentList, AssignmentTarget, Callable, Comprehension, Constant, ExpressionKind,
        ExpressionNode, FStringPart, ForClause, Lambda, PostfixKind, PostfixStep, StatementNode,
    },
    builtins::{self, BuiltinFunction},
    call::is_none_literal,
    error::{ErrorKind, Result, UnlocatedError, syntax_error, type_error},
    math,
};

/// Python names that are not supported, with the reason.
const UNSUPPORTED_NAMES: [(&str, &str); 13] = [
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
/// Functions with a `key=` argument.
const TAKES_KEY_FUNCTION: [&str; 3] = ["sorted", "min", "max"];
const TAKES_LEADING_FUNCTION: [&str; 2] = ["map", "filter"];

pub(super) struct NameResolver<'p> {
    parameters: &'p [&'p str],
    /// The names in scope with their slots, innermost last.
    scope: Vec<(String, usize)>,
    pub(super) slot_count: usize,
    /// Which parameters are used.
    pub(super) used_parameters: Vec<bool>,
}

impl<'p> NameResolver<'p> {
    pub(super) fn new(parameters: &'p [&'p str]) -> Self {
        let named = parameters.iter().enumerate();
        Self {
            parameters,
            scope: named
                .map(|(slot, name)| ((*name).to_owned(), slot))
                .collect(),
            slot_count: parameters.len(),
            used_parameters: vec![false; parameters.len()],
        }
    }

    pub(super) fn resolve_statement(&mut self, statement: &mut StatementNode) -> Result<()> {
        self.resolve_node(&mut statement.value)?;
        if let Some(target) = &mut statement.target {
            self.bind_assignment(target)?;
        }
        Ok(())
    }

    /// Binds the names of an assignment; an existing name keeps its slot.
    fn bind_assignment(&mut self, target: &mut AssignmentTarget) -> Result<()> {
        match target {
            AssignmentTarget::Name(name, at) if self.parameters.contains(&name.as_str()) => {
                let message = format!("'{name}' is a parameter; assign to another name");
                Err(syntax_error(message).at(*at))
            }
            AssignmentTarget::Name(name, _) => {
                let known = self.scope.iter().find(|it| it.0 == *name);
                let slot = known.map(|it| it.1);
                *target =
                    AssignmentTarget::Slot(slot.unwrap_or_else(|| self.declare(name.clone())));
                Ok(())
            }
            AssignmentTarget::Unpack(targets, _) => targets
                .iter_mut()
                .try_for_each(|it| self.bind_assignment(it)),
            AssignmentTarget::Slot(_) => Ok(()),
        }
    }

    /// Binds the names of a `for` clause to new slots, which shadow others.
    fn bind_loop_target(&mut self, target: &mut AssignmentTarget) {
        match target {
            AssignmentTarget::Name(name, _) => {
                *target = AssignmentTarget::Slot(self.declare(name.clone()));
            }
            AssignmentTarget::Unpack(targets, _) => {
                targets.iter_mut().for_each(|it| self.bind_loop_target(it));
            }
            AssignmentTarget::Slot(_) => (),
        }
    }

    fn declare(&mut self, name: String) -> usize {
        let slot = self.slot_count;
        self.slot_count += 1;
        self.scope.push((name, slot));
        slot
    }

    fn resolve_node(&mut self, node: &mut ExpressionNode) -> Result<()> {
        let at = node.at;
        match &mut node.kind {
            ExpressionKind::Constant(_) | ExpressionKind::Slot(_) => Ok(()),
            ExpressionKind::Name(name) => {
                node.kind = self.resolve_name(name).map_err(|it| it.at(at))?;
                Ok(())
            }
            ExpressionKind::Tuple(all)
            | ExpressionKind::List(all)
            | ExpressionKind::Set(all)
            | ExpressionKind::And(all)
            | ExpressionKind::Or(all) => self.resolve_nodes(all),
            ExpressionKind::Dict(entries) => {
                for (key, value) in entries {
                    key.iter_mut().try_for_each(|it| self.resolve_node(it))?;
                    self.resolve_node(value)?;
                }
                Ok(())
            }
            ExpressionKind::Starred(inner) | ExpressionKind::Unary(_, inner) => {
                self.resolve_node(inner)
            }
            ExpressionKind::BinaryChain(first, rest) => {
                self.resolve_node(first)?;
                rest.iter_mut()
                    .try_for_each(|it| self.resolve_node(&mut it.2))
            }
            ExpressionKind::ComparisonChain(first, rest) => {
                self.resolve_node(first)?;
                rest.iter_mut()
                    .try_for_each(|it| self.resolve_node(&mut it.2))
            }
            ExpressionKind::Power(base, exponent) => {
                self.resolve_node(base)?;
                self.resolve_node(exponent)
            }
            ExpressionKind::Conditional(parts) => self.resolve_nodes(parts.as_mut_slice()),
            ExpressionKind::Postfix(..) => self.resolve_postfix(node),
            ExpressionKind::Comprehension(form) => self.resolve_comprehension(form, at),
            ExpressionKind::FString(pieces) => self.resolve_fstring_parts(pieces),
            ExpressionKind::Call(_, arguments) => self.resolve_arguments(arguments),
            ExpressionKind::Lambda(_) => Err(syntax_error(
                "a lambda stands only as key=, or first in map() and filter()",
            )
            .at(at)),
        }
    }

    fn resolve_nodes(&mut self, nodes: &mut [ExpressionNode]) -> Result<()> {
        nodes.iter_mut().try_for_each(|it| self.resolve_node(it))
    }

    fn resolve_name(&mut self, name: &str) -> Result<ExpressionKind> {
        if let Some(slot) = self.use_slot(name) {
            return Ok(ExpressionKind::Slot(slot));
        }
        if let Some(number) = math::bare_constant(name) {
            return Ok(ExpressionKind::Constant(Constant::Float(number)));
        }
        if builtins::find_function(name).is_some() || name == "math" {
            return Err(type_error(match name {
                "math" => "math is not a value; write math.sqrt(…)".to_owned(),
                _ => format!("{name} is a function; write {name}(…)"),
            }));
        }
        Err(self.unknown_name_error(name))
    }

    fn use_slot(&mut self, name: &str) -> Option<usize> {
        let found = self.scope.iter().rev().find(|it| it.0 == name)?;
        let slot = found.1;
        if let Some(used) = self.used_parameters.get_mut(slot) {
            *used = true;
        }
        Some(slot)
    }

    fn is_bound(&self, name: &str) -> bool {
        self.scope.iter().any(|it| it.0 == name)
    }

    fn unknown_name_error(&self, name: &str) -> UnlocatedError {
        let message = format!("name '{name}' is not defined");
        if let Some((_, reason)) = UNSUPPORTED_NAMES.iter().find(|it| it.0 == name) {
            return UnlocatedError::new(ErrorKind::Name, format!("{message}; {reason}"));
        }
        let known = self.scope.iter().map(|it| it.0.as_str());
        let known = known.chain(builtins::BARE_FUNCTIONS.iter().map(|it| it.0));
        let known = known.chain(math::MATH_FUNCTIONS.iter().map(|it| it.0));
        UnlocatedError::new(ErrorKind::Name, message + &spelling_suggestion(name, known))
    }

    /// Resolves a postfix expression. A function call consumes its first steps, and each
    /// method call two of the rest.
    fn resolve_postfix(&mut self, node: &mut ExpressionNode) -> Result<()> {
        let ExpressionKind::Postfix(base, steps) = &mut node.kind else {
            return Ok(());
        };
        let mut rest = std::mem::take(steps).into_iter().peekable();
        if let ExpressionKind::Name(name) = &base.kind
            && !self.is_bound(name)
        {
            let mut path = name.clone();
            while let Some(step) = rest.next_if(|it| matches!(it.kind, PostfixKind::Attribute(_))) {
                let PostfixKind::Attribute(attribute) = step.kind else {
                    continue;
                };
                path = format!("{path}.{attribute}");
            }
            let call = rest.next_if(|it| matches!(it.kind, PostfixKind::Call(_)));
            base.kind = self
                .resolve_global(&path, call)
                .map_err(|it| it.at(base.at))?;
        } else {
            self.resolve_node(base)?;
        }
        let mut done = Vec::new();
        while let Some(step) = rest.next() {
            let PostfixKind::Attribute(_) = &step.kind else {
                done.push(self.resolve_step(step)?);
                continue;
            };
            let call = rest.next_if(|it| matches!(it.kind, PostfixKind::Call(_)));
            done.push(self.resolve_attribute(step, call)?);
        }
        if done.is_empty() {
            let base = std::mem::replace(
                &mut **base,
                ExpressionNode::new(0, ExpressionKind::Tuple(Vec::new())),
            );
            *node = base;
        } else {
            *steps = done;
        }
        Ok(())
    }

    /// Resolves `path` or `path(…)` whose first name is not a variable.
    fn resolve_global(&mut self, path: &str, call: Option<PostfixStep>) -> Result<ExpressionKind> {
        let first = path.split('.').next().unwrap_or(path);
        let Some(PostfixStep {
            kind: PostfixKind::Call(mut arguments),
            ..
        }) = call
        else {
            return match math::dotted_constant(path) {
                Some(number) => Ok(ExpressionKind::Constant(Constant::Float(number))),
                None if path == first => self.resolve_name(path),
                None => Err(self.unknown_path_error(path)),
            };
        };
        let Some(function) = builtins::find_function(path) else {
            return Err(self.unknown_path_error(path));
        };
        self.take_callable_argument(function, &mut arguments)?;
        self.resolve_arguments(&mut arguments)?;
        Ok(ExpressionKind::Call(function, arguments))
    }

    fn unknown_path_error(&self, path: &str) -> UnlocatedError {
        let Some((first, last)) = path.rsplit_once('.') else {
            return self.unknown_name_error(path);
        };
        if first == "math" {
            let known = math::MATH_FUNCTIONS.iter().map(|it| it.0);
            let message = format!("module 'math' has no attribute '{last}'");
            return UnlocatedError::new(
                ErrorKind::Attribute,
                message + &spelling_suggestion(last, known),
            );
        }
        let root = first.split('.').next().unwrap_or(first);
        if builtins::find_function(root).is_none() {
            return self.unknown_name_error(root);
        }
        let known = builtins::DOTTED_FUNCTIONS.iter().map(|it| it.0);
        let message = format!("'{first}' has no attribute '{last}'");
        UnlocatedError::new(
            ErrorKind::Attribute,
            message + &spelling_suggestion(path, known),
        )
    }

    /// Removes the argument that must be a function.
    fn take_callable_argument(
        &mut self,
        function: BuiltinFunction,
        arguments: &mut ArgumentList,
    ) -> Result<()> {
        let node = if TAKES_LEADING_FUNCTION.contains(&function.name)
            && !arguments.positional.is_empty()
        {
            arguments.positional.remove(0)
        } else if let Some(at) = arguments.named.iter().position(|(name, _)| {
            name.as_deref() == Some("key") && TAKES_KEY_FUNCTION.contains(&function.name)
        }) {
            arguments.named.remove(at).1
        } else {
            return Ok(());
        };
        let at = node.at;
        let callable = self.resolve_callable(node).map_err(|it| it.at(at))?;
        arguments.function = Some(Arc::new(callable));
        Ok(())
    }

    fn resolve_callable(&mut self, node: ExpressionNode) -> Result<Callable> {
        if is_none_literal(&node) {
            return Ok(Callable::Identity);
        }
        match node.kind {
            ExpressionKind::Lambda(lambda) => {
                let lambda = Arc::unwrap_or_clone(lambda);
                self.resolve_lambda(lambda).map(Callable::Lambda)
            }
            ExpressionKind::Name(name) if !self.is_bound(&name) => {
                match builtins::find_function(&name) {
                    Some(found) if takes_leading_function(&found) => {
                        Err(type_error("write a lambda here"))
                    }
                    Some(found) => Ok(Callable::Function(found)),
                    None => Err(self.unknown_name_error(&name)),
                }
            }
            ExpressionKind::Postfix(base, steps) => self.resolve_dotted_callable(*base, steps),
            _ => Err(type_error("a function is expected here, as in key=len")),
        }
    }

    /// Resolves a dotted function such as `math.sqrt`, `str.lower` or `counts.get`.
    fn resolve_dotted_callable(
        &mut self,
        mut base: ExpressionNode,
        mut steps: Vec<PostfixStep>,
    ) -> Result<Callable> {
        let Some(PostfixStep {
            kind: PostfixKind::Attribute(last),
            ..
        }) = steps.pop()
        else {
            return Err(type_error("a function is expected here, as in key=len"));
        };
        if let (ExpressionKind::Name(name), true) = (&base.kind, steps.is_empty())
            && !self.is_bound(name)
        {
            let path = format!("{name}.{last}");
            if let Some(found) = builtins::find_function(&path) {
                return Ok(Callable::Function(found));
            }
            return match (name.as_str(), builtins::find_method(&last)) {
                ("str", Some(method)) => Ok(Callable::UnboundMethod(method)),
                _ => Err(self.unknown_path_error(&path)),
            };
        }
        if !steps.is_empty() {
            base = ExpressionNode::new(base.at, ExpressionKind::Postfix(Box::new(base), steps));
        }
        self.resolve_node(&mut base)?;
        match builtins::find_method(&last) {
            Some(method) => Ok(Callable::BoundMethod(base, method)),
            None => Err(no_attribute_error(&last)),
        }
    }

    fn resolve_lambda(&mut self, mut lambda: Lambda) -> Result<Lambda> {
        let scope = self.scope.len();
        let names = lambda.names.clone();
        lambda.slots = names.into_iter().map(|it| self.declare(it)).collect();
        let done = self.resolve_node(&mut lambda.body);
        self.scope.truncate(scope);
        done.map(|()| lambda)
    }

    fn resolve_step(&mut self, mut step: PostfixStep) -> Result<PostfixStep> {
        match &mut step.kind {
            PostfixKind::Index(node) => self.resolve_node(node)?,
            PostfixKind::Slice(parts) => {
                let parts = parts.iter_mut().flatten();
                parts.into_iter().try_for_each(|it| self.resolve_node(it))?;
            }
            PostfixKind::Call(_) => {
                let message = "only functions and methods can be called";
                return Err(type_error(message).at(step.at));
            }
            PostfixKind::Attribute(_) | PostfixKind::Field(_) | PostfixKind::Method(..) => (),
        }
        Ok(step)
    }

    fn resolve_attribute(
        &mut self,
        step: PostfixStep,
        call: Option<PostfixStep>,
    ) -> Result<PostfixStep> {
        let PostfixKind::Attribute(name) = &step.kind else {
            return Ok(step);
        };
        let act = match call {
            Some(PostfixStep {
                kind: PostfixKind::Call(mut arguments),
                ..
            }) => {
                let method = builtins::find_method(name)
                    .ok_or_else(|| no_attribute_error(name).at(step.at))?;
                self.resolve_arguments(&mut arguments)?;
                PostfixKind::Method(method, arguments)
            }
            _ => match builtins::find_field(name) {
                Some(field) => PostfixKind::Field(field),
                None if builtins::find_method(name).is_some() => {
                    let message = format!("{name} is a method; write .{name}(…)");
                    return Err(type_error(message).at(step.at));
                }
                None => return Err(no_attribute_error(name).at(step.at)),
            },
        };
        Ok(PostfixStep {
            at: step.at,
            kind: act,
        })
    }

    fn resolve_arguments(&mut self, arguments: &mut ArgumentList) -> Result<()> {
        self.resolve_nodes(&mut arguments.positional)?;
        let named = arguments.named.iter_mut();
        named
            .into_iter()
            .try_for_each(|it| self.resolve_node(&mut it.1))
    }

    fn resolve_comprehension(&mut self, form: &mut Arc<Comprehension>, at: u32) -> Result<()> {
        let form = Arc::get_mut(form).ok_or_else(|| syntax_error("shared too early").at(at))?;
        let scope = self.scope.len();
        let done = self.resolve_clauses(&mut form.clauses).and_then(|()| {
            form.key
                .iter_mut()
                .try_for_each(|it| self.resolve_node(it))?;
            self.resolve_node(&mut form.item)
        });
        self.scope.truncate(scope);
        done
    }

    fn resolve_clauses(&mut self, clauses: &mut [ForClause]) -> Result<()> {
        for clause in clauses {
            self.resolve_node(&mut clause.source)?;
            self.bind_loop_target(&mut clause.target);
            self.resolve_nodes(&mut clause.conditions)?;
        }
        Ok(())
    }

    fn resolve_fstring_parts(&mut self, pieces: &mut [FStringPart]) -> Result<()> {
        for piece in pieces {
            if let FStringPart::Field(shown) = piece {
                self.resolve_node(&mut shown.value)?;
                self.resolve_fstring_parts(&mut shown.spec)?;
            }
        }
        Ok(())
    }
}

fn takes_leading_function(function: &BuiltinFunction) -> bool {
    TAKES_LEADING_FUNCTION.contains(&function.name)
}

fn no_attribute_error(name: &str) -> UnlocatedError {
    if let Some((_, reason)) = builtins::UNSUPPORTED_ATTRIBUTES
        .iter()
        .find(|it| it.0 == name)
    {
        return UnlocatedError::new(
            ErrorKind::Attribute,
            format!("'{name}' is not supported; {reason}"),
        );
    }
    let message = format!("no value has an attribute '{name}'");
    UnlocatedError::new(
        ErrorKind::Attribute,
        message + &spelling_suggestion(name, builtins::attribute_names()),
    )
}

/// Returns `; did you mean '…'?` if a known name is similar.
fn spelling_suggestion<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
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

#[cfg(test)]
mod tests {
    use crate::compile;

    #[test]
    fn misspelt_name_gets_a_suggestion() {
        for (source, near) in [
            ("nmae", "'name'"),
            ("lne(name)", "'len'"),
            ("name.uper()", "'upper'"),
            ("math.sqr(2)", "'sqrt'"),
            ("'{}'.format(name)", "f-string"),
            ("[1].append(2)", "items + [x]"),
        ] {
            let fault = compile(source, &["name"]).unwrap_err();
            assert!(fault.message.contains(near), "{fault}");
        }
    }
}
