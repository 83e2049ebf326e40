//! Methods to answers: one table for every door and version.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Engine, describe, rounds,
    seal::Bound,
    session::{Running, Session},
};
use crate::{
    journal::RequestId,
    mcp::{Id, LogLevel, Params, Request, RpcError, Version, code, error, result},
    queue,
    tool::{
        Action, Answer, Caller, ClientConnection, Input, InputRequired, Inputs, Peer, Shelf, View,
        no_resource,
    },
};

/// A request with its own copy of the text.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) id: Id,
    pub(super) method: String,
    pub(super) params: Option<String>,
}

/// On whose behalf a request is answered.
pub(super) struct Context<'a> {
    pub(super) caller: &'a Caller,
    pub(super) version: Version,
    pub(super) capabilities: &'a Arc<Value>,
    pub(super) log_level: Option<LogLevel>,
    /// Where messages of this request go until its answer.
    pub(super) out: &'a queue::Sender,
    /// The client connection that the request came on.
    pub(super) connection: ClientConnection,
    /// Can be asked back on the spot.
    pub(super) session: Option<&'a Session>,
    /// The program that asks, as it calls itself.
    pub(super) client: Option<&'a Arc<str>>,
}

impl Owned {
    pub(super) fn new(request: &Request<'_>) -> Self {
        Self {
            id: request.id.clone(),
            method: request.method.to_string(),
            params: request.params.map(str::to_owned),
        }
    }

    /// The answer as a message.
    pub(super) fn reply(&self, outcome: &Result<String, RpcError>) -> String {
        match outcome {
            Ok(raw) => result(&self.id, raw),
            Err(why) => error(Some(&self.id), why),
        }
    }
}

impl Engine {
    /// Answers a request of a session; `None` when it was cancelled.
    pub(super) async fn answer(
        &self,
        session: &Arc<Session>,
        request: &Owned,
        out: &queue::Sender,
    ) -> Option<String> {
        match session.begin(&request.id) {
            Ok(running) => self.answer_running(&running, session, request, out).await,
            Err(busy) => Some(request.reply(&Err(busy))),
        }
    }

    /// Answers a request that is on its session's list.
    pub(super) async fn answer_running(
        &self,
        running: &Running,
        session: &Session,
        request: &Owned,
        out: &queue::Sender,
    ) -> Option<String> {
        // The answer first: most are there at once, and then nobody waits.
        tokio::select! {
            biased;
            outcome = self.legacy(session, request, out) => Some(request.reply(&outcome)),
            () = running.cancelled.cancelled() => None,
        }
    }

    async fn legacy(
        &self,
        session: &Session,
        request: &Owned,
        out: &queue::Sender,
    ) -> Result<String, RpcError> {
        let params = Params::read(request.params.as_deref())?;
        match request.method.as_str() {
            "initialize" => {
                let version = session.initialize(&params)?;
                self.saw(session.label(), &session.caller, version, None);
                Ok(describe::initialized(version, self.catalog.hub_id()))
            }
            "ping" => Ok("{}".to_owned()),
            "logging/setLevel" => {
                let level = params
                    .level
                    .ok_or_else(|| RpcError::params("params.level is missing"))?;
                session.set_log_level(LogLevel::read(level)?);
                Ok("{}".to_owned())
            }
            "resources/subscribe" => self.subscribe(session, &params),
            "resources/unsubscribe" => {
                session.wanted.remove(&Params::text(params.uri, "uri")?);
                Ok("{}".to_owned())
            }
            method => {
                let context = Context {
                    caller: &session.caller,
                    version: session.version(),
                    capabilities: session.capabilities(),
                    log_level: session.log_level(),
                    out,
                    connection: session.connection,
                    session: Some(session),
                    client: session.label(),
                };
                self.offered(&context, method, &params).await
            }
        }
    }

