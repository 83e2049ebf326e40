//! Compiles a definition, saved or not, and runs it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures_util::FutureExt as _;
use maru_expression::{CompiledExpression, LocalTimestamp};
use maru_protocol::object_members;
use maru_retrieval::Embedder;
use maru_runtime::{clock, tasks::Tasks};
use maru_sources::{
    CALLER_PREFIX, DataSource, QueryLimits, QueryParameterKind, QueryParameters, QueryValue,
};
use serde_json::{Map, Value, json};

use super::{
    ValidationError,
    definition::{CURSOR_ARGUMENT, CustomToolDefinition, ToolLogic},
    parameter::{ParameterType, ToolParameter},
    result::CustomToolResult,
};
use crate::{
    builtin::{read_only_annotations, vector_text, wrapped_output_schema},
    call_arguments::CallArguments,
    caller::ToolCaller,
    entry::{CatalogEntry, EntryHandler, EntryResponse},
    page_cursor::{PageCursors, PagedResult},
    result::{EntryResult, FailureFormat},
};

/// An expression of at most so many steps is evaluated on the caller's thread; they take
/// well below a millisecond.
const INLINE_STEP_LIMIT: u64 = 2000;

/// What custom tools use to run.
#[derive(Clone, Debug)]
pub struct ToolResources {
    /// The sources; the first is used where none is named.
    pub sources: Arc<[DataSource]>,
    /// Computes the vectors of EMBEDDING parameters.
    pub embedder: Embedder,
    /// Makes the cursors of paged tools.
    pub cursors: PageCursors,
}

/// A compiled definition. One that was valid when it was saved and is not any more keeps
/// the reason.
#[derive(Debug)]
pub(super) struct CustomToolRunner {
    definition: CustomToolDefinition,
    embedder: Embedder,
    cursors: PageCursors,
    engine: Result<ToolEngine, ValidationError>,
}

#[derive(Debug)]
enum ToolEngine {
    Sql(DataSource),
    Python(CompiledExpression),
}

impl CustomToolRunner {
    /// Compiles a saved definition; an error is reported when the tool is called.
    pub(super) fn load(definition: CustomToolDefinition, resources: &ToolResources) -> Self {
        Self {
            engine: compile_engine(&definition, &resources.sources),
            embedder: resources.embedder.clone(),
            cursors: resources.cursors.clone(),
            definition,
        }
    }

    /// Compiles a definition and has its database check the statement.
    pub(super) async fn compile(
        definition: CustomToolDefinition,
        resources: &ToolResources,
    ) -> Result<Self, ValidationError> {
        let engine = compile_engine(&definition, &resources.sources)?;
        if let ToolEngine::Sql(source) = &engine {
            check_with_database(source, &definition).await?;
        }
        Ok(Self {
            definition,
            embedder: resources.embedder.clone(),
            cursors: resources.cursors.clone(),
            engine: Ok(engine),
        })
    }

    /// Why it cannot run.
    pub(super) fn compile_error(&self) -> Option<&ValidationError> {
        self.engine.as_ref().err()
    }

    /// Refuses parameters that are declared and not used.
    pub(super) fn check_parameters_used(&self) -> Result<(), ValidationError> {
        let text = &self.definition.text;
        let used = match &self.engine {
            Ok(ToolEngine::Sql(source)) => match source.parameters(text) {
                Ok(used) => used.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
                Err(error) => return Err(ValidationError::from_source_error(text, &error)),
            },
            Ok(ToolEngine::Python(program)) => {
                program.used_parameters().map(str::to_owned).collect()
            }
            Err(error) => return Err(error.clone()),
        };
        let mut declared = self.definition.params.iter().enumerate();
        match declared.find(|(_, it)| !used.contains(&it.name)) {
            None => Ok(()),
            Some((at, unused)) => Err(ValidationError::for_field(
                &format!("params.{at}"),
                format!("the parameter {} is declared and not used", unused.name),
            )),
        }
    }

