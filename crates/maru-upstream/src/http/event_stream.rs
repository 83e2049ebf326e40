//! The GET event stream on which servers with sessions send messages between calls.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use maru_protocol::{CheckedJson, RpcMessage};
use maru_runtime::tasks::run_parser;
use tokio::time;
use tokio_util::sync::DropGuard;

use super::{HttpLink, call::ResumableEvents};
use crate::{
    Error,
    notifications::{ServerNotification, handle_notification, handle_server_request},
};

const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Reads the event stream until the link is closed. A server without one sends no
/// notifications between calls. `opening` is dropped when the stream is open, or cannot
/// be opened.
pub(crate) async fn listen_for_events(link: Arc<HttpLink>, opening: DropGuard) {
    tokio::select! {
        error = read_event_stream(&link, opening) => if let Some(error) = error { link.mark_lost(error) },
        () = link.closing.cancelled() => (),
        () = link.lost.cancelled() => (),
    }
}

/// Reads the GET stream of the versions with sessions, reconnecting when it ends. Returns
/// an error if the link is lost.
async fn read_event_stream(link: &Arc<HttpLink>, opening: DropGuard) -> Option<Error> {
    let mut opening = Some(opening);
    let mut events = ResumableEvents::default();
    let mut pause = INITIAL_RETRY_DELAY;
    loop {
        let mut reply = match link
            .open_event_stream(events.last_event_id.as_deref())
            .await
        {
            Ok(reply) => reply,
            Err(error) => return Some(error),
        };
        match link.check_session_status(&reply) {
            Ok(()) if reply.status == StatusCode::OK => (),
            Err(error @ Error::SessionExpired) => return Some(error),
            Err(_)
                if reply.status == StatusCode::BAD_REQUEST && link.is_session_unknown().await =>
            {
                return Some(Error::SessionExpired);
            }
            // The server offers no event stream.
            Ok(()) | Err(_) => return None,
        }
        drop(opening.take());
        events = ResumableEvents::resuming_after(events.last_event_id);
        loop {
            let event = match events.next(&mut reply, &link.budget).await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => return Some(error),
            };
            pause = INITIAL_RETRY_DELAY;
            if let Err(error) = handle_event(link, event.data).await {
                return Some(error);
            }
        }
        time::sleep(
            events
                .retry_delay
                .unwrap_or(pause)
                .clamp(Duration::from_millis(100), MAX_RETRY_DELAY),
        )
        .await;
        pause = (pause * 2).min(MAX_RETRY_DELAY);
    }
}

/// Handles an event. An error means that the server must be disconnected.
async fn handle_event(link: &Arc<HttpLink>, data: String) -> Result<(), Error> {
    let checked = run_parser(data.len(), move || CheckedJson::new(data)).await;
    if let Ok(text) = checked.text() {
        match RpcMessage::parse(text) {
            Ok(RpcMessage::Notification { method, params }) => {
                let notification = ServerNotification {
                    method: &method,
                    params,
                    text,
                };
                handle_notification(&link.in_flight, &link.notification_sink, notification);
            }
            Ok(RpcMessage::Request(request)) => {
                if let Some(reply) = handle_server_request(&link.in_flight, &request, text) {
                    link.send_reply(reply)?;
                }
            }
            Ok(RpcMessage::Response(_)) | Err(_) => (),
        }
    }
    Ok(link.budget.spend_message(checked.bytes().len())?)
}
