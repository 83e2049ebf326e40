//! A small language for custom tools: one expression of Python, or a
//! few assignments that end in `result = …`. Pure: no file, no network, no
//! import; the clock is passed in.
//!
//! A source is compiled once: `token` → `parser` → `resolve`. Names, functions
//! and methods are found then, in closed tables (`catalog`); functions are not
//! values, and values never change, so nothing can call or contain itself. A
//! run (`evaluate`) charges a `Meter` before it works or allocates, and no
//! recursion is deeper than a bound that a small stack holds.

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
mod parse_statement;
mod parser;
mod repr;
mod scalars;
mod sets;
mod string_search;
mod strings;
mod subscript;
mod value;

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value as Json, value::RawValue};

pub use error::{Error, ErrorKind};
pub use limits::{EvaluationLimits, LocalTimestamp, MAX_SOURCE_BYTES};

use ast::StatementNode;
use error::{Result as Attempt, limit_error, value_error};
use evaluator::Evaluator;
use name_resolver::NameResolver;
use parser::ExpressionParser;
use value::Value;

/// A compiled definition. Cheap to clone, and runs on any thread.
#[derive(Clone, Debug)]
pub struct CompiledExpression(Arc<CompiledExpressionInner>);

#[derive(Debug)]
struct CompiledExpressionInner {
    source: String,
    statements: Vec<StatementNode>,
    slot_count: usize,
    parameters: Vec<String>,
    /// Which parameters are used, by slot.
    used_slots: Vec<usize>,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct EvaluationOutput {
    /// As JSON, with every digit of an integer.
    pub json: Box<RawValue>,
    /// As `str()` writes it: what an agent reads.
    pub text: String,
    /// The name of its Python type.
    pub type_name: &'static str,
}

/// Compiles a definition whose arguments are called `parameters`.
///
/// # Errors
/// With the place, when it does not parse, is too long or too deep, or uses a
/// name that is neither a parameter nor part of the language.
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
    let mut statements = ExpressionParser::new(source, 0, 0)?.parse_program()?;
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
    /// The parameters that the definition uses, in their order.
    pub fn used_parameters(&self) -> impl Iterator<Item = &str> {
        self.0
            .used_slots
            .iter()
            .map(|slot| self.0.parameters[*slot].as_str())
    }

    /// Evaluates it. An argument that is not given is `None`; one that is no
    /// parameter is not looked at.
    ///
    /// # Errors
    /// With the place, when evaluation fails, takes more than `limits` allow, or
    /// gives what JSON cannot carry.
    pub fn run(
        &self,
        arguments: &Map<String, Json>,
        limits: &EvaluationLimits,
    ) -> Result<EvaluationOutput, Error> {
        self.evaluate_with_exact_integers(arguments, &HashMap::new(), limits)
    }

    /// The same with integers that are too large for a JSON number as they were
    /// `written`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn evaluate_with_exact_integers(
        &self,
        arguments: &Map<String, Json>,
        written: &HashMap<String, String>,
        limits: &EvaluationLimits,
    ) -> Result<EvaluationOutput, Error> {
        self.evaluate_statements(arguments, written, limits)
            .map_err(|it| it.into_error(&self.0.source))
    }

    fn evaluate_statements(
        &self,
        arguments: &Map<String, Json>,
        written: &HashMap<String, String>,
        limits: &EvaluationLimits,
    ) -> Attempt<EvaluationOutput> {
        let mut run = Evaluator::new(limits, self.0.slot_count);
        for slot in &self.0.used_slots {
            let name = &self.0.parameters[*slot];
            if let Some(digits) = written.get(name) {
                run.slots[*slot] = json::integer_from_digits(&mut run.meter, digits)?;
            } else if let Some(argument) = arguments.get(name) {
                run.slots[*slot] = json::from_json(&mut run.meter, argument)?;
            }
        }
        let mut last = Value::None;
        let mut at = 0;
        for statement in &self.0.statements {
            at = statement.value.at;
            last = run.evaluate(&statement.value)?;
            if let Some(target) = &statement.target {
                run.assign(target, last.clone())
                    .map_err(|it| it.at(statement.at))?;
            }
        }
        into_output(&mut run, &last).map_err(|it| it.at(at))
    }
}

fn into_output(run: &mut Evaluator<'_>, value: &Value) -> Attempt<EvaluationOutput> {
    let json = json::to_json(&mut run.meter, value)?;
    let most = run.meter.limits.output;
    let text = repr::to_text_within(&mut run.meter, value, most)?;
    let json = RawValue::from_string(json).map_err(|it| value_error(it.to_string()))?;
    Ok(EvaluationOutput {
        json,
        text,
        type_name: value.type_name(),
    })
}
