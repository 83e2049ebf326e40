//! The table of all routes and the roles they require. No other route exists.

use std::{collections::BTreeMap, fmt, sync::Arc};

use axum::{Router, http::Method};

use super::{
    HubState, accounts, allowed_hosts, anthropic, audit, authorization, call_usage, calls, connect,
    console, custom_tools, diagnostics, discovery, docs, generate, health, limits, mcp,
    mcp_registry, metrics, model_api, models, ollama, openai, prompts_and_resources, registry,
    resource_metadata, responses,
    route_entry::{RouteEntry, admin, agent, mcp_endpoint, public, reader},
    runs, servers, sign_in, sources, tokens, tool_overrides, tool_stream, tools, toolsets,
    transfer, usage,
};
use maru_auth::{AccessRole, Principal};

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

/// The table of all routes.
fn route_table() -> Vec<RouteEntry> {
    // Their dispatch checks who may call tools.
    let mcp_endpoints = [
        mcp_endpoint("/mcp", mcp::all_servers),
        mcp_endpoint("/mcp/s/{name}", mcp::one_server),
        mcp_endpoint("/mcp/t/{name}", mcp::toolset),
        mcp_endpoint("/sse", mcp::sse),
        mcp_endpoint("/sse/t/{name}", mcp::sse_toolset),
    ];
    let others = vec![
        reader(POST, "/sse/message", mcp::sse_message).filtered(),
        // What clients can learn without an MCP connection.
        public(GET, "/.well-known/ai-catalog.json", discovery::catalog),
        public(GET, "/mcp/server-card", discovery::card),
        reader(GET, "/v0.1/servers", discovery::list).filtered(),
        reader(GET, "/v0.1/servers/{name}/versions", discovery::versions).filtered(),
        reader(
            GET,
            "/v0.1/servers/{name}/versions/{version}",
            discovery::version,
        )
        .filtered(),
        // Servers.
        admin(POST, "/mcp/add", registry::add),
        admin(DELETE, "/mcp/remove", registry::remove),
        reader(GET, "/mcp/list", registry::list).filtered(),
        reader(GET, "/api/mcp/servers", servers::list).filtered(),
        admin(POST, "/api/mcp/servers", servers::register),
        reader(GET, "/api/mcp/servers/{name}", servers::show).filtered(),
        admin(PUT, "/api/mcp/servers/{name}", servers::update),
        admin(DELETE, "/api/mcp/servers/{name}", servers::remove),
        admin(POST, "/api/mcp/servers/{name}/connect", servers::connect),
        admin(
            POST,
            "/api/mcp/servers/{name}/disconnect",
            servers::disconnect,
        ),
        admin(POST, "/api/mcp/servers/{name}/enable", servers::enable),
        admin(POST, "/api/mcp/servers/{name}/disable", servers::disable),
        admin(POST, "/api/mcp/servers/{name}/accept", servers::accept_all),
        admin(
            POST,
            "/api/mcp/servers/{name}/tools/{tool}/accept",
            servers::accept,
        ),
        // Signing in to servers: for all callers, and each with an own account.
        admin(POST, "/api/mcp/servers/{name}/login", sign_in::begin),
        admin(
            POST,
            "/api/mcp/servers/{name}/login/complete",
            sign_in::complete,
        ),
        admin(POST, "/api/mcp/servers/{name}/logout", sign_in::end),
        agent(POST, "/api/mcp/servers/{name}/account", sign_in::begin_own).filtered(),
        agent(
            PUT,
            "/api/mcp/servers/{name}/account",
            sign_in::complete_own,
        )
        .filtered(),
        agent(DELETE, "/api/mcp/servers/{name}/account", sign_in::end_own).filtered(),
        // A browser on its way to an authorization server and back. The first identifies
        // its caller itself, to answer with a page; the state identifies the second.
        public(GET, "/oauth/start/{name}", sign_in::start),
        public(GET, "/oauth/callback", sign_in::callback),
        public(GET, "/oauth/client.json", sign_in::document),
        // maru as an authorization server. The pages identify the person themselves.
        public(
            GET,
            "/.well-known/oauth-authorization-server",
            authorization::metadata,
        ),
        public(POST, "/oauth/register", authorization::register),
        public(GET, "/oauth/authorize", authorization::authorize),
        public(GET, "/oauth/consent", authorization::ask),
        public(POST, "/oauth/consent", authorization::decide),
        public(POST, "/oauth/token", authorization::issue_tokens),
        public(POST, "/oauth/revoke", authorization::revoke),
        public(POST, "/oauth/sign-in", authorization::sign_in),
        public(GET, "/oauth/oidc", authorization::begin_oidc),
        public(GET, "/oauth/oidc/callback", authorization::oidc_callback),
        public(GET, "/oauth/invitation", authorization::show_invitation),
        public(POST, "/oauth/invitation", authorization::accept_invitation),
        admin(POST, "/api/mcp/import", servers::import),
        admin(GET, "/api/mcp/registry", mcp_registry::search),
        admin(GET, "/api/mcp/servers/{name}/log", diagnostics::server_log),
        admin(
            GET,
            "/api/mcp/servers/{name}/messages",
            diagnostics::server_messages,
        ),
        admin(POST, "/api/mcp/test", diagnostics::test_server),
        // Tools and calls.
        reader(GET, "/api/tools", tools::list),
        admin(PUT, "/api/tools", tools::set_many_enabled),
        reader(GET, "/api/tools/{name}", tools::show),
        admin(PUT, "/api/tools/{name}", tools::set_enabled),
        agent(POST, "/api/tools/{name}/call", tools::call).filtered(),
        // How tools are described to clients. Fixed values of parameters may be secret.
        admin(GET, "/api/tool-overrides", tool_overrides::list),
        admin(GET, "/api/tools/{name}/override", tool_overrides::show),
        admin(PUT, "/api/tools/{name}/override", tool_overrides::save),
        admin(DELETE, "/api/tools/{name}/override", tool_overrides::remove),
        // Named selections of tools.
        reader(GET, "/api/toolsets", toolsets::list),
        reader(GET, "/api/toolsets/{name}", toolsets::show),
        admin(PUT, "/api/toolsets/{name}", toolsets::save),
        admin(DELETE, "/api/toolsets/{name}", toolsets::remove),
        agent(POST, "/api/tool-inputs/{id}", tool_stream::answer).filtered(),
        reader(GET, "/api/prompts", prompts_and_resources::prompts),
        agent(
            POST,
            "/api/prompts/{name}",
            prompts_and_resources::get_prompt,
        )
        .filtered(),
        reader(GET, "/api/resources", prompts_and_resources::resources),
        agent(
            POST,
            "/api/resources/read",
            prompts_and_resources::read_resource,
        )
        .filtered(),
        reader(GET, "/api/calls", calls::list),
        reader(GET, "/api/calls/{id}", calls::show),
        reader(GET, "/api/call-usage", call_usage::list),
        reader(GET, "/api/stats", calls::stats),
        // Databases.
        reader(GET, "/api/sources", sources::list),
        admin(POST, "/api/sources", sources::add),
        admin(POST, "/api/sources/test", sources::test),
        admin(GET, "/api/sources/{name}", sources::show),
        admin(PUT, "/api/sources/{name}", sources::update),
        admin(DELETE, "/api/sources/{name}", sources::remove),
        admin(GET, "/api/source-settings", sources::settings_schema),
        reader(GET, "/api/sources/{name}/tables", sources::tables),
        reader(GET, "/api/sources/{name}/tables/{table}", sources::columns),
        // Custom tools.
        reader(GET, "/api/custom-tools", custom_tools::list),
        admin(POST, "/api/custom-tools", custom_tools::create),
        admin(POST, "/api/custom-tools/test", custom_tools::test),
        reader(GET, "/api/custom-tools/{name}", custom_tools::show),
        admin(PUT, "/api/custom-tools/{name}", custom_tools::update),
        admin(DELETE, "/api/custom-tools/{name}", custom_tools::remove),
        admin(
            POST,
            "/api/custom-tools/{name}/activate",
            custom_tools::activate,
        ),
        admin(
            POST,
            "/api/custom-tools/{name}/deactivate",
            custom_tools::deactivate,
        ),
        admin(
            PUT,
            "/api/custom-tools/{name}/draft",
            custom_tools::save_draft,
        ),
        admin(
            DELETE,
            "/api/custom-tools/{name}/draft",
            custom_tools::discard_draft,
        ),
        admin(
            POST,
            "/api/custom-tools/{name}/publish",
            custom_tools::publish,
        ),
        reader(
            GET,
            "/api/custom-tools/{name}/versions",
            custom_tools::versions,
        ),
        admin(
            POST,
            "/api/custom-tools/{name}/versions/{version}/restore",
            custom_tools::restore,
        ),
        // Models and the agent loop.
        agent(
            POST,
            "/v1/chat/completions",
            model_api::post::<openai::ChatCompletionWriter>,
        )
        .filtered()
        .counted(),
        agent(
            POST,
            "/v1/completions",
            model_api::post::<openai::TextCompletionWriter>,
        )
        .filtered()
        .counted(),
        agent(
            POST,
            "/v1/responses",
            model_api::post::<responses::ResponseWriter>,
        )
        .filtered()
        .counted(),
        agent(
            POST,
            "/v1/messages",
            model_api::post::<anthropic::MessageWriter>,
        )
        .filtered()
        .counted(),
        agent(POST, "/v1/messages/count_tokens", anthropic::count_tokens).filtered(),
        agent(GET, "/v1/models", openai::list).filtered(),
        agent(GET, "/v1/models/{*name}", openai::show).filtered(),
        agent(POST, "/v1/embeddings", openai::embed)
            .filtered()
            .counted(),
        reader(GET, "/api/models", models::list),
        admin(POST, "/api/models", models::add),
        admin(POST, "/api/models/test", models::test),
        admin(GET, "/api/models/{name}", models::show),
        admin(PUT, "/api/models/{name}", models::update),
        admin(DELETE, "/api/models/{name}", models::remove),
        // Ollama's API, beside the hub's own under `/api`.
        agent(
            POST,
            "/api/chat",
            model_api::post::<ollama::OllamaChatWriter>,
        )
        .filtered()
        .counted(),
        agent(
            POST,
            "/api/generate",
            model_api::post::<ollama::OllamaGenerateWriter>,
        )
        .filtered()
        .counted(),
        agent(POST, "/api/embed", ollama::embed)
            .filtered()
            .counted(),
        agent(POST, "/api/embeddings", ollama::embed_one)
            .filtered()
            .counted(),
        agent(GET, "/api/tags", ollama::list).filtered(),
        agent(POST, "/api/show", ollama::show).filtered(),
        agent(GET, "/api/ps", ollama::running).filtered(),
        agent(GET, "/api/version", ollama::version).filtered(),
        agent(POST, "/generate", generate::without_tools)
            .filtered()
            .counted(),
        agent(POST, "/generate_with_mcp", generate::with_tools)
            .filtered()
            .counted(),
        // Agent runs. Each principal sees its own.
        agent(GET, "/api/runs", runs::list).filtered(),
        agent(GET, "/api/runs/{id}", runs::show).filtered(),
        agent(POST, "/api/runs/{id}/calls/{call}/approve", runs::approve).filtered(),
        agent(POST, "/api/runs/{id}/calls/{call}/refuse", runs::refuse).filtered(),
        // What clients need to use this hub.
        reader(GET, "/api/connect", connect::show),
        // Everything that people set, in one file.
        admin(GET, "/api/export", transfer::export),
        admin(POST, "/api/import", transfer::import),
        // Access, limits and audit.
        admin(GET, "/api/tokens", tokens::list),
        admin(POST, "/api/tokens", tokens::create),
        admin(DELETE, "/api/tokens/{name}", tokens::revoke),
        admin(GET, "/api/accounts", accounts::list),
        admin(POST, "/api/accounts", accounts::create),
        admin(POST, "/api/accounts/{name}/invitation", accounts::invite),
        admin(DELETE, "/api/accounts/{name}", accounts::revoke),
        admin(GET, "/api/oauth/grants", accounts::list_grants),
        admin(DELETE, "/api/oauth/grants/{id}", accounts::revoke_grant),
        admin(GET, "/api/oauth/clients", accounts::list_clients),
        admin(DELETE, "/api/oauth/clients/{id}", accounts::remove_client),
        reader(GET, "/api/limits", limits::list),
        admin(PUT, "/api/limits/{target_type}/{target_id}", limits::set),
        admin(
            DELETE,
            "/api/limits/{target_type}/{target_id}",
            limits::remove,
        ),
        admin(GET, "/api/audit", audit::list),
        // Hosts that may be reached beside those of the settings.
        admin(GET, "/api/allowed-hosts", allowed_hosts::list),
        admin(PUT, "/api/allowed-hosts/{host}", allowed_hosts::allow),
        admin(DELETE, "/api/allowed-hosts/{host}", allowed_hosts::forbid),
        // What models used and cost.
        reader(GET, "/api/usage", usage::show),
        reader(GET, "/api/budgets", usage::list_budgets),
        admin(PUT, "/api/budgets/{name}", usage::save_budget),
        admin(DELETE, "/api/budgets/{name}", usage::remove_budget),
        // The console. Its page contains no data; that comes from the API.
        public(GET, "/", console::page),
        public(GET, "/servers", console::page),
        public(GET, "/servers/{*rest}", console::page),
        public(GET, "/tools", console::page),
        public(GET, "/tools/{*rest}", console::page),
        public(GET, "/custom-tools", console::page),
        public(GET, "/play", console::page),
        public(GET, "/play/{*rest}", console::page),
        public(GET, "/activity", console::page),
        public(GET, "/activity/{*rest}", console::page),
        public(GET, "/settings", console::page),
        public(GET, "/settings/{*rest}", console::page),
        public(GET, "/connect", console::page),
        public(GET, "/connect/{*rest}", console::page),
        public(GET, "/assets/v/{build}/{name}", console::asset),
        // The documentation, the same for everybody.
        public(GET, "/docs", docs::index),
        public(GET, "/docs/", docs::index),
        public(GET, "/docs/search", docs::search),
        public(GET, "/docs/files/{name}", docs::file),
        public(GET, "/docs/{*path}", docs::page),
        // Sign-in, which needs no principal yet.
        public(GET, "/api/session", console::show),
        public(POST, "/api/session", console::sign_in),
        public(DELETE, "/api/session", console::sign_out),
        admin(POST, "/api/session/link", console::create_sign_in_link),
        reader(GET, "/api/events", console::stream),
        // The hub itself.
        admin(GET, "/api/config", diagnostics::config),
        reader(GET, "/metrics", metrics::show),
        reader(GET, "/api/openapi.json", health::openapi).filtered(),
        reader(GET, "/readyz", health::readiness).filtered(),
        public(GET, "/healthz", health::liveness),
        public(
            GET,
            "/.well-known/oauth-protected-resource",
            resource_metadata::show,
        ),
        public(
            GET,
            "/.well-known/oauth-protected-resource/{*resource}",
            resource_metadata::show,
        ),
    ];
    mcp_endpoints.into_iter().flatten().chain(others).collect()
}

