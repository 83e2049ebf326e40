//! The stream on which servers with sessions speak between calls.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use tokio::time;
use tokio_util::sync::DropGuard;

use super::{Link, call::Events};
use crate::{
    mcp::Message,
    upstream::{
        Error,
        news::{answer_or_give, tell},
    },
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
        let mut reply = match link.listen_after(events.last.as_deref()).await {
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
    let Ok((text, message)) = Message::take(data.as_bytes()) else {
        return;
    };
    match message {
        Ok(Message::Notification { method, params }) => {
            tell(&link.desk, &link.news, &method, params, text);
        }
        Ok(Message::Request(request)) => {
            if let Some(answer) = answer_or_give(&link.desk, &request, text) {
                link.send_soon(answer);
            }
        }
        Ok(Message::Response(_)) | Err(_) => (),
    }
}
