//! Copies all tables of a store into another one, of which one is an SQLite file: the move
//! to PostgreSQL, a backup and its return.
//!
//! What is read is the state of one moment, also while hubs write. Texts that are sealed stay
//! sealed with the same key. SQLite is used on the calling thread, because only commands of
//! the command line copy.

use std::iter;

use deadpool_postgres::Object;
use futures_util::future::try_join_all;
use rusqlite::{Connection, params_from_iter};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tokio::sync::OwnedMutexGuard;
use tokio_postgres::types::{ToSql, Type};

use super::{CellValue, DatabaseError, Store, StoreBackend, postgres, sqlite};

/// Rows that are read and written together.
const BATCH_ROWS: usize = 500;
/// The setting that a store has while it is filled.
const UNFINISHED: &str = "unfinished-copy";

/// How a copy treats what is in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// The target must be empty, or have a part of an earlier copy, which goes on.
    Fill,
    /// The target gets everything in one transaction, in place of what it has.
    Replace,
}

/// Why a copy failed.
#[derive(Debug, Error)]
pub enum CopyError {
    /// A database failed.
    #[error("the copy of {table} failed")]
    Database {
        /// The table.
        table: String,
        /// The error of the database.
        #[source]
        cause: DatabaseError,
    },
    /// Both stores are in PostgreSQL.
    #[error("one of both stores must be an SQLite file; back up the one and restore the other")]
    NoFile,
    /// The target has rows that are not of an earlier copy.
    #[error("the target is not empty: {0} has rows")]
    NotEmpty(String),
    /// A table differs after it was copied.
    #[error("the copy of {0} differs from the original; a hub may write to the target")]
    Differs(String),
}

/// One end of a copy.
enum CopyEnd {
    Sqlite(OwnedMutexGuard<Connection>),
    Postgres(Box<Object>),
}

/// A table as both ends have it.
struct CopiedTable {
    name: String,
    columns: Vec<String>,
    key: Vec<String>,
}

/// Rows whose order does not matter.
#[derive(Debug, Default, PartialEq, Eq)]
struct RowSum {
    rows: u64,
    sum: u128,
}

impl Store {
    /// Copies all tables to `target`, checks them and returns the number of rows. `report`
    /// is told the table and its rows so far.
    pub async fn copy_to(
        &self,
        target: &Self,
        mode: CopyMode,
        mut report: impl FnMut(&str, u64),
    ) -> Result<u64, CopyError> {
        let failed = |table: &str| {
            let table = table.to_owned();
            move |cause| CopyError::Database { table, cause }
        };
        let mut from = CopyEnd::open(self).await.map_err(failed("all tables"))?;
        let mut to = CopyEnd::open(target).await.map_err(failed("all tables"))?;
        let tables = match (&from, &to) {
            (CopyEnd::Sqlite(file), _) | (_, CopyEnd::Sqlite(file)) => tables_of(file),
            _ => return Err(CopyError::NoFile),
        };
        let tables = tables.map_err(failed("all tables"))?;
        from.execute("BEGIN").await.map_err(failed("all tables"))?;
        if mode == CopyMode::Replace {
            to.execute("BEGIN").await.map_err(failed("all tables"))?;
            for table in tables.iter().rev() {
                let sql = format!("DELETE FROM {}", table.name);
                to.execute(&sql).await.map_err(failed(&table.name))?;
            }
        } else {
            to.begin_filling(&tables).await?;
        }
        let mut total = 0;
        for table in &tables {
            let written = RowSum::of(&from, table, async |rows, sum| {
                report(&table.name, sum.rows);
                if mode == CopyMode::Replace {
                    return to.insert(table, rows).await;
                }
                to.execute("BEGIN").await?;
                to.insert(table, rows).await?;
                to.execute("COMMIT").await
            });
            let original = written.await.map_err(failed(&table.name))?;
            let copied = RowSum::of(&to, table, async |_, _| Ok(()));
            let copied = copied.await.map_err(failed(&table.name))?;
            let marker = u64::from(mode == CopyMode::Fill && table.name == "hub_setting");
            if copied.rows != original.rows + marker || marker == 0 && copied != original {
                return Err(CopyError::Differs(table.name.clone()));
            }
            to.set_sequence(table).await.map_err(failed(&table.name))?;
            total += original.rows;
        }
        let end = if mode == CopyMode::Replace {
            "COMMIT".to_owned()
        } else {
            format!("DELETE FROM hub_setting WHERE name = '{UNFINISHED}'")
        };
        to.execute(&end).await.map_err(failed("all tables"))?;
        from.execute("COMMIT").await.map_err(failed("all tables"))?;
        Ok(total)
    }
}

