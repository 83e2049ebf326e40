//! `/api/mcp/servers`: the servers behind the hub.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde_json::{Value, json};

use super::{Hub, body::Json, calls, routes::FROM_CONSOLE};
use crate::{
    access::{Principal, Role},
    downstream::http::reply,
    mcp::Version,
    tool::public,
    upstream::{
        Draft, Origin, ProgramView, State as Connection, Status, Unchanged, View, from_import,
    },
};

/// The version of a server whose registration names none.
const DEFAULT_VERSION: &str = "1.0.0";

/// `GET /api/mcp/servers`.
pub(super) async fn list(
    State(hub): State<Arc<Hub>>,
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
pub(super) async fn register(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    let done = async {
        let mut draft = Draft::from_api(&body)?;
        draft
            .version
            .get_or_insert_with(|| DEFAULT_VERSION.to_owned());
        hub.servers.register(&draft, Origin::Api).await
    };
    answer(StatusCode::CREATED, done.await, summary)
}

/// `GET /api/mcp/servers/{name}`.
pub(super) async fn show(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    match hub.servers.get(&name) {
        Ok(view) if who.may_reach(&name) => {
            let mut shown = detail_for(&who, &view);
            // The console fills its form with it.
            if who.grants().is_none()
                && who.role() == Role::Admin
                && headers.contains_key(FROM_CONSOLE)
            {
                shown["config"] = view.server.transport.editable();
            }
            reply::json(StatusCode::OK, shown.to_string())
        }
        Ok(_) => refuse(&Unchanged::Unknown(name)),
        Err(why) => refuse(&why),
    }
}

/// `PUT /api/mcp/servers/{name}`: what is not named stays as it is.
pub(super) async fn update(
    State(hub): State<Arc<Hub>>,
    Path(name): Path<String>,
    Json(body): Json,
) -> Response {
    let done = async {
        let now = hub.servers.get(&name)?;
        let draft = Draft::from_api(&merged(&now, &body))?;
        hub.servers.update(&name, &draft).await
    };
    answer(StatusCode::OK, done.await, detail)
}

/// `DELETE /api/mcp/servers/{name}`.
pub(super) async fn remove(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    match hub.servers.remove(&name).await {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(why) => refuse(&why),
    }
}

/// `POST /api/mcp/servers/{name}/connect`.
pub(super) async fn connect(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, hub.servers.connect(&name).await, summary)
}

/// `POST /api/mcp/servers/{name}/disconnect`.
pub(super) async fn disconnect(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, hub.servers.disconnect(&name).await, summary)
}

/// `POST /api/mcp/servers/{name}/enable`.
pub(super) async fn enable(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    answer(
        StatusCode::OK,
        hub.servers.set_enabled(&name, true).await,
        summary,
    )
}

/// `POST /api/mcp/servers/{name}/disable`.
pub(super) async fn disable(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    answer(
        StatusCode::OK,
        hub.servers.set_enabled(&name, false).await,
        summary,
    )
}

/// `POST /api/mcp/servers/{name}/tools/{tool}/accept`.
pub(super) async fn accept(
    State(hub): State<Arc<Hub>>,
    Path((name, tool)): Path<(String, String)>,
) -> Response {
    answer(
        StatusCode::OK,
        hub.servers.accept(&name, Some(&tool)).await,
        detail,
    )
}

/// `POST /api/mcp/servers/{name}/accept`: every tool that waits.
pub(super) async fn accept_all(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    answer(
        StatusCode::OK,
        hub.servers.accept(&name, None).await,
        detail,
    )
}

/// `POST /api/mcp/import`: the file of a desktop client.
pub(super) async fn import(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    let found = match from_import(&body) {
        Ok(found) => found,
        Err(why) => return refuse(&why.into()),
    };
    let accept_warnings = body.get("acceptWarnings") == Some(&Value::Bool(true));
    let entries = found.into_iter().map(|(name, draft)| {
        let draft = draft.map(|it| Draft {
            accept_warnings,
            ..it
        });
        import_one(&hub, name, draft.map_err(Unchanged::from))
    });
    let done: Vec<Value> = futures_util::future::join_all(entries).await;
    reply::json(StatusCode::OK, json!({"servers": done}).to_string())
}

async fn import_one(hub: &Hub, name: String, draft: Result<Draft, Unchanged>) -> Value {
    let done = match draft {
        Ok(draft) => hub.servers.register(&draft, Origin::Import).await,
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
            if let Unchanged::Warned { warnings, .. } = why {
                shown["warnings"] = json!(warnings);
            }
            shown
        }
    }
}

fn answer(
    status: StatusCode,
    done: Result<View, Unchanged>,
    shown: fn(&View) -> Value,
) -> Response {
    match done {
        Ok(view) => reply::json(status, shown(&view).to_string()),
        Err(why) => refuse(&why),
    }
}

