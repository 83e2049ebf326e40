//! The data tools of document 000: embeddings, similarity search, SQL.

use std::{future::Future, sync::Arc};

use futures_util::FutureExt as _;
use maru_protocol::RpcError;
use maru_retrieval::DocumentIndex;
use maru_sources::{DataSource, QueryLimits, QueryParameters};
use serde_json::{Value, json};

use super::read_only_annotations;
use crate::{
    observability::journal::RequestId,
    tools::{
        entry::{
            CallArguments, CatalogEntry, CatalogEntryKind, EntryAction, EntryHandler, EntryRequest,
            EntryResponse,
        },
        result::EntryResult,
    },
};

/// What the tools work on.
#[derive(Clone, Debug)]
pub struct DataContext {
    /// Embeds and finds.
    pub index: DocumentIndex,
    /// The collection that is searched.
    pub collection: String,
    /// The named sources; the first is behind `query_bga_database`.
    pub sources: Arc<[DataSource]>,
}

/// Ends a result whose rows were cut off.
const TRUNCATED_NOTE: &str = ",\"truncated\":true,\"note\":\"more rows were found than may be returned; ask for fewer, or count and group them\"";
/// The most texts in one question.
const MAX_TEXTS_PER_CALL: usize = 2048;

/// The tools.
pub fn entries(data: &DataContext) -> Vec<Arc<CatalogEntry>> {
    let mut offers = vec![embedding_tool(data), search_tool(data), serialize_tool()];
    if !data.sources.is_empty() {
        offers.extend([
            query_tool(data),
            list_tables_tool(data),
            describe_table_tool(data),
        ]);
    }
    offers
}

fn embedding_tool(data: &DataContext) -> Arc<CatalogEntry> {
    let model = data.index.embedder().model();
    let what = if data.index.embedder().is_lexical() {
        format!(
            "Turns texts into vectors with {model}, a built-in embedder that knows words and listed synonyms, but no meaning; set TEXT_EMBEDDING_MODEL_URL for a model that does."
        )
    } else {
        format!("Turns texts into vectors with the embedding model {model}.")
    };
    let texts = json!({"text_list": text_list_schema("Texts to embed")});
    DataTool {
        name: "get_text_embedding",
        description: &what,
        parameters: &texts,
        required: &["text_list"],
    }
    .into_entry(data, |data, input, _| async move {
        let found = data
            .index
            .embedder()
            .embed(&string_list(&input, "text_list"))
            .await;
        to_response(found.map(|vectors| json!(vectors)))
    })
}

fn search_tool(data: &DataContext) -> Arc<CatalogEntry> {
    let what = "Finds the documents that are most similar to each query, most similar first. Returns a list of documents for every query.";
    let parameters = json!({
        "query_list": text_list_schema("What to look for"),
        "n_results": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3, "description": "Documents for each query"},
    });
    DataTool {
        name: "get_sim_search",
        description: what,
        parameters: &parameters,
        required: &["query_list"],
    }
    .into_entry(data, |data, input, _| async move {
        let count = input
            .integer("n_results")
            .map_or(3, |it| usize::try_from(it).unwrap_or(100));
        let found = data
            .index
            .search(&data.collection, &string_list(&input, "query_list"), count)
            .await;
        to_response(found.map(|found| {
            let texts = |documents: Vec<maru_retrieval::FoundDocument>| -> Value {
                documents
                    .into_iter()
                    .map(|it| it.text.unwrap_or_default())
                    .collect()
            };
            found.into_iter().map(texts).collect()
        }))
    })
}

fn query_tool(data: &DataContext) -> Arc<CatalogEntry> {
    let name = data.sources.first().map_or("none", DataSource::name);
    let what = format!(
        "Runs one SQL query that only reads, on the source {name:?}, and returns its rows. See list_tables and describe_table for what there is."
    );
    let parameters = json!({
        "generated_sql": {"type": "string", "description": "A complete SELECT statement"},
        "source": source_schema(data),
    });
    DataTool {
        name: "query_bga_database",
        description: &what,
        parameters: &parameters,
        required: &["generated_sql"],
    }
    .into_entry(data, |data, input, request| async move {
            let sql = replace_nbsp(input["generated_sql"].as_str().unwrap_or_default());
            let rows = match data.find_source(input["source"].as_str()) {
                Ok(source) => source
                    .query(&sql, &QueryParameters::default(), QueryLimits { request: Some(request.as_halves()), ..source.limits() })
                    .await
                    .map_err(|why| why.to_string()),
                Err(why) => Err(why),
            };
            Ok(EntryResponse::Complete(match rows {
                Err(why) => query_error_result(&why),
                Ok(rows) => {
                    let note = if rows.truncated { TRUNCATED_NOTE } else { "" };
                    let text = format!(
                        "{{\"status\":\"success\",\"message\":\"SQL executed.\",\"data\":{{\"type\":\"csv_table\",\"content\":{{\"sql\":{},\"records\":{}{note}}}}}}}",
                        Value::from(sql),
                        rows.json
                    );
                    EntryResult::text_and_json(&text, &text)
                }
            }))
        },
    )
}

