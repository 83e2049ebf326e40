//! A trial connection to a server that is not registered.

use std::{sync::Arc, time::Duration};

use super::{
    RegistrationError, ServerDraft, ServerLogEntry, ServerManager,
    connection::spawn_connection,
    handle::ServerStatus,
    server::{RegisteredServer, ServerOrigin},
    transport::Transport,
    trust::TrustPolicy,
};
use crate::tools::{Catalog, ResultLimits};

/// How a trial connection went.
#[derive(Debug)]
pub struct ConnectionTest {
    /// The state of the server at the end.
    pub status: ServerStatus,
    /// What the server wrote and what happened.
    pub log: Vec<ServerLogEntry>,
    /// How it was reached.
    pub transport: Transport,
}

impl ConnectionTest {
    /// Connects to the server that `draft` describes, lists its tools, and disconnects.
    /// Nobody else sees its tools. If a server of its name is registered, `***` stands
    /// for the secrets of that one.
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
            // A trial accepts no definition.
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
