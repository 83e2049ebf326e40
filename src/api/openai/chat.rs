//! `POST /v1/chat/completions`: one direction, one stream, no task in between.

use std::{convert::Infallible, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::stream;
use hyper::body::Incoming;
use tokio::{sync::watch, time};

use super::{
    super::{
        Hub,
        body::{self, Failure},
    },
    agent,
    chunk::{Writer, whole},
    described,
    error::{self, Bad},
    wire::{self, Asked},
};
use crate::{
    access::Principal,
    config::ClientMode,
    downstream::http::{check_headers, reply},
    llm::{self, ChatRequest, Event, Stream, Tool, Wanted},
    mcp,
    tasks::within,
    tool::{Caller, Scope},
};

static MODE: HeaderName = HeaderName::from_static("x-maru-client-mode");
static PLACE: HeaderName = HeaderName::from_static("x-maru-queue-place");
/// Longer than any setting; the entry of the model says how long.
const LIMIT: Duration = Duration::from_secs(3600);
/// After so long in the queue a stream begins, and tells its place.
const QUIET: Duration = Duration::from_secs(2);
/// How often the place is told.
const TELL: Duration = Duration::from_secs(5);
/// Tools of our own that are offered in the mode `shell`.
const OWN_TOOLS: usize = 128;

type Opening = Pin<Box<dyn Future<Output = Result<Stream, llm::Error>> + Send>>;

/// The route.
pub(in super::super) async fn post(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let principal = request.extensions().get::<Principal>();
    let principal = principal
        .expect("the gate identifies every request")
        .clone();
    let (parts, body) = request.into_parts();
    answer(&hub, &principal, &parts.headers, body).await
}

/// The same for a caller who is known already.
pub(in super::super) fn post_known(
    hub: Arc<Hub>,
    principal: Principal,
    request: axum::http::Request<Incoming>,
) -> impl Future<Output = Response> + Send {
    let (parts, body) = request.into_parts();
    async move { answer(&hub, &principal, &parts.headers, body).await }
}

async fn answer<B>(hub: &Arc<Hub>, principal: &Principal, headers: &HeaderMap, body: B) -> Response
where
    B: HttpBody<Data = Bytes, Error: Into<Failure>> + Unpin,
{
    let asked = match read(hub, headers, body).await {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    let (mut asked, mode) = match choose_mode(hub, principal, headers, &asked.request.model) {
        Ok(mode) => (asked, mode),
        Err(bad) => return error::bad(&bad),
    };
    if let Some(model) = asked.request.model.strip_prefix(agent::PREFIX) {
        let model = model.to_owned();
        return agent::answer(hub, principal, asked, &model).await;
    }
    match mode {
        ClientMode::Openai => (),
        ClientMode::Xml => asked.request.described = described::tools(&asked.request.messages),
        ClientMode::Shell if asked.request.tools.is_empty() => {
            asked.request.tools = own_tools(hub, principal);
        }
        ClientMode::Shell => (),
    }
    match asked.stream {
        true => streamed(hub, asked, mode).await,
        false => in_one(hub, asked.request, mode).await,
    }
}

async fn read<B>(hub: &Hub, headers: &HeaderMap, body: B) -> Result<Asked, Response>
where
    B: HttpBody<Data = Bytes, Error: Into<Failure>> + Unpin,
{
    let refused = |(status, why): (StatusCode, String)| error::refuse(status, &why);
    check_headers(headers).map_err(|(status, why)| error::refuse(status, why))?;
    let bytes = body::take(body, hub.max_body_bytes())
        .await
        .map_err(refused)?;
    let bad = |why: &str| {
        error::bad(&Bad {
            message: why.to_owned(),
            param: None,
        })
    };
    let text = mcp::check(&bytes).map_err(|why| bad(&why.to_string()))?;
    let body = serde_json::from_str(text).map_err(|_| bad("the body is not JSON"))?;
    wire::read(body).map_err(|it| error::bad(&it))
}

/// The header says how calls are written, or the model, or the caller.
fn choose_mode(
    hub: &Hub,
    principal: &Principal,
    headers: &HeaderMap,
    model: &str,
) -> Result<ClientMode, Bad> {
    let Some(header) = headers.get(&MODE) else {
        let by_caller = hub.chat().client_modes.get(principal.name()).copied();
        let by_model = hub.models.current().client_mode(model);
        return Ok(by_model.or(by_caller).unwrap_or_default());
    };
    match header.as_bytes() {
        b"openai" => Ok(ClientMode::Openai),
        b"xml" => Ok(ClientMode::Xml),
        b"shell" if hub.chat().allow_shell => Ok(ClientMode::Shell),
        b"shell" => Err(Bad::new(
            MODE.as_str(),
            "the mode shell is not allowed; see chat.allow_shell in the settings",
        )),
        _ => Err(Bad::new(
            MODE.as_str(),
            "the mode must be openai, xml or shell",
        )),
    }
}

/// What `maru call` can call.
fn own_tools(hub: &Hub, principal: &Principal) -> Vec<Tool> {
    let snapshot = hub.engine.catalog().snapshot();
    let Ok(view) = snapshot.seen(&Caller::new(principal.clone(), Scope::All)) else {
        return Vec::new();
    };
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(view.tools.json()).unwrap_or_default();
    let tool = |it: &serde_json::Value| Tool {
        name: it["name"].as_str().unwrap_or_default().to_owned(),
        shown: None,
        description: it["description"].as_str().unwrap_or_default().to_owned(),
        parameters: it["inputSchema"].clone(),
        other: serde_json::Map::new(),
    };
    listed.iter().take(OWN_TOOLS).map(tool).collect()
}

async fn in_one(hub: &Hub, request: ChatRequest, mode: ClientMode) -> Response {
    let model = request.model.clone();
    let models = hub.models.current();
    let stream = models.ask(request, &Wanted::whole(LIMIT)).await;
    let place = stream.as_ref().map_or(0, Stream::place);
    let answer = match stream {
        Ok(stream) => stream.whole().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(answer) => placed(
            reply::json(StatusCode::OK, whole(&model, mode, answer)),
            place,
        ),
        Err(error) => error::failed(&error),
    }
}

async fn streamed(hub: &Arc<Hub>, asked: Asked, mode: ClientMode) -> Response {
    let writer = Writer::new(&asked.request.model, mode, asked.usage);
    let wanted = Wanted::stream(LIMIT);
    let mut place = wanted.place.subscribe();
    let hub = Arc::clone(hub);
    let mut opening: Opening =
        Box::pin(async move { hub.models.current().ask(asked.request, &wanted).await });
    let opened = match within(QUIET, &mut opening).await {
        Some(opened) => opened,
        // Behind others: the status can wait no longer.
        None if *place.borrow_and_update() > 0 => {
            return events(Phase::Waiting(opening, place, writer));
        }
        None => opening.await,
    };
    match opened {
        Ok(stream) => {
            let place = stream.place();
            placed(events(Phase::Open(Box::new(stream), writer)), place)
        }
        Err(error) => error::failed(&error),
    }
}

fn placed(mut response: Response, place: usize) -> Response {
    if place > 0 {
        response
            .headers_mut()
            .insert(PLACE.clone(), HeaderValue::from(place));
    }
    response
}

/// How far a stream is.
enum Phase {
    /// In the queue.
    Waiting(Opening, watch::Receiver<usize>, Writer),
    Open(Box<Stream>, Writer),
    /// Everything is said.
    Closing(Box<Stream>),
    Ended,
}

/// A response that is read from the backend as the client reads it.
fn events(phase: Phase) -> Response {
    let body = stream::unfold((phase, Vec::new()), |(phase, mut scratch)| async move {
        let (phase, text) = step(phase, &mut scratch).await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), (phase, scratch)))
    });
    event_stream(Body::from_stream(body))
}

