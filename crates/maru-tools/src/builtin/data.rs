//! The data tools of document 000: embeddings, similarity search, SQL.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use maru_auth::Principal;
use maru_protocol::RpcError;
use maru_retrieval::DocumentIndex;
use maru_sources::{DataSource, QueryLimits, QueryParameters, QueryRows, TableInfo};
use serde_json::{Value, json};

use super::{
    VectorTable, object_of_anything, read_only_annotations, vector_table::NearestSearch,
    wrapped_output_schema,
};
use crate::{
    call_arguments::CallArguments,
    caller::ToolCaller,
    custom::{CustomToolResult, ResultFormat},
    entry::{CatalogEntry, CatalogEntryKind, EntryHandler, EntryRequest, EntryResponse},
    page_cursor::{PageCursors, PagedResult},
    result::{EntryResult, FailureFormat},
};

/// The embedder, index and sources that the data tools use.
#[derive(Clone, Debug)]
pub struct DataContext {
    /// Embeds texts and finds documents.
    pub index: DocumentIndex,
    /// The collection that is searched.
    pub collection: String,
    /// The table that is searched instead of the index.
    pub vector_table: Option<VectorTable>,
    /// The named sources; the first is behind `query_bga_database`.
    pub sources: Arc<[DataSource]>,
    /// Makes the cursors of further pages.
    pub cursors: PageCursors,
    /// Whether a failed statement of `query_bga_database` is flagged by `isError`.
    pub flag_sql_errors: bool,
}

/// How many texts one call may pass.
const MAX_TEXTS_PER_CALL: usize = 2048;
/// Documents per query if the caller does not pass `n_results`.
const DEFAULT_RESULTS: usize = 3;
/// The largest `n_results`.
const MAX_RESULTS: usize = 10_000;

/// The data tools; those that query are left out while no source is set up.
pub fn entries(data: &DataContext) -> Vec<Arc<CatalogEntry>> {
    let mut entries = vec![
        embedding_tool(data),
        search_tool(data),
        serialize_tool(data),
    ];
    if !data.sources.is_empty() {
        entries.extend([
            query_tool(data),
            list_tables_tool(data),
            describe_table_tool(data),
        ]);
    }
    entries
}

fn embedding_tool(data: &DataContext) -> Arc<CatalogEntry> {
    let model = data.index.embedder().model();
    let description = if data.index.embedder().is_lexical() {
        format!(
            "Turns texts into vectors with {model}, a built-in embedder that matches words and listed synonyms, not meaning; set TEXT_EMBEDDING_MODEL_URL to use an embedding model."
        )
    } else {
        format!("Turns texts into vectors with the embedding model {model}.")
    };
    DataTool {
        name: "get_text_embedding",
        description: &description,
        parameters: json!({"text_list": text_list_schema("Texts to embed")}),
        required: &["text_list"],
        output: DataOutput::Value(list_of(&list_of(&json!({"type": "number"})))),
        queries: 0,
    }
    .into_entry(data, |data, input, _| async move {
        let texts = string_list(&input, "text_list");
        let vectors = data.index.embedder().embed(&texts).await;
        to_response(vectors.map(|vectors| json!(vectors)))
    })
}

fn search_tool(data: &DataContext) -> Arc<CatalogEntry> {
    let document = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    DataTool {
        name: "get_sim_search",
        description: "Finds the documents that are most similar to each query, most similar first. Returns one list of documents per query.",
        parameters: json!({
            "query_list": text_list_schema("What to look for"),
            "n_results": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "default": DEFAULT_RESULTS, "description": "Documents for each query"},
        }),
        required: &["query_list"],
        output: DataOutput::Value(list_of(&list_of(&document))),
        queries: 0,
    }
    .into_entry(data, |data, input, caller| async move {
        let count = input.integer("n_results");
        let count = count.map_or(DEFAULT_RESULTS, |it| usize::try_from(it).unwrap_or(MAX_RESULTS));
        let queries = string_list(&input, "query_list");
        if let Some(table) = &data.vector_table {
            let source = match data.find_source(Some(table.source_name())) {
                Ok(source) => source,
                Err(error) => return to_response(Err(error)),
            };
            let embedder = data.index.embedder();
            let search = NearestSearch {
                queries: &queries,
                count,
                caller: &caller,
            };
            let found = table.search(source, embedder, &search);
            return to_response(found.await);
        }
        let found = data.index.search(&data.collection, &queries, count).await;
        to_response(found.map(|found| {
            let texts = |documents: Vec<maru_retrieval::FoundDocument>| -> Value {
                documents.into_iter().map(|it| it.text).collect()
            };
            found.into_iter().map(texts).collect()
        }))
    })
}

