//! The servers that a request names: connected before the run, or reported as missing.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use maru_runtime::{clock, tasks::with_timeout};

use super::{Agent, Error};
use maru_tools::OWN_SERVER_NAME;
use maru_upstream::{ServerState, ServerStatus};

/// How long runs do not wait for a server again that failed to connect.
const FAILED_SERVER_PAUSE: Duration = Duration::from_secs(30);

/// A named server whose tools a run does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailableServer {
    /// Its name.
    pub name: String,
    /// The state of its connection, such as `FAILED`.
    pub status: &'static str,
}

impl Agent {
    /// Connects the named servers that are not connected, and returns those that stay so.
    /// Fails if none is left and none is being connected.
    pub(super) async fn connect_servers(
        &self,
        named: &[String],
    ) -> Result<Vec<UnavailableServer>, Error> {
        let named: BTreeSet<&String> = named.iter().collect();
        let disconnected = || {
            let snapshot = self.catalog.snapshot();
            let named = named.iter().copied();
            named.filter(move |it| *it != OWN_SERVER_NAME && !snapshot.has_server(it))
        };
        let connecting: Vec<_> = disconnected()
            .filter(|it| {
                let server = self.servers.get(it);
                server.is_ok_and(|it| is_worth_waiting(&it.status))
            })
            .map(|it| self.servers.connect(it))
            .collect();
        if !connecting.is_empty() {
            // Those that fail, or are late, have no tools to offer.
            let _ = with_timeout(self.servers.connect_wait(), join_all(connecting)).await;
        }
        let mut is_any_connecting = false;
        let unavailable: Vec<UnavailableServer> = disconnected()
            .filter_map(|it| {
                let state = self.servers.get(it).ok()?.status.state;
                is_any_connecting |= matches!(state, ServerState::Connecting { .. });
                let (name, status) = (it.clone(), state.as_str());
                Some(UnavailableServer { name, status })
            })
            .collect();
        let has_none = !unavailable.is_empty() && unavailable.len() == named.len();
        // A run does not fail because a server starts slowly: it goes on without its tools.
        if has_none && !is_any_connecting {
            return Err(Error::ServersUnavailable(unavailable));
        }
        Ok(unavailable)
    }
}

/// Whether a run waits for a server: not for one that is switched off or whose last attempt
/// failed a short while ago, which would delay every run.
fn is_worth_waiting(status: &ServerStatus) -> bool {
    match status.state {
        ServerState::Pending | ServerState::Connecting { .. } | ServerState::Disconnected => true,
        ServerState::Failed | ServerState::Waiting { .. } => {
            let now = u64::try_from(clock::now_ms()).unwrap_or_default();
            let age = Duration::from_millis(now.saturating_sub(status.changed_at));
            age >= FAILED_SERVER_PAUSE
        }
        ServerState::Connected | ServerState::NeedsSignIn | ServerState::Disabled => false,
    }
}

/// Names and states, for messages.
pub(super) fn format_servers(servers: &[UnavailableServer]) -> String {
    let servers = servers.iter();
    let servers: Vec<String> = servers
        .map(|it| format!("{} ({})", it.name, it.status))
        .collect();
    servers.join(", ")
}
