//! Serves a program that runs at this hub to another hub, as a server of 2026-07-28.

use std::{collections::HashMap, sync::Arc};

use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use maru_auth::Principal;
use maru_peers::Exchange;
use maru_protocol::{
    ProtocolVersion, RequestParams, RpcError, RpcId, RpcMessage, code, key, remove_members,
    write_error, write_notification, write_result,
};
use maru_runtime::message_queue;
use maru_tools::{Catalog, EntryResponse, InputResponses, RequestContext, server_uri::public_uri};
use serde_json::{Value, json};

use super::{
    forward::ForwardedRequest,
    handle::SharedConnection,
    handshake::{call_method, own_request_meta},
    listing::watch_resource,
};

/// How many requests of one hub may be in progress.
const MAX_REQUESTS: usize = 4096;
/// The methods whose result is a page of a list.
const LIST_METHODS: [&str; 4] = [
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
];
/// The methods that are forwarded as a client's.
const FORWARDED_METHODS: [&str; 4] = [
    "tools/call",
    "prompts/get",
    "resources/read",
    "completion/complete",
];

type Outcome = Result<String, RpcError>;

/// A program as another hub sees it.
#[derive(Clone)]
struct ServedProgram {
    shared: Arc<SharedConnection>,
    catalog: Arc<Catalog>,
    /// Messages to the other hub.
    outgoing: message_queue::MessageSender,
}

