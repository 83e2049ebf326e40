//! Receives the notifications of servers of 2026-07-28 through `subscriptions/listen`.

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

/// The URIs of the resources that clients subscribe to.
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

    /// Builds the request's parameter: the list changes that the server supports, and the
    /// subscribed resources.
    fn notifications(&self, capabilities: &Value) -> Map<String, Value> {
        let lists = [
            ("tools", "toolsListChanged"),
            ("prompts", "promptsListChanged"),
            ("resources", "resourcesListChanged"),
        ];
        let list_changes = lists
            .iter()
            .filter(|(kind, _)| capabilities[*kind]["listChanged"] == true)
            .map(|(_, name)| ((*name).to_owned(), true.into()));
        let mut notifications: Map<String, Value> = list_changes.collect();
        let uris = self.uris.lock().unwrap_or_else(PoisonError::into_inner);
        if !uris.is_empty() {
            notifications.insert("resourceSubscriptions".to_owned(), uris.clone().into());
        }
        notifications
    }
}

/// Receives notifications until the connection ends.
pub(super) async fn listen_for_notifications(connection: Arc<ActiveConnection>) {
    tokio::select! {
        () = maintain_subscription(&connection) => (),
        () = connection.link.closing().cancelled() => (),
        () = connection.link.lost_token().cancelled() => (),
    }
}

/// Repeats the request whenever the subscriptions change or the stream ends.
async fn maintain_subscription(connection: &ActiveConnection) {
    let mut pause = INITIAL_RETRY_DELAY;
    loop {
        let notifications = connection
            .subscriptions
            .notifications(&connection.session.capabilities);
        if notifications.is_empty() {
            connection.subscriptions.changed.notified().await;
            continue;
        }
        let mut call = match start_listening(connection, &notifications).await {
            Ok(call) => call,
            Err(error @ (Error::Unreachable(_) | Error::Lost(_))) => {
                return connection.link.mark_lost(error);
            }
            Err(_unsupported) => return,
        };
        match receive_notifications(connection, &mut call).await {
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
    /// The server does not support the method.
    Unsupported,
    /// The subscriptions have changed.
    SubscriptionsChanged,
    /// The server ended the stream.
    StreamEnded,
}

async fn start_listening(
    connection: &ActiveConnection,
    notifications: &Map<String, Value>,
) -> Result<UpstreamCall, Error> {
    let params = json!({
        "notifications": notifications,
        "_meta": own_request_meta(),
    })
    .to_string();
    let request = OutgoingRequest {
        method: "subscriptions/listen",
        target_name: None,
        mirrored_params: &[],
        params: &|_| params.clone(),
        client: None,
    };
    connection.link.start_call(&request).await
}

async fn receive_notifications(
    connection: &ActiveConnection,
    call: &mut UpstreamCall,
) -> ListenOutcome {
    loop {
        let received = tokio::select! {
            received = call.next_event() => received,
            () = connection.subscriptions.changed.notified() => return ListenOutcome::SubscriptionsChanged,
        };
        let text = match received {
            Ok(CallEvent::Message(text)) => text,
            Ok(CallEvent::Answer(Err(_))) => return ListenOutcome::Unsupported,
            Ok(CallEvent::Answer(Ok(_))) | Err(_) => return ListenOutcome::StreamEnded,
        };
        if let Ok(RpcMessage::Notification { method, params }) = RpcMessage::parse(&text) {
            connection
                .notification_sink
                .on_notification(&method, params);
        }
    }
}
