//! Every route and who may use it: one table. What is not in it is not there.

use std::{collections::BTreeMap, fmt, sync::Arc};

use axum::{
    Router,
    handler::Handler,
    http::Method,
    routing::{MethodFilter, MethodRouter, on},
};

use super::{
    HubState, audit, calls, console, custom_tools, diagnostics, generate, health, limits, mcp,
    metrics, openai, registry, resource_metadata, runs, servers, sources, tokens, tools,
};
use crate::auth::{AccessRole, Principal};

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

/// The table.
fn route_table() -> Vec<RouteEntry> {
    vec![
        // The endpoints. Who may call and who may only list is told apart behind them.
        reader(POST, "/mcp", mcp::all_servers).filtered(),
        reader(GET, "/mcp", mcp::all_servers).filtered(),
        reader(DELETE, "/mcp", mcp::all_servers).filtered(),
        reader(GET, "/mcp/s/{name}", mcp::one_server).filtered(),
        reader(POST, "/mcp/s/{name}", mcp::one_server).filtered(),
        reader(DELETE, "/mcp/s/{name}", mcp::one_server).filtered(),
        reader(GET, "/sse", mcp::sse).filtered(),
        reader(POST, "/sse", mcp::sse).filtered(),
        reader(DELETE, "/sse", mcp::sse).filtered(),
        reader(POST, "/sse/message", mcp::sse_message).filtered(),
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
        admin(POST, "/api/mcp/import", servers::import),
        admin(GET, "/api/mcp/servers/{name}/log", diagnostics::server_log),
        admin(
            GET,
            "/api/mcp/servers/{name}/messages",
            diagnostics::server_messages,
        ),
        admin(POST, "/api/mcp/test", diagnostics::test_server),
        // Tools, and what was called.
        reader(GET, "/api/tools", tools::list),
        admin(PUT, "/api/tools", tools::set_many_enabled),
        reader(GET, "/api/tools/{name}", tools::show),
        admin(PUT, "/api/tools/{name}", tools::set_enabled),
        agent(POST, "/api/tools/{name}/call", tools::call).filtered(),
        reader(GET, "/api/calls", calls::list),
        reader(GET, "/api/calls/{id}", calls::show),
        reader(GET, "/api/stats", calls::stats),
        // Databases.
        reader(GET, "/api/sources", sources::list),
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
        // Models, and the loop that lets them use tools.
        agent(POST, "/v1/chat/completions", openai::post)
            .filtered()
            .counted(),
        agent(GET, "/v1/models", openai::list).filtered(),
        agent(GET, "/v1/models/{*name}", openai::show).filtered(),
        agent(POST, "/v1/embeddings", openai::embed)
            .filtered()
            .counted(),
        reader(GET, "/api/models", openai::queue_status),
        agent(POST, "/generate", generate::without_tools)
            .filtered()
            .counted(),
        agent(POST, "/generate_with_mcp", generate::with_tools)
            .filtered()
            .counted(),
        // Everyone has runs of their own.
        agent(GET, "/api/runs", runs::list).filtered(),
        agent(GET, "/api/runs/{id}", runs::show).filtered(),
        agent(POST, "/api/runs/{id}/calls/{call}/approve", runs::approve).filtered(),
        agent(POST, "/api/runs/{id}/calls/{call}/refuse", runs::refuse).filtered(),
        // Who may do what, and how often.
        admin(GET, "/api/tokens", tokens::list),
        admin(POST, "/api/tokens", tokens::create),
        admin(DELETE, "/api/tokens/{name}", tokens::revoke),
        reader(GET, "/api/limits", limits::list),
        admin(PUT, "/api/limits/{target_type}/{target_id}", limits::set),
        admin(
            DELETE,
            "/api/limits/{target_type}/{target_id}",
            limits::remove,
        ),
        admin(GET, "/api/audit", audit::list),
        // The console. Its page holds nothing; what it shows comes from the API.
        everyone(GET, "/", console::page),
        everyone(GET, "/servers", console::page),
        everyone(GET, "/servers/{*rest}", console::page),
        everyone(GET, "/tools", console::page),
        everyone(GET, "/tools/{*rest}", console::page),
        everyone(GET, "/play", console::page),
        everyone(GET, "/play/{*rest}", console::page),
        everyone(GET, "/activity", console::page),
        everyone(GET, "/activity/{*rest}", console::page),
        everyone(GET, "/settings", console::page),
        everyone(GET, "/settings/{*rest}", console::page),
        everyone(GET, "/connect", console::page),
        everyone(GET, "/connect/{*rest}", console::page),
        everyone(GET, "/assets/v/{build}/{name}", console::asset),
        // Who is asking is what this finds out.
        everyone(GET, "/api/session", console::show),
        everyone(POST, "/api/session", console::sign_in),
        everyone(DELETE, "/api/session", console::sign_out),
        admin(POST, "/api/session/link", console::create_sign_in_link),
        reader(GET, "/api/events", console::stream),
        // About maru itself.
        admin(GET, "/api/config", diagnostics::config),
        reader(GET, "/metrics", metrics::show),
        reader(GET, "/api/openapi.json", health::openapi).filtered(),
        reader(GET, "/readyz", health::readiness).filtered(),
        everyone(GET, "/healthz", health::liveness),
        everyone(
            GET,
            "/.well-known/oauth-protected-resource",
            resource_metadata::show,
        ),
        everyone(
            GET,
            "/.well-known/oauth-protected-resource/{*resource}",
            resource_metadata::show,
        ),
    ]
}

/// A row of the table.
struct RouteEntry {
    rule: RouteRule,
    handler: MethodRouter<Arc<HubState>>,
}