    fn subscribe(&self, session: &Session, params: &Params<'_>) -> Result<String, RpcError> {
        let uri = Params::text(params.uri, "uri")?;
        let snapshot = self.catalog.snapshot();
        let watching = snapshot.watch_resource(&session.caller, &uri);
        let watching = watching.ok_or_else(|| no_resource(&uri))?;
        match session.wanted.add(&uri, watching) {
            true => Ok("{}".to_owned()),
            false => Err(RpcError::params(
                "this session watches as many resources as it may",
            )),
        }
    }

    /// Answers a request that stands alone.
    pub(super) async fn modern(
        &self,
        context: &Context<'_>,
        request: &Owned,
    ) -> Result<String, RpcError> {
        let params = Params::read(request.params.as_deref())?;
        let done = match request.method.as_str() {
            "server/discover" => Ok(describe::stamp(
                "server/discover",
                &describe::discovered(self.catalog.hub_id()),
            )),
            method => self.offered(context, method, &params).await,
        };
        done.map_err(modern_code)
    }

    /// What the catalog offers, in either era.
    async fn offered(
        &self,
        context: &Context<'_>,
        method: &str,
        params: &Params<'_>,
    ) -> Result<String, RpcError> {
        let is_modern = context.version.is_modern();
        let list = |member: &str, pick: fn(&View) -> &Shelf| {
            if params.cursor.is_some() {
                return Err(RpcError::params(
                    "unknown cursor: lists come whole, on one page",
                ));
            }
            let snapshot = self.catalog.snapshot();
            let view = snapshot.seen(context.caller)?;
            let shelf = pick(&view);
            if member == "tools" {
                let count = Some(shelf.offers().len());
                self.saw(context.client, context.caller, context.version, count);
            }
            let entries = if is_modern {
                shelf.json()
            } else {
                shelf.legacy_json()
            };
            Ok(format!("{{\"{member}\":{entries}}}"))
        };
        let listed = match method {
            "tools/list" => list("tools", |view| &view.tools),
            "prompts/list" => list("prompts", |view| &view.prompts),
            "resources/list" => list("resources", |view| &view.resources),
            "resources/templates/list" => list("resourceTemplates", |view| &view.templates),
            // On their own: what is around them is moved about before it runs.
            "completion/complete" => Box::pin(self.complete(context, params)).await,
            "tools/call" | "prompts/get" | "resources/read" => {
                return Box::pin(self.ask(context, method, params)).await;
            }
            _ => return Err(RpcError::method_not_found(method)),
        };
        // A bad token is refused wherever it stands.
        params.meta()?.progress_token()?;
        listed.map(|text| match is_modern {
            true => describe::stamp(method, &text),
            false => text,
        })
    }

    /// Notes that a program was there.
    fn saw(
        &self,
        client: Option<&Arc<str>>,
        caller: &Caller,
        version: Version,
        listed: Option<usize>,
    ) {
        if let Some(client) = client {
            let principal = caller.principal.shared_name();
            let clients = self.catalog.journal().clients();
            clients.saw(client, &principal, version.as_str(), listed);
        }
    }