/// Answers the requests of another hub until it ends the exchange.
pub(super) async fn serve(
    shared: Arc<SharedConnection>,
    catalog: Arc<Catalog>,
    mut exchange: Exchange,
) {
    let (outgoing, mut messages) = message_queue::channel();
    let program = ServedProgram {
        shared,
        catalog,
        outgoing,
    };
    let mut requests: HashMap<RpcId, AbortHandle> = HashMap::new();
    let mut running: FuturesUnordered<Abortable<BoxFuture<'static, RpcId>>> =
        FuturesUnordered::new();
    loop {
        tokio::select! {
            received = exchange.next() => {
                let Some(text) = received else { return };
                match RpcMessage::parse(&text) {
                    Ok(RpcMessage::Request(request)) => {
                        let (id, method) = (request.id.clone(), request.method.to_string());
                        let params = request.params.unwrap_or("{}").to_owned();
                        if requests.len() >= MAX_REQUESTS {
                            // The other hub takes this for a lost connection.
                            return;
                        }
                        let (abort, registration) = AbortHandle::new_pair();
                        requests.insert(id.clone(), abort);
                        let answering = program.clone().answer(id, method, params);
                        running.push(Abortable::new(Box::pin(answering), registration));
                    }
                    Ok(RpcMessage::Notification { params, .. }) => {
                        // The only one that maru sends is `notifications/cancelled`.
                        let params = RequestParams::parse(params).unwrap_or_default();
                        let id = params.request_id.and_then(RpcId::parse);
                        if let Some(request) = id.and_then(|it| requests.remove(&it)) {
                            request.abort();
                        }
                    }
                    Ok(RpcMessage::Response(_)) | Err(_) => (),
                }
            }
            Some(ended) = running.next() => {
                if let Ok(id) = ended {
                    requests.remove(&id);
                }
            }
            Some(message) = messages.recv() => {
                if exchange.send(&message).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl ServedProgram {
    /// Answers a request and returns its id.
    async fn answer(self, id: RpcId, method: String, params: String) -> RpcId {
        let known = |all: &[&'static str]| all.iter().copied().find(|it| *it == method);
        let outcome = if let Some(method) = known(&FORWARDED_METHODS) {
            self.forward(method, &params).await
        } else if let Some(method) = known(&LIST_METHODS) {
            self.list(method, &params).await
        } else {
            match &*method {
                "server/discover" => self.discover().await,
                "subscriptions/listen" => self.listen(&params).await,
                _ => Err(RpcError::method_not_found(&method)),
            }
        };
        let message = match outcome {
            Ok(result) => write_result(&id, &result),
            Err(error) => write_error(Some(&id), &error),
        };
        self.send(message).await;
        id
    }

    /// Describes the program, after it is connected.
    async fn discover(&self) -> Outcome {
        self.shared.connect_on_demand().await;
        let session = match self.shared.active_connection() {
            Some(connection) => connection.session.clone(),
            None => return Err(not_connected()),
        };
        let mut capabilities = session.capabilities;
        for kind in ["tools", "prompts", "resources"] {
            if let Some(Value::Object(capability)) = capabilities.get_mut(kind) {
                // This hub says so whenever it has read the lists again.
                capability.insert("listChanged".to_owned(), true.into());
            }
        }
        let discovered = json!({
            "supportedVersions": [ProtocolVersion::V2026_07_28.as_str()],
            "capabilities": capabilities,
            "_meta": {key::SERVER_INFO: session.info},
        });
        Ok(discovered.to_string())
    }

    /// Reads a page of a list.
    async fn list(&self, method: &'static str, params: &str) -> Outcome {
        let connection = self.shared.active_connection().ok_or_else(not_connected)?;
        let mut params: Value = serde_json::from_str(params).unwrap_or_default();
        params["_meta"] = own_request_meta();
        if !connection.session.version.is_modern()
            && let Value::Object(params) = &mut params
        {
            params.shift_remove("_meta");
        }
        let page = call_method(&connection.link, method, &params).await;
        let page = page.map_err(|error| RpcError::new(code::INTERNAL_ERROR, error.to_string()))?;
        page.map(|it| it.to_string())
    }

    /// Forwards a request that the other hub made for a client.
    async fn forward(&self, method: &'static str, params: &str) -> Outcome {
        let parsed = RequestParams::parse(Some(params))?;
        let meta = parsed.meta()?;
        let own_members = ["_meta", "inputResponses", "requestState"];
        let members = remove_members(params, &own_members);
        let members = members.trim().strip_prefix('{').unwrap_or_default();
        let request = ForwardedRequest {
            method: method.into(),
            key: "",
            params: members.strip_suffix('}').unwrap_or_default().to_owned(),
            mirrors: Vec::new(),
        };
        let responses = RequestParams::object_or_empty(parsed.input_responses, "inputResponses")?;
        let state = parsed.request_state;
        let state = state.map(|it| RequestParams::require_string(Some(it), "requestState"));
        let capabilities = RequestParams::object_or_empty(meta.capabilities(), "_meta")?;
        let context = RequestContext {
            version: ProtocolVersion::V2026_07_28,
            outgoing: Some(self.outgoing.clone()),
            progress_token: meta.progress_token()?,
            log_level: meta.log_level()?,
            capabilities: Arc::new(Value::Object(capabilities)),
            inputs: InputResponses {
                responses,
                failure: None,
                state: state.transpose()?.map(Into::into),
            },
            meta: parsed.raw_meta().map(Into::into),
            ..RequestContext::default()
        };
        let caller = Principal::local();
        let response = self.shared.forward(request, &context, &caller).await;
        Ok(match response? {
            EntryResponse::Complete(result) => result.into_json(),
            EntryResponse::InputRequired(needed) => {
                let mut result =
                    json!({"resultType": "input_required", "inputRequests": needed.requests});
                if let Some(state) = needed.state {
                    result["requestState"] = state.into();
                }
                result.to_string()
            }
        })
    }

    /// Sends the changes of lists and of the named resources until the request is cancelled.
    async fn listen(&self, params: &str) -> Outcome {
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        let uris = params["notifications"]["resourceSubscriptions"].as_array();
        let uris = uris.into_iter().flatten().filter_map(Value::as_str);
        let name = self.shared.name().as_str();
        let uris: HashMap<String, &str> = uris
            .map(|it| (public_uri(name, it).into_owned(), it))
            .collect();
        let _watched: Vec<_> = uris
            .keys()
            .map(|it| watch_resource(&self.shared, it))
            .collect();
        let mut updates = self.catalog.subscribe_resource_updates();
        let mut listed = self.shared.published.subscribe();
        loop {
            tokio::select! {
                Ok(()) = listed.changed() => {
                    let method = "notifications/tools/list_changed";
                    self.send(write_notification(method, &json!({}))).await;
                }
                // After a gap, the next update counts.
                Ok(uri) = updates.recv() => if let Some(uri) = uris.get(&*uri) {
                    let method = "notifications/resources/updated";
                    self.send(write_notification(method, &json!({"uri": uri}))).await;
                },
                else => return Err(not_connected()),
            }
        }
    }

    async fn send(&self, message: String) {
        // Fails if the exchange has ended.
        let _ = self.outgoing.send(message).await;
    }
}

fn not_connected() -> RpcError {
    RpcError::new(code::INTERNAL_ERROR, "the server is not connected")
}
