//! `subscriptions/listen`: news of the catalog on a stream of its own.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
    response::Response,
};
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    describe,
    dispatch::Owned,
    http::{Arrival, reply},
};
use crate::{
    mcp::{Id, Params, RpcError, event, key, notification, result},
    tool::{Catalog, Scope, Snapshot},
};

const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(15);

/// What a listener asked for, by the notification it names.
const KINDS: [(&str, &str); 3] = [
    ("toolsListChanged", "notifications/tools/list_changed"),
    ("promptsListChanged", "notifications/prompts/list_changed"),
    (
        "resourcesListChanged",
        "notifications/resources/list_changed",
    ),
];

/// A listener and what it has seen.
#[derive(Debug)]
pub(super) struct Listener {
    id: Id,
    wanted: BTreeMap<&'static str, &'static str>,
    catalog: watch::Receiver<Arc<Snapshot>>,
    seen: Arc<Snapshot>,
    scope: Scope,
}

impl Listener {
    pub(super) fn new(catalog: &Catalog, scope: Scope, request: &Owned) -> Result<Self, RpcError> {
        let params = Params::read(request.params.as_deref())?;
        let asked = Params::object(params.notifications, "notifications")?;
        let wanted = KINDS
            .into_iter()
            .filter(|(name, _)| asked.get(*name) == Some(&Value::Bool(true)));
        Ok(Self {
            id: request.id.clone(),
            wanted: wanted.collect(),
            seen: catalog.snapshot(),
            catalog: catalog.watch(),
            scope,
        })
    }

    /// The first message: what will be told.
    pub(super) fn acknowledged(&self) -> String {
        let honoured: Map<String, Value> = self
            .wanted
            .keys()
            .map(|name| ((*name).to_owned(), true.into()))
            .collect();
        let params = json!({"notifications": honoured, "_meta": self.meta()});
        notification("notifications/subscriptions/acknowledged", &params)
    }

    /// The next messages. Cancel-safe.
    pub(super) async fn next(&mut self) -> Vec<String> {
        loop {
            if self.catalog.changed().await.is_err() {
                return std::future::pending().await;
            }
            let now = Arc::clone(&self.catalog.borrow_and_update());
            let before = std::mem::replace(&mut self.seen, Arc::clone(&now));
            let (Ok(now), Ok(before)) = (now.view(&self.scope), before.view(&self.scope)) else {
                continue;
            };
            let changed = now.changes_since(before).into_iter();
            let told: Vec<String> = changed
                .filter(|method| self.wanted.values().any(|it| it == method))
                .map(|method| notification(method, &json!({"_meta": self.meta()})))
                .collect();
            if !told.is_empty() {
                return told;
            }
        }
    }

    /// The last message, when we end the stream.
    pub(super) fn over(&self) -> String {
        let done = json!({"_meta": self.meta()}).to_string();
        result(&self.id, &describe::stamp("subscriptions/listen", &done))
    }

    fn meta(&self) -> Value {
        json!({key::SUBSCRIPTION: self.id})
    }
}

/// A stream that tells until the client leaves or maru stops.
pub(super) fn http(arrival: &Arrival, takes_events: bool, request: &Owned) -> Response {
    if !takes_events {
        return reply::refuse(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must allow text/event-stream",
        );
    }
    let engine = &arrival.engine;
    let listener = match Listener::new(&engine.catalog, arrival.caller.scope.clone(), request) {
        Ok(listener) => listener,
        Err(why) => return reply::error(StatusCode::BAD_REQUEST, Some(&request.id), &why),
    };
    let first = listener.acknowledged();
    let stop: CancellationToken = engine.tasks.stop();
    let state = (listener, stop, Some(vec![first]));
    let events = stream::unfold(state, |(mut listener, stop, first)| async move {
        if stop.is_cancelled() {
            return None;
        }
        let messages = match first {
            Some(messages) => messages,
            None => tokio::select! {
                biased;
                () = stop.cancelled() => vec![listener.over()],
                messages = listener.next() => messages,
                () = tokio::time::sleep(KEEP_ALIVE) => Vec::new(),
            },
        };
        let mut text: String = messages
            .iter()
            .map(|it| event(Some("message"), None, it))
            .collect();
        if text.is_empty() {
            text.push_str(": keep-alive\n\n");
        }
        Some((
            Ok::<_, std::convert::Infallible>(Bytes::from(text)),
            (listener, stop, None),
        ))
    });
    super::http::event_stream(Body::from_stream(events))
}
