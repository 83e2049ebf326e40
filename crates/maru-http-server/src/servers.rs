//! `/api/mcp/servers`: the servers behind the hub.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use maru_protocol::ProtocolVersion;
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, calls, peer_requests, routes::CONSOLE_HEADER};
use maru_auth::{AccessRole, Principal};
use maru_downstream::http::reply;
use maru_tools::public_name;
use maru_upstream::{
    ProgramView, RegistrationError, ServerDraft, ServerOrigin, ServerState as Connection,
    ServerStatus, ServerView, drafts_from_import,
};

/// The version of a server whose registration names none.
const DEFAULT_SERVER_VERSION: &str = "1.0.0";

/// `GET /api/mcp/servers`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
) -> Response {
    let all = hub.servers.list();
    let visible = all
        .iter()
        .filter(|it| who.may_reach(it.server.name.as_str()));
    let servers: Vec<Value> = visible.map(summary).collect();
    reply::json(StatusCode::OK, Value::from(servers).to_string())
}

/// `POST /api/mcp/servers`.
pub(super) async fn register(
    State(hub): State<Arc<HubState>>,
    JsonBody(body): JsonBody,
) -> Response {
    let done = async {
        let mut draft = ServerDraft::from_api(&body)?;
        draft
            .version
            .get_or_insert_with(|| DEFAULT_SERVER_VERSION.to_owned());
        hub.servers.register(&draft, ServerOrigin::Api).await
    };
    respond(StatusCode::CREATED, done.await, summary)
}

/// `GET /api/mcp/servers/{name}`.
pub(super) async fn show(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    match hub.servers.get(&name) {
        Ok(view) if who.may_reach(&name) => {
            let mut shown = detail_for(&who, &view);
            // The console fills its form with it.
            if who.grants().is_none()
                && who.role() == AccessRole::Admin
                && headers.contains_key(CONSOLE_HEADER)
            {
                shown["config"] = view.server.transport.editable_config();
            }
            if who.role() == AccessRole::Admin
                && let Some(states) = peer_requests::server_states(&hub, &name).await
            {
                shown["hubs"] = states;
            }
            reply::json(StatusCode::OK, shown.to_string())
        }
        Ok(_) => reject_change(&RegistrationError::UnknownServer(name)),
        Err(why) => reject_change(&why),
    }
}

/// `PUT /api/mcp/servers/{name}`: what is not named stays as it is.
pub(super) async fn update(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let done = async {
        let now = hub.servers.get(&name)?;
        let draft = ServerDraft::from_api(&merge_update(&now, &body))?;
        hub.servers.update(&name, &draft).await
    };
    respond(StatusCode::OK, done.await, detail)
}

/// `DELETE /api/mcp/servers/{name}`.
pub(super) async fn remove(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.servers.remove(&name).await {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(why) => reject_change(&why),
    }
}

/// `POST /api/mcp/servers/{name}/connect`.
pub(super) async fn connect(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    let connected = hub.servers.connect_or_continue(&name).await;
    respond(StatusCode::OK, connected, summary)
}

/// `POST /api/mcp/servers/{name}/disconnect`.
pub(super) async fn disconnect(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    respond(StatusCode::OK, hub.servers.disconnect(&name).await, summary)
}

/// `POST /api/mcp/servers/{name}/enable`.
pub(super) async fn enable(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    respond(
        StatusCode::OK,
        hub.servers.set_enabled(&name, true).await,
        summary,
    )
}

/// `POST /api/mcp/servers/{name}/disable`.
pub(super) async fn disable(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    respond(
        StatusCode::OK,
        hub.servers.set_enabled(&name, false).await,
        summary,
    )
}

/// `POST /api/mcp/servers/{name}/tools/{tool}/accept`.
pub(super) async fn accept(
    State(hub): State<Arc<HubState>>,
    Path((name, tool)): Path<(String, String)>,
) -> Response {
    respond(
        StatusCode::OK,
        hub.servers.accept_definitions(&name, Some(&tool)).await,
        detail,
    )
}