/// The answer to a change that was not made.
pub(super) fn refuse(why: &Unchanged) -> Response {
    let (status, field) = match why {
        Unchanged::Invalid(invalid) => (StatusCode::BAD_REQUEST, Some(invalid.field.as_str())),
        Unchanged::Warned { field, warnings } => {
            let shown = json!({"error": why.to_string(), "field": field, "warnings": warnings});
            return reply::json(StatusCode::BAD_REQUEST, shown.to_string());
        }
        Unchanged::Taken(_) | Unchanged::Full(_) => (StatusCode::CONFLICT, None),
        Unchanged::Unknown(_) | Unchanged::NothingToAccept => (StatusCode::NOT_FOUND, None),
        Unchanged::Programs => (StatusCode::FORBIDDEN, None),
        Unchanged::Store(_) => {
            tracing::error!("a change of the servers failed: {why}");
            (StatusCode::SERVICE_UNAVAILABLE, None)
        }
        Unchanged::File(_) => {
            tracing::error!("a change of the servers failed: {why}");
            (StatusCode::INTERNAL_SERVER_ERROR, None)
        }
    };
    error(status, &why.to_string(), field)
}

/// An error of the API.
pub(super) fn error(status: StatusCode, why: &str, field: Option<&str>) -> Response {
    let mut shown = json!({"error": why});
    if let Some(field) = field {
        shown["field"] = field.into();
    }
    reply::json(status, shown.to_string())
}

fn summary(view: &View) -> Value {
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
        "requiredProtocolVersion": server.required_version.map(Version::as_str),
        "status": status.state.name(),
        "attempts": status.attempts,
        "nextAttemptAt": status.next_attempt_at,
        "toolCount": status.tools.len(),
        "createdAt": server.created_at,
        "updatedAt": server.updated_at,
    });
    if let Some(cause) = &status.cause {
        shown["cause"] = server.transport.concealed(cause).into();
    }
    if !view.warnings.is_empty() {
        shown["warnings"] = json!(view.warnings);
    }
    if let Some(program) = &view.program {
        shown["program"] = program_shown(program);
    }
    if let Some(differs) = view.differs {
        shown["differsFromFile"] = differs.into();
    }
    shown
}

fn program_shown(program: &ProgramView) -> Value {
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
pub(super) fn live(hub: &Hub, view: &View) -> Value {
    let mut shown = summary(view);
    let status = &view.status;
    shown["target"] = view.server.transport.target().into();
    shown["changedAt"] = status.changed_at.into();
    shown["protocolVersion"] = status.version.map(|it| it.as_str()).into();
    shown["serverInfo"] = status.info.clone();
    shown["withheld"] = status.withheld.len().into();
    if let Connection::Connecting { attempt } | Connection::Waiting { attempt } = status.state {
        shown["attempt"] = attempt.into();
        shown["maxAttempts"] = hub.servers.max_attempts().into();
    }
    shown["stats"] = calls::recent(hub, view.server.name.as_str());
    shown
}

fn detail(view: &View) -> Value {
    let mut shown = summary(view);
    let Status {
        tools,
        withheld,
        version,
        info,
        ..
    } = &view.status;
    shown["config"] = view.server.transport.shown();
    shown["tools"] = tools.iter().map(String::as_str).collect();
    shown["withheld"] = withheld
        .iter()
        .map(|it| json!({"name": it.name, "why": it.why, "differences": it.differences}))
        .collect();
    shown["protocolVersion"] = version.map(|it| it.as_str()).into();
    shown["serverInfo"] = info.clone();
    shown
}

/// What a restricted token may see of it: some of its tools, and how it is.
fn detail_for(who: &Principal, view: &View) -> Value {
    let mut shown = detail(view);
    let Some(grants) = who.grants() else {
        return shown;
    };
    let server = view.server.name.as_str();
    let mine = |tool: &&String| grants.has_tool(server, tool, &public(server, tool));
    let tools: Vec<&String> = view.status.tools.iter().filter(mine).collect();
    shown["toolCount"] = tools.len().into();
    shown["tools"] = json!(tools);
    shown["withheld"] = json!([]);
    shown["config"] = json!({});
    shown
}

/// The description as it is, changed by what `body` names.
fn merged(now: &View, body: &Value) -> Value {
    let server = &now.server;
    let mut all = json!({
        "name": server.name.as_str(),
        "description": server.description,
        "transportType": server.transport.kind(),
        "config": server.transport.editable(),
        "version": server.version,
        "autoConnect": server.auto_connect,
        "trust": server.trust.as_str(),
        "requiredProtocolVersion": server.required_version.map(Version::as_str),
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
