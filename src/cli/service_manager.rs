//! Tells systemd how far the hub is, for units with `Type=notify`.

/// Reports a state such as `READY=1`. Without a service manager it does nothing.
#[cfg(target_os = "linux")]
pub(super) fn report(state: &str) {
    use std::os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    };
    let variables = crate::config::process_environment();
    let Some(path) = variables.get("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    };
    let sent = address.and_then(|it| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &it));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager was not told {state}");
    }
}

/// Only systemd is told.
#[cfg(not(target_os = "linux"))]
pub(super) fn report(_state: &str) {}
