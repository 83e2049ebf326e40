//! `/api/prompts` and `/api/resources`: lists and tries prompts and resources for the console.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use maru_protocol::RpcError;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{HubState, body::JsonBody, servers::json_error, tools};
use maru_auth::Principal;
use maru_downstream::http::reply;
use maru_tools::{
    CallArguments, Caller, CatalogEntry, CatalogScope, CatalogView, EntryResponse, RequestContext,
};

/// `GET /api/prompts`.
pub(super) async fn prompts(State(hub): State<Arc<HubState>>) -> Response {
    list_response(&hub, |view| json!(listed(view.prompts.entries())))
}

/// `POST /api/prompts/{name}`: `{"arguments"}`; renders the prompt.
pub(super) async fn get_prompt(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    JsonBody(mut body): JsonBody,
) -> Response {
    let arguments = match body.get_mut("arguments").map(Value::take) {
        None | Some(Value::Null) => json!({}),
        Some(arguments @ Value::Object(_)) => arguments,
        Some(_) => {
            let message = "must be an object";
            return json_error(StatusCode::BAD_REQUEST, message, Some("arguments"));
        }
    };
    let caller = Caller::new(principal, CatalogScope::All);
    let arguments = Arc::new(CallArguments::from(arguments));
    let started = Instant::now();
    let catalog = hub.engine.catalog();
    let response = catalog.get_prompt(&caller, &name, arguments, console_context());
    tried(response.await, started)
}

/// `GET /api/resources`: resources and templates.
pub(super) async fn resources(State(hub): State<Arc<HubState>>) -> Response {
    list_response(&hub, |view| {
        json!({
            "resources": listed(view.resources.entries()),
            "templates": listed(view.templates.entries()),
        })
    })
}

/// `POST /api/resources/read`: `{"uri"}`.
pub(super) async fn read_resource(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    JsonBody(body): JsonBody,
) -> Response {
    let Some(uri) = body["uri"].as_str() else {
        let message = "must be the URI of the resource";
        return json_error(StatusCode::BAD_REQUEST, message, Some("uri"));
    };
    let caller = Caller::new(principal, CatalogScope::All);
    let started = Instant::now();
    let catalog = hub.engine.catalog();
    let response = catalog.read_resource(&caller, uri, console_context());
    tried(response.await, started)
}

fn console_context() -> Arc<RequestContext> {
    Arc::new(RequestContext {
        client: Some(tools::CONSOLE_CLIENT_NAME.into()),
        ..RequestContext::default()
    })
}

fn tried(response: Result<EntryResponse, RpcError>, started: Instant) -> Response {
    reply::json(StatusCode::OK, tools::call_json(response, started))
}

fn list_response(hub: &HubState, list: impl FnOnce(&CatalogView) -> Value) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    match snapshot.view(&CatalogScope::All) {
        Ok(view) => reply::json(StatusCode::OK, list(view).to_string()),
        Err(error) => json_error(StatusCode::NOT_FOUND, &error.message, None),
    }
}

/// The members of a listing, and the server of the entry.
fn listed(entries: &[Arc<CatalogEntry>]) -> Vec<Value> {
    let entries = entries.iter().map(|entry| {
        let mut json = entry.listing();
        json["server"] = (&**entry.server()).into();
        json["key"] = entry.public_name().into();
        json
    });
    entries.collect()
}
