//! A sandboxed subset of Python expressions for custom tools.
//!
//! A definition is one expression, or a few assignments that end in `result = …`. It cannot
//! read files, use the network or import anything; the clock is passed in.
//!
//! - [`compile`] parses a source and resolves its names once: `lexer` → `token_cursor` with
//!   the grammar in `parse_*` → `name_resolver`. Functions and methods come from closed tables
//!   (`builtins`). They are not values, and values are immutable, so nothing can call or
//!   contain itself.
//! - [`CompiledExpression::run`] evaluates it (`evaluator`, `iteration`, `call`). A
//!   `ResourceMeter` is charged before any work or allocation, and recursion is bounded so that
//!   a small stack suffices: [`EvaluationLimits`].
//! - [`Error`] names line and column and words messages like Python.
//!
//! ```ignore
//! let expression = compile("sum(x for x in prices if x > 10)", &["prices"])?;
//! let arguments = json!({"prices": [5, 12, 30]}).as_object().cloned().unwrap_or_default();
//! assert_eq!(expression.run(&arguments, &EvaluationLimits::default())?.text, "42");
//! ```
//!
//! Test with `cargo nextest run -p maru-expression`; the tests stand beside the code, and
//! `tests/it/expression.rs` compares with the Python interpreter.

#![forbid(unsafe_code)]

mod ast;
mod builtins;
mod calendar;
mod call;
mod collections;
mod compare;
mod dates;
mod error;
mod evaluator;
mod float;
mod format_float;
mod format_percent;
mod format_spec;
mod fstring;
mod integer;
mod iterables;
mod iteration;
mod json;
mod lazy_iterator;
mod lexer;
mod limits;
mod literal;
mod math;
mod name_resolver;
mod operators;
mod parse_atom;
mod parse_expression;
mod parse_statement;
mod repr;
mod scalars;
mod sets;
mod string_search;
mod strings;
mod subscript;
mod token_cursor;
mod value;

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value as Json, value::RawValue};

pub use error::{Error, ErrorKind};
pub use limits::{EvaluationLimits, LocalTimestamp, MAX_SOURCE_BYTES};

use ast::StatementNode;
use error::{Result as Attempt, limit_error, value_error};
use evaluator::Evaluator;
use name_resolver::NameResolver;
use token_cursor::TokenCursor;
use value::Value;

/// A compiled definition. Cheap to clone, and usable on any thread.
#[derive(Clone, Debug)]
pub struct CompiledExpression(Arc<CompiledExpressionInner>);

#[derive(Debug)]
struct CompiledExpressionInner {
    source: String,
    statements: Vec<StatementNode>,
    slot_count: usize,
    parameters: Vec<String>,
    /// The slots of the parameters that are used.
    used_slots: Vec<usize>,
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct EvaluationOutput {
    /// The result as JSON, with every digit of an integer.
    pub json: Box<RawValue>,
    /// The result as `str()` writes it, for agents to read.
    pub text: String,
    /// The name of the Python type.
    pub type_name: &'static str,
}

/// Compiles a definition with these parameter names.
///
/// # Errors
/// Fails, with a location, if the source does not parse, is too long or nested too
/// deeply, or uses an unknown name.
pub fn compile(source: &str, parameters: &[&str]) -> Result<CompiledExpression, Error> {
    let compiled = compile_source(source, parameters).map_err(|it| it.into_error(source))?;
    Ok(CompiledExpression(Arc::new(compiled)))
}

fn compile_source(source: &str, parameters: &[&str]) -> Attempt<CompiledExpressionInner> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(limit_error(format!(
            "a definition longer than {MAX_SOURCE_BYTES} bytes"
        )));
    }
    let mut statements = parse_statement::parse_program(&mut TokenCursor::new(source, 0, 0)?)?;
    let mut resolver = NameResolver::new(parameters);
    for statement in &mut statements {
        resolver.resolve_statement(statement)?;
    }
    let used = resolver.used_parameters.iter().enumerate();
    Ok(CompiledExpressionInner {
        source: source.to_owned(),
        statements,
        slot_count: resolver.slot_count,
        parameters: parameters.iter().map(|it| (*it).to_owned()).collect(),
        used_slots: used.filter(|it| *it.1).map(|it| it.0).collect(),
    })
}

impl CompiledExpression {
    /// Returns the parameters that the definition uses, in their order.
    pub fn used_parameters(&self) -> impl Iterator<Item = &str> {
        self.0
            .used_slots
            .iter()
            .map(|slot| self.0.parameters[*slot].as_str())
    }

