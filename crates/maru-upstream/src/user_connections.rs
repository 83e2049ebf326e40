//! Connections of callers with credentials of their own: one for each, so that nothing of
//! one reaches another, not even by a session of the server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::{self, Instant};

use super::{
    Error,
    connect::{ActiveConnection, open_connection},
    credential::Credential,
    notifications::NotificationSink,
    server::RegisteredServer,
    settings::ConnectionSettings,
};

/// The subject of the credential that all callers share.
pub(super) const SHARED_SUBJECT: &str = "";
/// The most connections of one server; the one that was idle the longest is closed first.
const MAX_USER_CONNECTIONS: usize = 256;

/// The connections of one server's callers.
#[derive(Debug)]
pub(super) struct UserConnections {
    server: RegisteredServer,
    settings: ConnectionSettings,
    slots: Mutex<HashMap<String, Arc<UserSlot>>>,
}

/// The connection of one caller.
#[derive(Debug)]
struct UserSlot {
    /// Held while the connection is opened.
    opening: tokio::sync::Mutex<()>,
    active: Mutex<Option<Arc<ActiveConnection>>>,
    used_at: Mutex<Instant>,
}

impl UserConnections {
    /// Returns the connections of a server whose callers sign in themselves.
    pub(super) fn of(server: &RegisteredServer, settings: &ConnectionSettings) -> Option<Self> {
        let is_per_user = server.managed_auth()?.is_per_user();
        is_per_user.then(|| Self {
            server: server.clone(),
            settings: settings.clone(),
            slots: Mutex::default(),
        })
    }

    /// Returns the credential of a caller.
    pub(super) fn credential(&self, subject: &str) -> Option<Arc<Credential>> {
        self.settings.credentials().of(&self.server, subject)
    }

    /// Returns the connection of a caller, opened if there is none.
    pub(super) async fn connection(&self, subject: &str) -> Result<Arc<ActiveConnection>, Error> {
        let slot = self.slot(subject);
        if let Some(connection) = slot.live_connection() {
            return Ok(connection);
        }
        let _one_attempt_at_a_time = slot.opening.lock().await;
        if let Some(connection) = slot.live_connection() {
            return Ok(connection);
        }
        let sink = NotificationSink::new(
            self.server.name.as_str(),
            Arc::clone(&self.settings.catalog),
        );
        let credential = self.credential(subject);
        if let Some(credential) = &credential
            && !credential.is_signed_in().await
        {
            return Err(credential.sign_in_required());
        }
        let opening = open_connection(&self.server, &self.settings.context, sink, credential);
        let limit = self.settings.connect_timeout;
        let late = |_| Error::Unreachable(format!("the server did not connect within {limit:?}"));
        let connection = time::timeout(limit, opening).await.map_err(late)??;
        slot.set(Some(Arc::clone(&connection)));
        Ok(connection)
    }

    /// Closes the connection of a caller.
    pub(super) fn close(&self, subject: &str) {
        if let Some(slot) = lock(&self.slots).remove(subject) {
            slot.set(None);
        }
    }

    /// Closes all connections.
    pub(super) fn close_all(&self) {
        let slots = std::mem::take(&mut *lock(&self.slots));
        slots.values().for_each(|it| it.set(None));
    }

    fn slot(&self, subject: &str) -> Arc<UserSlot> {
        let mut slots = lock(&self.slots);
        if !slots.contains_key(subject) && slots.len() >= MAX_USER_CONNECTIONS {
            let idle = slots.iter().min_by_key(|(_, it)| *lock(&it.used_at));
            if let Some(idle) = idle.map(|(subject, _)| subject.clone())
                && let Some(slot) = slots.remove(&idle)
            {
                slot.set(None);
            }
        }
        let slot = slots.entry(subject.to_owned()).or_insert_with(|| {
            Arc::new(UserSlot {
                opening: tokio::sync::Mutex::default(),
                active: Mutex::default(),
                used_at: Mutex::new(Instant::now()),
            })
        });
        *lock(&slot.used_at) = Instant::now();
        Arc::clone(slot)
    }
}

impl UserSlot {
    fn live_connection(&self) -> Option<Arc<ActiveConnection>> {
        let active = lock(&self.active).clone();
        active.filter(|it| !it.link.lost_token().is_cancelled())
    }

    /// Replaces the connection and closes the one before.
    fn set(&self, connection: Option<Arc<ActiveConnection>>) {
        let before = std::mem::replace(&mut *lock(&self.active), connection);
        if let Some(before) = before {
            before.link.close();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
