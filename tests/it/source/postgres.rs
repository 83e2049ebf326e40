//! A real PostgreSQL.

use std::time::Duration;

use maru::{
    source::{Limits, Parameters, Settings, Source, Value},
    tasks::Tasks,
};

use super::{
    fixture::{as_role, json, postgres_fixture, rows, settings},
    hostile,
};
use crate::postgres::Cluster;

/// Everything that a statement could have changed.
const STATE: &str = "SELECT md5(string_agg(t::text, '|')) FROM (
    SELECT h::text FROM h_user h UNION ALL SELECT e::text FROM employees e
    UNION ALL SELECT v::text FROM vacations v UNION ALL SELECT l::text FROM h_mcp_tool_limit l
    UNION ALL SELECT d::text FROM documents d UNION ALL SELECT s::text FROM maru_secrets s
    UNION ALL SELECT a::text FROM audit_log a UNION ALL SELECT count(*)::text FROM orders
    UNION ALL SELECT q.last_value::text || q.is_called FROM fx_seq q
    UNION ALL SELECT count(*)::text FROM pg_class UNION ALL SELECT count(*)::text FROM pg_proc
    UNION ALL SELECT count(*)::text FROM pg_largeobject_metadata
    UNION ALL SELECT count(*)::text FROM pg_prepared_xacts) t";
/// What the next user of a connection would find.
const LEFT_BEHIND: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";

#[tokio::test]
async fn postgres_keeps_what_is_hostile_out() {
    let cluster = Cluster::start().await;
    let database = postgres_fixture(&cluster);
    let before = cluster.sql(&database, STATE);
    for role in ["fx_owner", "fx_agent"] {
        let tasks = Tasks::default();
        let source = as_role(&cluster, &database, role, settings(), &tasks);
        let tally = hostile::statements(&source, "postgres", async |id| {
            clean(&source, id).await;
        })
        .await;
        assert_eq!(
            tally,
            hostile::Tally {
                hostile: 134,
                legitimate: 22
            }
        );
        assert_eq!(hostile::arguments(&source).await, 47, "{role}");
        assert_eq!(cluster.sql(&database, STATE), before, "{role}");
        assert_eq!(cluster.sql(&database, LEFT_BEHIND), "0", "{role}");
        tasks.close().await;
    }
}

/// The next user sees a session that is as new.
async fn clean(source: &Source, id: &str) {
    let now = json(
        source,
        "SELECT count(*) AS n, interval '1 month' AS i FROM h_user",
    )
    .await;
    assert_eq!(now, r#"[{"n":200,"i":"P1M"}]"#, "{id}");
}
