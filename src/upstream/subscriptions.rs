//! `subscriptions/listen`: what servers of 2026-07-28 tell between calls.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_protocol::RpcMessage;
use serde_json::{Map, Value, json};
use tokio::{sync::Notify, time};

use super::{
    Error,
    connect::ActiveConnection,
    handshake::own_request_meta,
    link::{CallEvent, OutgoingRequest, UpstreamCall},
};

const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Addresses of resources that someone wants to be told of.
#[derive(Debug, Default)]
pub(super) struct ResourceSubscriptions {
    uris: Mutex<Vec<String>>,
    changed: Notify,
}

impl ResourceSubscriptions {
    pub(super) fn set_uris(&self, uris: Vec<String>) {
        *self.uris.lock().unwrap_or_else(PoisonError::into_inner) = uris;
        self.changed.notify_one();
    }

    /// The parameter of the request: what the server can tell of, and what was asked for.
    fn notifications(&self, capabilities: &Value) -> Map<String, Value> {
        let lists = [
            ("tools", "toolsListChanged"),
            ("prompts", "promptsListChanged"),
            ("resources", "resourcesListChanged"),
        ];
        let told = lists
            .iter()
            .filter(|(kind, _)| capabilities[*kind]["listChanged"] == true)
            .map(|(_, name)| ((*name).to_owned(), true.into()));
        let mut wanted: Map<String, Value> = told.collect();
        let uris = self.uris.lock().unwrap_or_else(PoisonError::into_inner);
        if !uris.is_empty() {
            wanted.insert("resourceSubscriptions".to_owned(), uris.clone().into());
        }
        wanted
    }
}

/// Listens until the connection ends.
pub(super) async fn listen_for_notifications(live: Arc<ActiveConnection>) {
    tokio::select! {
        () = maintain_subscription(&live) => (),
        () = live.link.closing().cancelled() => (),
        () = live.link.lost().cancelled() => (),
    }
}

/// Asks again whenever other resources are wanted, or the stream was cut.
async fn maintain_subscription(live: &ActiveConnection) {
    let mut pause = INITIAL_RETRY_DELAY;
    loop {
        let wanted = live.subscriptions.notifications(&live.session.capabilities);
        if wanted.is_empty() {
            live.subscriptions.changed.notified().await;
            continue;
        }
        let mut call = match start_listening(live, &wanted).await {
            Ok(call) => call,
            Err(why @ (Error::Unreachable(_) | Error::Lost(_))) => return live.link.mark_lost(why),
            Err(_no_such_thing) => return,
        };
        match receive_notifications(live, &mut call).await {
            ListenOutcome::Unsupported => return,
            ListenOutcome::SubscriptionsChanged => pause = INITIAL_RETRY_DELAY,
            ListenOutcome::StreamEnded => {
                time::sleep(pause).await;
                pause = (pause * 2).min(MAX_RETRY_DELAY);
            }
        }
    }
}

enum ListenOutcome {
    /// The server does not do this.
    Unsupported,
    /// Something else is wanted now.
    SubscriptionsChanged,
    /// The server ended the stream.
    StreamEnded,
}

async fn start_listening(
    live: &ActiveConnection,
    wanted: &Map<String, Value>,
) -> Result<UpstreamCall, Error> {
    let params = json!({
        "notifications": wanted,
        "_meta": own_request_meta(),
    })
    .to_string();
    let ask = OutgoingRequest {
        method: "subscriptions/listen",
        target_name: None,
        mirrored_params: &[],
        params: &|_| params.clone(),
        client: None,
    };
    live.link.start_call(&ask).await
}

async fn receive_notifications(live: &ActiveConnection, call: &mut UpstreamCall) -> ListenOutcome {
    loop {
        let received = tokio::select! {
            received = call.next_event() => received,
            () = live.subscriptions.changed.notified() => return ListenOutcome::SubscriptionsChanged,
        };
        let text = match received {
            Ok(CallEvent::Message(text)) => text,
            Ok(CallEvent::Answer(Err(_))) => return ListenOutcome::Unsupported,
            Ok(CallEvent::Answer(Ok(_))) | Err(_) => return ListenOutcome::StreamEnded,
        };
        if let Ok(RpcMessage::Notification { method, params }) = RpcMessage::parse(&text) {
            live.notification_sink.on_notification(&method, params);
        }
    }
}
