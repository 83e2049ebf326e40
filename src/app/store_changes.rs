//! Takes over what other hubs change in a shared store.

use std::{convert::Infallible, error::Error, sync::Arc};

use maru_store::{ChangeFeed, ChangedTables};
use tracing::warn;

use crate::http::HubState;

/// Reads again what changed in the store, until it is dropped.
pub(super) async fn follow_store_changes(hub: Arc<HubState>, mut feed: ChangeFeed) -> Infallible {
    loop {
        let changed = feed.next().await;
        // While the store is down, the next attempt follows.
        if hub.store.ping().await.is_ok() {
            apply_changes(&hub, &changed).await;
        }
    }
}

async fn apply_changes(hub: &HubState, changed: &ChangedTables) {
    if changed.includes("token") {
        let gone = hub.access.reload_tokens().await;
        report("tokens", gone.map(|it| end_sessions(hub, &it)));
    }
    if changed.includes("oauth_grant")
        && let Some(issuer) = hub.access.token_issuer()
    {
        let gone = issuer.reload_grants().await;
        report("grants", gone.map(|it| end_sessions(hub, &it)));
    }
    if changed.includes("console_session") {
        report("signed-in browsers", hub.sessions.reload().await);
    }
    if changed.includes("hub_setting") {
        report("allowed hosts", hub.reload_added_hosts().await);
    }
    if changed.includes("data_source") || changed.includes("hub_setting") {
        report("sources", hub.sources.reload().await);
    }
    if changed.includes("model") {
        report("models", hub.model_manager.reload().await);
    }
    let tool_tables = ["h_custom_tool", "h_custom_tool_draft", "tool_off"];
    if tool_tables.iter().any(|it| changed.includes(it)) {
        report("custom tools", hub.custom_tools.reload().await);
    }
    if changed.includes("toolset") {
        report("toolsets", hub.toolsets.reload().await);
    }
    if changed.includes("tool_override") {
        report("overrides of tools", hub.tool_overrides.reload().await);
    }
    if changed.includes("h_mcp_tool_limit") || changed.includes("tool_rate") {
        report("limits", hub.quota.reload().await);
    }
    if changed.includes("model_budget") {
        report("budgets", hub.usage.reload_budgets().await);
    }
    if changed.includes("mcp_servers") {
        report("servers", hub.servers.reload().await);
    }
    if changed.includes("server_credential") {
        report(
            "sign-ins at servers",
            hub.servers.reload_credentials().await,
        );
    }
    if changed.includes("tool_pin") {
        hub.servers.reload_pins().await;
    }
}

/// Ends the sessions of principals whose token or grant another hub ended.
fn end_sessions(hub: &HubState, principals: &[String]) {
    for name in principals {
        hub.engine.end_sessions_of(name);
    }
}

fn report<E: Error>(what: &str, outcome: Result<(), E>) {
    if let Err(error) = outcome {
        warn!("the {what} that another hub changed could not be read: {error}");
    }
}
