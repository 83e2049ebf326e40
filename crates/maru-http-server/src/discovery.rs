//! What clients can learn of this hub without an MCP connection: a server card, a catalog of
//! cards, and the read API of an MCP registry, which clients use as a list of allowed servers.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{HubState, servers::json_error};
use maru_auth::Principal;
use maru_downstream::http::reply;
use maru_protocol::ProtocolVersion;
use maru_upstream::ServerView;

const CARD_SCHEMA: &str =
    "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json";
const SERVER_SCHEMA: &str =
    "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";
const CARD_TYPE: HeaderValue = HeaderValue::from_static("application/mcp-server-card+json");
const CATALOG_TYPE: HeaderValue = HeaderValue::from_static("application/ai-catalog+json");
const OFFICIAL_META: &str = "io.modelcontextprotocol.registry/official";
/// The name of the hub itself in cards and in the registry.
const HUB_NAME: &str = "maru";
const HUB_DESCRIPTION: &str = "Tools, databases and models behind one address";
/// The registry's own limit of a description.
const MAX_DESCRIPTION_CHARS: usize = 100;
const DEFAULT_PAGE_SIZE: usize = 30;
const MAX_PAGE_SIZE: usize = 100;

/// The parameters of `GET /v0.1/servers`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RegistryQuery {
    cursor: Option<String>,
    limit: Option<usize>,
    search: Option<String>,
}

/// A server as the registry shows it.
struct RegistryServer {
    /// `reverse.domain/name`.
    name: String,
    title: String,
    description: String,
    version: String,
    /// The endpoint of this hub that serves it.
    path: String,
}

/// `GET /.well-known/ai-catalog.json`: where the card of this hub is.
pub(super) async fn catalog(State(hub): State<Arc<HubState>>, headers: HeaderMap) -> Response {
    let base = base_url(&hub, &headers);
    let catalog = json!({
        "specVersion": "1.0",
        "entries": [{
            "identifier": format!("urn:air:{}:{HUB_NAME}", domain_of(&headers)),
            "displayName": HUB_NAME,
            "description": HUB_DESCRIPTION,
            "type": "application/mcp-server-card+json",
            "url": format!("{base}/mcp/server-card"),
        }],
    });
    public_document(&catalog, CATALOG_TYPE)
}

/// `GET /mcp/server-card`: how to connect to this hub.
pub(super) async fn card(State(hub): State<Arc<HubState>>, headers: HeaderMap) -> Response {
    let base = base_url(&hub, &headers);
    let versions = ProtocolVersion::ALL.map(ProtocolVersion::as_str);
    let card = json!({
        "$schema": CARD_SCHEMA,
        "name": format!("{}/{HUB_NAME}", namespace(&headers)),
        "title": "maru 마루",
        "description": HUB_DESCRIPTION,
        "version": env!("CARGO_PKG_VERSION"),
        "remotes": [{
            "type": "streamable-http",
            "url": format!("{base}/mcp"),
            "supportedProtocolVersions": versions,
        }],
    });
    public_document(&card, CARD_TYPE)
}

/// `GET /v0.1/servers`: the hub, its servers and its toolsets as servers of a registry.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Query(query): Query<RegistryQuery>,
    headers: HeaderMap,
) -> Response {
    let mut servers = registry_servers(&hub, &who, &headers);
    if let Some(search) = &query.search {
        let search = search.to_lowercase();
        servers.retain(|it| it.name.to_lowercase().contains(&search));
    }
    if let Some(cursor) = &query.cursor {
        servers.retain(|it| it.name > *cursor);
    }
    let limit = query.limit.unwrap_or(DEFAULT_PAGE_SIZE);
    let limit = limit.clamp(1, MAX_PAGE_SIZE);
    let more = servers.len() > limit;
    servers.truncate(limit);
    let next = servers.last().filter(|_| more).map(|it| it.name.clone());
    let base = base_url(&hub, &headers);
    let shown: Vec<Value> = servers.iter().map(|it| it.to_json(&base)).collect();
    let mut metadata = json!({"count": shown.len()});
    if let Some(next) = next {
        metadata["nextCursor"] = next.into();
    }
    let page = json!({"servers": shown, "metadata": metadata});
    reply::json(StatusCode::OK, page.to_string())
}

/// `GET /v0.1/servers/{name}/versions`: a server has the version that it reports.
pub(super) async fn versions(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    match find_server(&hub, &who, &headers, &name) {
        Some(server) => {
            let shown = server.to_json(&base_url(&hub, &headers));
            let page = json!({"servers": [shown], "metadata": {"count": 1}});
            reply::json(StatusCode::OK, page.to_string())
        }
        None => unknown_server(),
    }
}

