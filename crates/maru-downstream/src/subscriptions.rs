//! `subscriptions/listen`: changes of the catalog in their own stream.

use axum::{http::StatusCode, response::Response};
use futures_util::stream;
use maru_protocol::{
    RequestParams, RpcError, RpcId, key, write_event, write_notification, write_result,
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    catalog_changes::{CatalogChanges, ClientSubscriptions},
    describe,
    http::{StreamableRequest, event_stream, reply},
    owned_request::OwnedRequest,
};
use maru_tools::{Caller, Catalog};

/// Lists that a client can subscribe to, and their notifications.
const LIST_NOTIFICATIONS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    (
        "resourcesListChanged",
        "notifications/resources/list_changed",
    ),
];

/// A `subscriptions/listen` request and what it subscribed to.
#[derive(Debug)]
pub(super) struct SubscriptionListener {
    id: RpcId,
    granted: Map<String, Value>,
    methods: Vec<&'static str>,
    changes: CatalogChanges,
}

impl SubscriptionListener {
    pub(super) fn new(
        catalog: &Catalog,
        caller: &Caller,
        request: &OwnedRequest,
    ) -> Result<Self, RpcError> {
        let params = RequestParams::parse(request.params.as_deref())?;
        let requested = RequestParams::object_or_empty(params.notifications, "notifications")?;
        let mut granted = Map::new();
        let mut methods = vec!["notifications/resources/updated"];
        for (name, method) in LIST_NOTIFICATIONS {
            if requested.get(name) == Some(&Value::Bool(true)) {
                granted.insert(name.to_owned(), true.into());
                methods.push(method);
            }
        }
        let wanted = ClientSubscriptions::default();
        let uris = requested
            .get("resourceSubscriptions")
            .and_then(Value::as_array);
        let snapshot = catalog.snapshot();
        // A resource that does not exist yet may be added later.
        let subscribe = |uri: &str| {
            snapshot
                .subscribe_resource(caller, uri)
                .unwrap_or_else(|| Box::new(()))
        };
        let uris: Vec<&str> = uris
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|uri| wanted.add(uri, subscribe(uri)))
            .collect();
        if !uris.is_empty() {
            granted.insert("resourceSubscriptions".to_owned(), uris.into());
        }
        let changes = CatalogChanges::new(catalog, caller.clone(), wanted);
        let id = request.id.clone();
        Ok(Self {
            id,
            granted,
            methods,
            changes,
        })
    }

    /// The first message: which subscriptions were granted.
    pub(super) fn acknowledgement(&self) -> String {
        let params = json!({"notifications": self.granted, "_meta": self.meta()});
        write_notification("notifications/subscriptions/acknowledged", &params)
    }

    /// The next messages. Cancel-safe.
    pub(super) async fn next(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        for (method, mut params) in self.changes.next().await {
            if self.methods.contains(&method) {
                params["_meta"] = self.meta();
                messages.push(write_notification(method, &params));
            }
        }
        messages
    }

    /// The response, sent when the hub ends the stream.
    pub(super) fn final_result(&self) -> String {
        let done = json!({"_meta": self.meta()}).to_string();
        write_result(
            &self.id,
            &describe::with_modern_members("subscriptions/listen", &done),
        )
    }

    fn meta(&self) -> Value {
        json!({key::SUBSCRIPTION_ID: self.id})
    }
}

/// A stream of notifications until the client disconnects or maru stops.
pub(super) fn http_response(
    http_request: &StreamableRequest,
    takes_events: bool,
    request: &OwnedRequest,
) -> Response {
    if !takes_events {
        return reply::reject(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must allow text/event-stream",
        );
    }
    let engine = &http_request.engine;
    let listener = match SubscriptionListener::new(&engine.catalog, &http_request.caller, request) {
        Ok(listener) => listener,
        Err(error) => return reply::rpc_error(StatusCode::BAD_REQUEST, Some(&request.id), &error),
    };
    let first = listener.acknowledgement();
    let stop: CancellationToken = engine.tasks.stop_token();
    let state = (listener, stop, Some(vec![first]));
    let events = stream::unfold(state, |(mut listener, stop, first)| async move {
        if stop.is_cancelled() {
            return None;
        }
        let messages = match first {
            Some(messages) => messages,
            None => tokio::select! {
                biased;
                () = stop.cancelled() => vec![listener.final_result()],
                messages = listener.next() => messages,
            },
        };
        let text: String = messages
            .iter()
            .map(|it| write_event(Some("message"), None, it))
            .collect();
        Some((text, (listener, stop, None)))
    });
    event_stream(events, engine.limits().keep_alive())
}
