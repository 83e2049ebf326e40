//! Parameters of statements, through the hub: types, lists, columns and the caller.

use std::time::Duration;

use maru::config::{QueryBounds, SourceDefinition};
use serde_json::{Value, json};

use crate::{
    auth::oauth::{signed_jwt, trust_issuer},
    http_client::{TestRequest, wait_until},
    postgres_cluster::PostgresCluster,
    test_hub::{TestHub, call_message},
};

const CREATE_TABLES: &str = "
    CREATE TABLE item (id int, name text, day date, at timestamptz, owner text);
    INSERT INTO item VALUES (1, 'b', '2026-01-01', '2026-01-01T00:00:00Z', 'kim'),
        (2, 'a', '2026-02-01', '2026-02-01T00:00:00Z', 'lee'),
        (3, 'c''\"\\', '2026-03-01', '2026-03-01T00:00:00Z', 'kim');
    CREATE TABLE mine AS SELECT * FROM item;
    ALTER TABLE mine ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON mine USING (owner = current_setting('app.user', true));
    CREATE TABLE of_tenant AS SELECT id, 'shop-' || id AS tenant FROM item;
    ALTER TABLE of_tenant ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON of_tenant USING (tenant = current_setting('app.tenant', true));
    CREATE FUNCTION slow(seconds float8) RETURNS int LANGUAGE sql STABLE
        AS 'SELECT 1 FROM pg_sleep(seconds)';
    CREATE ROLE app LOGIN PASSWORD 'x';
    GRANT SELECT ON item, mine, of_tenant TO app";

async fn start_hub(cluster: &PostgresCluster) -> (TestHub, String) {
    let database = cluster.create_database();
    cluster.run_sql(&database, CREATE_TABLES);
    let url = format!("postgres://app:x@127.0.0.1:{}/{database}", cluster.port);
    let hub = TestHub::with_config(|config| {
        trust_issuer(config);
        config.sources = vec![SourceDefinition {
            bounds: QueryBounds {
                caller_settings: [("app.user", "name"), ("app.tenant", "tenant_id")]
                    .map(|(setting, value)| (setting.to_owned(), value.to_owned()))
                    .into(),
                functions: vec!["slow".to_owned()],
                ..QueryBounds::default()
            },
            ..SourceDefinition::new("items", url.into())
        }];
    })
    .await;
    (hub, database)
}

fn tool(source: &str, sql: &str, params: Value) -> Value {
    json!({
        "name": "find_items", "description_agent": "Finds items.", "tool_type": "SQL",
        "source": source, "definition": sql, "params": params, "result_format": "rows",
    })
}

