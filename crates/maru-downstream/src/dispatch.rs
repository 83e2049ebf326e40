//! Methods → responses, for every transport and version.

use std::{sync::Arc, time::Duration};

use maru_protocol::{LoggingLevel, ProtocolVersion, RequestParams, RpcError, RpcMessage, code};
use maru_runtime::{memory::HeldText, message_queue};
use serde_json::{Value, json};
use tracing::debug;

use super::{
    McpEngine,
    catalog_changes::MAX_SUBSCRIBED_URI_BYTES,
    describe, input_rounds,
    owned_request::OwnedRequest,
    session::{McpSession, RunningRequest},
    shared_sessions::SessionNote,
};
use maru_observability::journal::RequestId;
use maru_peers::Error as PeerError;
use maru_tools::{
    CallArguments, Caller, CatalogView, ClientConnection, EntryAction, EntryList, EntryResponse,
    ExtensionCall, InputRequired, InputResponses, RequestContext, request_state::StateBinding,
    resource_not_found,
};

/// How much longer than a call its way to the hub that asked and back may take.
const FORWARD_GRACE: Duration = Duration::from_secs(15);

/// The client of a request and how it is reached.
pub(super) struct DispatchContext<'a> {
    pub(super) caller: &'a Caller,
    pub(super) version: ProtocolVersion,
    pub(super) capabilities: &'a Arc<Value>,
    pub(super) log_level: Option<LoggingLevel>,
    /// Where messages of this request are sent until its response.
    pub(super) out: &'a message_queue::MessageSender,
    /// The client connection that the request came on.
    pub(super) connection: ClientConnection,
    /// The session; input requests are sent through it.
    pub(super) session: Option<&'a McpSession>,
    /// The client program, by its reported name.
    pub(super) client: Option<&'a Arc<str>>,
}

impl DispatchContext<'_> {
    /// What a handler knows of the client and of its request.
    fn to_request_context(
        &self,
        params: &RequestParams<'_>,
        inputs: InputResponses,
    ) -> Result<RequestContext, RpcError> {
        Ok(RequestContext {
            connection: self.connection,
            client: self.client.cloned(),
            request_id: RequestId::from_meta(params.raw_meta()),
            version: self.version,
            outgoing: Some(self.out.clone()),
            progress_token: params.meta()?.progress_token()?,
            log_level: self.log_level,
            capabilities: Arc::clone(self.capabilities),
            inputs,
            meta: params.raw_meta().map(Arc::from),
        })
    }
}

impl McpEngine {
    /// Handles a request of a session; `None` if it was cancelled.
    pub(super) async fn handle_request(
        &self,
        session: &Arc<McpSession>,
        request: &OwnedRequest,
        out: &message_queue::MessageSender,
    ) -> Option<HeldText> {
        match session.begin(&request.id) {
            Ok(running) => self.handle_running(&running, session, request, out).await,
            Err(busy) => Some(request.to_response(&Err(busy))),
        }
    }

    /// Handles a request that is registered in its session.
    pub(super) async fn handle_running(
        &self,
        running: &RunningRequest,
        session: &McpSession,
        request: &OwnedRequest,
        out: &message_queue::MessageSender,
    ) -> Option<HeldText> {
        // Biased: most requests finish at the first poll, so the token is rarely polled.
        tokio::select! {
            biased;
            outcome = self.handle_legacy(session, request, out) => Some(request.to_response(&outcome)),
            () = running.cancelled.cancelled() => None,
        }
    }

