//! Running a definition, saved or not.

use std::{collections::HashMap, sync::Arc};

use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};

use super::{
    Flaw,
    definition::{Definition, Format, Logic},
    result::Done,
};
use crate::{
    clock,
    expression::{self, Moment, Program},
    journal::RequestId,
    mcp::{RpcError, members},
    source::{self, Limits, Parameters, Source},
    tasks::Tasks,
    tool::{
        builtin::reads_only,
        offer::{Action, Answer, Handler, Input, Offer},
        output,
    },
};

/// What an expression may take where it is asked for: well below a millisecond.
const SMALL: u64 = 2000;

/// A definition that can run; or, if it was good once, says why it cannot.
#[derive(Debug)]
pub(super) struct Runner {
    definition: Definition,
    engine: Result<Engine, Flaw>,
}

#[derive(Debug)]
enum Engine {
    Sql(Source),
    Python(Program),
}

impl Runner {
    /// Compiles what was saved earlier; what became wrong since is said when it
    /// is called.
    pub(super) fn load(definition: Definition, sources: &[Source]) -> Self {
        let engine = engine(&definition, sources);
        Self { definition, engine }
    }

    /// Compiles and checks, also with the database.
    pub(super) async fn compile(definition: Definition, sources: &[Source]) -> Result<Self, Flaw> {
        let engine = engine(&definition, sources)?;
        if let Engine::Sql(source) = &engine {
            check_with(source, &definition).await?;
        }
        Ok(Self {
            definition,
            engine: Ok(engine),
        })
    }

    /// What is wrong with it.
    pub(super) fn flaw(&self) -> Option<&Flaw> {
        self.engine.as_ref().err()
    }

    /// Refuses parameters that are declared and not used.
    pub(super) fn check_used(&self) -> Result<(), Flaw> {
        let text = &self.definition.text;
        let used = match &self.engine {
            Ok(Engine::Sql(source)) => match source.parameters(text) {
                Ok(used) => used.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
                Err(error) => return Err(Flaw::of_source(text, &error)),
            },
            Ok(Engine::Python(program)) => program.used().map(str::to_owned).collect(),
            Err(flaw) => return Err(flaw.clone()),
        };
        let mut declared = self.definition.params.iter().enumerate();
        match declared.find(|(_, it)| !used.contains(&it.name)) {
            None => Ok(()),
            Some((at, unused)) => Err(Flaw::of(
                &format!("params.{at}"),
                format!("the parameter {} is declared and not used", unused.name),
            )),
        }
    }

    /// Runs it with arguments that fit its schema.
    pub(super) async fn run(
        &self,
        arguments: &Input,
        request: RequestId,
        tasks: &Tasks,
    ) -> Result<Done, Flaw> {
        match &self.engine {
            Ok(Engine::Sql(source)) => self.query(source, arguments, request).await,
            Ok(Engine::Python(program)) => self.evaluate(program, arguments, tasks).await,
            Err(flaw) => Err(flaw.clone()),
        }
    }

    async fn query(
        &self,
        source: &Source,
        arguments: &Value,
        request: RequestId,
    ) -> Result<Done, Flaw> {
        let definition = &self.definition;
        let parameters = definition.params.iter().map(|it| {
            let value = given(arguments, &it.name, it.default.as_ref());
            let bound = it
                .kind
                .bound()
                .and_then(|kind| source::Value::read(kind, value));
            bound.map(|bound| (it.name.as_str(), bound)).ok_or_else(|| {
                Flaw::of(
                    "arguments",
                    format!("{} is not a {}", it.name, it.kind.name()),
                )
            })
        });
        let parameters: Parameters = parameters.collect::<Result<_, _>>()?;
        let most = source.limits();
        let limits = Limits {
            rows: if definition.format == Format::Row {
                1
            } else {
                most.rows
            },
            request: Some(request.number()),
            ..most
        };
        let rows = source.query(&definition.text, &parameters, limits).await;
        let rows = rows.map_err(|error| Flaw::of_source(&definition.text, &error))?;
        Ok(Done::of_rows(&rows, definition.format))
    }

    /// What is small is done here and now; what is not gets a thread that may
    /// block, from the beginning.
    async fn evaluate(
        &self,
        program: &Program,
        arguments: &Input,
        tasks: &Tasks,
    ) -> Result<Done, Flaw> {
        let values: Map<String, Value> = self
            .definition
            .params
            .iter()
            .map(|it| {
                (
                    it.name.clone(),
                    given(arguments, &it.name, it.default.as_ref()).clone(),
                )
            })
            .collect();
        let written = large(arguments);
        let full = expression::Limits {
            now: Some(Moment {
                unix_microseconds: clock::now() * 1000,
                offset_seconds: 0,
            }),
            ..expression::Limits::default()
        };
        let small = expression::Limits {
            steps: SMALL,
            ..full.clone()
        };
        let done = match program.run_exactly(&values, &written, &small) {
            Err(fault) if fault.kind == expression::Kind::Limit => {
                let program = program.clone();
                let work = move || program.run_exactly(&values, &written, &full);
                let done = tasks.blocking(work).await;
                done.ok_or_else(|| Flaw::of("definition", "the hub is stopping"))?
            }
            done => done,
        };
        let json = done?.json.get().to_owned();
        Ok(Done::of_value(json, self.definition.format))
    }