    /// Runs the definition with arguments that fit its schema.
    pub(super) async fn run(
        &self,
        arguments: &CallArguments,
        caller: &ToolCaller,
        tasks: &Tasks,
    ) -> Result<CustomToolResult, ValidationError> {
        let fits = arguments.check_size();
        fits.map_err(|message| ValidationError::for_field("arguments", message))?;
        match &self.engine {
            Ok(ToolEngine::Sql(source)) => self.query(source, arguments, caller).await,
            Ok(ToolEngine::Python(program)) => self.evaluate(program, arguments, tasks).await,
            Err(error) => Err(error.clone()),
        }
    }

    async fn query(
        &self,
        source: &DataSource,
        arguments: &CallArguments,
        caller: &ToolCaller,
    ) -> Result<CustomToolResult, ValidationError> {
        let definition = &self.definition;
        let mut parameters = QueryParameters::default();
        for declared in &definition.params {
            let value = argument_or_default(arguments, &declared.name, declared.default.as_ref());
            let value = match declared.kind {
                ParameterType::Embedding => self.embed(value).await?,
                kind => bind_argument(&declared.name, kind, value)?,
            };
            parameters.set(&declared.name, value);
        }
        let parameters = parameters.with_caller(caller.principal.caller_values());
        let run = async |limits| {
            let rows = source.query(&definition.text, &parameters, limits).await;
            rows.map_err(|error| ValidationError::from_source_error(&definition.text, &error))
        };
        let limits = QueryLimits {
            request: Some(caller.request.as_halves()),
            ..definition.limits(source.limits())
        };
        if !definition.is_paged {
            let rows = run(limits).await?;
            return Ok(CustomToolResult::from_rows(&rows, definition.format, None));
        }
        let given = arguments_without_cursor(arguments);
        let origin = format!("{}\n{}", definition.name, definition.text);
        let paged = PagedResult {
            caller: caller.principal.name(),
            origin: &origin,
            text: &given,
        };
        let cursor = arguments[CURSOR_ARGUMENT].as_str();
        let limits = self.cursors.page_limits(paged, cursor, limits);
        let limits = limits.map_err(|message| ValidationError::for_field("arguments", message))?;
        let rows = run(limits).await?;
        let next = self.cursors.next_page(paged, limits, &rows);
        Ok(CustomToolResult::from_rows(
            &rows,
            definition.format,
            next.as_deref(),
        ))
    }

    /// The vector of a text, in the text form of pgvector.
    async fn embed(&self, value: &Value) -> Result<QueryValue, ValidationError> {
        let Some(text) = value.as_str() else {
            return Ok(QueryValue::Null);
        };
        let vectors = self.embedder.embed(&[text.to_owned()]).await;
        let vectors =
            vectors.map_err(|error| ValidationError::for_field("arguments", error.to_string()))?;
        let vector = vectors.first().map_or(&[][..], Vec::as_slice);
        Ok(vector_text(vector))
    }

    /// Evaluates a small expression on this thread; one that needs more steps is evaluated
    /// again on a blocking thread.
    async fn evaluate(
        &self,
        program: &CompiledExpression,
        arguments: &CallArguments,
        tasks: &Tasks,
    ) -> Result<CustomToolResult, ValidationError> {
        let values: Map<String, Value> = self
            .definition
            .params
            .iter()
            .map(|it| {
                (
                    it.name.clone(),
                    argument_or_default(arguments, &it.name, it.default.as_ref()).clone(),
                )
            })
            .collect();
        let written = large_integers(arguments);
        let full = maru_expression::EvaluationLimits {
            now: Some(LocalTimestamp {
                unix_microseconds: clock::now_ms() * 1000,
                offset_seconds: 0,
            }),
            ..maru_expression::EvaluationLimits::default()
        };
        let small = maru_expression::EvaluationLimits {
            steps: INLINE_STEP_LIMIT,
            ..full.clone()
        };
        let done = match program.evaluate_with_exact_integers(&values, &written, &small) {
            Err(fault) if fault.kind == maru_expression::ErrorKind::Limit => {
                let program = program.clone();
                let work = move || program.evaluate_with_exact_integers(&values, &written, &full);
                let done = tasks.spawn_blocking(work).await;
                done.ok_or_else(|| ValidationError::for_field("definition", "the hub is stopping"))?
            }
            done => done,
        };
        let json = done?.json.get().to_owned();
        Ok(CustomToolResult::from_value(json, self.definition.format))
    }

