//! The data tools of document 000: embeddings, similarity search, SQL.

use std::{future::Future, sync::Arc};

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::reads_only;
use crate::{
    journal::RequestId,
    mcp::RpcError,
    retrieval::Index,
    source::{Limits, Parameters, Source},
    tool::{
        offer::{Action, Answer, Ask, Handler, Input, Kind, Offer},
        output,
    },
};

/// What the tools work on.
#[derive(Clone, Debug)]
pub struct Data {
    /// Embeds and finds.
    pub index: Index,
    /// The collection that is searched.
    pub collection: String,
    /// The named sources; the first is behind `query_bga_database`.
    pub sources: Arc<[Source]>,
}

/// Rows beyond this many bytes come as text alone.
const MAX_STRUCTURE: usize = 256 << 10;
/// The most texts in one question.
const MAX_TEXTS: usize = 2048;

/// The tools.
pub fn offers(data: &Data) -> Vec<Arc<Offer>> {
    let mut offers = vec![embedding(data), search(data), serialize()];
    if !data.sources.is_empty() {
        offers.extend([query(data), list_tables(data), describe_table(data)]);
    }
    offers
}

fn embedding(data: &Data) -> Arc<Offer> {
    let model = data.index.embedder().model();
    let what = match data.index.embedder().is_lexical() {
        true => format!(
            "Turns texts into vectors with {model}, a built-in embedder that knows words and listed synonyms, but no meaning; set TEXT_EMBEDDING_MODEL_URL for a model that does."
        ),
        false => format!("Turns texts into vectors with the embedding model {model}."),
    };
    let texts = json!({"text_list": texts("Texts to embed")});
    Tool {
        name: "get_text_embedding",
        what: &what,
        parameters: &texts,
        required: &["text_list"],
    }
    .over(data, |data, input, _| async move {
        let found = data
            .index
            .embedder()
            .embed(&list(&input, "text_list"))
            .await;
        done(found.map(|vectors| json!(vectors)))
    })
}

fn search(data: &Data) -> Arc<Offer> {
    let what = "Finds the documents that are most similar to each query, most similar first. Returns a list of documents for every query.";
    let parameters = json!({
        "query_list": texts("What to look for"),
        "n_results": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3, "description": "Documents for each query"},
    });
    Tool {
        name: "get_sim_search",
        what,
        parameters: &parameters,
        required: &["query_list"],
    }
    .over(data, |data, input, _| async move {
        let count = input["n_results"]
            .as_u64()
            .map_or(3, |it| usize::try_from(it).unwrap_or(100));
        let found = data
            .index
            .search(&data.collection, &list(&input, "query_list"), count)
            .await;
        done(found.map(|found| {
            let texts = |documents: Vec<crate::retrieval::Document>| -> Value {
                documents
                    .into_iter()
                    .map(|it| it.text.unwrap_or_default())
                    .collect()
            };
            found.into_iter().map(texts).collect()
        }))
    })
}

fn query(data: &Data) -> Arc<Offer> {
    let name = data.sources.first().map_or("none", Source::name);
    let what = format!(
        "Runs one SQL query that only reads, on the source {name:?}, and returns its rows. See list_tables and describe_table for what there is."
    );
    let parameters = json!({
        "generated_sql": {"type": "string", "description": "A complete SELECT statement"},
        "source": source_parameter(data),
    });
    Tool {
        name: "query_bga_database",
        what: &what,
        parameters: &parameters,
        required: &["generated_sql"],
    }
    .over(data, |data, input, request| async move {
            let sql = clean(input["generated_sql"].as_str().unwrap_or_default());
            let rows = match data.source(input["source"].as_str()) {
                Ok(source) => source
                    .query(&sql, &Parameters::default(), Limits { request: Some(request.number()), ..source.limits() })
                    .await
                    .map_err(|why| why.to_string()),
                Err(why) => Err(why),
            };
            Ok(Answer::Complete(match rows {
                Err(why) => failed_query(&why),
                Ok(rows) => {
                    let note = match rows.truncated {
                        true => {
                            ",\"truncated\":true,\"note\":\"more rows were found than may be returned; ask for fewer, or count and group them\""
                        }
                        false => "",
                    };
                    let text = format!(
                        "{{\"status\":\"success\",\"message\":\"SQL executed.\",\"data\":{{\"type\":\"csv_table\",\"content\":{{\"sql\":{},\"records\":{}{note}}}}}}}",
                        Value::from(sql),
                        rows.json
                    );
                    match text.len() > MAX_STRUCTURE {
                    // Twice the same would be too much of it.
                    true => output::text_only(&text, false),
                    false => output::written(&text, &text, false),
                }
                }
            }))
        },
    )
}

fn list_tables(data: &Data) -> Arc<Offer> {
    let what = "Lists the tables and views that can be queried, with what is known about them.";
    Tool {
        name: "list_tables",
        what,
        parameters: &json!({"source": source_parameter(data)}),
        required: &[],
    }
    .over(data, |data, input, _| async move {
        done(data.tables(input["source"].as_str()).await)
    })
}

