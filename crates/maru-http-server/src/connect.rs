//! `/api/connect`: what each client needs to use this hub.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use maru_connect::{HubTarget, MODEL_PLACEHOLDER, TOKEN_PLACEHOLDER, client_guides};
use serde::Deserialize;
use serde_json::json;

use super::HubState;
use maru_downstream::http::reply;

/// The parameters of `GET /api/connect`.
#[derive(Debug, Deserialize)]
pub(super) struct ConnectQuery {
    /// Whether clients send a token: `YOUR_TOKEN` stands for it.
    #[serde(default)]
    token: bool,
    /// The model that clients use; the first of the hub if none is named.
    model: Option<String>,
}

/// `GET /api/connect`: the settings of every client, for the address of the request.
pub(super) async fn show(
    State(hub): State<Arc<HubState>>,
    Query(query): Query<ConnectQuery>,
    headers: HeaderMap,
) -> Response {
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let host = host.map_or_else(|| format!("127.0.0.1:{}", hub.port), str::to_owned);
    let scheme = if hub.is_encrypted { "https" } else { "http" };
    let models = hub.models.current().list_models().await;
    let names: Vec<String> = models.into_iter().map(|it| it.name).collect();
    let first = || names.first().cloned();
    let uses_token = query.token || hub.requires_token;
    let target = HubTarget {
        origin: format!("{scheme}://{host}"),
        // A browser on another machine cannot start this program.
        program: is_this_machine(&host).then(|| hub.command_words.clone()),
        token: uses_token.then(|| TOKEN_PLACEHOLDER.to_owned()),
        model: (query.model.or_else(first)).unwrap_or_else(|| MODEL_PLACEHOLDER.to_owned()),
    };
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "origin": target.origin,
        "requiresToken": hub.requires_token,
        "tokenPlaceholder": TOKEN_PLACEHOLDER,
        "model": target.model,
        "models": names,
        "clients": client_guides(&target),
    });
    reply::json(StatusCode::OK, body.to_string())
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_mean_this_machine() {
        for host in [
            "localhost",
            "localhost:20006",
            "127.0.0.1:1",
            "[::1]:20006",
            "[::1]",
        ] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "hub.example",
            "10.0.0.1:20006",
            "127.0.0.1.example:80",
            "[fe80::1]:80",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