    /// The catalog entry of the tool.
    pub(super) fn catalog_entry(self: &Arc<Self>, tasks: &Tasks) -> Arc<CatalogEntry> {
        let described = json!({
            "description": self.definition.description_agent,
            "inputSchema": self.definition.input_schema(),
            "outputSchema": wrapped_output_schema(&json!({})),
            "annotations": read_only_annotations(),
        });
        let (runner, tasks) = (Arc::clone(self), tasks.clone());
        let handler: EntryHandler = Arc::new(move |request| {
            let (runner, tasks) = (Arc::clone(&runner), tasks.clone());
            async move {
                let caller = ToolCaller {
                    principal: request.principal,
                    request: request.context.request_id,
                };
                let arguments = request.action.into_call_arguments()?;
                Ok(EntryResponse::Complete(
                    match runner.run(&arguments, &caller, &tasks).await {
                        Ok(done) => EntryResult::text_and_value(&done.text, &done.json),
                        Err(error) => EntryResult::failure_in(
                            FailureFormat::TextOnly,
                            &error.public_message(),
                        ),
                    },
                ))
            }
            .boxed()
        });
        let entry = CatalogEntry::custom(self.definition.name.clone(), &described, handler);
        Arc::new(match &self.engine {
            Ok(ToolEngine::Sql(source)) => entry.with_own_timeout(source.query_deadline()),
            _ => entry,
        })
    }
}

fn bind_argument(
    name: &str,
    kind: ParameterType,
    value: &Value,
) -> Result<QueryValue, ValidationError> {
    let bound = kind
        .sql_kind()
        .and_then(|kind| QueryValue::from_json(kind, value));
    bound.ok_or_else(|| {
        let expected = match kind {
            ParameterType::Date => "DATE, such as 2026-11-18",
            ParameterType::Timestamp => "TIMESTAMP, such as 2026-11-18T15:04:05Z",
            ParameterType::List => "LIST of texts, numbers or truth values, all of one type",
            kind => kind.parse_name(),
        };
        ValidationError::for_field("arguments", format!("{name} is not a {expected}"))
    })
}

/// The arguments by which the pages of a result belong together.
fn arguments_without_cursor(arguments: &Value) -> String {
    let members = arguments.as_object().into_iter().flatten();
    let kept: BTreeMap<&String, &Value> = members
        .filter(|(name, _)| *name != CURSOR_ARGUMENT)
        .collect();
    json!(kept).to_string()
}

fn argument_or_default<'a>(
    arguments: &'a Value,
    name: &str,
    default: Option<&'a Value>,
) -> &'a Value {
    match &arguments[name] {
        Value::Null => default.unwrap_or(&Value::Null),
        value => value,
    }
}

/// Integers that lose digits as a JSON number, as the caller wrote them.
fn large_integers(arguments: &CallArguments) -> HashMap<String, String> {
    let mut values = arguments.as_object().into_iter().flatten();
    if !values.any(|(_, value)| value.is_f64()) {
        return HashMap::new();
    }
    let is_whole = |raw: &str| {
        raw.trim_start_matches('-')
            .bytes()
            .all(|it| it.is_ascii_digit())
    };
    let all = object_members(arguments.text()).into_iter().flatten();
    all.filter(|(name, raw)| arguments[&**name].is_f64() && is_whole(raw))
        .map(|(name, raw)| (name.into_owned(), raw.to_owned()))
        .collect()
}

fn compile_engine(
    definition: &CustomToolDefinition,
    sources: &[DataSource],
) -> Result<ToolEngine, ValidationError> {
    match &definition.logic {
        ToolLogic::Python => {
            definition.check_computable()?;
            let names = definition.params.iter().map(|it| it.name.as_str());
            let names: Vec<&str> = names.collect();
            Ok(ToolEngine::Python(maru_expression::compile(
                &definition.text,
                &names,
            )?))
        }
        ToolLogic::Sql(name) => {
            definition.check_bindable()?;
            reject_templates(&definition.text)?;
            let source = find_source(sources, name.as_deref())?;
            check_parameters_declared(source, definition)?;
            Ok(ToolEngine::Sql(source.clone()))
        }
    }
}

