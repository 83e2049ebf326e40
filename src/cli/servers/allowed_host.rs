//! Allows the host of a server that only the list of hosts keeps out.

use anyhow::{Error, Result, anyhow};

use super::{HubClient, percent_encode};

/// What the hub says where an admin may allow a host.
const REMEDY: &str = "allow it in the console";

/// Allows the host of `url`, without its port and path.
pub(super) async fn allow_host_of(hub: &HubClient, url: &str) -> Result<()> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_port = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => authority,
    };
    allow(hub, host).await
}

/// Allows a host.
pub(super) async fn allow(hub: &HubClient, host: &str) -> Result<()> {
    let path = format!("/api/allowed-hosts/{}", percent_encode(host));
    hub.request_json("PUT", &path, None).await.map(drop)
}

/// Says how this command line allows the host of the server's address.
pub(super) fn name_flag(error: Error) -> Error {
    replace_remedy(error, |_| "allow it with --allow-host".to_owned())
}

/// Says how this command line allows the refused host, which the server named.
pub(super) fn name_flag_with_host(error: Error) -> Error {
    replace_remedy(error, |host| format!("allow it with --allow-host {host}"))
}

fn replace_remedy(error: Error, own: impl FnOnce(&str) -> String) -> Error {
    let message = format!("{error:#}");
    let Some((before, _)) = message.split_once(REMEDY) else {
        return error;
    };
    // "…: HOST is not a listed host; "
    let clause = before.rsplit(": ").next().unwrap_or_default();
    let host = clause.split(' ').next().unwrap_or_default();
    anyhow!(message.replace(REMEDY, &own(host)))
}