    /// The three questions that may be answered with a question.
    async fn ask(
        &self,
        context: &Context<'_>,
        method: &str,
        params: &Params<'_>,
    ) -> Result<String, RpcError> {
        let (name, key) = match method {
            "resources/read" => ("uri", params.uri),
            _ => ("name", params.name),
        };
        let key = Params::text(key, name)?;
        let arguments = Arc::new(Input::read(params.arguments)?);
        let bound = Bound {
            principal: context.caller.principal.name(),
            method,
            name: &key,
            arguments: params.arguments.unwrap_or("{}"),
        };
        let mut peer = Arc::new(Peer {
            connection: context.connection,
            client: context.client.cloned(),
            request: RequestId::of_meta(params.raw_meta()),
            version: context.version,
            out: Some(context.out.clone()),
            progress_token: params.meta()?.progress_token()?,
            log_level: context.log_level,
            capabilities: Arc::clone(context.capabilities),
            inputs: self.inputs(&bound, params)?,
            meta: params.raw_meta().map(Arc::from),
        });
        for _ in 0..rounds::MAX {
            let (caller, again) = (context.caller, Arc::clone(&peer));
            let answer = match method {
                "tools/call" => {
                    self.catalog
                        .call(caller, &key, Arc::clone(&arguments), again)
                        .await?
                }
                "prompts/get" => {
                    let arguments = Arc::clone(&arguments);
                    Box::pin(self.catalog.get_prompt(caller, &key, arguments, again)).await?
                }
                _ => Box::pin(self.catalog.read_resource(caller, &key, again)).await?,
            };
            match (answer, context.session) {
                (Answer::Complete(text), _) if context.version.is_modern() => {
                    return Ok(describe::stamp(method, &text));
                }
                (Answer::Complete(text), _) => return Ok(describe::without_odd_structure(text)),
                (Answer::InputRequired(needed), None) => {
                    return self.input_required(context, &bound, needed);
                }
                (Answer::InputRequired(needed), Some(session)) => {
                    // On its own: it would make the future of every call larger.
                    let inputs = Box::pin(rounds::collect(context, session, needed)).await?;
                    Arc::make_mut(&mut peer).inputs = inputs;
                }
            }
        }
        Err(RpcError::new(
            code::INTERNAL,
            format!("{key} asked back more than {} times", rounds::MAX),
        ))
    }

    fn inputs(&self, bound: &Bound<'_>, params: &Params<'_>) -> Result<Inputs, RpcError> {
        let responses = Params::object(params.input_responses, "inputResponses")?;
        let Some(raw) = params.request_state else {
            return Ok(Inputs {
                responses,
                ..Inputs::default()
            });
        };
        let text = Params::text(Some(raw), "requestState")?;
        let state = self.seal.open(bound, &text);
        let state = state.map_err(|_| {
            RpcError::params("params.requestState is not ours, or is too old; start again")
        })?;
        Ok(Inputs {
            responses,
            state,
            failed: None,
        })
    }

    fn input_required(
        &self,
        context: &Context<'_>,
        bound: &Bound<'_>,
        needed: InputRequired,
    ) -> Result<String, RpcError> {
        rounds::check_capabilities(context.capabilities, &needed)?;
        let state = self.seal.close(bound, needed.state);
        let answer = json!({
            "resultType": "input_required",
            "inputRequests": needed.requests,
            "requestState": state,
        });
        Ok(answer.to_string())
    }

    async fn complete(
        &self,
        context: &Context<'_>,
        params: &Params<'_>,
    ) -> Result<String, RpcError> {
        let reference = Params::object(params.reference, "ref")?;
        let key = match reference.get("type").and_then(Value::as_str) {
            Some("ref/prompt") => reference.get("name"),
            Some("ref/resource") => reference.get("uri"),
            _ => {
                return Err(RpcError::params(
                    "params.ref.type must be ref/prompt or ref/resource",
                ));
            }
        };
        let key = key.and_then(Value::as_str);
        let key = key.ok_or_else(|| RpcError::params("params.ref must have a name or a uri"))?;
        let argument = Params::object(params.argument, "argument")?;
        let text = |name: &str| {
            argument
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let (Some(name), Some(value)) = (text("name"), text("value")) else {
            return Err(RpcError::params(
                "params.argument must have a name and a value",
            ));
        };
        let action = Action::Complete {
            argument: name,
            value,
            context: params.context.map(str::to_owned),
        };
        match self.catalog.complete(context.caller, key, action).await? {
            Answer::Complete(done) => Ok(done),
            Answer::InputRequired(_) => Err(RpcError::new(
                code::INTERNAL,
                "a completion cannot ask back",
            )),
        }
    }
}

/// 2026-07-28 has no code of its own for a missing resource.
fn modern_code(mut why: RpcError) -> RpcError {
    if why.code == code::RESOURCE_NOT_FOUND {
        why.code = code::INVALID_PARAMS;
    }
    why
}