fn find_source<'a>(
    sources: &'a [DataSource],
    name: Option<&str>,
) -> Result<&'a DataSource, ValidationError> {
    let found = match name {
        None => sources.first(),
        Some(name) => sources.iter().find(|it| it.name() == name),
    };
    found.ok_or_else(|| {
        let known: Vec<&str> = sources.iter().map(DataSource::name).collect();
        let message = match (name, known.as_slice()) {
            (_, []) => {
                "there is no source; add one under Settings, Sources or in maru.yaml".to_owned()
            }
            (name, known) => {
                let (name, known) = (name.unwrap_or_default(), known.join(", "));
                format!("there is no source {name:?}; known are {known}")
            }
        };
        ValidationError::for_field("source", message)
    })
}

/// Refuses `{{name}}`: it would insert a value into the statement instead of binding it.
fn reject_templates(text: &str) -> Result<(), ValidationError> {
    for (at, _) in text.match_indices("{{") {
        let inside = text[at + 2..].split("}}").next().unwrap_or_default().trim();
        let begins = inside.starts_with(|it: char| it.is_alphabetic() || it == '_');
        if begins && inside.chars().all(|it| it.is_alphanumeric() || it == '_') {
            let before = text[..at].chars().count();
            let hint = format!(
                "{{{{{inside}}}}} is not filled in: write :{inside}, outside of quotes, and the value is bound"
            );
            return Err(ValidationError::at_character(text, before, hint));
        }
    }
    Ok(())
}

fn check_parameters_declared(
    source: &DataSource,
    definition: &CustomToolDefinition,
) -> Result<(), ValidationError> {
    let text = &definition.text;
    let used = source
        .parameters(text)
        .map_err(|error| ValidationError::from_source_error(text, &error))?;
    let declared = |name: &str| {
        name.starts_with(CALLER_PREFIX) || definition.params.iter().any(|it| it.name == name)
    };
    match used.iter().find(|(name, _)| !declared(name)) {
        None => Ok(()),
        Some((name, place)) => Err(ValidationError::at_character(
            text,
            *place,
            format!("the parameter :{name} is used and not declared"),
        )),
    }
}

/// Has the database check the statement. A tool can be saved while its database is
/// offline; its calls fail until the database is back.
async fn check_with_database(
    source: &DataSource,
    definition: &CustomToolDefinition,
) -> Result<(), ValidationError> {
    // A name becomes part of the statement, so each one is checked.
    let names = definition.params.iter();
    let names = names.filter(|it| it.kind == ParameterType::Identifier);
    let statements = names.map(|it| it.choices.len()).max().unwrap_or(1);
    for choice in 0..statements {
        let declared = definition.params.iter();
        let samples: QueryParameters = declared
            .filter_map(|it| Some((it.name.as_str(), sample_value(it, choice)?)))
            .filter(|(name, _)| definition.text.contains(name))
            .collect();
        let samples = samples.with_caller(Arc::default());
        match source.check(&definition.text, &samples).await {
            Ok(_) => (),
            Err(
                maru_sources::Error::Unreachable(_)
                | maru_sources::Error::TimedOut
                | maru_sources::Error::NoFreeConnection(_),
            ) => return Ok(()),
            // `check_parameters_used` has a clearer message for it.
            Err(maru_sources::Error::UnknownParameter(_)) => return Ok(()),
            Err(error) => {
                return Err(ValidationError::from_source_error(&definition.text, &error));
            }
        }
    }
    Ok(())
}

/// A value of the parameter's type, for a statement that is only prepared; for a name its
/// choice of this number, or the first.
fn sample_value(parameter: &ToolParameter, choice: usize) -> Option<QueryValue> {
    Some(match parameter.kind.sql_kind()? {
        QueryParameterKind::Text => QueryValue::Text(String::new()),
        QueryParameterKind::Number | QueryParameterKind::Integer => QueryValue::Integer(1),
        QueryParameterKind::Boolean => QueryValue::Boolean(true),
        QueryParameterKind::Date => QueryValue::Date("2000-01-01".to_owned()),
        QueryParameterKind::Timestamp => QueryValue::Timestamp("2000-01-01T00:00:00".to_owned()),
        QueryParameterKind::List => QueryValue::List(Vec::new()),
        kind @ QueryParameterKind::Identifier => {
            let choices = &parameter.choices;
            QueryValue::from_json(kind, choices.get(choice).or(choices.first())?)?
        }
    })
}
