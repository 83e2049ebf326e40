//! `subscriptions/listen`: what servers of 2026-07-28 tell between calls.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio::{sync::Notify, time};

use super::{
    Error,
    handshake::own_meta,
    link::{Ask, Call, Received},
    open::Live,
};
use crate::mcp::Message;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Addresses of resources that someone wants to be told of.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    uris: Mutex<Vec<String>>,
    changed: Notify,
}

impl Wanted {
    pub(super) fn set(&self, uris: Vec<String>) {
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
pub(super) async fn listen(live: Arc<Live>) {
    tokio::select! {
        () = subscriptions(&live) => (),
        () = live.link.closing().cancelled() => (),
        () = live.link.lost().cancelled() => (),
    }
}

/// Asks again whenever other resources are wanted, or the stream was cut.
async fn subscriptions(live: &Live) {
    let mut pause = FIRST_PAUSE;
    loop {
        let wanted = live.wanted.notifications(&live.session.capabilities);
        if wanted.is_empty() {
            live.wanted.changed.notified().await;
            continue;
        }
        let mut call = match start(live, &wanted).await {
            Ok(call) => call,
            Err(why @ (Error::Unreachable(_) | Error::Lost(_))) => return live.link.lose(why),
            Err(_no_such_thing) => return,
        };
        match hear(live, &mut call).await {
            Heard::Refused => return,
            Heard::Other => pause = FIRST_PAUSE,
            Heard::Cut => {
                time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

enum Heard {
    /// The server does not do this.
    Refused,
    /// Something else is wanted now.
    Other,
    /// The server ended the stream.
    Cut,
}

async fn start(live: &Live, wanted: &Map<String, Value>) -> Result<Call, Error> {
    let params = json!({
        "notifications": wanted,
        "_meta": own_meta(),
    })
    .to_string();
    let ask = Ask {
        method: "subscriptions/listen",
        name: None,
        mirrors: &[],
        params: &|_| params.clone(),
        client: None,
    };
    live.link.start(&ask).await
}

async fn hear(live: &Live, call: &mut Call) -> Heard {
    loop {
        let received = tokio::select! {
            received = call.next() => received,
            () = live.wanted.changed.notified() => return Heard::Other,
        };
        let text = match received {
            Ok(Received::Message(text)) => text,
            Ok(Received::Answer(Err(_))) => return Heard::Refused,
            Ok(Received::Answer(Ok(_))) | Err(_) => return Heard::Cut,
        };
        if let Ok(Message::Notification { method, params }) = Message::read(&text) {
            live.news.notified(&method, params);
        }
    }
}
