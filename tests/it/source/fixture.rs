//! The databases of the hostile sets, and the sources that read them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use maru::{
    source::{Address, Limits, Parameters, Rows, Server, Settings, Source},
    tasks::Tasks,
};

use crate::postgres::Cluster;

/// What an agent may read; `maru_secrets` and `v_leaky` are not among it.
const RELATIONS: &[&str] = &[
    "h_user",
    "h_mcp_tool_limit",
    "documents",
    "employees",
    "vacations",
    "orders",
    "v_user_limits",
];
pub(super) const CANARY: &str = "CANARY";

pub(super) fn settings() -> Settings {
    Settings {
        relations: RELATIONS.iter().map(|it| (*it).to_owned()).collect(),
        ..Settings::default()
    }
}

pub(super) fn file(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/security");
    fs::read_to_string(root.join(name)).unwrap()
}

/// A database with the fixture.
pub(super) fn postgres_fixture(cluster: &Cluster) -> String {
    let database = cluster.database();
    cluster.sql(&database, &file("fixtures/pg.sql"));
    database
}

/// The database as a role of the fixture sees it.
pub(super) fn as_role(
    cluster: &Cluster,
    database: &str,
    user: &str,
    settings: Settings,
    tasks: &Tasks,
) -> Source {
    let address = Address::Server(Server {
        host: "127.0.0.1".into(),
        port: cluster.port,
        user: user.into(),
        password: "x".to_owned().into(),
        database: database.into(),
    });
    Source::postgres(user, &address, settings, tasks).unwrap()
}

pub(super) fn sqlite_fixture(directory: &Path) -> PathBuf {
    let path = directory.join("fixture.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(&file("fixtures/sqlite.sql"))
        .unwrap();
    path
}

/// Runs a query without parameters.
pub(super) async fn rows(source: &Source, sql: &str) -> Result<Rows, maru::source::Error> {
    let limits = Limits::default();
    source.query(sql, &Parameters::default(), limits).await
}

/// The JSON of a query that works.
pub(super) async fn json(source: &Source, sql: &str) -> String {
    match rows(source, sql).await {
        Ok(rows) => rows.json,
        Err(error) => panic!("{sql}: {error} {:?}", std::error::Error::source(&error)),
    }
}