/// Who may use a route.
#[derive(Clone, Debug)]
pub struct RouteRule {
    /// The method of the route.
    pub method: Method,
    /// The path pattern; `{name}` matches one segment, `{*name}` the rest.
    pub path: &'static str,
    /// The role that the route requires; `None` if it needs no authentication.
    pub min_role: Option<AccessRole>,
    /// Whether the handler filters by the grants of a restricted token. Restricted tokens
    /// cannot use other routes.
    pub(super) filters_by_grants: bool,
    /// Whether a request counts against the limits of its principal.
    pub(super) counts_against_quota: bool,
}

/// A header that other sites cannot send, which proves that a request is from the console.
pub(super) const CONSOLE_HEADER: &str = "x-maru-console";

/// The rules of each path, found with the same matcher as the router's.
#[derive(Clone)]
pub(super) struct RouteRules(Arc<matchit::Router<Vec<RouteRule>>>);

/// The result of looking a request up in the route table.
#[derive(Debug)]
pub(super) enum RouteMatch<'a> {
    /// The rule of the route.
    Rule(&'a RouteRule),
    /// The path exists with these methods.
    MethodNotAllowed(String),
    /// No route has this path.
    NotFound,
}

/// Builds the rules and the router from the route table.
pub(super) fn build(hub: &Arc<HubState>) -> (RouteRules, Router) {
    let mut router = Router::new();
    let mut rules = Vec::new();
    for RouteEntry { rule, handler } in route_table() {
        router = router.route(rule.path, handler);
        rules.push(rule);
    }
    (RouteRules::new(rules), router.with_state(Arc::clone(hub)))
}

