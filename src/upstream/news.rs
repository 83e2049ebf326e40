//! What a server says without being asked.

use std::sync::Arc;

use tokio::sync::Notify;

use super::in_flight::{Delivery, InFlightCalls};
use crate::{
    mcp::{Id, Params, Raw, Request, RpcError, code, error, result},
    tool::Catalog,
};

/// The answer to `roots/list` on behalf of nobody, or of a client without folders.
pub(super) const NO_ROOTS: &str = r#"{"roots":[]}"#;

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

#[derive(Clone, Copy)]
/// A notification as it was read, and the text it was read from.
pub(super) struct Notification<'a> {
    pub(super) method: &'a str,
    pub(super) params: Option<Raw<'a>>,
    pub(super) text: &'a str,
}

/// Gives a notification to the call it belongs to, or takes it as news.
pub(super) fn handle_notification(
    in_flight: &InFlightCalls,
    news: &News,
    notification: Notification<'_>,
) {
    let Notification {
        method,
        params,
        text,
    } = notification;
    match method {
        "notifications/progress" => {
            let token = Params::read(params).ok().and_then(|it| it.progress_token);
            if let Some(Id::Number(id)) = token.and_then(Id::read) {
                in_flight.deliver_to(id, text);
            }
        }
        "notifications/message" => {
            let _may_belong_to_nobody = in_flight.deliver(text);
        }
        _ => news.notified(method, params),
    }
}

/// Gives a request of the server to the call it belongs to, or answers it.
pub(super) fn answer_or_deliver(
    in_flight: &InFlightCalls,
    request: &Request<'_>,
    text: &str,
) -> Option<String> {
    let refuse = |why: &'static str| {
        let why = RpcError::new(code::INVALID_REQUEST, why);
        Some(error(Some(&request.id), &why))
    };
    let delivery = match &*request.method {
        "ping" => return Some(result(&request.id, "{}")),
        "sampling/createMessage" | "elicitation/create" | "roots/list" => {
            in_flight.deliver_question(text)
        }
        method => {
            return Some(error(
                Some(&request.id),
                &RpcError::method_not_found(method),
            ));
        }
    };
    match delivery {
        Delivery::Delivered => None,
        // The hub has no folders of its own; clients may have.
        Delivery::NoCall if request.method == "roots/list" => Some(result(&request.id, NO_ROOTS)),
        Delivery::NoCall => {
            refuse("no request of a client is in progress that this could belong to")
        }
        Delivery::Ambiguous => {
            refuse("requests of several clients are in progress; this could belong to any")
        }
        Delivery::Full => refuse("the client does not read the messages it was sent before"),
    }
}
