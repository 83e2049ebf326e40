//! Listening to a server between calls.

use std::{sync::Arc, time::Duration};

use hyper::{
    Method, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};
use tokio::time;
use tokio_util::sync::DropGuard;

use super::{LAST_EVENT, Link, call::Events};
use crate::{
    mcp::{Id, Message, Params, Version, check, key},
    upstream::{Error, handshake::client_info, link::Ask, news::answer_or_give},
};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Listens until the link is closed. A server that offers no stream has no news.
/// `opening` is dropped when it can ask on the stream, or never will.
pub(in crate::upstream) async fn listen(link: Arc<Link>, capabilities: Value, opening: DropGuard) {
    let work = async {
        match link.version().is_modern() {
            true => {
                drop(opening);
                subscriptions(&link, &capabilities).await
            }
            false => stream(&link, opening).await,
        }
    };
    tokio::select! {
        why = work => if let Some(why) = why { link.lose(why) },
        () = link.closing.cancelled() => (),
        () = link.lost.cancelled() => (),
    }
}

/// The `GET` stream of the versions with sessions.
async fn stream(link: &Arc<Link>, opening: DropGuard) -> Option<Error> {
    let mut opening = Some(opening);
    let mut events = Events::default();
    let mut pause = FIRST_PAUSE;
    loop {
        let mut headers = link.headers();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = events
            .last
            .as_ref()
            .and_then(|it| HeaderValue::from_str(it).ok())
        {
            headers.insert(&LAST_EVENT, last);
        }
        let mut reply = match link.request(Method::GET, headers, String::new()).await {
            Ok(reply) => reply,
            Err(why) => return Some(why),
        };
        match link.refusal(&reply) {
            Ok(()) if reply.status == StatusCode::OK => (),
            Err(over @ Error::SessionOver) => return Some(over),
            // It has no such stream.
            Ok(()) | Err(_) => return None,
        }
        drop(opening.take());
        events = Events::after(events.last);
        while let Ok(Some(event)) = events.next(&mut reply).await {
            pause = FIRST_PAUSE;
            hear(link, &event.data);
        }
        time::sleep(
            events
                .retry
                .unwrap_or(pause)
                .clamp(Duration::from_millis(100), LONGEST_PAUSE),
        )
        .await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// `subscriptions/listen`, again whenever other resources are wanted.
async fn subscriptions(link: &Arc<Link>, capabilities: &Value) -> Option<Error> {
    let mut pause = FIRST_PAUSE;
    loop {
        let uris = link
            .wanted
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        let wanted = wanted(capabilities, &uris);
        if wanted.as_object().is_none_or(serde_json::Map::is_empty) {
            link.wanted_changed.notified().await;
            continue;
        }
        let params = json!({
            "notifications": wanted,
            "_meta": {
                key::VERSION: Version::V2026_07_28.as_str(),
                key::CLIENT_INFO: client_info(),
                key::CAPABILITIES: {},
            },
        })
        .to_string();
        let ask = Ask {
            method: "subscriptions/listen",
            name: None,
            mirrors: &[],
            params: &|_| params.clone(),
            owner: None,
        };
        let mut call = match link.start(&ask).await {
            Ok(call) => call,
            Err(why @ (Error::Unreachable(_) | Error::Lost(_))) => return Some(why),
            Err(_) => return None,
        };
        loop {
            let text = tokio::select! {
                text = call.next() => text,
                () = link.wanted_changed.notified() => break,
            };
            let Ok(text) = text else {
                time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                break;
            };
            pause = FIRST_PAUSE;
            if matches!(Message::read(&text), Ok(Message::Response(it)) if it.outcome.is_err()) {
                return None;
            }
            hear(link, &text);
        }
    }
}

/// What the server can tell of, and the resources that someone asked about.
fn wanted(capabilities: &Value, uris: &[String]) -> Value {
    let mut wanted = serde_json::Map::new();
    for (kind, name) in [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ] {
        if capabilities[kind]["listChanged"] == true {
            wanted.insert(name.to_owned(), true.into());
        }
    }
    if !uris.is_empty() {
        wanted.insert("resourceSubscriptions".to_owned(), uris.into());
    }
    wanted.into()
}

fn hear(link: &Arc<Link>, data: &str) {
    let Ok(text) = check(data.as_bytes()) else {
        return;
    };
    match Message::read(text) {
        Ok(Message::Notification { method, params }) => match &*method {
            "notifications/message" => {
                let _belongs_to_nobody = link.desk.give(text);
            }
            "notifications/progress" => {
                let token = Params::read(params).ok().and_then(|it| it.progress_token);
                if let Some(Id::Number(id)) = token.and_then(Id::read) {
                    link.desk.give_to(id, text);
                }
            }
            _ => link.news.notified(&method, params),
        },
        Ok(Message::Request(request)) => {
            if let Some(answer) = answer_or_give(&link.desk, &request, text) {
                link.send_soon(answer);
            }
        }
        Ok(Message::Response(_)) | Err(_) => (),
    }
}