/// The rules of all routes.
pub fn route_rules() -> Vec<RouteRule> {
    route_table().into_iter().map(|it| it.rule).collect()
}

impl RouteRules {
    fn new(rules: Vec<RouteRule>) -> Self {
        let mut paths: BTreeMap<&str, Vec<RouteRule>> = BTreeMap::new();
        for rule in rules {
            paths.entry(rule.path).or_default().push(rule);
        }
        let mut router = matchit::Router::new();
        for (path, rules) in paths {
            router
                .insert(path, rules)
                .expect("axum accepted the same path");
        }
        Self(Arc::new(router))
    }

    /// Finds the rule of a request. `HEAD` is handled as `GET`.
    pub(super) fn match_request(&self, method: &Method, path: &str) -> RouteMatch<'_> {
        let method = if method == Method::HEAD { &GET } else { method };
        let Ok(found) = self.0.at(path) else {
            return RouteMatch::NotFound;
        };
        let rules = found.value.iter();
        match rules.clone().find(|it| it.method == *method) {
            Some(rule) => RouteMatch::Rule(rule),
            None => {
                let allowed: Vec<&str> = rules.map(|it| it.method.as_str()).collect();
                RouteMatch::MethodNotAllowed(allowed.join(", "))
            }
        }
    }
}

