//! What a person may look at: how servers change, what they said, and whether
//! one that is not registered would work.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    Draft, Entry, Handle, Manager, Unchanged,
    connection::spawn,
    server::{Origin, Server, required_version},
    shared::Status,
    transport::Transport,
    trust::Trust,
};
use crate::tool::{Catalog, ResultSizes};

/// How a trial went.
#[derive(Debug)]
pub struct Trial {
    /// How the server was at the end.
    pub status: Status,
    /// What it said and what happened.
    pub log: Vec<Entry>,
    /// How it was reached.
    pub transport: Transport,
}

impl Manager {
    /// Tells when some server is not as it was.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.settings.changes().subscribe()
    }

    /// How often a lost server is tried again.
    pub fn max_attempts(&self) -> u32 {
        self.settings.max_attempts()
    }

    /// The way to one server.
    pub fn handle(&self, name: &str) -> Result<Handle, Unchanged> {
        self.find(name).map(|entry| entry.handle)
    }

    /// Connects to the server that `draft` describes, looks, and leaves. Nobody
    /// else sees its tools. If a server of its name is registered, `***` stands
    /// for the secrets of that one.
    pub async fn try_out(&self, draft: &Draft) -> Result<Trial, Unchanged> {
        let before = self.get(&draft.name).ok();
        let secrets = before.as_ref().map(|it| &it.server.transport);
        let name = self.rules.name(&draft.name)?;
        let transport = self.rules.transport(&draft.kind, &draft.config, secrets)?;
        self.check_accepted(draft, &transport, secrets)?;
        let server = Server {
            id: String::new(),
            name,
            description: None,
            transport,
            version: None,
            auto_connect: false,
            enabled: true,
            origin: Origin::Api,
            // Nothing of it is accepted by looking.
            trust: Trust::Follow,
            required_version: draft
                .required_version
                .as_deref()
                .map(required_version)
                .transpose()?,
            created_at: 0,
            updated_at: 0,
        };
        let transport = server.transport.clone();
        let nobody_looks = Catalog::new(Duration::from_secs(30), ResultSizes::of_bytes(1 << 20))
            .of_hub(self.settings.hub_id());
        let settings = self.settings.aside(Arc::new(nobody_looks));
        let handle = spawn(server.clone(), &settings);
        self.log_warnings(&server, &handle);
        self.finish(async move {
            handle.connect().await;
            let (status, log) = (handle.status(), handle.log());
            handle.end().await;
            Ok(Trial {
                status,
                log,
                transport,
            })
        })
        .await
    }
}
