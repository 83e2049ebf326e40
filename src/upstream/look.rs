//! What a person may look at: how servers change, what they said, and whether
//! one that is not registered would work.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    Draft, Entry, Handle, Manager, Unchanged,
    connection::spawn,
    server::{Origin, Server},
    shared::Status,
    trust::Trust,
};
use crate::tool::Catalog;

/// How a trial went.
#[derive(Debug)]
pub struct Trial {
    /// How the server was at the end.
    pub status: Status,
    /// What it said and what happened.
    pub log: Vec<Entry>,
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
        let server = Server {
            id: String::new(),
            name: self.rules.name(&draft.name)?,
            description: None,
            transport: self.rules.transport(&draft.kind, &draft.config, secrets)?,
            version: None,
            auto_connect: false,
            enabled: true,
            origin: Origin::Api,
            // Nothing of it is accepted by looking.
            trust: Trust::Follow,
            created_at: 0,
            updated_at: 0,
        };
        let nobody_looks = Catalog::new(Duration::from_secs(30), 1 << 20);
        let settings = self.settings.aside(Arc::new(nobody_looks));
        self.finish(async move {
            let handle = spawn(server, &settings);
            handle.connect().await;
            let (status, log) = (handle.status(), handle.log());
            handle.end().await;
            Ok(Trial { status, log })
        })
        .await
    }
}