fn query_tool(data: &DataContext) -> Arc<CatalogEntry> {
    let name = data.sources.first().map_or("none", DataSource::name);
    let description = format!(
        "Runs one read-only SQL query on the source {name:?} and returns its rows. Call list_tables and describe_table first to see tables and columns."
    );
    DataTool {
        name: "query_bga_database",
        description: &description,
        parameters: json!({
            "generated_sql": {"type": "string", "description": "A complete SELECT statement"},
            "source": source_schema(data),
            "format": {"type": "string", "enum": ["records", "csv", "markdown"], "default": "records", "description": "How the rows are written"},
            "cursor": {"type": "string", "description": "next_cursor of the answer before, for the rows after it; with the same statement"},
            "explain": {"type": "boolean", "default": false, "description": "Return the plan of the database instead of rows"},
        }),
        required: &["generated_sql"],
        output: DataOutput::StatusObject,
        queries: 1,
    }
    .into_entry(data, |data, input, caller| async move {
        Ok(EntryResponse::Complete(
            match data.run_generated_sql(&input, &caller).await {
                Ok(result) => result,
                Err(message) => query_error_result(&message, data.flag_sql_errors),
            },
        ))
    })
}

fn list_tables_tool(data: &DataContext) -> Arc<CatalogEntry> {
    DataTool {
        name: "list_tables",
        description: "Lists the tables and views that can be queried, with comment and estimated number of rows.",
        parameters: json!({
            "source": source_schema(data),
            "schema": {"type": "string", "description": "Only the tables of this schema"},
        }),
        required: &[],
        output: DataOutput::Value(list_of(&object_of_anything())),
        queries: 1,
    }
    .into_entry(data, |data, input, _| async move {
        let schema = input["schema"].as_str();
        to_response(data.tables(input["source"].as_str(), schema).await)
    })
}

fn describe_table_tool(data: &DataContext) -> Arc<CatalogEntry> {
    DataTool {
        name: "describe_table",
        description: "Describes the columns of a table or view: type, default, comment, primary key, references, indexes and, where they are allowed, sample values.",
        parameters: json!({
            "table": {"type": "string", "description": "A name that list_tables returns: name, or schema.name"},
            "source": source_schema(data),
        }),
        required: &["table"],
        output: DataOutput::Value(list_of(&object_of_anything())),
        queries: 2,
    }
    .into_entry(data, |data, input, caller| async move {
        let table = input["table"].as_str().unwrap_or_default();
        let source = input["source"].as_str();
        let described = data.describe_columns(source, table, &caller.principal);
        to_response(described.await)
    })
}

fn serialize_tool(data: &DataContext) -> Arc<CatalogEntry> {
    DataTool {
        name: "serialize_for_cell",
        description: "Replaces every non-breaking space (U+00A0) of a text with a plain one.",
        parameters: json!({"data": {"type": "string", "description": "Text to clean"}}),
        required: &["data"],
        output: DataOutput::Value(json!({"type": "string"})),
        queries: 0,
    }
    .into_entry(data, |_, input, _| async move {
        let text = replace_nbsp(input["data"].as_str().unwrap_or_default());
        let json = Value::from(text.as_str()).to_string();
        Ok(EntryResponse::Complete(EntryResult::text_and_value(
            &text, &json,
        )))
    })
}

impl DataContext {
    /// Runs the statement of `query_bga_database`, or has it explained.
    async fn run_generated_sql(
        &self,
        input: &CallArguments,
        caller: &ToolCaller,
    ) -> Result<EntryResult, String> {
        let sql = replace_nbsp(input["generated_sql"].as_str().unwrap_or_default());
        let source = self.find_source(input["source"].as_str())?;
        let (parameters, limits) = caller_query(source, caller);
        if input["explain"] == true {
            let plan = source.explain(&sql, &parameters, limits).await;
            let plan = plan.map_err(|error| error.driver_message(&sql))?;
            return Ok(plan_result(&sql, &plan));
        }
        let paged = PagedResult {
            caller: caller.principal.name(),
            origin: source.name(),
            text: &sql,
        };
        let limits = self
            .cursors
            .page_limits(paged, input["cursor"].as_str(), limits)?;
        let rows = source.query(&sql, &parameters, limits).await;
        let rows = rows.map_err(|error| error.driver_message(&sql))?;
        let next = self.cursors.next_page(paged, limits, &rows);
        let format = match input["format"].as_str() {
            Some("csv") => Some(ResultFormat::Csv),
            Some("markdown") => Some(ResultFormat::Table),
            _ => None,
        };
        Ok(query_result(&sql, &rows, format, next.as_deref()))
    }

