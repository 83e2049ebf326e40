//! What only an SQLite file promises.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use maru_store::Store;
use rusqlite::Connection;

use super::{TEST_TIME_MS, full_error_text, server_names};

pub(super) struct StoreFiles<'a> {
    directory: &'a Path,
    made: AtomicUsize,
}

impl<'a> StoreFiles<'a> {
    pub(super) fn new(directory: &'a Path) -> Self {
        let made = AtomicUsize::new(0);
        Self { directory, made }
    }

    /// A path where nothing is yet.
    pub(super) fn fresh_path(&self) -> PathBuf {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("{number}.db"))
    }
}

pub(super) async fn check_files(files: &StoreFiles<'_>) {
    older_file_is_upgraded(&files.fresh_path()).await;
    newer_file_is_refused_and_left_as_it_is(&files.fresh_path()).await;
    upgrade_is_whole_or_not_at_all(&files.fresh_path()).await;
    times_written_by_hand_are_read(&files.fresh_path()).await;
}

async fn older_file_is_upgraded(path: &Path) {
    let first = include_str!("../../../migrations/sqlite/001_token.sql");
    write_database(path, first);
    write_database(
        path,
        "INSERT INTO token VALUES ('old', 'agent', zeroblob(32), 0); PRAGMA user_version = 1",
    );
    let store = Store::open(path).await.unwrap();
    assert_eq!(store.tokens().await.unwrap()[0].name, "old");
    assert_eq!(server_names(&store).await, [""; 0]);
}

async fn newer_file_is_refused_and_left_as_it_is(path: &Path) {
    drop(Store::open(path).await.unwrap());
    write_database(path, "PRAGMA user_version = 99");
    let before = fs::read(path).unwrap();
    let why = full_error_text(Store::open(path).await.unwrap_err());
    assert!(why.contains("newer maru (schema 99)"), "{why}");
    assert!(why.contains(&*path.to_string_lossy()), "{why}");
    assert_eq!(fs::read(path).unwrap(), before);
}

async fn upgrade_is_whole_or_not_at_all(path: &Path) {
    write_database(path, "CREATE TABLE mcp_servers (x)");
    let why = full_error_text(Store::open(path).await.unwrap_err());
    assert!(why.contains("already exists"), "{why}");
    let connection = Connection::open(path).unwrap();
    let tables: String = connection
        .query_row("SELECT group_concat(name) FROM sqlite_schema", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(tables, "mcp_servers");
}

async fn times_written_by_hand_are_read(path: &Path) {
    let store = Store::open(path).await.unwrap();
    let insert = "INSERT INTO mcp_servers (id, name, transport_type) VALUES ('1', 'hand', 'sse')";
    write_database(path, insert);
    let [row] = store.servers().await.unwrap().try_into().unwrap();
    assert!(row.created_at > TEST_TIME_MS - 400 * 86_400_000, "{row:?}");
    assert_eq!((row.config.as_str(), row.origin.as_str()), ("{}", "api"));
    assert!(row.enabled && !row.auto_connect);
    write_database(
        path,
        "UPDATE mcp_servers SET updated_at = '2026-08-01 12:34:56.789'",
    );
    assert_eq!(store.servers().await.unwrap()[0].updated_at, TEST_TIME_MS);
}

fn write_database(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}
