//! The stream on which servers with sessions speak between calls.

use std::{sync::Arc, time::Duration};

use hyper::{
    Method, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use tokio::time;
use tokio_util::sync::DropGuard;

use super::{LAST_EVENT, Link, call::Events};
use crate::{
    mcp::{Id, Message, Params, check},
    upstream::{Error, news::answer_or_give},
};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Listens until the link is closed. A server that offers no stream has no news.
/// `opening` is dropped when it can ask on the stream, or never will.
pub(in crate::upstream) async fn listen(link: Arc<Link>, opening: DropGuard) {
    tokio::select! {
        why = stream(&link, opening) => if let Some(why) = why { link.lose(why) },
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