    /// The tables of a source, as JSON.
    pub async fn tables(
        &self,
        source: Option<&str>,
        schema: Option<&str>,
    ) -> Result<Value, String> {
        let tables = self
            .find_source(source)?
            .tables()
            .await
            .map_err(|error| error.to_string())?;
        let wanted = |it: &&TableInfo| schema.is_none_or(|schema| it.schema == schema);
        let shown = tables.iter().filter(wanted).map(|it| {
            json!({
                "schema": it.schema, "name": it.name, "kind": it.kind.as_str(),
                "comment": it.comment, "estimated_rows": it.estimated_rows,
            })
        });
        Ok(shown.collect())
    }

    /// The columns of a table, as JSON.
    pub async fn describe_columns(
        &self,
        source: Option<&str>,
        table: &str,
        principal: &Principal,
    ) -> Result<Value, String> {
        let source = self.find_source(source)?;
        let columns = source.describe(table).await;
        let mut columns = columns.map_err(|error| error.to_string())?;
        let caller = ToolCaller::new(principal.clone());
        let (parameters, limits) = caller_query(source, &caller);
        source
            .add_samples(table, &mut columns, &parameters, limits)
            .await;
        let shown = columns.iter().map(|it| {
            let references = it.references.iter();
            let references: Vec<String> = references
                .map(|to| format!("{}.{}.{}", to.schema, to.table, to.column))
                .collect();
            let mut shown = json!({
                "name": it.name, "type": it.data_type, "nullable": it.nullable, "default": it.default,
                "comment": it.comment, "primary_key": it.primary_key, "references": references,
                "indexes": it.indexes,
            });
            if !it.samples.is_empty() {
                shown["samples"] = json!(it.samples);
            }
            shown
        });
        Ok(shown.collect())
    }

    /// How long one query may take, on the slowest source.
    fn query_deadline(&self) -> Duration {
        let deadlines = self.sources.iter().map(DataSource::query_deadline);
        deadlines.max().unwrap_or_default()
    }

    /// The source of this name, or the first.
    fn find_source(&self, named: Option<&str>) -> Result<&DataSource, String> {
        let found = match named {
            None => self.sources.first(),
            Some(name) => self.sources.iter().find(|it| it.name() == name),
        };
        found.ok_or_else(|| {
            let known: Vec<&str> = self.sources.iter().map(DataSource::name).collect();
            let named: String = named.unwrap_or("default").chars().take(60).collect();
            format!(
                "there is no source {named:?}; known are {}",
                known.join(", ")
            )
        })
    }
}

/// A data tool before it has a handler.
struct DataTool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Value,
    required: &'a [&'a str],
    output: DataOutput,
    /// How many queries a call sends to a source, one after the other.
    queries: u32,
}

/// The form of a tool's result.
enum DataOutput {
    /// A value of this schema.
    Value(Value),
    /// An object with `status`, `message` and, on success, `data`.
    StatusObject,
}

