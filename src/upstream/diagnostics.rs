//! What a person may look at: how servers change, what they said, and whether
//! one that is not registered would work.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    RegistrationError, ServerDraft, ServerHandle, ServerLogEntry, ServerManager,
    connection::spawn_connection,
    handle::ServerStatus,
    server::{RegisteredServer, ServerOrigin, parse_required_version},
    transport::Transport,
    trust::TrustPolicy,
};
use crate::tools::{Catalog, ResultLimits};

/// How a trial went.
#[derive(Debug)]
pub struct ConnectionTest {
    /// How the server was at the end.
    pub status: ServerStatus,
    /// What it said and what happened.
    pub log: Vec<ServerLogEntry>,
    /// How it was reached.
    pub transport: Transport,
}

impl ServerManager {
    /// Tells when some server is not as it was.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.settings.changes().subscribe()
    }

    /// How often a lost server is tried again.
    pub fn max_attempts(&self) -> u32 {
        self.settings.max_attempts()
    }

    /// The way to one server.
    pub fn handle(&self, name: &str) -> Result<ServerHandle, RegistrationError> {
        self.find(name).map(|entry| entry.handle)
    }

    /// Connects to the server that `draft` describes, looks, and leaves. Nobody
    /// else sees its tools. If a server of its name is registered, `***` stands
    /// for the secrets of that one.
    pub async fn test_connection(
        &self,
        draft: &ServerDraft,
    ) -> Result<ConnectionTest, RegistrationError> {
        let before = self.get(&draft.name).ok();
        let secrets = before.as_ref().map(|it| &it.server.transport);
        let name = self.rules.parse_name(&draft.name)?;
        let transport = self
            .rules
            .parse_transport(&draft.kind, &draft.config, secrets)?;
        self.check_warnings_accepted(draft, &transport, secrets)?;
        let server = RegisteredServer {
            id: String::new(),
            name,
            description: None,
            transport,
            version: None,
            auto_connect: false,
            enabled: true,
            origin: ServerOrigin::Api,
            // Nothing of it is accepted by looking.
            trust: TrustPolicy::Follow,
            required_version: draft
                .required_version
                .as_deref()
                .map(parse_required_version)
                .transpose()?,
            created_at: 0,
            updated_at: 0,
        };
        let transport = server.transport.clone();
        let nobody_looks = Catalog::new(
            Duration::from_secs(30),
            ResultLimits::from_max_bytes(1 << 20),
        )
        .with_hub_id(self.settings.hub_id());
        let settings = self.settings.isolated(Arc::new(nobody_looks));
        let handle = spawn_connection(server.clone(), &settings);
        self.log_warnings(&server, &handle);
        self.run_to_completion(async move {
            handle.connect().await;
            let (status, log) = (handle.status(), handle.log());
            handle.shutdown().await;
            Ok(ConnectionTest {
                status,
                log,
                transport,
            })
        })
        .await
    }
}
