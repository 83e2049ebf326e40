//! Loads the servers of the store: at start, and when another hub has changed them.

use std::sync::Arc;

use futures_util::future::join_all;
use maru_store::ServerRow;
use tracing::{info, warn};

use super::{ManagedServer, ServerManager};
use crate::{
    handle::ServerHandle, lifecycle::ServerState, registration_error::RegistrationError,
    server::RegisteredServer, server_row::server_from_row,
};

impl ServerManager {
    /// Returns the handle of the server with this id.
    pub(crate) fn handle_of_id(&self, id: &str) -> Option<ServerHandle> {
        let servers = self.lock();
        let server = servers.values().find(|it| it.server.id == id)?;
        Some(server.handle.clone())
    }

    pub(super) async fn load_stored_servers(&self) -> Result<(), maru_store::Error> {
        let deleted = self.registry.lock().await.deleted_names();
        for row in self.store.servers().await? {
            if deleted.contains(&row.name) && !self.seeds.contains_key(&row.name) {
                self.forget_deleted(&row).await?;
                continue;
            }
            let name = row.name.clone();
            match server_from_row(row) {
                Ok(server) => self.insert_server(server),
                Err(error) => warn!("the stored server {name} is not used: {error}"),
            }
        }
        Ok(())
    }

    /// Removes a server whose entry was deleted from `mcp.json` while maru was stopped.
    /// If the entry returns, so does the server.
    async fn forget_deleted(&self, row: &ServerRow) -> Result<(), maru_store::Error> {
        let name = &row.name;
        warn!("server {name} is removed, because its entry was deleted from mcp.json");
        self.settings.pins().forget(name).await?;
        self.credentials().remove_server(&row.id).await?;
        self.store.forget_server(name).await
    }

    /// Loads the servers again, because another hub may have changed them: starts new
    /// ones, closes removed ones and reconnects those whose connection differs.
    pub async fn reload(self: &Arc<Self>) -> Result<(), RegistrationError> {
        let manager = Arc::clone(self);
        self.run_to_completion(async move {
            let registry = manager.registry.lock().await;
            let rows = manager.store.servers().await?;
            let mut others = manager.lock().clone();
            let mut differs = false;
            for row in rows {
                let name = row.name.clone();
                let server = match server_from_row(row) {
                    Ok(server) => server,
                    Err(error) => {
                        warn!("the stored server {name} is not used: {error}");
                        others.retain(|it, _| it.as_str() != name);
                        continue;
                    }
                };
                let known = others.remove(&server.name);
                if known.as_ref().is_none_or(|it| it.server != server) {
                    manager.adopt_change(known, server).await;
                    differs = true;
                }
            }
            for (name, removed) in others {
                info!("server {name} was removed at another hub");
                manager.settings.pins().forget_in_memory(name.as_str());
                manager.lock().remove(&name);
                removed.handle.shutdown().await;
                differs = true;
            }
            if differs {
                manager.settings.changes().send_replace(());
                manager.save_registry_file(&registry);
            }
            Ok(())
        })
        .await
    }

    /// Takes over a server as another hub stored it.
    async fn adopt_change(&self, known: Option<ManagedServer>, server: RegisteredServer) {
        let name = server.name.clone();
        let connect = match known {
            Some(known) => self.replace_server(known, server).await,
            None => {
                let connect = server.enabled && server.auto_connect;
                self.insert_server(server);
                connect
            }
        };
        info!("server {name} was changed at another hub");
        if connect && let Ok(entry) = self.find(name.as_str()) {
            entry.handle.request_connect();
        }
    }

    /// Reads again what callers are signed in with at servers, because another hub or the
    /// end of a token may have changed it: a server that waited for a sign-in connects, and
    /// nothing goes on with an account that was signed out.
    pub async fn reload_credentials(&self) -> Result<(), maru_store::Error> {
        for credential in self.credentials().reload().await? {
            let entry = self.find(&credential.server_name);
            let Some(entry) = entry.ok().filter(|it| it.server.id == credential.server_id) else {
                continue;
            };
            if !credential.has_token() {
                entry.handle.sign_out(&credential.subject).await;
            } else if entry.handle.status().state == ServerState::NeedsSignIn {
                entry.handle.request_connect();
            }
        }
        Ok(())
    }

    /// Publishes the tools of every server again, because another hub may have accepted
    /// changed definitions.
    pub async fn reload_pins(&self) {
        let handles: Vec<ServerHandle> = self.lock().values().map(|it| it.handle.clone()).collect();
        let republished = handles.iter().map(async |handle| {
            let name = handle.shared.name().as_str();
            self.settings.pins().reload(name).await;
            handle.republish().await;
        });
        join_all(republished).await;
    }
}