impl fmt::Debug for RouteRules {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("RouteRules")
    }
}

impl RouteRule {
    /// Whether the route changes something that only an admin may change.
    pub(super) fn is_change(&self) -> bool {
        self.min_role == Some(AccessRole::Admin) && self.method != GET
    }

    /// Whether the route accepts the cookie of a signed-in browser. MCP clients send a token.
    pub(super) fn accepts_cookie(&self) -> bool {
        let first = self.path.split('/').nth(1).unwrap_or_default();
        !matches!(first, "mcp" | "sse")
    }

    /// The method and path pattern, as the audit log names the action.
    pub(super) fn action(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Whether `principal` may use the route.
    pub(super) fn allows(&self, principal: &Principal) -> bool {
        let has_role = self
            .min_role
            .is_none_or(|required| principal.role() >= required);
        has_role && (self.filters_by_grants || principal.grants().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_segment_takes_precedence_over_a_parameter() {
        let rules = RouteRules::new(route_rules());
        let path = |method: &Method, path: &str| match rules.match_request(method, path) {
            RouteMatch::Rule(rule) => rule.path,
            RouteMatch::MethodNotAllowed(_) => "other",
            RouteMatch::NotFound => "nothing",
        };
        assert_eq!(
            path(&POST, "/api/custom-tools/test"),
            "/api/custom-tools/test"
        );
        assert_eq!(path(&PUT, "/api/custom-tools/test"), "other");
        assert_eq!(
            path(&PUT, "/api/custom-tools/x"),
            "/api/custom-tools/{name}"
        );
        assert_eq!(path(&Method::HEAD, "/healthz"), "/healthz");
        for unknown in [
            "/healthz/../api/tokens",
            "/mcp/",
            "//mcp",
            "/tools/",
            "/api/calls/",
            "/api/calls/1/2",
        ] {
            assert_eq!(path(&GET, unknown), "nothing", "{unknown}");
        }
        assert_eq!(path(&GET, "/tools/a/b"), "/tools/{*rest}");
    }

    #[test]
    fn only_an_admin_may_use_routes_that_change_something() {
        let exceptions = [
            "/mcp",
            "/mcp/s/{name}",
            "/mcp/t/{name}",
            "/sse",
            "/sse/t/{name}",
            "/sse/message",
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/embeddings",
            "/api/chat",
            "/api/generate",
            "/api/embed",
            "/api/embeddings",
            "/api/show",
            "/generate",
            "/generate_with_mcp",
            "/api/session",
            "/oauth/register",
            "/oauth/consent",
            "/oauth/token",
            "/oauth/revoke",
            "/oauth/sign-in",
            "/oauth/invitation",
            "/api/mcp/servers/{name}/account",
            "/api/tools/{name}/call",
            "/api/tool-inputs/{id}",
            "/api/resources/read",
            "/api/prompts/{name}",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/responses",
            "/api/runs/{id}/calls/{call}/approve",
            "/api/runs/{id}/calls/{call}/refuse",
        ];
        for rule in route_rules() {
            let is_change = rule.method != GET && !exceptions.contains(&rule.path);
            assert!(
                !is_change || rule.min_role == Some(AccessRole::Admin),
                "{} {}",
                rule.method,
                rule.path
            );
        }
    }
}
