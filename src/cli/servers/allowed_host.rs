//! Allows the host of a server that only the list of hosts keeps out.

use anyhow::{Error, Result, anyhow};

use super::{HubClient, percent_encode};

/// Allows the host of `url`, without its port and path.
pub(super) async fn allow(hub: &HubClient, url: &str) -> Result<()> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_port = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => authority,
    };
    let path = format!("/api/allowed-hosts/{}", percent_encode(host));
    hub.request_json("PUT", &path, None).await.map(drop)
}

/// Says how this command line allows the host.
pub(super) fn name_flag(error: Error) -> Error {
    let message = format!("{error:#}");
    if message.contains("allow it in the console") {
        return anyhow!(message.replace("allow it in the console", "allow it with --allow-host"));
    }
    error
}