impl DataTool<'_> {
    /// The catalog entry of the tool, which calls `answer` with the arguments.
    fn into_entry<F, Fut>(self, data: &DataContext, answer: F) -> Arc<CatalogEntry>
    where
        F: Fn(DataContext, Arc<CallArguments>, ToolCaller) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<EntryResponse, RpcError>> + Send + 'static,
    {
        let (output_schema, failures) = match self.output {
            DataOutput::Value(schema) => (wrapped_output_schema(&schema), FailureFormat::TextOnly),
            DataOutput::StatusObject => (object_of_anything(), FailureFormat::StatusObject),
        };
        let own_timeout = data.query_deadline() * self.queries;
        let data = data.clone();
        let handler: EntryHandler = Arc::new(move |request: EntryRequest| {
            let caller = ToolCaller {
                principal: request.principal,
                request: request.context.request_id,
            };
            let input = match request.action.into_call_arguments() {
                Ok(input) => input,
                Err(error) => return std::future::ready(Err(error)).boxed(),
            };
            match input.check_size() {
                Ok(()) => answer(data.clone(), input, caller).boxed(),
                Err(message) => {
                    let result = EntryResult::failure_in(failures, &message);
                    std::future::ready(Ok(EntryResponse::Complete(result))).boxed()
                }
            }
        });
        let described = json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": {
                "type": "object", "properties": self.parameters, "required": self.required,
                "additionalProperties": false,
            },
            "outputSchema": output_schema,
            "annotations": read_only_annotations(),
        });
        let entry = CatalogEntry::new_builtin(CatalogEntryKind::Tool, described, handler);
        let entry = entry.with_failure_format(failures);
        Arc::new(entry.with_own_timeout(own_timeout))
    }
}

fn list_of(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn text_list_schema(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "maxItems": MAX_TEXTS_PER_CALL, "description": description})
}

fn source_schema(data: &DataContext) -> Value {
    let names: Vec<&str> = data.sources.iter().map(DataSource::name).collect();
    json!({"type": "string", "enum": names, "description": "The source to use; the first if none is named"})
}

fn string_list(input: &Value, name: &str) -> Vec<String> {
    let texts = input[name].as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Models sometimes write non-breaking spaces in SQL, which databases refuse.
fn replace_nbsp(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

/// The value as text and as `result` of the structured content, or the failure.
fn to_response(result: Result<Value, impl ToString>) -> Result<EntryResponse, RpcError> {
    Ok(EntryResponse::Complete(match result {
        Ok(value) => {
            let text = value.to_string();
            EntryResult::text_and_value(&text, &text)
        }
        Err(error) => EntryResult::failure_in(FailureFormat::TextOnly, &error.to_string()),
    }))
}

/// Who calls, and how far the caller's query may go.
pub(super) fn caller_query(
    source: &DataSource,
    caller: &ToolCaller,
) -> (QueryParameters, QueryLimits) {
    let limits = QueryLimits {
        request: Some(caller.request.as_halves()),
        ..source.limits()
    };
    let caller_values = caller.principal.caller_values();
    (
        QueryParameters::default().with_caller(caller_values),
        limits,
    )
}

/// The rows as records, or as one text in `format`.
fn query_result(
    sql: &str,
    rows: &QueryRows,
    format: Option<ResultFormat>,
    next_cursor: Option<&str>,
) -> EntryResult {
    let mut note = rows.truncation_note().map_or_else(String::new, |note| {
        format!(",\"truncated\":true,\"note\":{}", Value::from(note))
    });
    if let Some(cursor) = next_cursor {
        note.push_str(&format!(",\"next_cursor\":\"{cursor}\""));
    }
    let rows = match format {
        None => format!("\"records\":{}", rows.json),
        Some(format) => {
            let written = CustomToolResult::from_table(rows, format).text;
            let name = format.query_name();
            format!("\"format\":\"{name}\",\"text\":{}", Value::from(written))
        }
    };
    success_result("csv_table", sql, &format!("{rows}{note}"))
}

fn plan_result(sql: &str, plan: &QueryRows) -> EntryResult {
    let lines: Vec<Value> = serde_json::from_str(&plan.json).unwrap_or_default();
    let lines: Value = lines.into_iter().map(|mut it| it["plan"].take()).collect();
    success_result("query_plan", sql, &format!("\"plan\":{lines}"))
}

/// The status object of document 000 with `members` in its content.
fn success_result(kind: &str, sql: &str, members: &str) -> EntryResult {
    let sql = Value::from(sql);
    let text = format!(
        "{{\"status\":\"success\",\"message\":\"SQL executed.\",\"data\":{{\"type\":\"{kind}\",\"content\":{{\"sql\":{sql},{members}}}}}}}"
    );
    EntryResult::text_and_structure(&text, &text)
}

/// The result of a failed statement. By its specification the tool reports the error in `status` only;
/// `flag` adds `isError`.
fn query_error_result(message: &str, flag: bool) -> EntryResult {
    let message = format!("Error while querying DB: {message}");
    if flag {
        EntryResult::failure_in(FailureFormat::StatusObject, &message)
    } else {
        let report = json!({"status": "error", "message": message});
        EntryResult::reported_failure(&report.to_string())
    }
}
