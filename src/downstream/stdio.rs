//! One client on standard input and output, in either era.

use std::{io, sync::Arc};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{
    Engine,
    dispatch::Owned,
    feed::STANDALONE,
    http::take,
    listen::Listener,
    modern::Client,
    session::{Queued, Session},
    sessions::detached,
    sse,
};
use crate::{
    mcp::{Invalid, Line, Lines, Message, Params, RpcError, code, error, names_version},
    tasks::WorkSlice,
    tool::Caller,
};

const CHUNK: usize = 64 << 10;

/// Serves until the input ends; what is being answered then is finished.
pub async fn serve(
    engine: &Arc<Engine>,
    caller: Caller,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let session = Arc::new(detached(
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
            let written = tokio::time::timeout(engine.limits().drain(), written).await;
            read.and(written.unwrap_or(Ok(())))
        }
    }
}

async fn read(
    engine: &Arc<Engine>,
    session: &Arc<Session>,
    mut input: impl AsyncRead + Unpin,
) -> io::Result<()> {
    let mut lines = Lines::default();
    let mut chunk = vec![0; CHUNK];
    let mut found = Vec::new();
    let mut slice = WorkSlice::default();
    loop {
        let count = tokio::select! {
            count = input.read(&mut chunk) => count?,
            () = session.end.cancelled() => 0,
            () = engine.tasks.stop().cancelled_owned() => 0,
        };
        lines.feed(&chunk[..count], &mut found);
        if count == 0 {
            found.extend(lines.finish());
        }
        for line in found.drain(..) {
            slice.spend(line.len()).await;
            on_line(engine, session, line).await;
        }
        slice.spend(count).await;
        if count == 0 {
            return Ok(());
        }
    }
}

async fn write(session: &Arc<Session>, mut output: impl AsyncWrite + Unpin) -> io::Result<()> {
    let Some(mut feed) = session.streams.take(STANDALONE) else {
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

async fn on_line(engine: &Arc<Engine>, session: &Arc<Session>, line: Line) {
    let refused = match &line {
        Line::TooLong => error(
            None,
            &RpcError::new(code::PARSE, "the line is longer than 16 MiB"),
        ),
        Line::Whole(bytes) => match Message::take(bytes) {
            Err(bad) => error(None, &bad.into()),
            Ok((_, Err(Invalid { id, error: why }))) => error(id.as_ref(), &why),
            Ok((_, Ok(Message::Request(request)))) => {
                match session.may_wait() {
                    Ok(place) => {
                        let request = QueuedRequest {
                            place,
                            is_modern: names_version(&request),
                            request: Owned::new(&request),
                        };
                        return answer(engine, session, request);
                    }
                    // Told before the next line is read: a client that sends without
                    // reading stops here, and nothing is kept for it.
                    Err(busy) => error(Some(&request.id), &busy),
                }
            }
            Ok((_, Ok(message))) => return take(session, &message),
        },
    };
    // A client that reads nothing ends the session in `write`.
    let _ = session.out.send(refused).await;
}

/// A request that waits for its turn.
struct QueuedRequest {
    place: Queued,
    request: Owned,
    is_modern: bool,
}

/// Answers in a task of its own, in turn: the reader must go on, or nobody
/// could cancel, answer our questions, or end.
fn answer(engine: &Arc<Engine>, session: &Arc<Session>, request: QueuedRequest) {
    let QueuedRequest {
        place,
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
            session.begin_in_turn(&request.id).await
        };
        drop(place);
        let running = match begun {
            Ok(running) => running,
            Err(busy) => {
                return sse::deliver(&engine, &session, Some(request.reply(&Err(busy)))).await;
            }
        };
        let text = match is_modern {
            false => {
                engine
                    .answer_running(&running, &session, &request, &session.out)
                    .await
            }
            true => tokio::select! {
                biased;
                text = modern(&engine, &session, &request) => Some(text),
                () = running.cancelled.cancelled() => None,
            },
        };
        sse::deliver(&engine, &session, text).await;
        drop(running);
    });
}

async fn modern(engine: &Engine, session: &Session, request: &Owned) -> String {
    let client = Params::read(request.params.as_deref()).and_then(|params| Client::read(&params));
    let client = match client {
        Ok(client) => client.on(session.connection),
        Err(why) => return request.reply(&Err(why)),
    };
    if request.method == "subscriptions/listen" {
        return match Listener::new(&engine.catalog, &session.caller, request) {
            Err(why) => request.reply(&Err(why)),
            Ok(listener) => listen(session, listener).await,
        };
    }
    let caller = &session.caller;
    request.reply(&client.answer(engine, caller, &session.out, request).await)
}

/// Tells until the request is cancelled or the input ends.
async fn listen(session: &Session, mut listener: Listener) -> String {
    let mut messages = vec![listener.acknowledged()];
    loop {
        for message in messages {
            if session.out.send(message).await.is_err() {
                return listener.over();
            }
        }
        messages = tokio::select! {
            messages = listener.next() => messages,
            () = session.closing.cancelled() => return listener.over(),
        };
    }
}