impl CopyEnd {
    async fn open(store: &Store) -> Result<Self, DatabaseError> {
        Ok(match &store.backend {
            StoreBackend::Sqlite(backend) => Self::Sqlite(backend.lock_connection().await?),
            StoreBackend::Postgres(backend) => {
                let client = backend.acquire_connection().await?;
                // A table may be large. The connection is closed at the end.
                let settings = "SET statement_timeout = 0; SET SESSION CHARACTERISTICS AS
                    TRANSACTION ISOLATION LEVEL REPEATABLE READ";
                client.batch_execute(settings).await?;
                Self::Postgres(Box::new(client))
            }
        })
    }

    async fn execute(&mut self, sql: &str) -> Result<(), DatabaseError> {
        match self {
            Self::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            Self::Postgres(client) => Ok(client.batch_execute(sql).await?),
        }
    }

    /// Marks an empty target as one that is being filled.
    async fn begin_filling(&mut self, tables: &[CopiedTable]) -> Result<(), CopyError> {
        let database = |table: &str| {
            let table = table.to_owned();
            move |cause| CopyError::Database { table, cause }
        };
        let sql = format!("SELECT name FROM hub_setting WHERE name = '{UNFINISHED}'");
        let marked = self.query(&sql, &[]).await;
        if !marked.map_err(database("hub_setting"))?.is_empty() {
            return Ok(());
        }
        for table in tables {
            let sql = format!("SELECT {} FROM {} LIMIT 1", table.key[0], table.name);
            let found = self.query(&sql, &[]).await;
            if !found.map_err(database(&table.name))?.is_empty() {
                return Err(CopyError::NotEmpty(table.name.clone()));
            }
        }
        let sql = format!("INSERT INTO hub_setting (name, value) VALUES ('{UNFINISHED}', '')");
        self.execute(&sql).await.map_err(database("hub_setting"))
    }

    async fn query(
        &self,
        sql: &str,
        values: &[CellValue],
    ) -> Result<Vec<Vec<CellValue>>, DatabaseError> {
        match self {
            Self::Sqlite(connection) => {
                let rows = sqlite::query_rows(connection, sql, values)?;
                Ok(rows.into_iter().map(Iterator::collect).collect())
            }
            Self::Postgres(client) => {
                let rows = postgres::query_rows(&**client, sql, values).await?;
                Ok(rows.into_iter().map(Iterator::collect).collect())
            }
        }
    }

    /// Reads the rows after the one with this key, in the order of the key.
    async fn page(
        &self,
        table: &CopiedTable,
        after: &[CellValue],
    ) -> Result<Vec<Vec<CellValue>>, DatabaseError> {
        let (columns, key) = (table.columns.join(", "), table.key.join(", "));
        let name = &table.name;
        let condition = if after.is_empty() {
            String::new()
        } else {
            format!("WHERE ({key}) > ({})", placeholders(after.len()))
        };
        let sql =
            format!("SELECT {columns} FROM {name} {condition} ORDER BY {key} LIMIT {BATCH_ROWS}");
        self.query(&sql, after).await
    }

    /// Adds rows; those that are there already stay.
    async fn insert(
        &mut self,
        table: &CopiedTable,
        rows: Vec<Vec<CellValue>>,
    ) -> Result<(), DatabaseError> {
        let (name, columns) = (&table.name, table.columns.join(", "));
        let values = placeholders(table.columns.len());
        match self {
            Self::Sqlite(connection) => {
                let sql = format!(
                    "INSERT INTO {name} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"
                );
                let mut statement = connection.prepare_cached(&sql)?;
                for row in rows {
                    statement.execute(params_from_iter(row))?;
                }
            }
            Self::Postgres(client) => {
                let sql = format!(
                    "INSERT INTO {name} ({columns}) OVERRIDING SYSTEM VALUE VALUES ({values})
                     ON CONFLICT DO NOTHING"
                );
                let statement = client.prepare_cached(&sql).await?;
                let rows = rows.into_iter().map(|row| {
                    let typed = iter::zip(row, statement.params());
                    typed.map(|(it, kind)| to_column(it, kind)).collect()
                });
                let rows: Vec<Vec<CellValue>> = rows.collect();
                // All are on their way before the first answer.
                let inserts = rows.iter().map(|row| {
                    let values: Vec<_> = row.iter().map(|it| it as &(dyn ToSql + Sync)).collect();
                    let (client, statement) = (&client, &statement);
                    async move { client.execute(statement, &values).await }
                });
                try_join_all(inserts).await?;
            }
        }
        Ok(())
    }

