//! One client on standard input and output, in either era.

use std::{io, sync::Arc};

use maru_protocol::{
    DecodedLine, InvalidMessage, LineDecoder, RequestParams, RpcError, RpcMessage, code,
    declares_version, write_error,
};
use maru_runtime::tasks::WorkSlice;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{
    McpEngine,
    dispatch::OwnedRequest,
    feed::STANDALONE_STREAM,
    http::handle_one_way,
    modern_client::ModernClient,
    session::{McpSession, WaitingRequestGuard},
    session_registry::detached_session,
    sse,
    subscriptions::SubscriptionListener,
};
use crate::tools::Caller;

const READ_CHUNK_BYTES: usize = 64 << 10;

/// Serves until the input ends; what is being answered then is finished.
pub async fn serve(
    engine: &Arc<McpEngine>,
    caller: Caller,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let session = Arc::new(detached_session(
        caller,
        engine.limits().max_calls_per_session,
        &engine.catalog,
    ));
    let written = write(&session, output);
    tokio::pin!(written);
    let read = async {
        let done = read(engine, &session, input).await;
        session.closing.cancel();
        session.drain().await;
        session.close();
        done
    };
    tokio::select! {
        written = &mut written => written,
        read = read => {
            // What is still queued is written, unless nobody reads.
            let written = tokio::time::timeout(engine.limits().drain_timeout(), written).await;
            read.and(written.unwrap_or(Ok(())))
        }
    }
}

async fn read(
    engine: &Arc<McpEngine>,
    session: &Arc<McpSession>,
    mut input: impl AsyncRead + Unpin,
) -> io::Result<()> {
    let mut lines = LineDecoder::default();
    let mut chunk = vec![0; READ_CHUNK_BYTES];
    let mut found = Vec::new();
    let mut slice = WorkSlice::default();
    loop {
        let count = tokio::select! {
            count = input.read(&mut chunk) => count?,
            () = session.end.cancelled() => 0,
            () = engine.tasks.stop_token().cancelled_owned() => 0,
        };
        lines.feed(&chunk[..count], &mut found);
        if count == 0 {
            found.extend(lines.finish());
        }
        for line in found.drain(..) {
            slice.spend(line.len()).await;
            handle_line(engine, session, line).await;
        }
        slice.spend(count).await;
        if count == 0 {
            return Ok(());
        }
    }
}

async fn write(session: &Arc<McpSession>, mut output: impl AsyncWrite + Unpin) -> io::Result<()> {
    let Some(mut feed) = session.streams.take(STANDALONE_STREAM) else {
        return Ok(());
    };
    loop {
        let message = tokio::select! {
            biased;
            message = feed.next() => message,
            () = session.end.cancelled() => None,
        };
        let Some(mut message) = message else {
            return Ok(());
        };
        message.push('\n');
        let wrote = async {
            output.write_all(message.as_bytes()).await?;
            output.flush().await
        };
        if let Err(broken) = wrote.await {
            session.close();
            return Err(broken);
        }
    }
}

async fn handle_line(engine: &Arc<McpEngine>, session: &Arc<McpSession>, line: DecodedLine) {
    let refused = match &line {
        DecodedLine::TooLong => write_error(
            None,
            &RpcError::new(code::PARSE_ERROR, "the line is longer than 16 MiB"),
        ),
        DecodedLine::Whole(bytes) => match RpcMessage::parse_bytes(bytes) {
            Err(bad) => write_error(None, &bad.into()),
            Ok((_, Err(InvalidMessage { id, error: why }))) => write_error(id.as_ref(), &why),
            Ok((_, Ok(RpcMessage::Request(request)))) => {
                match session.reserve_waiting() {
                    Ok(place) => {
                        let request = QueuedRequest {
                            waiting: place,
                            is_modern: declares_version(&request),
                            request: OwnedRequest::new(&request),
                        };
                        return answer(engine, session, request);
                    }
                    // Told before the next line is read: a client that sends without
                    // reading stops here, and nothing is kept for it.
                    Err(busy) => write_error(Some(&request.id), &busy),
                }
            }
            Ok((_, Ok(message))) => return handle_one_way(session, &message),
        },
    };
    // A client that reads nothing ends the session in `write`.
    let _ = session.out.send(refused).await;
}

/// A request that waits for its turn.
struct QueuedRequest {
    waiting: WaitingRequestGuard,
    request: OwnedRequest,
    is_modern: bool,
}

/// Answers in a task of its own, in turn: the reader must go on, or nobody
/// could cancel, answer our questions, or end.
fn answer(engine: &Arc<McpEngine>, session: &Arc<McpSession>, request: QueuedRequest) {
    let QueuedRequest {
        waiting: place,
        request,
        is_modern,
    } = request;
    let (engine, session) = (Arc::clone(engine), Arc::clone(session));
    let tasks = engine.tasks.clone();
    tasks.spawn(async move {
        let listens = is_modern && request.method == "subscriptions/listen";
        let begun = if listens {
            session.begin_listening(&request.id)
        } else {
            session.begin_when_free(&request.id).await
        };
        let running = match begun {
            Ok(running) => running,
            Err(busy) => {
                // The place is kept until this is written: refusals of a client that
                // repeats an id are bounded like its requests.
                sse::deliver(&engine, &session, Some(request.to_response(&Err(busy)))).await;
                return drop(place);
            }
        };
        drop(place);
        let text = if is_modern {
            tokio::select! {
                biased;
                text = answer_modern(&engine, &session, &request) => Some(text),
                () = running.cancelled.cancelled() => None,
            }
        } else {
            engine
                .handle_running(&running, &session, &request, &session.out)
                .await
        };
        sse::deliver(&engine, &session, text).await;
        drop(running);
    });
}

async fn answer_modern(engine: &McpEngine, session: &McpSession, request: &OwnedRequest) -> String {
    let client = RequestParams::parse(request.params.as_deref())
        .and_then(|params| ModernClient::read(&params));
    let client = match client {
        Ok(client) => client.with_connection(session.connection),
        Err(why) => return request.to_response(&Err(why)),
    };
    if request.method == "subscriptions/listen" {
        return match SubscriptionListener::new(&engine.catalog, &session.caller, request) {
            Err(why) => request.to_response(&Err(why)),
            Ok(listener) => listen(session, listener).await,
        };
    }
    let caller = &session.caller;
    request.to_response(&client.answer(engine, caller, &session.out, request).await)
}

/// Tells until the request is cancelled or the input ends.
async fn listen(session: &McpSession, mut listener: SubscriptionListener) -> String {
    let mut messages = vec![listener.acknowledgement()];
    loop {
        for message in messages {
            if session.out.send(message).await.is_err() {
                return listener.final_result();
            }
        }
        messages = tokio::select! {
            messages = listener.next() => messages,
            () = session.closing.cancelled() => return listener.final_result(),
        };
    }
}
