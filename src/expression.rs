//! A small language for tools that people make: one expression of Python, or a
//! few assignments that end in `result = …`. Pure: no file, no network, no
//! import; the clock is passed in.
//!
//! A source is compiled once: `token` → `parser` → `resolve`. Names, functions
//! and methods are found then, in closed tables (`catalog`); functions are not
//! values, and values never change, so nothing can call or contain itself. A
//! run (`evaluate`) charges a `Meter` before it works or allocates, and no
//! recursion is deeper than a bound that a small stack holds.

mod atom;
mod calendar;
mod call;
mod catalog;
mod collections;
mod compare;
mod dates;
mod evaluate;
mod fault;
mod float;
mod format;
mod format_float;
mod functions;
mod higher;
mod index;
mod integer;
mod iterate;
mod json;
mod lazy;
mod limits;
mod literal;
mod mathematics;
mod node;
mod operate;
mod parser;
mod percent;
mod resolve;
mod sets;
mod show;
mod statement;
mod strings;
mod strings_search;
mod template;
mod token;
mod value;

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value as Json, value::RawValue};

pub use fault::{Fault, Kind};
pub use limits::{Limits, MAX_SOURCE, Moment};

use evaluate::Run;
use fault::{Result as Attempt, limit, value_error};
use node::Statement;
use parser::Parser;
use resolve::Resolver;
use value::Value;

/// A compiled definition. Cheap to clone, and runs on any thread.
#[derive(Clone, Debug)]
pub struct Program(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    source: String,
    statements: Vec<Statement>,
    slots: usize,
    parameters: Vec<String>,
    /// Which parameters are used, by slot.
    used: Vec<usize>,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
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
pub fn compile(source: &str, parameters: &[&str]) -> Result<Program, Fault> {
    let compiled = read(source, parameters).map_err(|it| it.into_fault(source))?;
    Ok(Program(Arc::new(compiled)))
}

fn read(source: &str, parameters: &[&str]) -> Attempt<Compiled> {
    if source.len() > MAX_SOURCE {
        return Err(limit(format!(
            "a definition longer than {MAX_SOURCE} bytes"
        )));
    }
    let mut statements = Parser::new(source, 0, 0)?.program()?;
    let mut resolver = Resolver::new(parameters);
    for statement in &mut statements {
        resolver.statement(statement)?;
    }
    let used = resolver.used.iter().enumerate();
    Ok(Compiled {
        source: source.to_owned(),
        statements,
        slots: resolver.slots,
        parameters: parameters.iter().map(|it| (*it).to_owned()).collect(),
        used: used.filter(|it| *it.1).map(|it| it.0).collect(),
    })
}

impl Program {
    /// The parameters that the definition uses, in their order.
    pub fn used(&self) -> impl Iterator<Item = &str> {
        self.0
            .used
            .iter()
            .map(|slot| self.0.parameters[*slot].as_str())
    }

    /// Evaluates it. An argument that is not given is `None`; one that is no
    /// parameter is not looked at.
    ///
    /// # Errors
    /// With the place, when evaluation fails, takes more than `limits` allow, or
    /// gives what JSON cannot carry.
    pub fn run(&self, arguments: &Map<String, Json>, limits: &Limits) -> Result<Outcome, Fault> {
        self.run_exactly(arguments, &HashMap::new(), limits)
    }

    /// The same with integers that are too large for a JSON number as they were
    /// `written`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_exactly(
        &self,
        arguments: &Map<String, Json>,
        written: &HashMap<String, String>,
        limits: &Limits,
    ) -> Result<Outcome, Fault> {
        self.outcome(arguments, written, limits)
            .map_err(|it| it.into_fault(&self.0.source))
    }

    fn outcome(
        &self,
        arguments: &Map<String, Json>,
        written: &HashMap<String, String>,
        limits: &Limits,
    ) -> Attempt<Outcome> {
        let mut run = Run::new(limits, self.0.slots);
        for slot in &self.0.used {
            let name = &self.0.parameters[*slot];
            if let Some(digits) = written.get(name) {
                run.slots[*slot] = json::whole(&mut run.meter, digits)?;
            } else if let Some(argument) = arguments.get(name) {
                run.slots[*slot] = json::read(&mut run.meter, argument)?;
            }
        }
        let mut last = Value::None;
        let mut at = 0;
        for statement in &self.0.statements {
            at = statement.value.at;
            last = run.value(&statement.value)?;
            if let Some(target) = &statement.target {
                run.assign(target, last.clone())
                    .map_err(|it| it.at(statement.at))?;
            }
        }
        give(&mut run, &last).map_err(|it| it.at(at))
    }
}

fn give(run: &mut Run<'_>, value: &Value) -> Attempt<Outcome> {
    let json = json::write(&mut run.meter, value)?;
    let most = run.meter.limits.output;
    let text = show::bounded(&mut run.meter, value, most)?;
    let json = RawValue::from_string(json).map_err(|it| value_error(it.to_string()))?;
    Ok(Outcome {
        json,
        text,
        type_name: value.type_name(),
    })
}
