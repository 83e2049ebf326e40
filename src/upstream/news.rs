//! What a server says without being asked.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;

use crate::{
    mcp::{Params, Raw, Request, RpcError, code, error, result},
    tool::Catalog,
};

/// Where news of one server goes.
#[derive(Debug)]
pub(super) struct News {
    catalog: Arc<Catalog>,
    changed: Notify,
}

impl News {
    pub(super) fn new(catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self {
            catalog,
            changed: Notify::new(),
        })
    }

    /// Takes a notification that belongs to no call.
    pub(super) fn notified(&self, method: &str, params: Option<Raw<'_>>) {
        match method {
            "notifications/resources/updated" => {
                let params = Params::read(params).unwrap_or_default();
                if let Ok(uri) = Params::text(params.uri, "uri") {
                    self.catalog.touch(&uri);
                }
            }
            // Many at once are one: the lists are read again anyway.
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.changed.notify_one(),
            _other => (),
        }
    }

    /// Resolves when a list of the server has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The answer to a request of the server that belongs to no call of ours.
pub(super) fn answer_unasked(request: &Request<'_>) -> String {
    match &*request.method {
        "ping" => result(&request.id, "{}"),
        // The hub has no folders of its own; clients may have.
        "roots/list" => result(&request.id, &json!({"roots": []}).to_string()),
        _ => {
            let why = "no request of a client is in progress that this could belong to";
            error(
                Some(&request.id),
                &RpcError::new(code::INVALID_REQUEST, why),
            )
        }
    }
}