    async fn handle_legacy(
        &self,
        session: &McpSession,
        request: &OwnedRequest,
        out: &message_queue::MessageSender,
    ) -> Result<String, RpcError> {
        let params = RequestParams::parse(request.params.as_deref())?;
        match request.method.as_str() {
            "initialize" => {
                let version = session.initialize(&params)?;
                self.record_client(session.client_label(), &session.caller, version, None);
                Ok(describe::initialize_result(
                    version,
                    &self.catalog,
                    &session.caller,
                ))
            }
            "ping" => Ok("{}".to_owned()),
            "logging/setLevel" => {
                let level = params
                    .level
                    .ok_or_else(|| RpcError::invalid_params("params.level is missing"))?;
                let level = LoggingLevel::parse(level)?;
                session.set_log_level(level);
                self.write_note(session, &SessionNote::LogLevel(level))
                    .await;
                Ok("{}".to_owned())
            }
            "resources/subscribe" => {
                let uri = RequestParams::require_string(params.uri, "uri")?;
                self.subscribe(session, &uri)?;
                self.write_note(session, &SessionNote::Subscribed(&uri))
                    .await;
                Ok("{}".to_owned())
            }
            "resources/unsubscribe" => {
                let uri = RequestParams::require_string(params.uri, "uri")?;
                if session.subscriptions.remove(&uri) {
                    self.write_note(session, &SessionNote::Unsubscribed(&uri))
                        .await;
                }
                Ok("{}".to_owned())
            }
            method => {
                let context = DispatchContext {
                    caller: &session.caller,
                    version: session.version(),
                    capabilities: session.capabilities(),
                    log_level: session.log_level(),
                    out,
                    connection: session.connection,
                    session: Some(session),
                    client: session.client_label(),
                };
                self.handle_catalog_method(&context, method, &params).await
            }
        }
    }

    /// Tells other hubs what they must know of a session that they may go on with.
    async fn write_note(&self, session: &McpSession, note: &SessionNote<'_>) {
        if let (Some(shared), Some(_)) = (&self.shared, session.hub()) {
            // Boxed, because it is rare and would make the future of every call larger.
            if let Err(error) = Box::pin(shared.write_note(session, note)).await {
                debug!(%error, "a note on a session could not be kept for other hubs");
            }
        }
    }

    /// Counts a message that gets no response. An error has ended the session.
    pub(super) async fn spend_one_way(
        &self,
        session: &McpSession,
        message: &RpcMessage<'_>,
        bytes: usize,
    ) -> Result<(), RpcError> {
        let spent = session.spend_one_way(message, bytes);
        if spent.is_err() {
            // First the note, without which another hub would go on with the session.
            self.write_note(session, &SessionNote::Ended).await;
            self.sessions.end(&session.id);
        }
        spent
    }

    /// Handles a notification or a response of a session; an error means that the hub that
    /// it is meant for is gone.
    pub(super) async fn handle_one_way(
        &self,
        session: &McpSession,
        message: &RpcMessage<'_>,
        text: &str,
    ) -> Result<(), PeerError> {
        if let (Some(shared), Some(_)) = (&self.shared, session.hub())
            && Box::pin(shared.forward_one_way(session, message, text)).await?
        {
            return Ok(());
        }
        session.handle_one_way(message);
        Ok(())
    }

    fn subscribe(&self, session: &McpSession, uri: &str) -> Result<(), RpcError> {
        if uri.len() > MAX_SUBSCRIBED_URI_BYTES {
            return Err(RpcError::invalid_params(format!(
                "the uri of a subscription may have {MAX_SUBSCRIBED_URI_BYTES} bytes"
            )));
        }
        let snapshot = self.catalog.snapshot();
        let subscription = snapshot.subscribe_resource(&session.caller, uri);
        let subscription = subscription.ok_or_else(|| resource_not_found(uri))?;
        if session.subscriptions.add(uri, subscription) {
            Ok(())
        } else {
            Err(RpcError::invalid_params(
                "this session has as many resource subscriptions as it may have",
            ))
        }
    }

    /// Handles a request without a session.
    pub(super) async fn handle_modern(
        &self,
        context: &DispatchContext<'_>,
        request: &OwnedRequest,
    ) -> Result<String, RpcError> {
        let params = RequestParams::parse(request.params.as_deref())?;
        let done = match request.method.as_str() {
            "server/discover" => Ok(describe::with_modern_members(
                "server/discover",
                &describe::discover_result(&self.catalog, context.caller),
            )),
            method => match self.forward_answer(context, request, &params).await {
                Some(outcome) => outcome,
                None => self.handle_catalog_method(context, method, &params).await,
            },
        };
        done.map_err(to_modern_code)
    }