    /// Continues the numbers of a table that PostgreSQL numbers.
    async fn set_sequence(&mut self, table: &CopiedTable) -> Result<(), DatabaseError> {
        let (Self::Postgres(_), [column]) = (&self, &table.key[..]) else {
            return Ok(());
        };
        let name = &table.name;
        let sql = format!(
            "DO $$ BEGIN
                IF pg_get_serial_sequence('{name}', '{column}') IS NOT NULL THEN
                    PERFORM setval(pg_get_serial_sequence('{name}', '{column}'),
                        max({column})) FROM {name};
                END IF;
            END $$"
        );
        self.execute(&sql).await
    }
}

impl Drop for CopyEnd {
    fn drop(&mut self) {
        match self {
            // After an error; otherwise there is no transaction.
            Self::Sqlite(connection) if !connection.is_autocommit() => {
                let _ = connection.execute_batch("ROLLBACK");
            }
            _ => (),
        }
    }
}

impl RowSum {
    /// Reads all rows of a table, hands them on in batches, and sums them up.
    async fn of(
        end: &CopyEnd,
        table: &CopiedTable,
        mut take: impl AsyncFnMut(Vec<Vec<CellValue>>, &Self) -> Result<(), DatabaseError>,
    ) -> Result<Self, DatabaseError> {
        let key = |row: &Vec<CellValue>| -> Vec<CellValue> {
            let at = |name| table.columns.iter().position(|it| it == name);
            let cells = table.key.iter().filter_map(at).map(|at| row[at].clone());
            cells.collect()
        };
        let (mut sum, mut after) = (Self::default(), Vec::new());
        loop {
            let rows = end.page(table, &after).await?;
            rows.iter().for_each(|it| sum.add(it));
            let is_last = rows.len() < BATCH_ROWS;
            after = rows.last().map(key).unwrap_or_default();
            take(rows, &sum).await?;
            if is_last {
                return Ok(sum);
            }
        }
    }

    fn add(&mut self, row: &[CellValue]) {
        let mut hash = Sha256::new();
        for cell in row {
            let (kind, bytes): (u8, &[u8]) = match cell {
                CellValue::Null => (0, &[]),
                // SQLite has no boolean type.
                CellValue::Bool(value) => (1, &i64::from(*value).to_be_bytes()),
                CellValue::Integer(number) => (1, &number.to_be_bytes()),
                CellValue::Text(text) => (2, text.as_bytes()),
                CellValue::Blob(bytes) => (3, bytes),
            };
            hash.update([kind]);
            hash.update(bytes.len().to_be_bytes());
            hash.update(bytes);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        self.rows += 1;
        self.sum = self.sum.wrapping_add(u128::from_be_bytes(bytes));
    }
}

/// The tables of an SQLite file, those that others refer to first.
fn tables_of(file: &Connection) -> Result<Vec<CopiedTable>, DatabaseError> {
    let sql = "SELECT name FROM sqlite_master
        WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY rowid";
    let mut names = file.prepare(sql)?;
    let names = names.query_map([], |row| row.get(0))?;
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    let table = |name: String| {
        let mut columns = file.prepare("SELECT name, pk FROM pragma_table_info($1)")?;
        let columns = columns.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let columns: Vec<(String, i64)> = columns.collect::<Result<_, _>>()?;
        let mut key: Vec<_> = columns.iter().filter(|(_, pk)| *pk > 0).collect();
        key.sort_by_key(|(_, pk)| *pk);
        Ok(CopiedTable {
            name,
            key: key.into_iter().map(|(name, _)| name.clone()).collect(),
            columns: columns.into_iter().map(|(name, _)| name).collect(),
        })
    };
    names.into_iter().map(table).collect()
}

fn placeholders(count: usize) -> String {
    let all: Vec<String> = (1..=count).map(|it| format!("${it}")).collect();
    all.join(", ")
}

/// A value as PostgreSQL's column wants it.
fn to_column(value: CellValue, kind: &Type) -> CellValue {
    match value {
        CellValue::Integer(number) if *kind == Type::BOOL => CellValue::Bool(number != 0),
        other => other,
    }
}
