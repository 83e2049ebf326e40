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
        news::{Notification, answer_or_deliver, handle_notification},
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
            Err(_)
                if reply.status == StatusCode::BAD_REQUEST && link.is_session_unknown().await =>
            {
                return Some(Error::SessionOver);
            }
            // It has no such stream.
            Ok(()) | Err(_) => return None,
        }
        drop(opening.take());
        events = Events::after(events.last);
        loop {
            let event = match events.next(&mut reply, &link.budget).await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(why) => return Some(why),
            };
            pause = FIRST_PAUSE;
            if let Err(why) = handle_event(link, &event.data) {
                return Some(why);
            }
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

/// Takes an event; an error says that the server must be disconnected.
fn handle_event(link: &Arc<Link>, data: &str) -> Result<(), Error> {
    if let Ok((text, message)) = Message::take(data.as_bytes()) {
        match message {
            Ok(Message::Notification { method, params }) => {
                let notification = Notification {
                    method: &method,
                    params,
                    text,
                };
                handle_notification(&link.in_flight, &link.news, notification);
            }
            Ok(Message::Request(request)) => {
                if let Some(reply) = answer_or_deliver(&link.in_flight, &request, text) {
                    link.reply(reply)?;
                }
            }
            Ok(Message::Response(_)) | Err(_) => (),
        }
    }
    link.budget.spend_message(data.len())
}
