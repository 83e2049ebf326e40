//! What only an SQLite file promises.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use maru::store::Store;
use rusqlite::Connection;

use super::{TIME, names_in, told};

pub(super) struct Files<'a> {
    directory: &'a Path,
    made: AtomicUsize,
}

impl<'a> Files<'a> {
    pub(super) fn new(directory: &'a Path) -> Self {
        let made = AtomicUsize::new(0);
        Self { directory, made }
    }

    /// A path where nothing is yet.
    pub(super) fn fresh(&self) -> PathBuf {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("{number}.db"))
    }
}

pub(super) async fn check(files: &Files<'_>) {
    older_file_is_upgraded(&files.fresh()).await;
    newer_file_is_refused_and_left_as_it_is(&files.fresh()).await;
    upgrade_is_whole_or_not_at_all(&files.fresh()).await;
    times_written_by_hand_are_read(&files.fresh()).await;
}

async fn older_file_is_upgraded(path: &Path) {
    let first = include_str!("../../../migrations/sqlite/001_token.sql");
    write(path, first);
    write(
        path,
        "INSERT INTO token VALUES ('old', 'agent', zeroblob(32), 0); PRAGMA user_version = 1",
    );
    let store = Store::open(path).await.unwrap();
    assert_eq!(store.tokens().await.unwrap()[0].name, "old");
    assert_eq!(names_in(&store).await, [""; 0]);
}

async fn newer_file_is_refused_and_left_as_it_is(path: &Path) {
    drop(Store::open(path).await.unwrap());
    write(path, "PRAGMA user_version = 99");
    let before = fs::read(path).unwrap();
    let why = told(Store::open(path).await.unwrap_err());
    assert!(why.contains("newer maru (schema 99)"), "{why}");
    assert!(why.contains(&*path.to_string_lossy()), "{why}");
    assert_eq!(fs::read(path).unwrap(), before);
}

async fn upgrade_is_whole_or_not_at_all(path: &Path) {
    write(path, "CREATE TABLE mcp_servers (x)");
    let why = told(Store::open(path).await.unwrap_err());
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
    write(path, insert);
    let [row] = store.servers().await.unwrap().try_into().unwrap();
    assert!(row.created_at > TIME - 400 * 86_400_000, "{row:?}");
    assert_eq!((row.config.as_str(), row.origin.as_str()), ("{}", "api"));
    assert!(row.enabled && !row.auto_connect);
    write(
        path,
        "UPDATE mcp_servers SET updated_at = '2026-08-01 12:34:56.789'",
    );
    assert_eq!(store.servers().await.unwrap()[0].updated_at, TIME);
}

fn write(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}
