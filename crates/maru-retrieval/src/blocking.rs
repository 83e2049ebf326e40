//! Work on threads that may block, and not too much of it at once.

use std::sync::Arc;

use maru_runtime::tasks;
use tokio::sync::Semaphore;

use super::{Error, embedded::EmbeddedIndex};

/// Runs `work` when it is its turn to read.
pub(super) async fn run_read<T: Send + 'static>(
    embedded: &Arc<EmbeddedIndex>,
    work: impl FnOnce(&EmbeddedIndex) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    run_with_permit(&embedded.read_permits, embedded, work).await
}

/// Runs `work` when it is its turn to write.
pub(super) async fn run_write<T: Send + 'static>(
    embedded: &Arc<EmbeddedIndex>,
    work: impl FnOnce(&EmbeddedIndex) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    run_with_permit(&embedded.write_permit, embedded, work).await
}

async fn run_with_permit<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    embedded: &Arc<EmbeddedIndex>,
    work: impl FnOnce(&EmbeddedIndex) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let turn = Arc::clone(turns).acquire_owned();
    let turn = turn.await.map_err(|_| Error::Stopping)?;
    let embedded = Arc::clone(embedded);
    // The turn is over when the work is, whether or not anybody waits for it.
    run_blocking(move || {
        let done = work(&embedded);
        drop(turn);
        done
    })
    .await
}

/// Runs `work` on a thread that may block.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tasks::run_blocking(work).await;
    done.unwrap_or(Err(Error::Stopping))
}
