//! What other hubs ask this one for, as the holder of a stream or of a question.

use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::BodyExt as _;
use maru_auth::Principal;
use maru_peers::{Exchange, PeerRequest, PeerTopic};
use maru_protocol::{RequestParams, RpcId, RpcMessage, RpcRequest};
use maru_runtime::message_queue;
use maru_tools::Caller;
use serde_json::{Value, json};

use super::{SessionNote, SharedSessions};
use crate::{
    McpEngine,
    feed::EventId,
    http::{EventSource as _, FeedReader},
    modern_client::ModernClient,
    owned_request::OwnedRequest,
    session::McpSession,
    session_token::scope_of_name,
    sse,
};

/// The reply for a stream that has ended.
pub(super) const STREAM_GONE: &str = "gone";
const STREAM_READY: &str = "ready";
const TOPICS: [PeerTopic; 6] = [
    PeerTopic::SessionMessage,
    PeerTopic::SessionCancel,
    PeerTopic::SessionNote,
    PeerTopic::SseMessage,
    PeerTopic::StreamResume,
    PeerTopic::InputRound,
];

impl SharedSessions {
    /// Handles the requests of other hubs until the hub stops.
    pub(crate) fn serve(&self, engine: &Arc<McpEngine>) {
        for topic in TOPICS {
            let mut requests = self.peers.serve(topic);
            let engine = Arc::clone(engine);
            let stop = engine.tasks.stop_token();
            engine.clone().tasks.spawn(async move {
                let served = async {
                    while let Some(request) = requests.recv().await {
                        let task = handle(Arc::clone(&engine), topic, request);
                        engine.tasks.spawn(async move { _ = task.await });
                    }
                };
                stop.run_until_cancelled(served).await;
            });
        }
    }
}

/// Handles one request; without a reply, its exchange ends.
async fn handle(engine: Arc<McpEngine>, topic: PeerTopic, request: PeerRequest) -> Option<()> {
    let body: Value = serde_json::from_str(&request.body).ok()?;
    let mut exchange = request.exchange;
    if topic == PeerTopic::InputRound {
        return handle_round(&engine, &body, exchange).await;
    }
    let session = body["session"].as_str()?;
    let session = engine.sessions.get(session)?;
    match topic {
        PeerTopic::SessionMessage | PeerTopic::SessionCancel => {
            let message = RpcMessage::parse(body["text"].as_str()?).ok()?;
            session.handle_one_way(&message);
        }
        PeerTopic::SessionNote => {
            if !SessionNote::parse(&body)?.apply(&engine, &session) {
                engine.sessions.end(&session.id);
            }
        }
        PeerTopic::SseMessage => {
            let text = body["text"].as_str()?.to_owned();
            let response = sse::accept(&engine, session, Bytes::from(text)).await;
            let status = response.status().as_u16();
            let text = response.into_body().collect().await.ok()?.to_bytes();
            let text = String::from_utf8_lossy(&text);
            let reply = json!({"status": status, "text": text}).to_string();
            return exchange.send(&reply).await.ok();
        }
        PeerTopic::StreamResume => {
            let from = EventId {
                hub: None,
                stream: body["stream"].as_u64()?,
                number: body["event"].as_u64()?,
            };
            return relay_stream(&engine, &session, &from, exchange).await;
        }
        // Handled above, or by others.
        PeerTopic::InputRound
        | PeerTopic::AgentRun
        | PeerTopic::ToolInput
        | PeerTopic::SingleProgram
        | PeerTopic::ServerState => (),
    }
    exchange.send("").await.ok()
}

/// Reads a stream for another hub, until its client leaves.
async fn relay_stream(
    engine: &Arc<McpEngine>,
    session: &Arc<McpSession>,
    from: &EventId,
    mut exchange: Exchange,
) -> Option<()> {
    let Some(mut feed) = session.streams.claim(from.stream).await else {
        return exchange.send(STREAM_GONE).await.ok();
    };
    feed.replay_after(from.number);
    // Dropping it lets the stream wait for its next reader.
    let mut reader = FeedReader::new(feed, engine, Some(session));
    exchange.send(STREAM_READY).await.ok()?;
    let mut next = reader.priming_event();
    loop {
        if let Some(text) = next.take() {
            exchange.send(&text).await.ok()?;
            reader.report_progress();
        }
        tokio::select! {
            text = reader.next() => next = Some(text?),
            // The other hub sends nothing but the end.
            _ended = exchange.next() => return None,
        }
    }
}

/// Handles a request that another hub received.
async fn handle_round(engine: &Arc<McpEngine>, body: &Value, mut exchange: Exchange) -> Option<()> {
    let scope = scope_of_name(body["scope"].as_str());
    let mut caller = Caller::new(Principal::from_json(&body["principal"])?, scope);
    caller.remote_ip = body["ip"].as_str().and_then(|it| it.parse().ok());
    let request = RpcRequest {
        id: RpcId::parse(&body["id"].to_string())?,
        method: body["method"].as_str()?.into(),
        params: body["params"].as_str(),
    };
    let request = match OwnedRequest::new(&caller, &request).await {
        Ok(request) => request,
        Err(error) => {
            let reply = json!({"error": error}).to_string();
            return exchange.send(&reply).await.ok();
        }
    };
    let params = RequestParams::parse(request.params.as_deref()).ok()?;
    let client = ModernClient::read(&params).ok()?;
    let (out, mut messages) = message_queue::channel();
    let outcome = client.answer(engine, &caller, &out, &request);
    tokio::pin!(outcome);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(message) = messages.recv() => {
                let message = json!({"message": message}).to_string();
                exchange.send(&message).await.ok()?;
            }
            outcome = &mut outcome => break outcome,
            // The client has gone; dropping the call cancels it.
            _ended = exchange.next() => return None,
        }
    };
    while let Some(message) = messages.try_recv() {
        let message = json!({"message": message}).to_string();
        exchange.send(&message).await.ok()?;
    }
    let reply = match outcome {
        Ok(result) => json!({"result": result}),
        Err(error) => json!({"error": error}),
    };
    exchange.send(&reply.to_string()).await.ok()
}
