//! Handles the notifications and requests that a server sends on its own.

use std::sync::Arc;

use maru_protocol::{
    RawJson, RequestParams, RpcError, RpcId, RpcRequest, code, write_error, write_result,
};
use tokio::sync::Notify;

use super::in_flight::{Delivery, InFlightCalls};
use maru_tools::{Catalog, server_uri::public_uri};

/// The result of `roots/list` without a client, or for a client without roots.
pub(super) const EMPTY_ROOTS_RESULT: &str = r#"{"roots":[]}"#;

/// Receives the notifications of one server that belong to no call.
#[derive(Debug)]
pub(super) struct NotificationSink {
    server: String,
    catalog: Arc<Catalog>,
    list_change: Notify,
}

impl NotificationSink {
    /// Handles the notifications of `server`.
    pub(super) fn new(server: &str, catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self {
            server: server.to_owned(),
            catalog,
            list_change: Notify::new(),
        })
    }

    /// Handles a notification that belongs to no call.
    pub(super) fn on_notification(&self, method: &str, params: Option<RawJson<'_>>) {
        match method {
            "notifications/resources/updated" => {
                let params = RequestParams::parse(params).unwrap_or_default();
                if let Ok(uri) = RequestParams::require_string(params.uri, "uri") {
                    let uri = public_uri(&self.server, &uri);
                    self.catalog.notify_resource_updated(&uri);
                }
            }
            // Several notifications are merged, because a refresh reads all lists.
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
/// A parsed notification and its original text.
pub(super) struct ServerNotification<'a> {
    pub(super) method: &'a str,
    pub(super) params: Option<RawJson<'a>>,
    pub(super) text: &'a str,
}

/// Delivers a notification to its call, or to the sink if it belongs to none.
pub(super) fn handle_notification(
    in_flight: &InFlightCalls,
    sink: &NotificationSink,
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
        _ => sink.on_notification(method, params),
    }
}

/// The error for a server whose request could reach the wrong client.
const AMBIGUOUS_CLIENT: &str = "calls of several clients are in progress or unanswered on this \
     connection, and the request does not say which of them it belongs to; try again when \
     they have ended";

/// Delivers a server's request to its call; returns the reply if maru answers it itself.
pub(super) fn handle_server_request(
    in_flight: &InFlightCalls,
    request: &RpcRequest<'_>,
    text: &str,
) -> Option<String> {
    let refuse = |message: &'static str| {
        let error = RpcError::new(code::INVALID_REQUEST, message);
        Some(write_error(Some(&request.id), &error))
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
        // The hub itself has no roots; only clients have.
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
