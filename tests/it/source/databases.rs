//! The databases of the hostile sets, and the sources that read them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use maru_postgres::{PostgresAddress, PostgresServer, TlsOptions};
use maru_runtime::tasks::Tasks;
use maru_sources::{DataSource, QueryParameters, QueryRows, SourceSettings};

use crate::postgres_cluster::PostgresCluster;

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

pub(super) fn source_settings() -> SourceSettings {
    SourceSettings {
        relations: RELATIONS.iter().map(|it| (*it).to_owned()).collect(),
        ..SourceSettings::default()
    }
}

pub(super) fn security_file(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/security");
    fs::read_to_string(root.join(name)).unwrap()
}

/// A database with the fixture.
pub(super) fn postgres_fixture(cluster: &PostgresCluster) -> String {
    let database = cluster.create_database();
    cluster.run_sql(&database, &security_file("fixtures/pg.sql"));
    database
}

/// The database as a role of the fixture sees it.
pub(super) fn url_as_role(
    cluster: &PostgresCluster,
    database: &str,
    user: &str,
    settings: SourceSettings,
    tasks: &Tasks,
) -> DataSource {
    let address = PostgresAddress::from_server(&PostgresServer {
        host: "127.0.0.1".into(),
        port: cluster.port,
        user: user.into(),
        password: "x".to_owned().into(),
        database: database.into(),
        tls: TlsOptions::default(),
    })
    .unwrap();
    DataSource::postgres(user, &address, settings, tasks).unwrap()
}

pub(super) fn sqlite_fixture(directory: &Path) -> PathBuf {
    let path = directory.join("fixture.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(&security_file("fixtures/sqlite.sql"))
        .unwrap();
    path
}

/// Runs a query without parameters, as far as the source lets it.
pub(super) async fn query_rows(
    source: &DataSource,
    sql: &str,
) -> Result<QueryRows, maru_sources::Error> {
    let parameters = QueryParameters::default();
    source.query(sql, &parameters, source.limits()).await
}

/// The JSON of a query that works.
pub(super) async fn query_json(source: &DataSource, sql: &str) -> String {
    match query_rows(source, sql).await {
        Ok(rows) => rows.json,
        Err(error) => panic!("{sql}: {error} {:?}", std::error::Error::source(&error)),
    }
}