    /// Lets the hub that asked a question handle the request with its answer; `None` if
    /// that is this one, or gone, so that it has not received the request.
    async fn forward_answer(
        &self,
        context: &DispatchContext<'_>,
        request: &OwnedRequest,
        params: &RequestParams<'_>,
    ) -> Option<Result<String, RpcError>> {
        let (shared, raw) = (self.shared.as_ref()?, params.request_state?);
        let state = RequestParams::require_string(Some(raw), "requestState").ok()?;
        let owner = self.state_sealer.other_owner(&state)?;
        let timeout = self.limits().tool_timeout() + FORWARD_GRACE;
        // Boxed, because it is rare and would make the future of every call larger.
        let forwarded = shared.forward_round(&owner, context, request, timeout);
        match Box::pin(forwarded).await {
            Err(PeerError::HubGone) => None,
            Ok(outcome) => Some(outcome),
            Err(error) => {
                let message =
                    format!("{error}; whether the call was made is unknown, so it is not repeated");
                Some(Err(RpcError::new(code::INTERNAL_ERROR, message)))
            }
        }
    }

    /// Handles the methods that all versions share.
    async fn handle_catalog_method(
        &self,
        context: &DispatchContext<'_>,
        method: &str,
        params: &RequestParams<'_>,
    ) -> Result<String, RpcError> {
        let is_modern = context.version.is_modern();
        let list = |member: &str, pick: fn(&CatalogView) -> &EntryList| {
            if params.cursor.is_some() {
                return Err(RpcError::invalid_params(
                    "unknown cursor: every list has one page",
                ));
            }
            let snapshot = self.catalog.snapshot();
            let view = snapshot.listed_to(context.caller)?;
            let entry_list = pick(&view);
            if member == "tools" {
                let count = Some(entry_list.entries().len());
                self.record_client(context.client, context.caller, context.version, count);
            }
            let entries = entry_list.json_for(context.version);
            Ok(format!("{{\"{member}\":{entries}}}"))
        };
        let listed = match method {
            "tools/list" => list("tools", |view| &view.tools),
            "prompts/list" => list("prompts", |view| &view.prompts),
            "resources/list" => list("resources", |view| &view.resources),
            "resources/templates/list" => list("resourceTemplates", |view| &view.templates),
            // Boxed, because this future is moved before it runs.
            "completion/complete" => Box::pin(self.complete(context, params)).await,
            "tools/call" | "prompts/get" | "resources/read" => {
                return Box::pin(self.call_with_inputs(context, method, params)).await;
            }
            _ => Box::pin(self.call_extension(context, method, params)).await,
        };
        // An invalid progress token is refused by every method.
        params.meta()?.progress_token()?;
        listed.map(|text| {
            if is_modern {
                describe::with_modern_members(method, &text)
            } else {
                text
            }
        })
    }

    /// Records the client program.
    fn record_client(
        &self,
        client: Option<&Arc<str>>,
        caller: &Caller,
        version: ProtocolVersion,
        listed: Option<usize>,
    ) {
        if let Some(client) = client {
            let principal = caller.principal.shared_name();
            let clients = self.catalog.journal().clients();
            clients.record_client(client, &principal, version.as_str(), listed);
        }
    }

    /// Handles the three methods that may need input from the client.
    async fn call_with_inputs(
        &self,
        context: &DispatchContext<'_>,
        method: &str,
        params: &RequestParams<'_>,
    ) -> Result<String, RpcError> {
        let (name, key) = match method {
            "resources/read" => ("uri", params.uri),
            _ => ("name", params.name),
        };
        let key = RequestParams::require_string(key, name)?;
        let arguments = Arc::new(CallArguments::parse(params.arguments).await?);
        let bound = StateBinding {
            principal: context.caller.principal.name(),
            method,
            name: &key,
            arguments: params.arguments.unwrap_or("{}"),
        };
        let inputs = self.read_inputs(&bound, params)?;
        let mut request_context = Arc::new(context.to_request_context(params, inputs)?);
        for _ in 0..input_rounds::MAX_INPUT_ROUNDS {
            let (caller, attempt_context) = (context.caller, Arc::clone(&request_context));
            let answer = match method {
                "tools/call" => {
                    self.catalog
                        .call_tool(caller, &key, Arc::clone(&arguments), attempt_context)
                        .await?
                }
                "prompts/get" => {
                    let arguments = Arc::clone(&arguments);
                    Box::pin(
                        self.catalog
                            .get_prompt(caller, &key, arguments, attempt_context),
                    )
                    .await?
                }
                _ => Box::pin(self.catalog.read_resource(caller, &key, attempt_context)).await?,
            };
            match (answer, context.session) {
                (EntryResponse::Complete(result), _) if context.version.is_modern() => {
                    return Ok(describe::with_modern_members(method, result.as_json()));
                }
                (EntryResponse::Complete(result), _) => {
                    return Ok(describe::legacy_result(context.version, result));
                }
                (EntryResponse::InputRequired(needed), None) => {
                    return self.input_required_result(context, &bound, needed);
                }
                (EntryResponse::InputRequired(needed), Some(session)) => {
                    // Boxed, because it is rare and would make the future of every call larger.
                    let inputs =
                        Box::pin(input_rounds::collect_inputs(context, session, needed)).await?;
                    Arc::make_mut(&mut request_context).inputs = inputs;
                }
            }
        }
        Err(RpcError::new(
            code::INTERNAL_ERROR,
            format!(
                "{key} requested input more than {} times",
                input_rounds::MAX_INPUT_ROUNDS
            ),
        ))
    }

