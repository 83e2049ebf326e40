//! maru's own tools.

mod data;
mod documents;
mod people;

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    offer::{Answer, Ask, Handler, Offer},
    output,
};
use crate::{
    mcp::{RpcError, code},
    source::{self, Sqlite},
};

pub use data::{Data, offers as data};

/// How long a sample query may take.
const QUERY_LIMIT: Duration = Duration::from_secs(5);

/// The sample tools over the sample database.
pub fn samples(source: &Sqlite) -> Vec<Arc<Offer>> {
    [documents::offers(source), people::offers(source)].concat()
}

/// A handler from a function of the source and the question.
fn handler<F, Fut>(source: &Sqlite, answer: F) -> Handler
where
    F: Fn(Sqlite, Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, RpcError>> + Send + 'static,
{
    let source = source.clone();
    Arc::new(move |ask| answer(source.clone(), ask).boxed())
}

/// `{"success": true, "result": …}`, or what went wrong.
fn answer(result: Result<impl Serialize, String>) -> Result<Answer, RpcError> {
    #[derive(Serialize)]
    struct Success<T> {
        success: bool,
        result: T,
    }
    Ok(Answer::Complete(match result {
        Ok(result) => output::structured(&Success {
            success: true,
            result,
        }),
        Err(why) => output::failure(&why),
    }))
}

/// For callers: what failed, without the database's own words.
fn failed(error: &source::Error) -> String {
    error.to_string()
}

fn internal(error: &source::Error) -> RpcError {
    RpcError::new(code::INTERNAL, failed(error))
}

/// The schema of [`answer`].
fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "success": {"type": "boolean"},
            "result": {"description": "What was asked for, when success is true"},
            "error": {"type": "string", "description": "What went wrong, when success is false"}
        },
        "required": ["success"]
    })
}

/// Annotations of a tool that only reads our own data.
pub(super) fn reads_only() -> Value {
    json!({"readOnlyHint": true, "openWorldHint": false})
}
