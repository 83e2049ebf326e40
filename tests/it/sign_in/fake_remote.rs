//! An MCP server of 2026-07-28 and its authorization server, on one port. A test replaces
//! their documents and reads what arrived.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    response::Response,
    routing::{any, get, post},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The prefix of every secret that the authorization server hands out.
pub(super) const CANARY: &str = "canary-0auth-5ecret";

pub(super) struct FakeRemote {
    address: String,
    state: Arc<RemoteState>,
}

#[derive(Default)]
struct RemoteState {
    address: String,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    /// The paths that were requested, without their queries.
    paths: Vec<String>,
    /// Documents that replace the true ones, by path.
    documents: BTreeMap<String, Value>,
    /// What the redirect says instead of the truth; `None` leaves the parameter out.
    redirect: BTreeMap<&'static str, Option<String>>,
    /// The `WWW-Authenticate` headers of a refusal, instead of the usual one.
    challenges: Vec<String>,
    accounts: u32,
    valid_tokens: BTreeSet<String>,
    token_lifetime: Option<u32>,
}

impl FakeRemote {
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the runtime of the test"
    )]
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(RemoteState {
            address: address.clone(),
            ..RemoteState::default()
        });
        let router = Router::new()
            .route("/mcp", any(mcp))
            .route("/authorize", get(authorize))
            .route("/register", post(register))
            .route("/token", post(token))
            .route("/revoke", post(revoke))
            .fallback(document)
            .with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, state }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(super) fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Replaces members of a document; null removes one.
    pub(super) fn change_document(&self, path: &str, members: Value) {
        let mut document = self.state.true_document(path).unwrap();
        for (name, value) in members.as_object().unwrap() {
            document[name] = value.clone();
        }
        self.replace_document(path, document);
    }

    /// Replaces a document: a text redirects there, null never comes.
    pub(super) fn replace_document(&self, path: &str, document: Value) {
        self.state
            .lock()
            .documents
            .insert(path.to_owned(), document);
    }

    /// Replaces the `WWW-Authenticate` headers of refusals.
    pub(super) fn change_challenges(&self, challenges: Vec<String>) {
        self.state.lock().challenges = challenges;
    }

    /// Replaces a parameter of the redirects.
    pub(super) fn change_redirect(&self, name: &'static str, value: Option<String>) {
        self.state.lock().redirect.insert(name, value);
    }

    /// Accepts a token that was not issued by a sign-in.
    pub(super) fn accept_token(&self, token: &str) {
        self.state.lock().valid_tokens.insert(token.to_owned());
    }

    /// Takes back all tokens.
    pub(super) fn revoke_all(&self) {
        self.state.lock().valid_tokens.clear();
    }

    /// How often a path was requested.
    pub(super) fn count(&self, path: &str) -> usize {
        self.state
            .lock()
            .paths
            .iter()
            .filter(|it| *it == path)
            .count()
    }
}

impl RemoteState {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    fn true_document(&self, path: &str) -> Option<Value> {
        let issuer = self.issuer();
        match path {
            "/.well-known/oauth-protected-resource/mcp" => Some(json!({
                "resource": format!("{issuer}/mcp"),
                "authorization_servers": [issuer],
            })),
            "/.well-known/oauth-authorization-server" => Some(json!({
                "issuer": issuer,
                "authorization_endpoint": format!("{issuer}/authorize"),
                "token_endpoint": format!("{issuer}/token"),
                "registration_endpoint": format!("{issuer}/register"),
                "revocation_endpoint": format!("{issuer}/revoke"),
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": true,
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            })),
            _ => None,
        }
    }

    /// Issues tokens of an account.
    fn issue(&self, account: &str) -> Value {
        let mut record = self.lock();
        let number = record.paths.len();
        let access = format!("{CANARY}-access-{number}-{account}");
        let refresh = format!("{CANARY}-refresh-{number}-{account}");
        record
            .valid_tokens
            .extend([access.clone(), refresh.clone()]);
        let lifetime = record.token_lifetime.unwrap_or(3600);
        json!({"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": lifetime})
    }
}

async fn document(State(state): State<Arc<RemoteState>>, uri: Uri) -> Response {
    let path = uri.path();
    state.lock().paths.push(path.to_owned());
    let replaced = state.lock().documents.get(path).cloned();
    match replaced.or_else(|| state.true_document(path)) {
        Some(Value::String(location)) => redirect(&location),
        Some(Value::Null) => std::future::pending().await,
        Some(document) => answer(StatusCode::OK, &document),
        None => answer(StatusCode::NOT_FOUND, &json!({})),
    }
}