/// `POST /api/mcp/servers/{name}/accept`: every tool that waits.
pub(super) async fn accept_all(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    respond(
        StatusCode::OK,
        hub.servers.accept_definitions(&name, None).await,
        detail,
    )
}

/// `POST /api/mcp/import`: the file of a desktop client.
pub(super) async fn import(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let found = match drafts_from_import(&body) {
        Ok(found) => found,
        Err(why) => return reject_change(&why.into()),
    };
    let accept_warnings = body.get("acceptWarnings") == Some(&Value::Bool(true));
    let entries = found.into_iter().map(|(name, draft)| {
        let draft = draft.map(|it| ServerDraft {
            accept_warnings,
            ..it
        });
        import_one(&hub, name, draft.map_err(RegistrationError::from))
    });
    let done: Vec<Value> = futures_util::future::join_all(entries).await;
    reply::json(StatusCode::OK, json!({"servers": done}).to_string())
}

async fn import_one(
    hub: &HubState,
    name: String,
    draft: Result<ServerDraft, RegistrationError>,
) -> Value {
    let done = match draft {
        Ok(draft) => hub.servers.register(&draft, ServerOrigin::Import).await,
        Err(why) => Err(why),
    };
    match done {
        Ok(view) => {
            let mut shown = summary(&view);
            shown["importedAs"] = shown["name"].take();
            shown["name"] = name.into();
            shown
        }
        Err(why) => {
            let mut shown = json!({"name": name, "error": why.to_string()});
            if let RegistrationError::WarningsNotAccepted { warnings, .. } = why {
                shown["warnings"] = json!(warnings);
            }
            shown
        }
    }
}

fn respond(
    status: StatusCode,
    done: Result<ServerView, RegistrationError>,
    shown: fn(&ServerView) -> Value,
) -> Response {
    match done {
        Ok(view) => reply::json(status, shown(&view).to_string()),
        Err(why) => reject_change(&why),
    }
}

/// The answer to a change that was not made.
pub(super) fn reject_change(why: &RegistrationError) -> Response {
    let (status, field) = match why {
        RegistrationError::Invalid(invalid) => {
            (StatusCode::BAD_REQUEST, Some(invalid.field.as_str()))
        }
        RegistrationError::WarningsNotAccepted { field, warnings } => {
            let shown = json!({"error": why.to_string(), "field": field, "warnings": warnings});
            return reply::json(StatusCode::BAD_REQUEST, shown.to_string());
        }
        RegistrationError::NameTaken(_) | RegistrationError::TooManyServers(_) => {
            (StatusCode::CONFLICT, None)
        }
        RegistrationError::UnknownServer(_) | RegistrationError::NothingToAccept => {
            (StatusCode::NOT_FOUND, None)
        }
        RegistrationError::ProgramsNotAllowed => (StatusCode::FORBIDDEN, None),
        RegistrationError::Store(_) => {
            tracing::error!("a change of the servers failed: {why}");
            (StatusCode::SERVICE_UNAVAILABLE, None)
        }
    };
    json_error(status, &why.to_string(), field)
}

/// An error of the API.
pub(super) fn json_error(status: StatusCode, why: &str, field: Option<&str>) -> Response {
    let mut shown = json!({"error": why});
    if let Some(field) = field {
        shown["field"] = field.into();
    }
    reply::json(status, shown.to_string())
}

/// The state of the connection to a server, and whether its program runs here.
pub(super) fn state_json(view: &ServerView) -> Value {
    let (server, status) = (&view.server, &view.status);
    json!({
        "status": status.state.as_str(),
        "cause": status.cause.as_ref().map(|it| server.transport.redact(it)),
        "runsProgram": view.program.is_some(),
    })
}