fn list_tables_tool(data: &DataContext) -> Arc<CatalogEntry> {
    let what = "Lists the tables and views that can be queried, with what is known about them.";
    DataTool {
        name: "list_tables",
        description: what,
        parameters: &json!({"source": source_schema(data)}),
        required: &[],
    }
    .into_entry(data, |data, input, _| async move {
        to_response(data.tables(input["source"].as_str()).await)
    })
}

fn describe_table_tool(data: &DataContext) -> Arc<CatalogEntry> {
    let what =
        "Describes the columns of a table or view: type, key, comment, and what it points to.";
    let parameters = json!({
        "table": {"type": "string", "description": "As list_tables names it: name, or schema.name"},
        "source": source_schema(data),
    });
    DataTool {
        name: "describe_table",
        description: what,
        parameters: &parameters,
        required: &["table"],
    }
    .into_entry(data, |data, input, _| async move {
        let table = input["table"].as_str().unwrap_or_default();
        to_response(data.describe_columns(input["source"].as_str(), table).await)
    })
}

fn serialize_tool() -> Arc<CatalogEntry> {
    let what = "Replaces every non-breaking space (U+00A0) of a text with a plain one.";
    let schema = object_schema(
        &json!({"data": {"type": "string", "description": "Text to clean"}}),
        &["data"],
    );
    let handler: EntryHandler = Arc::new(|ask: EntryRequest| {
        async move {
            let EntryAction::CallTool(input) = ask.action else {
                return Err(RpcError::invalid_params("a tool is called"));
            };
            let text = replace_nbsp(input["data"].as_str().unwrap_or_default());
            let structure = json!({"result": text}).to_string();
            Ok(EntryResponse::Complete(EntryResult::text_and_structure(
                &text, &structure,
            )))
        }
        .boxed()
    });
    let described = json!({"name": "serialize_for_cell", "description": what, "inputSchema": schema, "annotations": read_only_annotations()});
    CatalogEntry::builtin(CatalogEntryKind::Tool, described, handler)
}

impl DataContext {
    /// The tables of a source, as JSON.
    pub async fn tables(&self, source: Option<&str>) -> Result<Value, String> {
        let tables = self
            .find_source(source)?
            .tables()
            .await
            .map_err(|why| why.to_string())?;
        let shown = tables.iter().map(|it| {
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
    ) -> Result<Value, String> {
        let columns = self
            .find_source(source)?
            .describe(table)
            .await
            .map_err(|why| why.to_string())?;
        let shown = columns.iter().map(|it| {
            let references = it.references.iter();
            let references: Vec<String> = references
                .map(|to| format!("{}.{}.{}", to.schema, to.table, to.column))
                .collect();
            json!({
                "name": it.name, "type": it.data_type, "nullable": it.nullable, "default": it.default,
                "comment": it.comment, "primary_key": it.primary_key, "references": references,
            })
        });
        Ok(shown.collect())
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

/// How a tool is described.
struct DataTool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    required: &'a [&'a str],
}

impl DataTool<'_> {
    /// The tool over the data, from a function of its arguments.
    fn into_entry<F, Fut>(self, data: &DataContext, answer: F) -> Arc<CatalogEntry>
    where
        F: Fn(DataContext, Arc<CallArguments>, RequestId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<EntryResponse, RpcError>> + Send + 'static,
    {
        let data = data.clone();
        let handler: EntryHandler = Arc::new(move |ask: EntryRequest| match ask.action {
            EntryAction::CallTool(input) => {
                answer(data.clone(), input, ask.context.request_id).boxed()
            }
            _ => std::future::ready(Err(RpcError::invalid_params("a tool is called"))).boxed(),
        });
        let described = json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": object_schema(self.parameters, self.required),
            "annotations": read_only_annotations(),
        });
        CatalogEntry::builtin(CatalogEntryKind::Tool, described, handler)
    }
}

fn object_schema(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn text_list_schema(what: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "maxItems": MAX_TEXTS_PER_CALL, "description": what})
}

fn source_schema(data: &DataContext) -> Value {
    let names: Vec<&str> = data.sources.iter().map(DataSource::name).collect();
    json!({"type": "string", "enum": names, "description": "The source to use; the first if none is named"})
}

fn string_list(input: &Value, name: &str) -> Vec<String> {
    let texts = input[name].as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Models write non-breaking spaces where they mean plain ones.
fn replace_nbsp(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

/// The result as text, and in a structure as `result`; or what went wrong.
fn to_response(result: Result<Value, impl ToString>) -> Result<EntryResponse, RpcError> {
    Ok(EntryResponse::Complete(match result {
        Ok(value) => {
            let text = value.to_string();
            EntryResult::text_and_value(&text, &text)
        }
        Err(why) => EntryResult::failure(&why.to_string()),
    }))
}

fn query_error_result(why: &str) -> EntryResult {
    let answer = json!({"status": "error", "message": format!("Error while querying DB: {why}")});
    let text = answer.to_string();
    EntryResult::error_with_structure(&text, &text)
}