fn describe_table(data: &Data) -> Arc<Offer> {
    let what =
        "Describes the columns of a table or view: type, key, comment, and what it points to.";
    let parameters = json!({
        "table": {"type": "string", "description": "As list_tables names it: name, or schema.name"},
        "source": source_parameter(data),
    });
    Tool {
        name: "describe_table",
        what,
        parameters: &parameters,
        required: &["table"],
    }
    .over(data, |data, input, _| async move {
        let table = input["table"].as_str().unwrap_or_default();
        done(data.columns(input["source"].as_str(), table).await)
    })
}

fn serialize() -> Arc<Offer> {
    let what = "Replaces every non-breaking space (U+00A0) of a text with a plain one.";
    let schema = schema(
        &json!({"data": {"type": "string", "description": "Text to clean"}}),
        &["data"],
    );
    let handler: Handler = Arc::new(|ask: Ask| {
        async move {
            let Action::Call(input) = ask.action else {
                return Err(RpcError::params("a tool is called"));
            };
            let text = clean(input["data"].as_str().unwrap_or_default());
            let structure = json!({"result": text}).to_string();
            Ok(Answer::Complete(output::written(&text, &structure, false)))
        }
        .boxed()
    });
    let described = json!({"name": "serialize_for_cell", "description": what, "inputSchema": schema, "annotations": reads_only()});
    Offer::own(Kind::Tool, described, handler)
}

impl Data {
    /// The tables of a source, as JSON.
    pub async fn tables(&self, source: Option<&str>) -> Result<Value, String> {
        let tables = self
            .source(source)?
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
    pub async fn columns(&self, source: Option<&str>, table: &str) -> Result<Value, String> {
        let columns = self
            .source(source)?
            .describe(table)
            .await
            .map_err(|why| why.to_string())?;
        let shown = columns.iter().map(|it| {
            let references = it.references.iter();
            let references: Vec<String> = references
                .map(|to| format!("{}.{}.{}", to.schema, to.table, to.column))
                .collect();
            json!({
                "name": it.name, "type": it.kind, "nullable": it.nullable, "default": it.default,
                "comment": it.comment, "primary_key": it.primary_key, "references": references,
            })
        });
        Ok(shown.collect())
    }

    /// The source of this name, or the first.
    fn source(&self, named: Option<&str>) -> Result<&Source, String> {
        let found = match named {
            None => self.sources.first(),
            Some(name) => self.sources.iter().find(|it| it.name() == name),
        };
        found.ok_or_else(|| {
            let known: Vec<&str> = self.sources.iter().map(Source::name).collect();
            let named: String = named.unwrap_or("default").chars().take(60).collect();
            format!(
                "there is no source {named:?}; known are {}",
                known.join(", ")
            )
        })
    }
}

/// How a tool is described.
struct Tool<'a> {
    name: &'a str,
    what: &'a str,
    parameters: &'a Value,
    required: &'a [&'a str],
}

impl Tool<'_> {
    /// The tool over the data, from a function of its arguments.
    fn over<F, Fut>(self, data: &Data, answer: F) -> Arc<Offer>
    where
        F: Fn(Data, Arc<Input>, RequestId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Answer, RpcError>> + Send + 'static,
    {
        let data = data.clone();
        let handler: Handler = Arc::new(move |ask: Ask| match ask.action {
            Action::Call(input) => answer(data.clone(), input, ask.peer.request).boxed(),
            _ => std::future::ready(Err(RpcError::params("a tool is called"))).boxed(),
        });
        let described = json!({
            "name": self.name,
            "description": self.what,
            "inputSchema": schema(self.parameters, self.required),
            "annotations": reads_only(),
        });
        Offer::own(Kind::Tool, described, handler)
    }
}

fn schema(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn texts(what: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "maxItems": MAX_TEXTS, "description": what})
}

fn source_parameter(data: &Data) -> Value {
    let names: Vec<&str> = data.sources.iter().map(Source::name).collect();
    json!({"type": "string", "enum": names, "description": "The source to use; the first if none is named"})
}

fn list(input: &Value, name: &str) -> Vec<String> {
    let texts = input[name].as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Models write non-breaking spaces where they mean plain ones.
fn clean(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

/// The result as text, and in a structure as `result`; or what went wrong.
fn done(result: Result<Value, impl ToString>) -> Result<Answer, RpcError> {
    Ok(Answer::Complete(match result {
        Ok(value) => {
            let text = value.to_string();
            output::value(&text, &text)
        }
        Err(why) => output::failure(&why.to_string()),
    }))
}

fn failed_query(why: &str) -> String {
    let answer = json!({"status": "error", "message": format!("Error while querying DB: {why}")});
    let text = answer.to_string();
    output::written(&text, &text, true)
}
