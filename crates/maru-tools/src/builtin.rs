//! maru's own tools.

mod data;
mod documents;
mod employees;
mod vector_table;

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use maru_protocol::{RpcError, code};
use maru_sources::{DataSource, QueryLimits, QueryParameters, QueryValue};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    entry::{CatalogEntry, EntryHandler, EntryRequest, EntryResponse},
    result::EntryResult,
};

pub use data::{DataContext, entries as data};
pub use vector_table::VectorTable;
pub(crate) use vector_table::vector_text;

/// Limits of a query of the sample tools.
pub const SAMPLE_LIMITS: QueryLimits = QueryLimits {
    rows: 10_000,
    max_bytes: 16 << 20,
    timeout: Duration::from_secs(5),
    offset: 0,
    request: None,
};

/// The tools, prompt and resources that read the sample database.
pub fn sample_entries(source: &DataSource) -> Vec<Arc<CatalogEntry>> {
    [documents::entries(source), employees::entries(source)].concat()
}

/// A handler that calls `answer` with the source and the request.
fn entry_handler<F, Fut>(source: &DataSource, answer: F) -> EntryHandler
where
    F: Fn(DataSource, EntryRequest) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<EntryResponse, RpcError>> + Send + 'static,
{
    let source = source.clone();
    Arc::new(move |request| answer(source.clone(), request).boxed())
}

/// Queries the sample data; each column of a row is a field of `T`.
async fn query_sample<T: DeserializeOwned>(
    source: &DataSource,
    sql: &str,
    parameters: impl IntoIterator<Item = (&'static str, QueryValue)>,
) -> Result<Vec<T>, maru_sources::Error> {
    let parameters = QueryParameters::from_iter(parameters);
    let rows = source.query(sql, &parameters, SAMPLE_LIMITS).await?;
    serde_json::from_str(&rows.json)
        .map_err(|_| maru_sources::Error::Database("a value has the wrong type".to_owned()))
}

/// `{"success": true, "result": …}`, or the error in the same form.
fn to_response(result: Result<impl Serialize, String>) -> Result<EntryResponse, RpcError> {
    #[derive(Serialize)]
    struct SuccessBody<T> {
        success: bool,
        result: T,
    }
    Ok(EntryResponse::Complete(match result {
        Ok(result) => EntryResult::structured(&SuccessBody {
            success: true,
            result,
        }),
        Err(why) => EntryResult::failure(&why),
    }))
}

/// The error for callers. It has no message of the database, which might quote a row.
fn error_text(error: &maru_sources::Error) -> String {
    error.to_string()
}

fn internal_error(error: &maru_sources::Error) -> RpcError {
    RpcError::new(code::INTERNAL_ERROR, error_text(error))
}

/// The schema of [`to_response`].
fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "success": {"type": "boolean"},
            "result": {"description": "The value, if success is true"},
            "error": {"type": "string", "description": "The reason, if success is false"}
        },
        "required": ["success"]
    })
}

/// The output schema of a tool whose value may have any type, not only an object.
/// Structured content must be an object in most versions of MCP, so the value is its member
/// `result`. Clients built with `FastMCP` unwrap it when they see the mark.
pub(super) fn wrapped_output_schema(value: &Value) -> Value {
    json!({
        "type": "object",
        "properties": {"result": value},
        "required": ["result"],
        "x-fastmcp-wrap-result": true,
    })
}

/// The schema of an object with any members.
fn object_of_anything() -> Value {
    json!({"type": "object", "additionalProperties": true})
}

/// Annotations of a tool that only reads our own data.
pub(super) fn read_only_annotations() -> Value {
    json!({"readOnlyHint": true, "openWorldHint": false})
}
