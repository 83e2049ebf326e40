//! Runs work on tokio's blocking threads, with limited concurrency.

use std::sync::Arc;

use maru_runtime::tasks;
use tokio::sync::Semaphore;

use super::{Error, embedded::EmbeddedIndex};

/// Runs `work` with a read permit.
pub(super) async fn run_read<T: Send + 'static>(
    embedded: &Arc<EmbeddedIndex>,
    work: impl FnOnce(&EmbeddedIndex) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    run_with_permit(&embedded.read_permits, embedded, work).await
}

/// Runs `work` with the write permit.
pub(super) async fn run_write<T: Send + 'static>(
    embedded: &Arc<EmbeddedIndex>,
    work: impl FnOnce(&EmbeddedIndex) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    run_with_permit(&embedded.write_permit, embedded, work).await
}

async fn run_with_permit<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    embedded: &Arc<EmbeddedIndex>,
    work: impl FnOnce(&EmbeddedIndex) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let permit = Arc::clone(permits).acquire_owned();
    let permit = permit.await.map_err(|_| Error::Stopping)?;
    let embedded = Arc::clone(embedded);
    // The permit is held until the work ends, even if the caller stopped waiting.
    run_blocking(move || {
        let result = work(&embedded);
        drop(permit);
        result
    })
    .await
}

/// Runs `work` on a blocking thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let result = tasks::run_blocking(work).await;
    result.unwrap_or(Err(Error::Stopping))
}
