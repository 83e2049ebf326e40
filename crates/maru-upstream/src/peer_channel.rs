//! The channel to a program that another hub runs.

use std::sync::Arc;

use maru_peers::{Exchange, PeerTopic};
use maru_protocol::{ProtocolVersion, key};
use maru_runtime::message_queue;
use serde_json::json;

use super::{
    Error,
    channel::MessageChannel,
    connect::ConnectContext,
    handshake::{NegotiatedSession, call_method, own_request_meta},
    link::UpstreamLink,
    notifications::NotificationSink,
    single_runs::SingleRuns,
};

/// Opens a channel to the program of a server that runs at `hub`, which is a server of
/// 2026-07-28, whatever version the program speaks.
pub(super) async fn open(
    runs: &SingleRuns,
    (server_id, hub): (&str, &str),
    context: &ConnectContext,
    sink: Arc<NotificationSink>,
) -> Result<(UpstreamLink, NegotiatedSession), Error> {
    let gone = |error: maru_peers::Error| Error::Unreachable(error.to_string());
    let exchange = runs.peers.open(hub, PeerTopic::SingleProgram, server_id);
    let exchange = exchange.await.map_err(gone)?;
    let (out, outgoing) = message_queue::channel();
    let channel = MessageChannel::new(out, sink, context);
    let (runs, moved_from) = (runs.clone(), (server_id.to_owned(), hub.to_owned()));
    let (relayed, token) = (Arc::clone(&channel), context.cleanup.token());
    context.tasks.spawn(async move {
        let moved = runs.moved_from(&moved_from.0, &moved_from.1);
        let reason = tokio::select! {
            reason = relay(exchange, outgoing, &relayed) => reason,
            // Reconnecting at once finds the hub that runs it now.
            () = moved => Error::SessionExpired,
            () = relayed.closing.cancelled() => Error::Lost("the connection was closed".to_owned()),
        };
        relayed.mark_lost(reason);
        relayed.closed.cancel();
        drop(token);
    });
    let link = UpstreamLink::Channel(channel);
    let params = json!({"_meta": own_request_meta()});
    let answer = call_method(&link, "server/discover", &params).await?;
    let answer = answer.map_err(|error| Error::Unreachable(error.message.into_owned()))?;
    let session = NegotiatedSession {
        version: ProtocolVersion::V2026_07_28,
        capabilities: answer["capabilities"].clone(),
        info: answer["_meta"][key::SERVER_INFO].clone(),
    };
    Ok((link, session))
}

/// Passes messages in both directions until one ends; returns why.
async fn relay(
    mut exchange: Exchange,
    mut outgoing: message_queue::MessageReceiver,
    channel: &MessageChannel,
) -> Error {
    loop {
        let passed = tokio::select! {
            Some(text) = outgoing.recv() => {
                let sent = exchange.send(&text).await;
                sent.map_err(|error| Error::Lost(error.to_string()))
            }
            received = exchange.next() => match received {
                Some(text) => channel.handle_bytes(text.into_bytes()).await,
                None => Err(Error::SessionExpired),
            },
        };
        if let Err(error) = passed {
            return error;
        }
    }
}