/// A response of events.
pub(super) fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies in between must not gather it.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The next piece of the body; `None` at its end.
async fn step(phase: Phase, scratch: &mut Vec<Event>) -> Option<(Phase, String)> {
    let (mut stream, mut writer) = match phase {
        Phase::Ended => return None,
        Phase::Closing(mut stream) => {
            // Read to its end, the connection can carry the next request.
            let _ = stream.read(scratch).await;
            return None;
        }
        Phase::Waiting(opening, place, writer) => return Some(wait(opening, place, writer).await),
        Phase::Open(stream, writer) => (stream, writer),
    };
    let mut text = String::new();
    loop {
        let read = stream.read(scratch).await;
        writer.write(scratch, &mut text);
        match read {
            Ok(true) if writer.is_finished() => {
                writer.end(&mut text);
                return Some((Phase::Closing(stream), text));
            }
            Ok(true) => {
                // It may say nothing as yet but that there is an answer.
                writer.begin(&mut text);
                if !text.is_empty() {
                    return Some((Phase::Open(stream, writer), text));
                }
            }
            Ok(false) => {
                writer.end(&mut text);
                return Some((Phase::Ended, text));
            }
            Err(error) => {
                text.push_str(&error::event(&error));
                return Some((Phase::Ended, text));
            }
        }
    }
}

/// Tells the place until the answer begins.
async fn wait(
    mut opening: Opening,
    mut place: watch::Receiver<usize>,
    writer: Writer,
) -> (Phase, String) {
    let told = format!(": place {} in the queue\n\n", *place.borrow_and_update());
    tokio::select! {
        biased;
        opened = &mut opening => match opened {
            Ok(stream) => (Phase::Open(Box::new(stream), writer), told),
            Err(error) => (Phase::Ended, error::event(&error)),
        },
        _moved = place.changed() => (Phase::Waiting(opening, place, writer), told),
        () = time::sleep(TELL) => (Phase::Waiting(opening, place, writer), told),
    }
}
