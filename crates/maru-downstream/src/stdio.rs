//! One client on standard input and output, of any version.

use std::{io, sync::Arc};

use maru_protocol::{
    CheckedJson, DecodedLine, InvalidMessage, LineDecoder, RequestParams, RpcError, RpcMessage,
    code, declares_version, write_error,
};
use maru_runtime::{
    memory::HeldText,
    tasks::{WorkSlice, run_parser},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{
    McpEngine,
    feed::STANDALONE_STREAM,
    modern_client::ModernClient,
    owned_request::OwnedRequest,
    session::{McpSession, WaitingRequestGuard},
    session_registry::detached_session,
    sse,
    subscriptions::SubscriptionListener,
};
use maru_tools::Caller;

const READ_CHUNK_BYTES: usize = 64 << 10;

/// Serves until the input ends and its requests have finished.
pub async fn serve(
    engine: &Arc<McpEngine>,
    caller: Caller,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let session = Arc::new(detached_session(caller, &engine.limits(), &engine.catalog));
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
            // Queued messages are still written, unless the client stopped reading.
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
        let blank = lines.feed(&chunk[..count], &mut found);
        let mut spent = session.spend(blank.lines, blank.bytes);
        if count == 0 {
            found.extend(lines.finish());
        }
        for line in found.drain(..) {
            slice.spend(line.len()).await;
            if spent.is_ok() {
                spent = handle_line(engine, session, line).await;
            }
        }
        if let Err(error) = spent {
            // If the client does not read, `write` ends the session.
            let _ = session.out.send(write_error(None, &error)).await;
            return Ok(());
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

/// Handles one message; an error means that the client sends too many without a response.
async fn handle_line(
    engine: &Arc<McpEngine>,
    session: &Arc<McpSession>,
    line: DecodedLine,
) -> Result<(), RpcError> {
    let bytes = line.len();
    let checked = match line {
        DecodedLine::Whole(bytes) => {
            Some(run_parser(bytes.len(), move || CheckedJson::new(bytes)).await)
        }
        DecodedLine::TooLong => None,
    };
    let refused = match checked.as_ref().map(CheckedJson::text) {
        None => write_error(
            None,
            &RpcError::new(code::PARSE_ERROR, "the line is longer than 16 MiB"),
        ),
        Some(Err(bad)) => write_error(None, &bad.into()),
        Some(Ok(text)) => match RpcMessage::parse(text) {
            Err(InvalidMessage { id, error }) => write_error(id.as_ref(), &error),
            Ok(RpcMessage::Request(request)) => {
                match session.reserve_waiting() {
                    Ok(slot) => match OwnedRequest::new(&session.caller, &request).await {
                        Ok(owned) => {
                            let request = QueuedRequest {
                                waiting: slot,
                                is_modern: declares_version(&request),
                                request: owned,
                            };
                            answer(engine, session, request);
                            return Ok(());
                        }
                        Err(error) => write_error(Some(&request.id), &error),
                    },
                    // Sent before the next line is read, so a client that sends without
                    // reading blocks here, and nothing is buffered for it.
                    Err(busy) => write_error(Some(&request.id), &busy),
                }
            }
            Ok(message) => {
                session.spend_one_way(&message, bytes)?;
                session.handle_one_way(&message);
                return Ok(());
            }
        },
    };
    session.spend(1, bytes)?;
    // If the client does not read, `write` ends the session.
    let _ = session.out.send(refused).await;
    Ok(())
}

/// A request that waits to start.
struct QueuedRequest {
    waiting: WaitingRequestGuard,
    request: OwnedRequest,
    is_modern: bool,
}

/// Handles a request in its own task, because the reader must go on: later lines may cancel
/// it, answer an input request, or end the session.
fn answer(engine: &Arc<McpEngine>, session: &Arc<McpSession>, request: QueuedRequest) {
    let QueuedRequest {
        waiting: slot,
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
                // The slot is held until this is written, so that refusals of a client that
                // repeats an id are bounded like its requests.
                sse::deliver(&engine, &session, Some(request.to_response(&Err(busy)))).await;
                return drop(slot);
            }
        };
        drop(slot);
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

async fn answer_modern(
    engine: &McpEngine,
    session: &McpSession,
    request: &OwnedRequest,
) -> HeldText {
    let client = RequestParams::parse(request.params.as_deref())
        .and_then(|params| ModernClient::read(&params));
    let client = match client {
        Ok(client) => client.with_connection(session.connection),
        Err(error) => return request.to_response(&Err(error)),
    };
    if request.method == "subscriptions/listen" {
        return match SubscriptionListener::new(&engine.catalog, &session.caller, request) {
            Err(error) => request.to_response(&Err(error)),
            Ok(listener) => listen(session, listener).await.into(),
        };
    }
    let caller = &session.caller;
    request.to_response(&client.answer(engine, caller, &session.out, request).await)
}

/// Sends notifications until the request is cancelled or the input ends.
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