    /// The tool that everyone sees.
    pub(super) fn offer(self: &Arc<Self>, tasks: &Tasks) -> Arc<Offer> {
        let described = json!({
            "description": self.definition.description_agent,
            "inputSchema": self.definition.schema(),
            "annotations": reads_only(),
        });
        let (runner, tasks) = (Arc::clone(self), tasks.clone());
        let handler: Handler = Arc::new(move |ask| {
            let (runner, tasks) = (Arc::clone(&runner), tasks.clone());
            async move {
                let request = ask.peer.request;
                let Action::Call(input) = ask.action else {
                    return Err(RpcError::params("a tool is called"));
                };
                Ok(Answer::Complete(
                    match runner.run(&input, request, &tasks).await {
                        Ok(done) => output::value(&done.text, &done.json),
                        Err(flaw) => output::failure(&flaw.told()),
                    },
                ))
            }
            .boxed()
        });
        Offer::made(self.definition.name.clone(), &described, handler)
    }
}

impl Flaw {
    /// In one line, for who calls the tool.
    fn told(&self) -> String {
        match self.place {
            Some((line, column)) => format!("{} (line {line}, column {column})", self.message),
            None => self.message.clone(),
        }
    }
}

fn given<'a>(arguments: &'a Value, name: &str, default: Option<&'a Value>) -> &'a Value {
    match &arguments[name] {
        Value::Null => default.unwrap_or(&Value::Null),
        value => value,
    }
}

/// Integers that are too large for a JSON number, as they were written.
fn large(arguments: &Input) -> HashMap<String, String> {
    let mut values = arguments.as_object().into_iter().flatten();
    if !values.any(|(_, value)| value.is_f64()) {
        return HashMap::new();
    }
    let is_whole = |raw: &str| {
        raw.trim_start_matches('-')
            .bytes()
            .all(|it| it.is_ascii_digit())
    };
    let all = members(arguments.text()).into_iter().flatten();
    all.filter(|(name, raw)| arguments[&**name].is_f64() && is_whole(raw))
        .map(|(name, raw)| (name.into_owned(), raw.to_owned()))
        .collect()
}

fn engine(definition: &Definition, sources: &[Source]) -> Result<Engine, Flaw> {
    match &definition.logic {
        Logic::Python => {
            let names = definition.params.iter().map(|it| it.name.as_str());
            let names: Vec<&str> = names.collect();
            Ok(Engine::Python(expression::compile(
                &definition.text,
                &names,
            )?))
        }
        Logic::Sql(name) => {
            definition.check_bindable()?;
            refuse_templates(&definition.text)?;
            let source = find(sources, name.as_deref())?;
            check_declared(source, definition)?;
            Ok(Engine::Sql(source.clone()))
        }
    }
}

fn find<'a>(sources: &'a [Source], name: Option<&str>) -> Result<&'a Source, Flaw> {
    let found = match name {
        None => sources.first(),
        Some(name) => sources.iter().find(|it| it.name() == name),
    };
    found.ok_or_else(|| {
        let known: Vec<&str> = sources.iter().map(Source::name).collect();
        let why = match (name, known.as_slice()) {
            (_, []) => "there is no source; name one under sources in maru.yaml".to_owned(),
            (name, known) => {
                let (name, known) = (name.unwrap_or_default(), known.join(", "));
                format!("there is no source {name:?}; known are {known}")
            }
        };
        Flaw::of("source", why)
    })
}

/// `{{name}}` would make a value part of the statement.
fn refuse_templates(text: &str) -> Result<(), Flaw> {
    for (at, _) in text.match_indices("{{") {
        let inside = text[at + 2..].split("}}").next().unwrap_or_default().trim();
        let begins = inside.starts_with(|it: char| it.is_alphabetic() || it == '_');
        if begins && inside.chars().all(|it| it.is_alphanumeric() || it == '_') {
            let before = text[..at].chars().count();
            let hint = format!(
                "{{{{{inside}}}}} is not filled in: write :{inside}, outside of quotes, and the value is bound"
            );
            return Err(Flaw::at(text, before, hint));
        }
    }
    Ok(())
}

fn check_declared(source: &Source, definition: &Definition) -> Result<(), Flaw> {
    let text = &definition.text;
    let used = source
        .parameters(text)
        .map_err(|error| Flaw::of_source(text, &error))?;
    let declared = |name: &str| definition.params.iter().any(|it| it.name == name);
    match used.iter().find(|(name, _)| !declared(name)) {
        None => Ok(()),
        Some((name, place)) => Err(Flaw::at(
            text,
            *place,
            format!("the parameter :{name} is used and not declared"),
        )),
    }
}

/// Has the database read the statement. One that cannot be asked now is
/// believed; it is asked at every call.
async fn check_with(source: &Source, definition: &Definition) -> Result<(), Flaw> {
    let sample = |kind: source::Kind| match kind {
        source::Kind::Text => source::Value::Text(String::new()),
        source::Kind::Number | source::Kind::Integer => source::Value::Integer(1),
        source::Kind::Boolean => source::Value::Boolean(true),
    };
    let declared = definition.params.iter();
    let samples: Parameters = declared
        .filter_map(|it| Some((it.name.as_str(), sample(it.kind.bound()?))))
        .filter(|(name, _)| definition.text.contains(name))
        .collect();
    match source.check(&definition.text, &samples).await {
        Ok(_) | Err(source::Error::Unreachable(_) | source::Error::TooSlow) => Ok(()),
        // Said better by who looks for parameters that are not used.
        Err(source::Error::Undeclared(_)) => Ok(()),
        Err(error) => Err(Flaw::of_source(&definition.text, &error)),
    }
}
