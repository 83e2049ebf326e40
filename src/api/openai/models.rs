//! `GET /v1/models`, and how busy they are.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{super::Hub, agent::PREFIX, error};
use crate::{
    downstream::http::reply,
    llm::{self, Model},
};

/// `GET /v1/models`.
pub(in super::super) async fn list(State(hub): State<Arc<Hub>>) -> Response {
    let models = known(&hub).await;
    let listed: Vec<Value> = models.iter().map(shown).collect();
    let shown = json!({"object": "list", "data": listed});
    reply::json(StatusCode::OK, shown.to_string())
}

/// `GET /v1/models/{name}`; names may have slashes.
pub(in super::super) async fn show(
    State(hub): State<Arc<Hub>>,
    Path(name): Path<String>,
) -> Response {
    let models = known(&hub).await;
    match models.iter().find(|it| it.name == name) {
        Some(model) => reply::json(StatusCode::OK, shown(model).to_string()),
        None => error::failed(&llm::Error::UnknownModel(name)),
    }
}

/// Every model, and each once more with maru's tools.
async fn known(hub: &Hub) -> Vec<Model> {
    let mut models = hub.models.current().models().await;
    let agents: Vec<Model> = models
        .iter()
        .map(|it| Model {
            name: format!("{PREFIX}{}", it.name),
            backend: "maru".to_owned(),
        })
        .collect();
    models.extend(agents);
    models
}

/// `GET /api/models`: every entry of the settings, and its queue.
pub(in super::super) async fn status(State(hub): State<Arc<Hub>>) -> Response {
    let status = hub.models.current().status().into_iter();
    let shown =
        status.map(|it| json!({"name": it.name, "running": it.running, "waiting": it.waiting}));
    reply::json(StatusCode::OK, shown.collect::<Value>().to_string())
}

fn shown(model: &Model) -> Value {
    json!({"id": model.name, "object": "model", "created": 0, "owned_by": model.backend})
}