/// `GET /v0.1/servers/{name}/versions/{version}`, also of the version `latest`.
pub(super) async fn version(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path((name, version)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let found = find_server(&hub, &who, &headers, &name);
    match found.filter(|it| version == "latest" || version == it.version) {
        Some(server) => {
            let shown = server.to_json(&base_url(&hub, &headers));
            reply::json(StatusCode::OK, shown.to_string())
        }
        None => unknown_server(),
    }
}

fn unknown_server() -> Response {
    let message = "no server has this name and version";
    json_error(StatusCode::NOT_FOUND, message, None)
}

fn find_server(
    hub: &HubState,
    who: &Principal,
    headers: &HeaderMap,
    name: &str,
) -> Option<RegistryServer> {
    let servers = registry_servers(hub, who, headers);
    servers.into_iter().find(|it| it.name == name)
}

/// What `who` may see, by name.
fn registry_servers(hub: &HubState, who: &Principal, headers: &HeaderMap) -> Vec<RegistryServer> {
    let namespace = namespace(headers);
    let own_version = env!("CARGO_PKG_VERSION");
    let mut servers = vec![RegistryServer {
        name: format!("{namespace}/{HUB_NAME}"),
        title: "maru 마루".to_owned(),
        description: HUB_DESCRIPTION.to_owned(),
        version: own_version.to_owned(),
        path: "/mcp".to_owned(),
    }];
    let all = hub.servers.list();
    let visible = all
        .iter()
        .filter(|it| who.may_reach(it.server.name.as_str()));
    servers.extend(visible.map(|it| RegistryServer::behind_hub(&namespace, it)));
    let snapshot = hub.engine.catalog().snapshot();
    let toolsets = snapshot.toolsets().values().map(|it| it.definition());
    let toolsets = toolsets.filter(|it| who.toolset().is_none_or(|own| **own == *it.name));
    servers.extend(toolsets.map(|it| RegistryServer {
        name: format!("{namespace}/{HUB_NAME}.{}", it.name),
        title: it.name.clone(),
        description: it.description.clone().unwrap_or_default(),
        version: own_version.to_owned(),
        path: format!("/mcp/t/{}", it.name),
    }));
    servers.sort_by(|one, other| one.name.cmp(&other.name));
    servers
}

impl RegistryServer {
    fn behind_hub(namespace: &str, view: &ServerView) -> Self {
        let name = view.server.name.as_str();
        // A registry has no empty texts.
        let reported = |member: &str| {
            let text = view.status.info[member].as_str()?.trim();
            let text: String = text.chars().take(MAX_DESCRIPTION_CHARS).collect();
            (!text.is_empty()).then_some(text)
        };
        Self {
            name: format!("{namespace}/{name}"),
            title: reported("title").unwrap_or_else(|| name.to_owned()),
            description: view.server.description.clone().unwrap_or_default(),
            version: reported("version").unwrap_or_else(|| "1.0.0".to_owned()),
            path: format!("/mcp/s/{name}"),
        }
    }

    fn to_json(&self, base: &str) -> Value {
        let description = match self.description.trim() {
            "" => &self.title,
            given => given,
        };
        let description: String = description.chars().take(MAX_DESCRIPTION_CHARS).collect();
        json!({
            "server": {
                "$schema": SERVER_SCHEMA,
                "name": self.name,
                "title": self.title,
                "description": description,
                "version": self.version,
                "remotes": [{"type": "streamable-http", "url": format!("{base}{}", self.path)}],
            },
            "_meta": {OFFICIAL_META: {"status": "active", "isLatest": true}},
        })
    }
}

/// A document that any page may read. It says nothing that a visitor of the console does not
/// see.
fn public_document(document: &Value, content_type: HeaderValue) -> Response {
    let mut response = reply::json(StatusCode::OK, document.to_string());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    let any = HeaderValue::from_static("*");
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
    let cached = HeaderValue::from_static("public, max-age=3600");
    headers.insert(header::CACHE_CONTROL, cached);
    response
}

/// The address by which the client reached the hub. The origin policy has checked the host.
fn base_url(hub: &HubState, headers: &HeaderMap) -> String {
    let scheme = if hub.is_encrypted { "https" } else { "http" };
    format!("{scheme}://{}", host_of(headers))
}

fn host_of(headers: &HeaderMap) -> &str {
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    host.unwrap_or("localhost")
}

/// The host without its port; `localhost` for an address.
fn domain_of(headers: &HeaderMap) -> &str {
    let host = host_of(headers).split(':').next().unwrap_or_default();
    let is_domain = host.contains('.') && host.bytes().any(|it| it.is_ascii_alphabetic());
    if is_domain { host } else { "localhost" }
}

/// The reversed domain, which names of servers begin with.
fn namespace(headers: &HeaderMap) -> String {
    let mut labels: Vec<&str> = domain_of(headers).split('.').collect();
    labels.reverse();
    labels.join(".").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_the_reversed_domain() {
        let check = |host: &'static str, expected: &str| {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
            assert_eq!(namespace(&headers), expected, "{host}");
        };
        check("hub.Example.com:20006", "com.example.hub");
        check("127.0.0.1:20006", "localhost");
        check("[::1]:20006", "localhost");
        check("localhost", "localhost");
    }
}