    /// Evaluates the definition. A missing argument is `None`; an unknown argument is
    /// ignored.
    ///
    /// # Errors
    /// Fails, with a location, if evaluation fails, exceeds `limits`, or gives a result
    /// that JSON cannot represent.
    pub fn run(
        &self,
        arguments: &Map<String, Json>,
        limits: &EvaluationLimits,
    ) -> Result<EvaluationOutput, Error> {
        self.evaluate_with_exact_integers(arguments, &HashMap::new(), limits)
    }

    /// Evaluates the definition with the exact digits of integers that are too large for
    /// a JSON number.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn evaluate_with_exact_integers(
        &self,
        arguments: &Map<String, Json>,
        exact_integers: &HashMap<String, String>,
        limits: &EvaluationLimits,
    ) -> Result<EvaluationOutput, Error> {
        self.evaluate_statements(arguments, exact_integers, limits)
            .map_err(|it| it.into_error(&self.0.source))
    }

    fn evaluate_statements(
        &self,
        arguments: &Map<String, Json>,
        exact_integers: &HashMap<String, String>,
        limits: &EvaluationLimits,
    ) -> Attempt<EvaluationOutput> {
        let mut evaluator = Evaluator::new(limits, self.0.slot_count);
        for slot in &self.0.used_slots {
            let name = &self.0.parameters[*slot];
            if let Some(digits) = exact_integers.get(name) {
                evaluator.slots[*slot] = json::integer_from_digits(&mut evaluator.meter, digits)?;
            } else if let Some(argument) = arguments.get(name) {
                evaluator.slots[*slot] = json::from_json(&mut evaluator.meter, argument)?;
            }
        }
        let mut last = Value::None;
        let mut at = 0;
        for statement in &self.0.statements {
            at = statement.value.at;
            last = evaluator.evaluate(&statement.value)?;
            if let Some(target) = &statement.target {
                evaluator
                    .assign(target, last.clone())
                    .map_err(|it| it.at(statement.at))?;
            }
        }
        into_output(&mut evaluator, &last).map_err(|it| it.at(at))
    }
}

fn into_output(evaluator: &mut Evaluator<'_>, value: &Value) -> Attempt<EvaluationOutput> {
    let json = json::to_json(&mut evaluator.meter, value)?;
    let max_bytes = evaluator.meter.limits.output;
    let text = repr::to_text_within(&mut evaluator.meter, value, max_bytes)?;
    let json = RawValue::from_string(json).map_err(|it| value_error(it.to_string()))?;
    Ok(EvaluationOutput {
        json,
        text,
        type_name: value.type_name(),
    })
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use testing::{evaluate, to_map};

    #[test]
    fn documented_examples_work() {
        let arguments = to_map(&json!({"num1": 5, "num2": 3}));
        let done = evaluate("num1 * num2", &arguments).unwrap();
        assert_eq!((done.json.get(), done.text.as_str()), ("15", "15"));
        let done = evaluate("result = num1 * num2", &arguments).unwrap();
        assert_eq!(done.json.get(), "15");
    }

    #[test]
    fn used_parameters_are_known_before_it_runs() {
        let program = compile("[a for b in c]", &["c", "b", "a", "unused"]).unwrap();
        assert_eq!(program.used_parameters().collect::<Vec<_>>(), ["c", "a"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn any_soup_of_tokens_is_answered(tokens in prop::collection::vec(prop::sample::select(FUZZ_TOKENS), 0..40)) {
            let source = tokens.join(" ");
            let arguments = to_map(&json!({"x": 5, "s": "hong", "xs": [3, 1, 2]}));
            let start = Instant::now();
            let _ = evaluate(&source, &arguments);
            prop_assert!(start.elapsed() < Duration::from_millis(500), "{}", source);
        }

        #[test]
        fn any_text_is_answered(source in "\\PC{0,60}") {
            let _ = evaluate(&source, &Map::new());
        }
    }

    const FUZZ_TOKENS: &[&str] = &[
        "x",
        "s",
        "xs",
        "1",
        "0",
        "2.5",
        "'a'",
        "f'{x}'",
        "f'{x:>9}'",
        "None",
        "True",
        "(",
        ")",
        "(",
        ")",
        "[",
        "]",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        ".",
        "+",
        "-",
        "*",
        "**",
        "/",
        "//",
        "%",
        "<<",
        ">>",
        "<",
        "==",
        "in",
        "not",
        "and",
        "or",
        "if",
        "else",
        "for",
        "y",
        "lambda",
        "=",
        "\n",
        ";",
        "sum",
        "sorted",
        "range",
        "9999",
        "99999999",
        "str",
        ".upper()",
        "math.sqrt",
        "date",
        "key",
        "import",
        "__class__",
        "한",
        "\\",
        "'",
        "\"",
        "#",
        "!",
        "_",
        "result",
        "*xs",
        "**{}",
    ];
}
