//! maru's own state, in an SQLite file of the data directory.

mod migrate;
mod tokens;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::Connection;
use thiserror::Error;

pub use tokens::TokenRow;

/// The state could not be read or written.
#[derive(Debug, Error)]
pub enum Error {
    /// The file is there but is not ours, is damaged, or is newer than this maru.
    #[error("cannot use the store {}: {why}; nothing was changed", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A statement failed.
    #[error("the store did not {attempted}")]
    Failed {
        /// What was tried.
        attempted: &'static str,
        /// Why it failed.
        #[source]
        cause: rusqlite::Error,
    },
}

/// A handle to the state; clones share one connection.
#[derive(Clone, Debug)]
pub struct Store {
    connection: Arc<Mutex<Connection>>,
}

impl Store {
    /// Opens the file, making or upgrading it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unusable = |cause: rusqlite::Error| Error::Unusable {
            path: path.to_owned(),
            why: cause.to_string(),
        };
        let connection = Connection::open(path).map_err(unusable)?;
        Self::prepare(connection).map_err(unusable)
    }

    /// State that ends with the process.
    pub fn in_memory() -> Result<Self, Error> {
        let attempted = "open in memory";
        Connection::open_in_memory()
            .and_then(Self::prepare)
            .map_err(|cause| Error::Failed { attempted, cause })
    }

    fn prepare(mut connection: Connection) -> rusqlite::Result<Self> {
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        migrate::run(&mut connection)?;
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
        })
    }

    /// Runs `work` with the connection; it may block, so not on the hot path.
    fn with<T>(
        &self,
        attempted: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        work(&connection).map_err(|cause| Error::Failed { attempted, cause })
    }
}
