//! The SQLite file of the embedded index: one writer and a pool of readers.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, TransactionBehavior};

use super::super::Error;

/// How long to wait while another process locks the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_IDLE_READERS: usize = 8;
const SCHEMA_VERSION: i64 = 1;
const CREATE_TABLES: &str = "
CREATE TABLE collection (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    glossary TEXT NOT NULL,
    change INTEGER NOT NULL
) STRICT;
CREATE TABLE document (
    number INTEGER PRIMARY KEY,
    collection INTEGER NOT NULL REFERENCES collection (id),
    id TEXT NOT NULL,
    body TEXT NOT NULL,
    metadata TEXT NOT NULL,
    vector BLOB NOT NULL,
    change INTEGER NOT NULL,
    UNIQUE (collection, id)
) STRICT;
CREATE INDEX document_change ON document (collection, change);
PRAGMA user_version = 1;
";

#[derive(Debug)]
pub(super) struct IndexFile {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
}

impl IndexFile {
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        let mut writer = connect(&path)?;
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        match transaction.pragma_query_value(None, "user_version", |row| row.get(0))? {
            0 => transaction.execute_batch(CREATE_TABLES)?,
            SCHEMA_VERSION => (),
            newer => return Err(Error::NewerSchema(newer)),
        }
        transaction.commit()?;
        Ok(Self {
            path,
            writer: Mutex::new(writer),
            readers: Mutex::default(),
        })
    }

    /// Runs `work` in a read transaction, which sees one snapshot of the file.
    pub(super) fn read_snapshot<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let idle = self.lock_readers().pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => connect(&self.path)?,
        };
        let result = work(&*reader.transaction()?);
        let mut readers = self.lock_readers();
        if readers.len() < MAX_IDLE_READERS {
            readers.push(reader);
        }
        result
    }

    /// Runs `work` in a write transaction; its changes are on disk when this returns.
    pub(super) fn write_transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let output = work(&transaction)?;
        transaction.commit()?;
        Ok(output)
    }

    fn lock_readers(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(path: &PathBuf) -> Result<Connection, Error> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}