async fn register(State(state): State<Arc<RemoteState>>) -> Response {
    state.lock().paths.push("/register".to_owned());
    let client = json!({"client_id": "a-client", "client_secret": format!("{CANARY}-client")});
    answer(StatusCode::CREATED, &client)
}

/// Signs everybody in at once, each time with another account.
async fn authorize(State(state): State<Arc<RemoteState>>, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|it| it.split_once('='));
        pairs
            .find(|(it, _)| *it == name)
            .map(|(_, value)| value.to_owned())
    };
    let mut record = state.lock();
    record.paths.push("/authorize".to_owned());
    record.accounts += 1;
    let parameters = [
        ("code", Some(format!("{CANARY}-code-{}", record.accounts))),
        ("state", parameter("state")),
        ("iss", Some(format!("http://{}", state.address))),
    ];
    let parameters = parameters.map(|(name, value)| {
        let value = record.redirect.get(name).cloned().unwrap_or(value);
        value.map(|it| format!("{name}={it}"))
    });
    let query: Vec<String> = parameters.into_iter().flatten().collect();
    let target = parameter("redirect_uri").unwrap();
    let target = target.replace("%3A", ":").replace("%2F", "/");
    redirect(&format!("{target}?{}", query.join("&")))
}

async fn token(State(state): State<Arc<RemoteState>>, headers: HeaderMap, body: Bytes) -> Response {
    state.lock().paths.push("/token".to_owned());
    let body = String::from_utf8(body.to_vec()).unwrap();
    let value = |name: &str| {
        let mut pairs = body.split('&').filter_map(|it| it.split_once('='));
        pairs
            .find(|(it, _)| *it == name)
            .map(|(_, value)| value.to_owned())
    };
    if let Some(refresh) = value("refresh_token") {
        if !state.lock().valid_tokens.remove(&refresh) {
            return answer(StatusCode::BAD_REQUEST, &json!({"error": "invalid_grant"}));
        }
        let account = refresh.rsplit('-').next().unwrap().to_owned();
        return answer(StatusCode::OK, &state.issue(&account));
    }
    if value("grant_type").as_deref() == Some("client_credentials") {
        let has_secret = headers.contains_key(header::AUTHORIZATION);
        if !has_secret && value("client_assertion").is_none() {
            return answer(
                StatusCode::UNAUTHORIZED,
                &json!({"error": "invalid_client"}),
            );
        }
        return answer(StatusCode::OK, &state.issue("robot"));
    }
    let code = value("code").unwrap();
    let account = code.rsplit('-').next().unwrap().to_owned();
    answer(StatusCode::OK, &state.issue(&account))
}

async fn revoke(State(state): State<Arc<RemoteState>>) -> Response {
    state.lock().paths.push("/revoke".to_owned());
    answer(StatusCode::OK, &json!({}))
}

async fn mcp(State(state): State<Arc<RemoteState>>, request: Request) -> Response {
    state.lock().paths.push("/mcp".to_owned());
    let (head, body) = request.into_parts();
    let token = bearer_of(&head.headers);
    if !state.lock().valid_tokens.contains(&token) {
        let mut refused = answer(StatusCode::UNAUTHORIZED, &json!({}));
        let mut challenges = state.lock().challenges.clone();
        if challenges.is_empty() {
            challenges.push(format!(
                "Bearer resource_metadata=\"http://{}/.well-known/oauth-protected-resource/mcp\"",
                state.address
            ));
        }
        for challenge in challenges {
            let headers = refused.headers_mut();
            headers.append(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
        }
        return refused;
    }
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let account = token.rsplit('-').next().unwrap();
    let mut result = match message["method"].as_str() {
        Some("server/discover") => {
            json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        }
        Some("tools/list") => {
            json!({"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]})
        }
        Some("tools/call") => {
            json!({"content": [{"type": "text", "text": format!("account {account}")}]})
        }
        _ => {
            let error = json!({"code": -32601, "message": "unknown"});
            let reply = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            return answer(StatusCode::NOT_FOUND, &reply);
        }
    };
    result["resultType"] = "complete".into();
    result["ttlMs"] = 0.into();
    result["cacheScope"] = "private".into();
    let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    answer(StatusCode::OK, &reply)
}

fn bearer_of(headers: &HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION);
    let value = value.and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
    value.unwrap_or_default().to_owned()
}

fn answer(status: StatusCode, body: &Value) -> Response {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

fn redirect(location: &str) -> Response {
    Response::builder()
        .status(StatusCode::FOUND)
        .header(header::LOCATION, location)
        .body(Body::empty())
        .unwrap()
}