/// Who may use a route.
#[derive(Clone, Debug)]
pub struct RouteRule {
    /// Its method.
    pub method: Method,
    /// Its path; `{name}` stands for one step, `{*name}` for the rest.
    pub path: &'static str,
    /// The least role that it needs; `None` if everyone may use it.
    pub min_role: Option<AccessRole>,
    /// Whether it shows a restricted token only what that is good for; others
    /// are closed to such tokens.
    filters_by_grants: bool,
    /// Whether a request counts against the limits of who makes it.
    pub(super) counts_against_quota: bool,
}

/// A header that only a script of our own page can send.
pub(super) const CONSOLE_HEADER: &str = "x-maru-console";

/// The rules, for the gate: those of each path, found as the router finds it.
#[derive(Clone)]
pub(super) struct RouteRules(Arc<matchit::Router<Vec<RouteRule>>>);

/// What the table says about a request.
#[derive(Debug)]
pub(super) enum RouteMatch<'a> {
    /// This rule decides.
    Rule(&'a RouteRule),
    /// The path is there, with these methods.
    MethodNotAllowed(String),
    /// Nothing is there.
    NotFound,
}

/// The rules and the router behind them.
pub(super) fn build(hub: &Arc<HubState>) -> (RouteRules, Router) {
    let mut router = Router::new();
    let mut rules = Vec::new();
    for RouteEntry { rule, handler } in route_table() {
        router = router.route(rule.path, handler);
        rules.push(rule);
    }
    (RouteRules::new(rules), router.with_state(Arc::clone(hub)))
}

/// Every rule, to be looked at.
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
            router.insert(path, rules).expect("the router took it too");
        }
        Self(Arc::new(router))
    }

    /// The rule for a request. `HEAD` is a `GET` without its body.
    pub(super) fn match_request(&self, method: &Method, path: &str) -> RouteMatch<'_> {
        let method = if method == Method::HEAD { &GET } else { method };
        let Ok(found) = self.0.at(path) else {
            return RouteMatch::NotFound;
        };
        let here = found.value.iter();
        match here.clone().find(|it| it.method == *method) {
            Some(rule) => RouteMatch::Rule(rule),
            None => {
                let known: Vec<&str> = here.map(|it| it.method.as_str()).collect();
                RouteMatch::MethodNotAllowed(known.join(", "))
            }
        }
    }
}

impl fmt::Debug for RouteRules {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Rules")
    }
}

impl RouteRule {
    /// Whether using it changes something that admins decide.
    pub(super) fn is_change(&self) -> bool {
        self.min_role == Some(AccessRole::Admin) && self.method != GET
    }

    /// Whether the cookie of a signed-in browser counts here. Whoever speaks MCP
    /// shows a token.
    pub(super) fn accepts_cookie(&self) -> bool {
        let first = self.path.split('/').nth(1).unwrap_or_default();
        !matches!(first, "mcp" | "sse")
    }

    /// Method and route.
    pub(super) fn action(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Whether `principal` may use the route.
    pub(super) fn allows(&self, principal: &Principal) -> bool {
        let role = self
            .min_role
            .is_none_or(|needed| principal.role() >= needed);
        role && (self.filters_by_grants || principal.grants().is_none())
    }
}

impl RouteEntry {
    /// It shows everyone what they may see.
    fn filtered(mut self) -> Self {
        self.rule.filters_by_grants = true;
        self
    }

    /// Each request costs someone something.
    fn counted(mut self) -> Self {
        self.rule.counts_against_quota = true;
        self
    }
}

fn everyone<H: Handler<T, Arc<HubState>>, T: 'static>(
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    route(None, method, path, handler)
}

fn reader<H: Handler<T, Arc<HubState>>, T: 'static>(
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    route(Some(AccessRole::Reader), method, path, handler)
}

fn agent<H: Handler<T, Arc<HubState>>, T: 'static>(
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    route(Some(AccessRole::Agent), method, path, handler)
}

fn admin<H: Handler<T, Arc<HubState>>, T: 'static>(
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    route(Some(AccessRole::Admin), method, path, handler)
}

fn route<H: Handler<T, Arc<HubState>>, T: 'static>(
    needs: Option<AccessRole>,
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    let filter = MethodFilter::try_from(method.clone()).expect("a usual method");
    let rule = RouteRule {
        method,
        path,
        min_role: needs,
        filters_by_grants: false,
        counts_against_quota: false,
    };
    let handler = on(filter, handler);
    RouteEntry { rule, handler }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_step_wins_over_an_open_one() {
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
        for nothing in [
            "/healthz/../api/tokens",
            "/mcp/",
            "//mcp",
            "/tools/",
            "/api/calls/",
            "/api/calls/1/2",
        ] {
            assert_eq!(path(&GET, nothing), "nothing", "{nothing}");
        }
        assert_eq!(path(&GET, "/tools/a/b"), "/tools/{*rest}");
    }

    #[test]
    fn nothing_that_writes_is_open_to_less_than_an_admin() {
        let doors = [
            "/mcp",
            "/mcp/s/{name}",
            "/sse",
            "/sse/message",
            "/v1/chat/completions",
            "/v1/embeddings",
            "/generate",
            "/generate_with_mcp",
            "/api/session",
            "/api/tools/{name}/call",
            "/api/runs/{id}/calls/{call}/approve",
            "/api/runs/{id}/calls/{call}/refuse",
        ];
        for rule in route_rules() {
            let writes = rule.method != GET && !doors.contains(&rule.path);
            assert!(
                !writes || rule.min_role == Some(AccessRole::Admin),
                "{} {}",
                rule.method,
                rule.path
            );
        }
    }
}