fn summary(view: &ServerView) -> Value {
    let (server, status) = (&view.server, &view.status);
    let mut shown = json!({
        "id": server.id,
        "name": server.name.as_str(),
        "description": server.description,
        "transportType": server.transport.kind(),
        "version": server.version,
        "autoConnect": server.auto_connect,
        "enabled": server.enabled,
        "origin": server.origin.as_str(),
        "trust": server.trust.as_str(),
        "requiredProtocolVersion": server.required_version.map(ProtocolVersion::as_str),
        "status": status.state.as_str(),
        "attempts": status.attempts,
        "nextAttemptAt": status.next_attempt_at,
        "toolCount": status.tools.len(),
        "createdAt": server.created_at,
        "updatedAt": server.updated_at,
    });
    if let Some(cause) = &status.cause {
        shown["cause"] = server.transport.redact(cause).into();
    }
    if !view.warnings.is_empty() {
        shown["warnings"] = json!(view.warnings);
    }
    if let Some(program) = &view.program {
        shown["program"] = program_json(program);
    }
    if let Some(differs) = view.differs_from_config {
        shown["differsFromFile"] = differs.into();
    }
    shown
}

fn program_json(program: &ProgramView) -> Value {
    let (usage, limits) = (program.usage, &program.limits);
    json!({
        "memoryBytes": usage.map(|it| it.memory_bytes),
        "cpuPercent": usage.map(|it| it.cpu_percent),
        "processes": usage.map(|it| it.processes),
        "limits": {
            "memoryBytes": limits.memory_bytes,
            "cpuPercent": limits.cpu_percent,
            "processes": limits.processes,
            "enforcedBy": if program.in_cgroup { "cgroup" } else { "hub" },
        },
    })
}

/// A server as pages show it: with what it runs, how it is tried again, and figures.
pub(super) fn console_json(hub: &HubState, view: &ServerView) -> Value {
    let mut shown = summary(view);
    let status = &view.status;
    shown["target"] = view.server.transport.display_target().into();
    shown["changedAt"] = status.changed_at.into();
    shown["protocolVersion"] = status.version.map(|it| it.as_str()).into();
    shown["serverInfo"] = status.info.clone();
    shown["withheld"] = status.withheld.len().into();
    if let Connection::Connecting { attempt } | Connection::Waiting { attempt } = status.state {
        shown["attempt"] = attempt.into();
        shown["maxAttempts"] = hub.servers.max_attempts().into();
    }
    shown["stats"] = calls::recent_stats(hub, view.server.name.as_str());
    shown
}

fn detail(view: &ServerView) -> Value {
    let mut shown = summary(view);
    let ServerStatus {
        tools,
        withheld,
        version,
        info,
        ..
    } = &view.status;
    shown["config"] = view.server.transport.masked_config();
    shown["tools"] = tools.iter().map(String::as_str).collect();
    shown["withheld"] = withheld
        .iter()
        .map(|it| json!({"name": it.name, "why": it.reason, "differences": it.differences}))
        .collect();
    shown["protocolVersion"] = version.map(|it| it.as_str()).into();
    shown["serverInfo"] = info.clone();
    shown
}

/// What a restricted token may see of it: some of its tools, and how it is.
fn detail_for(who: &Principal, view: &ServerView) -> Value {
    let mut shown = detail(view);
    let Some(grants) = who.grants() else {
        return shown;
    };
    let server = view.server.name.as_str();
    let mine = |tool: &&String| grants.allows_tool(server, tool, &public_name(server, tool));
    let tools: Vec<&String> = view.status.tools.iter().filter(mine).collect();
    shown["toolCount"] = tools.len().into();
    shown["tools"] = json!(tools);
    shown["withheld"] = json!([]);
    shown["config"] = json!({});
    shown
}

/// The description as it is, changed by what `body` names.
pub(super) fn merge_update(now: &ServerView, body: &Value) -> Value {
    let server = &now.server;
    let mut all = json!({
        "name": server.name.as_str(),
        "description": server.description,
        "transportType": server.transport.kind(),
        "config": server.transport.editable_config(),
        "version": server.version,
        "autoConnect": server.auto_connect,
        "trust": server.trust.as_str(),
        "requiredProtocolVersion": server.required_version.map(ProtocolVersion::as_str),
    });
    match body.as_object() {
        Some(given) => {
            for (name, value) in given {
                all[name] = value.clone();
            }
            all
        }
        None => body.clone(),
    }
}