/// Runs a definition; the text of its result, or of what is wrong.
async fn try_tool(hub: &TestHub, tool: Value, arguments: Value) -> String {
    let body = json!({"tool": tool, "arguments": arguments});
    let reply = hub
        .send_as_admin("POST", "/api/custom-tools/test", body)
        .await;
    let answer = reply.json().await;
    let text = answer["text"]
        .as_str()
        .or(answer["error"]["message"].as_str());
    text.map_or_else(|| answer.to_string(), str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_have_types_and_columns_are_chosen_from_a_list() {
    let cluster = PostgresCluster::start().await;
    let (hub, _) = start_hub(&cluster).await;
    let list = json!([{"param_name": "ids", "param_type": "LIST"}]);
    let day = json!([{"param_name": "since", "param_type": "DATE"}]);
    let moment = json!([{"param_name": "since", "param_type": "TIMESTAMP"}]);
    let column =
        json!([{"param_name": "col", "param_type": "IDENTIFIER", "enum": ["name", "id desc"]}]);
    let by_id = "SELECT id FROM item WHERE id = ANY(:ids) ORDER BY id";
    let by_name = "SELECT id FROM item WHERE name IN (:ids) ORDER BY id";
    let not_named = "SELECT id FROM item WHERE name NOT IN (:ids) ORDER BY id";
    let since = "SELECT id FROM item WHERE day >= :since ORDER BY id";
    let later = "SELECT id FROM item WHERE at > :since ORDER BY id";
    let ordered = "SELECT id FROM item ORDER BY :col LIMIT 2";
    let cases = [
        (
            by_id,
            &list,
            json!({"ids": [3, 1]}),
            r#"[{"id":1},{"id":3}]"#,
        ),
        (by_id, &list, json!({"ids": []}), "[]"),
        (
            by_name,
            &list,
            json!({"ids": ["a", "c'\"\\"]}),
            r#"[{"id":2},{"id":3}]"#,
        ),
        (
            not_named,
            &list,
            json!({"ids": ["a"]}),
            r#"[{"id":1},{"id":3}]"#,
        ),
        (
            by_name,
            &list,
            json!({"ids": ["a", 1]}),
            "ids is not a LIST of texts",
        ),
        (
            since,
            &day,
            json!({"since": "2026-02-01"}),
            r#"[{"id":2},{"id":3}]"#,
        ),
        (
            since,
            &day,
            json!({"since": "2026-02-31"}),
            "since is not a DATE, such as",
        ),
        (
            later,
            &moment,
            json!({"since": "2026-02-01T09:00:00+09:00"}),
            r#"[{"id":3}]"#,
        ),
        (
            ordered,
            &column,
            json!({"col": "name"}),
            r#"[{"id":2},{"id":1}]"#,
        ),
        (
            ordered,
            &column,
            json!({"col": "id desc"}),
            r#"[{"id":3},{"id":2}]"#,
        ),
        (
            ordered,
            &column,
            json!({"col": "owner"}),
            "wrong arguments: col",
        ),
    ];
    for (sql, params, arguments, expected) in &cases {
        let definition = tool("items", sql, (*params).clone());
        let answer = try_tool(&hub, definition, arguments.clone()).await;
        assert!(answer.contains(expected), "{sql} {arguments}: {answer}");
    }
    let plain = json!([{"param_name": "col", "param_type": "STRING"}]);
    let refused = try_tool(&hub, tool("items", ordered, plain), json!({"col": "name"})).await;
    assert!(
        refused.contains("make the parameter an IDENTIFIER"),
        "{refused}"
    );
    let hostile =
        json!([{"param_name": "col", "param_type": "IDENTIFIER", "enum": ["1; DROP TABLE item"]}]);
    let refused = try_tool(&hub, tool("items", ordered, hostile), json!({})).await;
    assert!(refused.contains("an enum is a list"), "{refused}");
    let text = json!([{"param_name": "t", "param_type": "STRING"}]);
    let large = json!({"t": "x".repeat((1 << 20) + 1)});
    let refused = try_tool(&hub, tool("items", "SELECT length(:t) AS n", text), large).await;
    assert!(refused.contains("larger than 1048576 bytes"), "{refused}");

    // The same on SQLite, where lists are bound value by value.
    let sample = "SELECT user_nm FROM h_user WHERE user_nm = ANY(:ids) OR user_nm IN (:ids) ORDER BY user_nm";
    let found = try_tool(
        &hub,
        tool("sample", sample, list),
        json!({"ids": ["hong", "nobody"]}),
    )
    .await;
    assert_eq!(found, r#"[{"user_nm":"hong"}]"#);
    let columns = json!([{"param_name": "col", "param_type": "IDENTIFIER", "enum": ["user_nm"]}]);
    let sample = "SELECT user_nm FROM h_user ORDER BY :col LIMIT 1";
    let found = try_tool(
        &hub,
        tool("sample", sample, columns),
        json!({"col": "user_nm"}),
    )
    .await;
    assert!(found.starts_with(r#"[{"user_nm":"#), "{found}");
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_is_known_to_statements_and_to_row_level_security() {
    let cluster = PostgresCluster::start().await;
    let (hub, database) = start_hub(&cluster).await;
    let of_caller =
        "SELECT id, :caller.role AS role FROM item WHERE owner = :caller.name ORDER BY id";
    let made = hub
        .send_as_admin(
            "POST",
            "/api/custom-tools",
            tool("items", of_caller, json!([])),
        )
        .await;
    assert_eq!(made.status, 201);
    let call = async |token: &str, name: &str, arguments: Value| {
        let answer = TestRequest::post(&hub.address, "/sse", &call_message(1, name, arguments))
            .header("authorization", &format!("Bearer {token}"))
            .send()
            .await
            .json()
            .await;
        let text = answer["result"]["content"][0]["text"].as_str();
        text.map_or_else(|| answer.to_string(), str::to_owned)
    };
    let kim = hub
        .create_token(json!({"name": "kim", "role": "agent"}))
        .await;
    let lee = hub
        .create_token(json!({"name": "lee", "role": "agent"}))
        .await;
    assert_eq!(
        call(&kim, "find_items", json!({})).await,
        r#"[{"id":1,"role":"agent"},{"id":3,"role":"agent"}]"#
    );
    assert_eq!(
        call(&lee, "find_items", json!({})).await,
        r#"[{"id":2,"role":"agent"}]"#
    );
    let forged = call(&lee, "find_items", json!({"caller.name": "kim"})).await;
    assert!(forged.contains("caller.name"), "{forged}");
    let rows = json!({"generated_sql": "SELECT id FROM mine ORDER BY id", "source": "items"});
    for _ in 0..2 {
        let of_kim = call(&kim, "query_bga_database", rows.clone()).await;
        assert!(
            of_kim.contains(r#""records":[{"id":1},{"id":3}]"#),
            "{of_kim}"
        );
        let of_lee = call(&lee, "query_bga_database", rows.clone()).await;
        assert!(of_lee.contains(r#""records":[{"id":2}]"#), "{of_lee}");
    }
    // A claim of an OAuth token, which no argument can replace.
    let sql = "SELECT :caller.tenant_id AS tenant, :caller.name AS name";
    let mut of_claims = tool("items", sql, json!([]));
    of_claims["name"] = "show_claims".into();
    let made = hub
        .send_as_admin("POST", "/api/custom-tools", of_claims)
        .await;
    assert_eq!(made.status, 201);
    let of_tenant = json!({"generated_sql": "SELECT id FROM of_tenant", "source": "items"});
    for (claims, shown, rows) in [
        (
            json!({"tenant_id": "shop-2"}),
            r#"{"tenant":"shop-2","name":"oauth:kim"}"#,
            r#""records":[{"id":2}]"#,
        ),
        (
            json!({"tenant_id": "shop-3", "name": "lee", "role": "admin"}),
            r#"{"tenant":"shop-3","name":"oauth:kim"}"#,
            r#""records":[{"id":3}]"#,
        ),
        (
            json!({}),
            r#"{"tenant":null,"name":"oauth:kim"}"#,
            r#""records":[]"#,
        ),
    ] {
        let token = signed_jwt(1, "maru:call", claims.clone());
        assert_eq!(
            call(&token, "show_claims", json!({})).await,
            format!("[{shown}]"),
            "{claims}"
        );
        let found = call(&token, "query_bga_database", of_tenant.clone()).await;
        assert!(found.contains(rows), "{claims}: {found}");
    }
    check_abandoned_call(&hub, &cluster, &database).await;
    hub.running.stop().await;
}

/// A caller that leaves a one-shot request stops its query in the database.
async fn check_abandoned_call(hub: &TestHub, cluster: &PostgresCluster, database: &str) {
    let slow = json!({"generated_sql": "SELECT slow(4) AS n", "source": "items"});
    let call = call_message(1, "query_bga_database", slow);
    let request = TestRequest::post(&hub.address, "/sse", &call).send();
    let left = tokio::time::timeout(Duration::from_millis(700), request).await;
    assert!(left.is_err());
    let running = "SELECT count(*) FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE '%slow(4)%' AND pid <> pg_backend_pid()";
    wait_until(async || cluster.run_sql(database, running) == "0").await;
}

#[tokio::test]
async fn database_that_maru_cannot_read_is_no_file_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = maru::config::Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: directory.path().to_owned(),
        ..maru::config::Config::default()
    };
    let url = "mysql://root:hush@db.example/shop".to_owned();
    config.sources = vec![SourceDefinition::new("shop", url.into())];
    let error = Box::pin(maru::app::start(config)).await.err().unwrap();
    let message = format!("{error:#}");
    assert!(message.contains("cannot read mysql://"), "{message}");
    assert!(
        !message.contains("hush") && !message.contains("db.example"),
        "{message}"
    );
}
