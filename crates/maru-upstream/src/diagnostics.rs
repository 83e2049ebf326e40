//! Tests the connection to a server without registering it.

use std::{sync::Arc, time::Duration};

use super::{
    RegistrationError, ServerDraft, ServerLogEntry, ServerManager,
    connection::spawn_connection,
    handle::ServerStatus,
    server::{RegisteredServer, ServerOrigin},
    transport::Transport,
    trust::TrustPolicy,
};
use maru_tools::{Catalog, ResultLimits};

/// The result of a connection test.
#[derive(Debug)]
pub struct ConnectionTest {
    /// The server's state at the end of the test.
    pub status: ServerStatus,
    /// The server's stderr and connection events.
    pub log: Vec<ServerLogEntry>,
    /// The transport that was tested.
    pub transport: Transport,
}

impl ConnectionTest {
    /// Connects to the server that `draft` describes, lists its tools, and disconnects.
    /// The tools are not published. If a server of that name is registered, `***` stands
    /// for its secrets.
    pub async fn run(
        servers: &ServerManager,
        draft: &ServerDraft,
    ) -> Result<Self, RegistrationError> {
        let registered = servers.get(&draft.name).ok();
        let before = registered.as_ref().map(|it| &it.server.transport);
        let rules = &servers.rules;
        let name = rules.parse_name(&draft.name)?;
        let transport = rules.parse_transport(&draft.kind, &draft.config, before)?;
        rules.check_warnings_accepted(draft, &transport, before)?;
        let server = RegisteredServer {
            id: String::new(),
            name,
            description: None,
            transport: transport.clone(),
            version: None,
            auto_connect: false,
            enabled: true,
            origin: ServerOrigin::Api,
            // Nothing is pinned for a server that is not registered.
            trust: TrustPolicy::Follow,
            required_version: draft.parse_required_version()?,
            created_at: 0,
            updated_at: 0,
        };
        let catalog = Catalog::new(
            Duration::from_secs(30),
            ResultLimits::from_max_bytes(1 << 20),
        )
        .with_hub_id(servers.settings.hub_id());
        let settings = servers.settings.isolated(Arc::new(catalog));
        let handle = spawn_connection(server.clone(), &settings);
        rules.log_warnings(&server, &handle);
        let trial = async move {
            handle.connect().await;
            let (status, log) = (handle.status(), handle.log());
            handle.shutdown().await;
            Ok(Self {
                status,
                log,
                transport,
            })
        };
        servers.run_to_completion(trial).await
    }
}
