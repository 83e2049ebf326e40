//! What a server says without being asked.

use std::sync::Arc;

use maru_protocol::{
    RawJson, RequestParams, RpcError, RpcId, RpcRequest, code, write_error, write_result,
};
use tokio::sync::Notify;

use super::in_flight::{Delivery, InFlightCalls};
use crate::tools::Catalog;

/// The answer to `roots/list` on behalf of nobody, or of a client without folders.
pub(super) const EMPTY_ROOTS_RESULT: &str = r#"{"roots":[]}"#;

/// Where news of one server goes.
#[derive(Debug)]
pub(super) struct NotificationSink {
    catalog: Arc<Catalog>,
    list_change: Notify,
}

impl NotificationSink {
    pub(super) fn new(catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self {
            catalog,
            list_change: Notify::new(),
        })
    }

    /// Takes a notification that belongs to no call.
    pub(super) fn on_notification(&self, method: &str, params: Option<RawJson<'_>>) {
        match method {
            "notifications/resources/updated" => {
                let params = RequestParams::parse(params).unwrap_or_default();
                if let Ok(uri) = RequestParams::require_string(params.uri, "uri") {
                    self.catalog.notify_resource_updated(&uri);
                }
            }
            // Many at once are one: the lists are read again anyway.
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.list_change.notify_one(),
            _other => (),
        }
    }

    /// Resolves when a list of the server has changed.
    pub(super) async fn list_changed(&self) {
        self.list_change.notified().await;
    }
}

#[derive(Clone, Copy)]
/// A notification as it was read, and the text it was read from.
pub(super) struct ServerNotification<'a> {
    pub(super) method: &'a str,
    pub(super) params: Option<RawJson<'a>>,
    pub(super) text: &'a str,
}

/// Gives a notification to the call it belongs to, or takes it as news.
pub(super) fn handle_notification(
    in_flight: &InFlightCalls,
    news: &NotificationSink,
    notification: ServerNotification<'_>,
) {
    let ServerNotification {
        method,
        params,
        text,
    } = notification;
    match method {
        "notifications/progress" => {
            let token = RequestParams::parse(params)
                .ok()
                .and_then(|it| it.progress_token);
            if let Some(RpcId::Number(id)) = token.and_then(RpcId::parse) {
                in_flight.deliver_to(id, text);
            }
        }
        "notifications/message" => {
            let _may_belong_to_nobody = in_flight.deliver(text);
        }
        _ => news.on_notification(method, params),
    }
}

/// What a server is told whose question could reach the wrong client.
const AMBIGUOUS_CLIENT: &str = "calls of several clients are in progress or unanswered on this \
     connection, and the request does not say which of them it belongs to; try again when \
     they have ended";

/// Gives a request of the server to the call it belongs to, or answers it.
pub(super) fn handle_server_request(
    in_flight: &InFlightCalls,
    request: &RpcRequest<'_>,
    text: &str,
) -> Option<String> {
    let refuse = |why: &'static str| {
        let why = RpcError::new(code::INVALID_REQUEST, why);
        Some(write_error(Some(&request.id), &why))
    };
    let delivery = match &*request.method {
        "ping" => return Some(write_result(&request.id, "{}")),
        "sampling/createMessage" | "elicitation/create" | "roots/list" => in_flight.deliver(text),
        method => {
            return Some(write_error(
                Some(&request.id),
                &RpcError::method_not_found(method),
            ));
        }
    };
    match delivery {
        Delivery::Delivered => None,
        // The hub has no folders of its own; clients may have.
        Delivery::NoCall if request.method == "roots/list" => {
            Some(write_result(&request.id, EMPTY_ROOTS_RESULT))
        }
        Delivery::NoCall => {
            refuse("no request of a client is in progress that this could belong to")
        }
        Delivery::Ambiguous => refuse(AMBIGUOUS_CLIENT),
        Delivery::Full => refuse("the client does not read the messages it was sent before"),
    }
}