    fn read_inputs(
        &self,
        bound: &StateBinding<'_>,
        params: &RequestParams<'_>,
    ) -> Result<InputResponses, RpcError> {
        let responses = RequestParams::object_or_empty(params.input_responses, "inputResponses")?;
        let Some(raw) = params.request_state else {
            return Ok(InputResponses {
                responses,
                ..InputResponses::default()
            });
        };
        let text = RequestParams::require_string(Some(raw), "requestState")?;
        let state = self.state_sealer.unseal(bound, &text);
        let state = state.map_err(|_| {
            RpcError::invalid_params("params.requestState is invalid or expired; start again")
        })?;
        Ok(InputResponses {
            responses,
            state,
            failure: None,
        })
    }

    fn input_required_result(
        &self,
        context: &DispatchContext<'_>,
        bound: &StateBinding<'_>,
        needed: InputRequired,
    ) -> Result<String, RpcError> {
        input_rounds::check_capabilities(context.capabilities, &needed)?;
        let state = self.state_sealer.seal(bound, needed.state);
        let answer = json!({
            "resultType": "input_required",
            "inputRequests": needed.requests,
            "requestState": state,
        });
        Ok(answer.to_string())
    }

    /// Passes a request of an extension to its server.
    async fn call_extension(
        &self,
        context: &DispatchContext<'_>,
        method: &str,
        params: &RequestParams<'_>,
    ) -> Result<String, RpcError> {
        let request_context = context.to_request_context(params, InputResponses::default())?;
        let call = ExtensionCall {
            method,
            params: params.raw(),
        };
        let called = self
            .catalog
            .call_extension(context.caller, call, request_context);
        Ok(called.await?.into_json())
    }

    async fn complete(
        &self,
        context: &DispatchContext<'_>,
        params: &RequestParams<'_>,
    ) -> Result<String, RpcError> {
        let reference = RequestParams::object_or_empty(params.reference, "ref")?;
        let key = match reference.get("type").and_then(Value::as_str) {
            Some("ref/prompt") => reference.get("name"),
            Some("ref/resource") => reference.get("uri"),
            _ => {
                return Err(RpcError::invalid_params(
                    "params.ref.type must be ref/prompt or ref/resource",
                ));
            }
        };
        let key = key.and_then(Value::as_str);
        let key =
            key.ok_or_else(|| RpcError::invalid_params("params.ref must have a name or a uri"))?;
        let argument = RequestParams::object_or_empty(params.argument, "argument")?;
        let text = |name: &str| {
            argument
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let (Some(name), Some(value)) = (text("name"), text("value")) else {
            return Err(RpcError::invalid_params(
                "params.argument must have a name and a value",
            ));
        };
        let action = EntryAction::Complete {
            argument: name,
            value,
            context: params.context.map(str::to_owned),
        };
        match self.catalog.complete(context.caller, key, action).await? {
            EntryResponse::Complete(done) => Ok(done.into_json()),
            EntryResponse::InputRequired(_) => Err(RpcError::new(
                code::INTERNAL_ERROR,
                "a completion cannot request input",
            )),
        }
    }
}

/// 2026-07-28 has no error code for a missing resource.
fn to_modern_code(mut error: RpcError) -> RpcError {
    if error.code == code::RESOURCE_NOT_FOUND {
        error.code = code::INVALID_PARAMS;
    }
    error
}
