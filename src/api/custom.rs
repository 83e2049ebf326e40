//! `/api/custom-tools`: tools that people make.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json, value::RawValue};

use super::{Hub, body::Json};
use crate::{
    access::Principal,
    downstream::http::reply,
    tool::custom::{Flaw, Made, Saved, Unchanged},
};

/// `GET /api/custom-tools`.
pub(super) async fn list(State(hub): State<Arc<Hub>>) -> Response {
    let tools: Value = hub.workshop.list().await.iter().map(Made::shown).collect();
    reply::json(StatusCode::OK, tools.to_string())
}

/// `POST /api/custom-tools`.
pub(super) async fn create(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    Json(body): Json,
) -> Response {
    let made = hub.workshop.create(&body, who.name()).await;
    answer(StatusCode::CREATED, made)
}

/// `GET /api/custom-tools/{name}`.
pub(super) async fn show(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, hub.workshop.get(&name).await)
}

/// `PUT /api/custom-tools/{name}`: what is not named stays as it is.
pub(super) async fn update(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    Json(body): Json,
) -> Response {
    let made = hub.workshop.update(&name, &body, who.name()).await;
    answer(StatusCode::OK, made)
}

/// `DELETE /api/custom-tools/{name}`.
pub(super) async fn remove(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    match hub.workshop.remove(&name).await {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(why) => refuse(&why),
    }
}

/// `POST /api/custom-tools/{name}/activate`.
pub(super) async fn activate(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, hub.workshop.set_active(&name, true).await)
}

/// `POST /api/custom-tools/{name}/deactivate`.
pub(super) async fn deactivate(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, hub.workshop.set_active(&name, false).await)
}

/// `GET /api/custom-tools/{name}/versions`.
pub(super) async fn versions(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    let shown = |it: &Saved| json!({"version": it.version, "saved_by": it.saved_by, "saved_dt": it.saved_dt, "tool": it.tool});
    match hub.workshop.versions(&name).await {
        Ok(saved) => {
            let saved: Value = saved.iter().map(shown).collect();
            reply::json(StatusCode::OK, saved.to_string())
        }
        Err(why) => refuse(&why),
    }
}

/// `POST /api/custom-tools/{name}/versions/{version}/restore`.
pub(super) async fn restore(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    Path((name, version)): Path<(String, i64)>,
) -> Response {
    let made = hub.workshop.restore(&name, version, who.name()).await;
    answer(StatusCode::OK, made)
}

/// `POST /api/custom-tools/test`: runs a definition that need not be saved.
pub(super) async fn test(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    let arguments = match &body["arguments"] {
        Value::Null => json!({}),
        given => given.clone(),
    };
    let tested = hub.workshop.test(&body["tool"], &arguments).await;
    let shown = match tested {
        Ok((done, ms)) => {
            let result = RawValue::from_string(done.json).ok();
            serde_json::to_string(&Tested {
                ok: true,
                result,
                text: &done.text,
                ms,
            })
        }
        Err(flaw) => serde_json::to_string(&json!({"ok": false, "error": fault(&flaw)})),
    };
    reply::json(StatusCode::OK, shown.unwrap_or_default())
}

#[derive(serde::Serialize)]
struct Tested<'a> {
    ok: bool,
    result: Option<Box<RawValue>>,
    text: &'a str,
    ms: f64,
}

fn answer(status: StatusCode, made: Result<Made, Unchanged>) -> Response {
    match made {
        Ok(made) => reply::json(status, made.shown().to_string()),
        Err(why) => refuse(&why),
    }
}

fn refuse(why: &Unchanged) -> Response {
    let status = match why {
        Unchanged::Flawed(_) => StatusCode::BAD_REQUEST,
        Unchanged::Taken(_) | Unchanged::Full(_) => StatusCode::CONFLICT,
        Unchanged::Unknown(_) | Unchanged::NoVersion(..) => StatusCode::NOT_FOUND,
        Unchanged::Store(error) => {
            tracing::error!("a change of the custom tools failed: {error}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let mut shown = json!({"error": why.to_string()});
    if let Unchanged::Flawed(flaw) = why {
        shown["field"] = json!(flaw.field);
        shown["line"] = json!(flaw.place.map(|it| it.0));
        shown["column"] = json!(flaw.place.map(|it| it.1));
    }
    reply::json(status, shown.to_string())
}

fn fault(flaw: &Flaw) -> Value {
    json!({
        "message": flaw.message,
        "field": flaw.field,
        "line": flaw.place.map(|it| it.0),
        "column": flaw.place.map(|it| it.1),
    })
}
