//! `/api/export` and `/api/import`: what people set in this hub, in one file.

mod differences;
mod export;
mod import;
mod import_error;
mod import_item;
mod import_plan;
mod placeholders;

use std::{collections::BTreeSet, sync::Arc};

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use serde_json::{Value, json};

use self::{
    import::ImportRequest,
    import_plan::{ImportPreview, plan_import},
};
use super::{HubState, body::JsonBody, servers::json_error};
use maru_auth::Principal;
use maru_config::{has_yaml_aliases, parse_yaml};
use maru_downstream::http::reply;

/// The version of the file. A file of another one is refused.
const FILE_VERSION: u64 = 1;

/// `GET /api/export`: servers, custom tools, models, sources, allowed hosts, toolsets, overrides, limits,
/// budgets, switches and the definitions of tokens. Secrets are placeholders such as `${FILES_API_KEY}`.
pub(super) async fn export(State(hub): State<Arc<HubState>>) -> Response {
    match export::document(&hub).await {
        Ok(document) => reply::json(StatusCode::OK, document.to_string()),
        Err(error) => {
            tracing::error!("failed to export: {error}");
            json_error(
                StatusCode::SERVICE_UNAVAILABLE,
                &error.public_message(),
                None,
            )
        }
    }
}

/// `POST /api/import`: `{"document", "values", "dryRun", "acceptWarnings"}`. The document is
/// an object, or the text of a YAML file. Nothing is removed. Without a value for every placeholder, nothing is changed.
pub(super) async fn import(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    JsonBody(body): JsonBody,
) -> Response {
    let mut missing = BTreeSet::new();
    let body = match with_parsed_document(body) {
        Ok(body) => body,
        Err(message) => return json_error(StatusCode::BAD_REQUEST, &message, Some("document")),
    };
    let request = match ImportRequest::parse(&body, &mut missing) {
        Ok(request) => request,
        Err(message) => {
            return json_error(StatusCode::BAD_REQUEST, &message, Some("document"));
        }
    };
    let plan = plan_import(&request, &hub, &mut missing).await;
    if !missing.is_empty() && !request.dry_run {
        let names: Vec<&String> = missing.iter().collect();
        let shown = json!({
            "error": format!("nothing was imported: fill in {}", join(&missing)),
            "field": "values",
            "missing": names,
        });
        return reply::json(StatusCode::BAD_REQUEST, shown.to_string());
    }
    let preview = if request.dry_run {
        Some(ImportPreview::open(&hub, &plan).await)
    } else {
        None
    };
    let mut items = Vec::with_capacity(plan.len());
    for entry in plan {
        let done = entry.run(&hub, &request, preview.as_ref(), principal.name());
        items.push(done.await);
    }
    let shown = json!({
        "dryRun": request.dry_run,
        "missing": missing.iter().collect::<Vec<_>>(),
        "items": items,
    });
    reply::json(StatusCode::OK, shown.to_string())
}

/// `body` with its document parsed if that is the text of a YAML file.
fn with_parsed_document(mut body: Value) -> Result<Value, String> {
    if let Some(text) = body["document"].as_str() {
        if has_yaml_aliases(text) {
            return Err("anchors and aliases of YAML are not supported here".to_owned());
        }
        body["document"] = parse_yaml(text)?;
    }
    Ok(body)
}

fn join(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(", ")
}

/// `value` without the members that are null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(_, it)| !it.is_null())
            .collect(),
        other => other,
    }
}
