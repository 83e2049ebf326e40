//! Work on threads that may block, and not too much of it at once.

use std::{panic, sync::Arc};

use tokio::{sync::Semaphore, task};

use super::{Error, embedded::Embedded};

/// Runs `work` when it is its turn to read.
pub(super) async fn reading<T: Send + 'static>(
    embedded: &Arc<Embedded>,
    work: impl FnOnce(&Embedded) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    in_turn(&embedded.reading, embedded, work).await
}

/// Runs `work` when it is its turn to write.
pub(super) async fn writing<T: Send + 'static>(
    embedded: &Arc<Embedded>,
    work: impl FnOnce(&Embedded) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    in_turn(&embedded.writing, embedded, work).await
}

async fn in_turn<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    embedded: &Arc<Embedded>,
    work: impl FnOnce(&Embedded) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let turn = Arc::clone(turns).acquire_owned();
    let turn = turn.await.map_err(|_| Error::Stopping)?;
    let embedded = Arc::clone(embedded);
    // The turn is over when the work is, whether or not anybody waits for it.
    blocking(move || {
        let done = work(&embedded);
        drop(turn);
        done
    })
    .await
}

/// Runs `work` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => Err(Error::Stopping),
        },
    }
}
