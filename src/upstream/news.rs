//! What a server says without being asked.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;

use super::desk::{Desk, Given};
use crate::{
    mcp::{Id, Params, Raw, Request, RpcError, code, error, result},
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

/// Gives a notification to the call it belongs to, or takes it as news.
pub(super) fn tell(desk: &Desk, news: &News, method: &str, params: Option<Raw<'_>>, text: &str) {
    match method {
        "notifications/progress" => {
            let token = Params::read(params).ok().and_then(|it| it.progress_token);
            if let Some(Id::Number(id)) = token.and_then(Id::read) {
                desk.give_to(id, text);
            }
        }
        "notifications/message" => {
            let _belongs_to_nobody = desk.give(text);
        }
        _ => news.notified(method, params),
    }
}

/// Gives a request of the server to the call it belongs to, or answers it.
pub(super) fn answer_or_give(desk: &Desk, request: &Request<'_>, text: &str) -> Option<String> {
    let refuse = |why: &'static str| {
        let why = RpcError::new(code::INVALID_REQUEST, why);
        Some(error(Some(&request.id), &why))
    };
    let given = match &*request.method {
        "ping" => return Some(result(&request.id, "{}")),
        "sampling/createMessage" | "elicitation/create" | "roots/list" => desk.give(text),
        method => {
            return Some(error(
                Some(&request.id),
                &RpcError::method_not_found(method),
            ));
        }
    };
    match given {
        Given::Taken => None,
        // The hub has no folders of its own; clients may have.
        Given::Nobody if request.method == "roots/list" => {
            Some(result(&request.id, &json!({"roots": []}).to_string()))
        }
        Given::Nobody => refuse("no request of a client is in progress that this could belong to"),
        Given::Unclear => {
            refuse("requests of several clients are in progress; this could belong to any")
        }
    }
}
