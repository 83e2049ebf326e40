//! Which hub runs a program that the hubs of a store run once.
//!
//! The hub that holds a lock of the database runs it; it serves the program to the others
//! (`peer_service`), which reach it by messages (`peer_channel`).

use std::{sync::Arc, time::Duration};

use maru_peers::{PeerHubs, PeerTopic};
use maru_runtime::tasks::Tasks;
use maru_store::{HubLock, HubLocks, LOST_LOCK_DELAY, LockAttempt, Store};
use tokio::time;

use super::{Error, ServerManager, peer_service};

/// How often a hub looks whether another one still runs the program, and tries again to
/// reach it.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a hub with a new lock waits. One that lost it has ended the program by then.
const TAKEOVER_DELAY: Duration = LOST_LOCK_DELAY.saturating_add(Duration::from_millis(500));

/// This hub's part in running programs once for all hubs.
#[derive(Clone, Debug)]
pub struct SingleRuns {
    pub(super) peers: Arc<PeerHubs>,
    locks: HubLocks,
}

/// Where a program runs.
pub(super) enum RunPlace {
    /// At this hub, as long as it holds the lock.
    Here(Arc<HubLock>),
    /// At the hub with this id.
    At(String),
}

impl SingleRuns {
    /// The part of the hub that is known as `peers` to the others; `None` if no other hub
    /// can share the store.
    pub fn new(store: &Store, peers: Option<&Arc<PeerHubs>>, tasks: &Tasks) -> Option<Self> {
        let peers = Arc::clone(peers?);
        let locks = store.hub_locks(peers.id(), tasks)?;
        Some(Self { peers, locks })
    }

    /// Decides where the program of this server runs, and waits until it may start here.
    pub(super) async fn decide(&self, server_id: &str) -> Result<RunPlace, Error> {
        loop {
            let attempt = self.locks.try_lock(&lock_name(server_id)).await;
            match attempt.map_err(|error| unknown_place(&error))? {
                LockAttempt::HeldBy(Some(hub)) => return Ok(RunPlace::At(hub)),
                LockAttempt::HeldBy(None) => time::sleep(CHECK_INTERVAL).await,
                LockAttempt::Taken(lock) => {
                    time::sleep(TAKEOVER_DELAY).await;
                    if !lock.lost().is_cancelled() {
                        return Ok(RunPlace::Here(Arc::new(lock)));
                    }
                }
            }
        }
    }

    /// Resolves when the hub with this id no longer runs the program.
    pub(super) async fn moved_from(&self, server_id: &str, hub: &str) {
        loop {
            time::sleep(CHECK_INTERVAL).await;
            // While the database is down, the messages fail too.
            if let Ok(holder) = self.locks.holder(&lock_name(server_id)).await
                && holder.as_deref() != Some(hub)
            {
                return;
            }
        }
    }

    /// Serves the programs that run here to the other hubs until this one stops.
    pub(super) fn spawn_service(&self, manager: &Arc<ServerManager>) {
        let serving = self.clone().serve(Arc::clone(manager));
        let tasks = manager.settings.tasks();
        let stop = tasks.stop_token();
        tasks.spawn(async move { _ = Box::pin(stop.run_until_cancelled(serving)).await });
    }

    async fn serve(self, manager: Arc<ServerManager>) {
        let mut requests = self.peers.serve(PeerTopic::SingleProgram);
        let tasks = manager.settings.tasks().clone();
        while let Some(request) = requests.recv().await {
            let holder = self.locks.holder(&lock_name(&request.body)).await;
            let runs_here = holder.is_ok_and(|it| it.as_deref() == Some(self.peers.id()));
            // Dropping the request ends its exchange.
            if runs_here && let Some(handle) = manager.handle_of_id(&request.body) {
                let catalog = Arc::clone(&manager.settings.catalog);
                let serving = peer_service::serve(handle.shared, catalog, request.exchange);
                let stop = tasks.stop_token();
                tasks.spawn(async move { _ = stop.run_until_cancelled(serving).await });
            }
        }
    }
}

fn lock_name(server_id: &str) -> String {
    format!("maru program {server_id}")
}

fn unknown_place(error: &maru_store::DatabaseError) -> Error {
    Error::Unreachable(format!(
        "the database does not say which hub runs the program: {error}"
    ))
}
