//! Custom tools while the hub runs.

use std::{fs, path::Path};

use maru::config::Config;
use serde_json::{Value, json};

use crate::{
    http_client::TestRequest,
    mcp_client::McpClient,
    postgres_cluster::PostgresCluster,
    test_hub::{TestHub, call_message, stateless_message},
};

const CUSTOM_TOOLS_ROUTE: &str = "/api/custom-tools";

/// The first example of the document.
fn daily_limit_tool() -> Value {
    json!({
        "name": "get_user_daily_limit",
        "description_agent": "특정 사용자의 일일 제한량을 조회합니다.",
        "description_user": "Example 1",
        "tool_type": "SQL",
        "source": "sample",
        "definition": "SELECT u.user_nm, l.max_count\nFROM h_user u\nJOIN h_mcp_tool_limit l ON u.uid = l.target_id\nWHERE u.user_nm = :user_name AND l.target_type = 'USER'",
        "params": [{"param_name": "user_name", "param_type": "STRING", "is_required": true, "description": "Target User"}],
    })
}

fn with_changes(mut tool: Value, changes: Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        tool[name] = value.clone();
    }
    tool
}

async fn create_tool(hub: &TestHub, tool: Value) -> (u16, Value) {
    let reply = hub.send_as_admin("POST", CUSTOM_TOOLS_ROUTE, tool).await;
    (reply.status.as_u16(), reply.json().await)
}

async fn test_tool(hub: &TestHub, tool: Value, arguments: Value) -> Value {
    let body = json!({"tool": tool, "arguments": arguments});
    let reply = hub
        .send_as_admin("POST", &format!("{CUSTOM_TOOLS_ROUTE}/test"), body)
        .await;
    assert_eq!(reply.status, 200);
    reply.json().await
}

/// What an agent reads.
async fn call_text(hub: &TestHub, name: &str, arguments: Value) -> (String, bool) {
    let params = json!({"name": name, "arguments": arguments});
    let answer = hub
        .stateless_request("tools/call", params)
        .send()
        .await
        .rpc_response()
        .await;
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str();
    let text = text.map_or_else(|| answer.to_string(), str::to_owned);
    (text, result["isError"] != false)
}

#[tokio::test]
async fn documented_example_works_over_every_transport() {
    let hub = TestHub::start().await;
    let mut session = McpClient::streamable_http(&hub, "/mcp", "2025-11-25").await;
    let (status, made) = create_tool(&hub, daily_limit_tool()).await;
    assert_eq!((status, &made["version"]), (201, &json!(1)), "{made}");
    assert_eq!(made["created_by"], "admin");
    let expected = r#"{"user_nm":"hong","max_count":50}"#;
    let clients = [
        McpClient::streamable_http(&hub, "/mcp", "2025-03-26").await,
        McpClient::streamable_http(&hub, "/mcp/s/maru", "2025-11-25").await,
        McpClient::sse(&hub, "2024-11-05").await,
        McpClient::stdio_joining(&hub, "2025-06-18").await,
        McpClient::stdio_joining(&hub, "2026-07-28").await,
    ];
    for mut client in clients {
        let params = json!({"name": "get_user_daily_limit", "arguments": {"user_name": "hong"}});
        let answer = client.request(7, "tools/call", params).await;
        assert_eq!(answer["result"]["content"][0]["text"], expected, "{answer}");
    }
    let asked = call_text(&hub, "get_user_daily_limit", json!({"user_name": "hong"}));
    assert_eq!(asked.await, (expected.to_owned(), false));
    let listed = session.request(8, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools
        .iter()
        .find(|it| it["name"] == "get_user_daily_limit")
        .unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(tool).unwrap());
}

#[tokio::test]
async fn clients_are_notified_when_a_tool_appears_or_disappears() {
    let hub = TestHub::start().await;
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    let mut stream = TestRequest::new(&hub.address, "GET", "/mcp")
        .header("mcp-session-id", &session)
        .header("accept", "text/event-stream")
        .send()
        .await;
    create_tool(&hub, daily_limit_tool()).await;
    let told = stream.next_message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");

    let name = "get_user_daily_limit";
    let route = |rest: &str| format!("{CUSTOM_TOOLS_ROUTE}/{name}{rest}");
    assert!(hub.tool_names().await.contains(name));
    let off = hub
        .send_as_admin("POST", &route("/deactivate"), Value::Null)
        .await;
    assert_eq!(off.json().await["is_active"], false);
    assert!(!hub.tool_names().await.contains(name));
    assert!(call_text(&hub, name, json!({"user_name": "kim"})).await.1);
    let on = hub
        .send_as_admin("POST", &route("/activate"), Value::Null)
        .await;
    assert_eq!(on.json().await["is_active"], true);

    let change = json!({"definition": "SELECT 1 AS one WHERE :user_name <> ''"});
    let changed = hub
        .send_as_admin("PUT", &route(""), change)
        .await
        .json()
        .await;
    assert_eq!(changed["version"], 2, "{changed}");
    assert_eq!(
        call_text(&hub, name, json!({"user_name": "kim"})).await.0,
        r#"{"one":1}"#
    );

    let versions = hub
        .send_as_admin("GET", &route("/versions"), Value::Null)
        .await
        .json()
        .await;
    let numbers: Vec<_> = versions
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["version"].clone())
        .collect();
    assert_eq!(numbers, [2, 1]);
    let back = hub
        .send_as_admin("POST", &route("/versions/1/restore"), Value::Null)
        .await;
    assert_eq!(back.json().await["version"], 3);
    let (text, _) = call_text(&hub, name, json!({"user_name": "kim"})).await;
    assert_eq!(text, r#"{"user_nm":"kim","max_count":100}"#);

    let gone = hub.send_as_admin("DELETE", &route(""), Value::Null).await;
    assert_eq!(gone.status, 204);
    assert!(!hub.tool_names().await.contains(name));
    let again = hub
        .send_as_admin("POST", &route("/versions/3/restore"), Value::Null)
        .await;
    assert_eq!(again.json().await["version"], 4);
    assert!(hub.tool_names().await.contains(name));
}

#[tokio::test]
async fn tools_survive_a_restart_and_an_unreachable_source() {
    let directory = tempfile::tempdir().unwrap();
    let config = |sample: bool| Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: directory.path().to_owned(),
        sample_data: sample,
        ..Config::default()
    };
    let hub = TestHub::with_directory(config(true)).await;
    create_tool(&hub, daily_limit_tool()).await;
    create_tool(
        &hub,
        with_changes(
            daily_limit_tool(),
            json!({"name": "off", "is_active": false}),
        ),
    )
    .await;
    let before = hub
        .send_as_admin("GET", CUSTOM_TOOLS_ROUTE, Value::Null)
        .await
        .text()
        .await;
    hub.running.stop().await;

    let hub = TestHub::with_directory(config(true)).await;
    assert_eq!(
        hub.send_as_admin("GET", CUSTOM_TOOLS_ROUTE, Value::Null)
            .await
            .text()
            .await,
        before
    );
    assert!(
        !call_text(&hub, "get_user_daily_limit", json!({"user_name": "hong"}))
            .await
            .1
    );
    assert!(!hub.tool_names().await.contains("off"));
    hub.running.stop().await;

    let hub = TestHub::with_directory(config(false)).await;
    let (text, failed) =
        call_text(&hub, "get_user_daily_limit", json!({"user_name": "hong"})).await;
    assert!(failed && text.contains("there is no source"), "{text}");
    let shown = hub
        .send_as_admin(
            "GET",
            &format!("{CUSTOM_TOOLS_ROUTE}/get_user_daily_limit"),
            Value::Null,
        )
        .await;
    assert!(
        shown.json().await["fault"]
            .as_str()
            .unwrap()
            .contains("no source")
    );
}

#[tokio::test]
async fn invalid_definition_is_refused_with_line_and_column() {
    let hub = TestHub::start().await;
    let param = |name: &str, kind: &str| json!({"param_name": name, "param_type": kind});
    // Changes of a good tool, the field that is wrong, the place, words of the answer.
    let cases = [
        (json!({"name": "a b"}), "name", None, "64"),
        (json!({"name": "files__read"}), "name", None, "__"),
        (json!({"name": "test"}), "name", None, "reserved"),
        (
            json!({"tool_type": "JAVA"}),
            "tool_type",
            None,
            "SQL or PYTHON",
        ),
        (
            json!({"description_agent": " "}),
            "description_agent",
            None,
            "model",
        ),
        (json!({"nme": 1}), "nme", None, "known are name"),
        (
            json!({"source": "nope"}),
            "source",
            None,
            "known are sample",
        ),
        (
            json!({"params": []}),
            "definition",
            Some((4, 19)),
            ":user_name is used and not declared",
        ),
        (
            json!({"definition": "SELECT 1"}),
            "params.0",
            None,
            "declared and not used",
        ),
        (
            json!({"params": [param("user_name", "STRING"), param("user_name", "NUMBER")]}),
            "params.1",
            None,
            "two parameters",
        ),
        (
            json!({"params": [param("a b", "STRING")]}),
            "params.0.param_name",
            None,
            "letter",
        ),
        (
            json!({"params": [param("user_name", "DAY")]}),
            "params.0.param_type",
            None,
            "STRING",
        ),
        (
            json!({"params": [param("user_name", "OBJECT")]}),
            "params.0.param_type",
            None,
            "statement",
        ),
        (
            json!({"params": [param("user_name", "ENUM")]}),
            "params.0.enum",
            None,
            "needs its values",
        ),
        (
            json!({"params": [with_changes(param("user_name", "STRING"), json!({"default": 5}))]}),
            "params.0.default",
            None,
            "not a STRING",
        ),
        (
            json!({"definition": "SELECT * FROM h_user WHERE user_nm = '{{user_name}}' OR '' = :user_name"}),
            "definition",
            Some((1, 39)),
            "write :user_name",
        ),
        (
            json!({"definition": "SELECT 1;\nDELETE FROM h_user WHERE user_nm = :user_name"}),
            "definition",
            Some((1, 9)),
            "more than one statement",
        ),
        (
            json!({"definition": "DELETE FROM h_user WHERE user_nm = :user_name"}),
            "definition",
            None,
            "only a query",
        ),
        (
            json!({"definition": "SELECT *\nFROM nowhere WHERE x = :user_name"}),
            "definition",
            None,
            "nowhere",
        ),
        (
            json!({"definition": "SELECT :user_name,\n  nope FROM h_user"}),
            "definition",
            Some((2, 3)),
            "no such column",
        ),
        (
            json!({"definition": "SELECT :user_name FROM\n 'x"}),
            "definition",
            Some((1, 23)),
            "does not end",
        ),
        (
            json!({"definition": "SELECT * FROM :user_name"}),
            "definition",
            Some((1, 15)),
            "syntax error",
        ),
        (
            json!({"result_format": "xml"}),
            "result_format",
            None,
            "auto",
        ),
    ];
    for (changes, field, place, words) in cases {
        let (status, answer) =
            create_tool(&hub, with_changes(daily_limit_tool(), changes.clone())).await;
        assert_eq!(
            (status, &answer["field"]),
            (400, &json!(field)),
            "{changes} {answer}"
        );
        let found = (&answer["line"], &answer["column"]);
        let expected = place.map_or((Value::Null, Value::Null), |(line, column)| {
            (json!(line), json!(column))
        });
        assert_eq!(found, (&expected.0, &expected.1), "{changes} {answer}");
        assert!(
            answer["error"].as_str().unwrap().contains(words),
            "{changes} {answer}"
        );
    }
    for taken in ["query_bga_database", "get_employee_info"] {
        let (status, answer) = create_tool(
            &hub,
            with_changes(daily_limit_tool(), json!({"name": taken})),
        )
        .await;
        assert_eq!(status, 409, "{answer}");
    }
    assert_eq!(create_tool(&hub, daily_limit_tool()).await.0, 201);
    assert_eq!(create_tool(&hub, daily_limit_tool()).await.0, 409);
    let route = format!("{CUSTOM_TOOLS_ROUTE}/get_user_daily_limit");
    let renamed = hub
        .send_as_admin("PUT", &route, json!({"name": "other"}))
        .await;
    assert_eq!(renamed.status, 400);
    for (method, path) in [
        ("GET", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("POST", "/activate"),
        ("GET", "/versions"),
        ("POST", "/versions/1/restore"),
    ] {
        let body = if method == "PUT" {
            json!({})
        } else {
            Value::Null
        };
        let none = hub
            .send_as_admin(method, &format!("{CUSTOM_TOOLS_ROUTE}/none{path}"), body)
            .await;
        assert_eq!(none.status, 404, "{method} {path}");
    }
}

/// The second example of the document.
fn multiply_tool() -> Value {
    let number = |name: &str| json!({"param_name": name, "param_type": "NUMBER"});
    json!({
        "name": "multiply_numbers",
        "description_agent": "두 숫자를 입력받아 곱한 결과를 반환합니다.",
        "tool_type": "PYTHON",
        "definition": "num1 * num2",
        "params": [number("num1"), number("num2")],
    })
}

#[tokio::test]
async fn expression_tool_reports_errors_like_python() {
    let hub = TestHub::start().await;
    let (status, made) = create_tool(&hub, multiply_tool()).await;
    assert_eq!(status, 201, "{made}");
    let multiplied = call_text(&hub, "multiply_numbers", json!({"num1": 5, "num2": 3}));
    assert_eq!(multiplied.await, ("15".to_owned(), false));
    let large = "-123456789012345678901234567890";
    let call = json!({"name": "multiply_numbers", "arguments": {"num1": 0.5, "num2": 3}});
    let body = stateless_message("tools/call", call.clone()).to_string();
    let asked = hub
        .stateless_request("tools/call", call)
        .body(&body.replace("0.5", large));
    let exact = asked.send().await.text().await;
    assert!(exact.contains("-370370367037037036703703703670"), "{exact}");
    let wrong = call_text(&hub, "multiply_numbers", json!({"num1": "5", "num2": 3})).await;
    assert!(
        wrong.1 && wrong.0.contains("expected multiply_numbers("),
        "{wrong:?}"
    );

    let run = async |definition: &str| {
        let tool = with_changes(multiply_tool(), json!({"definition": definition}));
        test_tool(&hub, tool, json!({"num1": 7, "num2": 0})).await
    };
    let several = run("total = num1 + num2\nresult = {'total': total, 'half': total / 2}").await;
    assert_eq!(
        several["result"],
        json!({"total": 7, "half": 3.5}),
        "{several}"
    );
    let big = run("2 ** 100").await;
    assert_eq!(big["text"], "1267650600228229401496703205376");
    assert_eq!(run("f'{num1:>4}|'").await["text"], "   7|");
    assert!(
        run("str(date.today())").await["text"]
            .as_str()
            .unwrap()
            .starts_with("20")
    );
    // Far beyond what is done at once.
    assert_eq!(
        run("sum(x * x for x in range(9000))").await["result"],
        242_959_501_500_u64
    );
    let fault = &run("(num1 +\n num1 / num2)").await["error"];
    assert!(
        fault["message"]
            .as_str()
            .unwrap()
            .contains("division by zero"),
        "{fault}"
    );
    let hostile = run("[[0] * 10000 for _ in range(10000)]").await;
    assert_eq!(hostile["ok"], false, "{hostile}");

    let refused = [
        ("num1 * num3", "definition", "num3"),
        ("num1 *", "definition", "SyntaxError"),
        ("num1 * 2", "params.1", "num2 is declared and not used"),
        ("__import__('os')", "definition", "__import__"),
    ];
    for (definition, field, words) in refused {
        let tool = with_changes(
            multiply_tool(),
            json!({"definition": definition, "name": "other"}),
        );
        let (status, answer) = create_tool(&hub, tool).await;
        assert_eq!((status, &answer["field"]), (400, &json!(field)), "{answer}");
        assert!(
            answer["error"].as_str().unwrap().contains(words),
            "{answer}"
        );
        assert_eq!(answer["line"].is_null(), field != "definition", "{answer}");
    }
}

#[tokio::test]
async fn only_an_admin_makes_and_tests_tools() {
    let hub = TestHub::start().await;
    for path in [
        CUSTOM_TOOLS_ROUTE,
        "/api/custom-tools/test",
        "/api/custom-tools/x/activate",
    ] {
        let reply = TestRequest::post(&hub.address, path, &daily_limit_tool())
            .send()
            .await;
        assert_eq!(reply.status, 401, "{path}");
    }
    assert_eq!(
        TestRequest::new(&hub.address, "GET", CUSTOM_TOOLS_ROUTE)
            .send()
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn unsaved_definition_can_be_tested_and_shows_the_agents_view() {
    let hub = TestHub::start().await;
    let done = test_tool(&hub, daily_limit_tool(), json!({"user_name": "hong"})).await;
    assert_eq!(done["ok"], true, "{done}");
    assert_eq!(done["result"], json!({"user_nm": "hong", "max_count": 50}));
    assert_eq!(done["text"], r#"{"user_nm":"hong","max_count":50}"#);
    assert!(done["ms"].as_f64().is_some());

    let all = json!({"definition": "SELECT user_nm, uid FROM h_user ORDER BY uid", "params": []});
    let formats = [
        (
            "rows",
            r#"[{"user_nm":"hong","uid":1},{"user_nm":"kim","uid":2},{"user_nm":"이영희","uid":3}]"#,
        ),
        ("row", r#"{"user_nm":"hong","uid":1}"#),
        (
            "table",
            "| user_nm | uid |\n| --- | --- |\n| hong | 1 |\n| kim | 2 |\n| 이영희 | 3 |",
        ),
        (
            "lines",
            "user_nm: hong, uid: 1\nuser_nm: kim, uid: 2\nuser_nm: 이영희, uid: 3",
        ),
    ];
    for (format, expected) in formats {
        let tool = with_changes(
            with_changes(daily_limit_tool(), all.clone()),
            json!({"result_format": format}),
        );
        assert_eq!(
            test_tool(&hub, tool, json!({})).await["text"],
            expected,
            "{format}"
        );
    }
    let wrong = test_tool(&hub, daily_limit_tool(), json!({"user_nme": "hong"})).await;
    assert_eq!(wrong["ok"], false);
    let why = wrong["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("get_user_daily_limit(user_name: string)"),
        "{why}"
    );
    let flawed = with_changes(
        daily_limit_tool(),
        json!({"definition": "SELECT\n nope FROM h_user WHERE :user_name = ''"}),
    );
    let flawed = test_tool(&hub, flawed, json!({"user_name": "x"})).await;
    let place = (&flawed["error"]["line"], &flawed["error"]["column"]);
    assert_eq!(place, (&json!(2), &json!(2)), "{flawed}");
    assert!(!hub.tool_names().await.contains("get_user_daily_limit"));
}

#[tokio::test]
async fn optional_parameters_have_their_default_or_nothing() {
    let hub = TestHub::start().await;
    let tool = json!({
        "name": "people",
        "description_agent": "Lists people",
        "tool_type": "SQL",
        "definition": "SELECT group_concat(user_nm) AS names FROM h_user WHERE (:dept IS NULL OR dept = :dept) AND uid <= :most",
        "params": [
            {"param_name": "dept", "param_type": "ENUM", "enum": ["HR", "Finance"], "is_required": false},
            {"param_name": "most", "param_type": "INTEGER", "is_required": "N", "default": 2},
        ],
    });
    assert_eq!(create_tool(&hub, tool).await.0, 201);
    let cases = [
        (json!({}), r#"{"names":"hong,kim"}"#),
        (json!({"most": 3}), r#"{"names":"hong,kim,이영희"}"#),
        (json!({"dept": "HR"}), r#"{"names":"kim"}"#),
        (
            json!({"dept": null, "most": null}),
            r#"{"names":"hong,kim"}"#,
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(
            call_text(&hub, "people", arguments.clone()).await.0,
            expected,
            "{arguments}"
        );
    }
    for wrong in [
        json!({"dept": "IT"}),
        json!({"most": 1.5}),
        json!({"most": "2"}),
        json!({"x": 1}),
    ] {
        let (text, failed) = call_text(&hub, "people", wrong.clone()).await;
        assert!(
            failed && text.contains("expected people("),
            "{wrong} {text}"
        );
    }
}

fn security_file(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/security");
    fs::read_to_string(root.join(name)).unwrap()
}

/// The tools of the set, on this source.
fn hostile_set_tool(tool: &Value) -> Value {
    let params = tool["params"].as_array().unwrap().iter().map(|it| {
        json!({"param_name": it["name"], "param_type": it["type"], "is_required": it["required"] != false})
    });
    json!({
        "name": tool["name"],
        "description_agent": "of the set",
        "tool_type": "SQL",
        "source": "fixture",
        "definition": tool["sql"],
        "result_format": "rows",
        "params": params.collect::<Vec<_>>(),
    })
}

/// Every argument set and every definition, through the API and the endpoint.
async fn check_hostile_parameters(url: String) -> usize {
    let hub = TestHub::with_config(|config| {
        let definition = json!({"name": "fixture", "url": url});
        config.sources = vec![serde_json::from_value(definition).unwrap()];
    })
    .await;
    let tools: Value = serde_json::from_str(&security_file("param_tools.json")).unwrap();
    for tool in tools.as_array().unwrap() {
        let mut tool = hostile_set_tool(tool);
        // Its name is maru's own.
        if tool["name"] == "search_docs" {
            tool["name"] = "search_fixture".into();
        }
        let (status, answer) = create_tool(&hub, tool).await;
        assert_eq!(status, 201, "{answer}");
    }
    let mut count = 0;
    for line in security_file("hostile_params.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        count += 1;
        if let Some(definition) = case.get("definition") {
            let (status, answer) = create_tool(&hub, hostile_set_tool(definition)).await;
            assert_eq!(status, 400, "{line} {answer}");
            continue;
        }
        let name = case["tool"]
            .as_str()
            .unwrap()
            .replace("search_docs", "search_fixture");
        let (text, failed) = call_text(&hub, &name, case["args"].clone()).await;
        let rows: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        match case["expect"].as_str().unwrap() {
            "error" => assert!(failed, "{line} {text}"),
            "error_or_zero" => assert!(failed || rows.is_empty(), "{line} {text}"),
            _ => {
                assert!(!failed, "{line} {text}");
                assert_eq!(
                    rows.len() as u64,
                    case["rows"].as_u64().unwrap(),
                    "{line} {text}"
                );
                if let Some(first) = case.get("first") {
                    assert_eq!(&rows[0], first, "{line}");
                }
            }
        }
    }
    count
}

#[tokio::test]
async fn hostile_arguments_and_definitions_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fixture.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(&security_file("fixtures/sqlite.sql"))
        .unwrap();
    drop(connection);
    assert_eq!(
        check_hostile_parameters(format!("sqlite://{}", path.display())).await,
        54
    );
}

#[tokio::test]
async fn hostile_arguments_and_definitions_on_postgres() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    cluster.run_sql(&database, &security_file("fixtures/pg.sql"));
    assert_eq!(check_hostile_parameters(cluster.url(&database)).await, 54);
}

#[tokio::test]
async fn daily_limits_count_users_and_tools_and_say_when_they_reset() {
    let hub = TestHub::start().await;
    let limit = async |target: &str, most: i64| {
        let route = format!("/api/limits/{target}");
        hub.send_as_admin("PUT", &route, json!({"max_count": most}))
            .await
            .status
    };
    assert_eq!(limit("TOOL/get_employee_info", 2).await, 200);
    let ask = json!({"employee_id": "EMP001"});
    for _ in 0..2 {
        assert!(!call_text(&hub, "get_employee_info", ask.clone()).await.1);
    }
    let (text, failed) = call_text(&hub, "get_employee_info", ask.clone()).await;
    assert!(
        failed && text.contains("resets at 20") && text.contains("T00:00:00Z"),
        "{text}"
    );
    assert!(
        !call_text(&hub, "search_docs", json!({"query": "연차"}))
            .await
            .1
    );

    assert_eq!(limit("USER/local", 0).await, 200);
    let (text, failed) = call_text(&hub, "search_docs", json!({"query": "연차"})).await;
    assert!(failed && text.contains("the user local"), "{text}");
    // The admin is another user.
    let params = call_message(1, "search_docs", json!({"query": "연차"}));
    let session = hub.send_as_admin("POST", "/mcp", params).await;
    assert!(session.status == 200 || session.status == 400);

    let shown = hub
        .send_as_admin("GET", "/api/limits", Value::Null)
        .await
        .json()
        .await;
    let shown = without_sample_users(&shown);
    assert_eq!(
        shown,
        json!([
            {"target_type": "TOOL", "target_id": "get_employee_info", "max_count": 2, "used_today": 2},
            {"target_type": "USER", "target_id": "local", "max_count": 0, "used_today": 0},
        ])
    );
    for target in ["TOOL/get_employee_info", "USER/local"] {
        let gone = hub
            .send_as_admin("DELETE", &format!("/api/limits/{target}"), Value::Null)
            .await;
        assert_eq!(gone.status, 204);
    }
    assert!(!call_text(&hub, "get_employee_info", ask).await.1);
    for (target, body) in [
        ("OTHER/x", json!({"max_count": 1})),
        ("TOOL/x", json!({"max_count": -1})),
        ("TOOL/x", json!({})),
    ] {
        let bad = hub
            .send_as_admin("PUT", &format!("/api/limits/{target}"), body)
            .await;
        assert_eq!(bad.status, 400, "{target}");
    }
}

#[tokio::test]
async fn tools_are_kept_in_a_file() {
    let hub = TestHub::start().await;
    create_tool(&hub, daily_limit_tool()).await;
    let run = async |arguments: &[&str]| {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_maru"))
            .arg("--data-dir")
            .arg(hub.directory.path())
            .args(arguments)
            .output()
            .await
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text)
    };
    let (code, yaml) = run(&["tools", "export"]).await;
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(yaml);
    let file = hub.directory.path().join("tools.yaml");
    let more = yaml
        .replace("get_user_daily_limit", "second")
        .replace("Example 1", "Example 2");
    fs::write(
        &file,
        format!("{yaml}{}", more.trim_start_matches("tools:\n")),
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let (code, text) = run(&["tools", "import", path, "--dry-run"]).await;
    assert_eq!(
        (code, text.as_str()),
        (
            Some(0),
            "get_user_daily_limit would be unchanged\nsecond would be created\n"
        )
    );
    assert!(!hub.tool_names().await.contains("second "));
    let (code, text) = run(&["tools", "import", path]).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        text,
        "get_user_daily_limit is unchanged (version 1)\nsecond is created (version 1)\n"
    );
    fs::write(&file, yaml.replace("user_nm =", "nope =")).unwrap();
    let (code, text) = run(&["tools", "import", path, "--dry-run"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("(line 4, column 7)"), "{text}");
    let (code, text) = run(&["tools", "import", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("no such column: u.nope (line 4, column 7)"),
        "{text}"
    );
}

#[tokio::test]
async fn command_line_shows_tests_switches_and_removes_a_custom_tool() {
    let hub = TestHub::start().await;
    create_tool(&hub, daily_limit_tool()).await;
    let draft = json!({"tool_type": "SQL", "source": "sample", "description_agent": "x", "definition": "SELECT 7 AS seven"});
    hub.send_as_admin("PUT", &tool_route("/draft"), draft).await;
    let run = async |arguments: &[&str]| {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_maru"))
            .arg("--data-dir")
            .arg(hub.directory.path())
            .arg("tools")
            .args(arguments)
            .output()
            .await
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    let name = "get_user_daily_limit";
    let (code, shown) = run(&["show", name]).await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.starts_with("# version 1, on\n# has a draft of admin"),
        "{shown}"
    );
    assert!(shown.contains("definition:"), "{shown}");
    let tested = run(&["test", name, r#"{"user_name":"hong"}"#]).await;
    assert_eq!(
        tested,
        (
            Some(0),
            "{\"user_nm\":\"hong\",\"max_count\":50}\n".to_owned()
        )
    );
    let tested = run(&["test", name, "--draft"]).await;
    assert_eq!(tested, (Some(0), "{\"seven\":7}\n".to_owned()));
    let (code, text) = run(&["test", name, "{}"]).await;
    assert!(code == Some(1) && text.contains("user_name"), "{text}");
    let off = run(&["deactivate", name]).await;
    assert_eq!(off, (Some(0), format!("{name} is off\n")));
    assert!(!hub.tool_names().await.contains(name));
    assert_eq!(run(&["activate", name]).await.0, Some(0));
    assert!(hub.tool_names().await.contains(name));
    assert_eq!(run(&["remove", name]).await.0, Some(0));
    assert!(!hub.tool_names().await.contains(name));
    let (code, text) = run(&["show", name]).await;
    assert!(
        code == Some(2) && text.contains("no tool is named"),
        "{code:?} {text}"
    );
}

fn tool_route(rest: &str) -> String {
    format!("{CUSTOM_TOOLS_ROUTE}/get_user_daily_limit{rest}")
}

async fn shown_tool(hub: &TestHub) -> Value {
    let reply = hub.send_as_admin("GET", &tool_route(""), Value::Null).await;
    assert_eq!(reply.status, 200);
    reply.json().await
}

#[tokio::test]
async fn draft_stands_beside_the_published_version_until_it_is_published() {
    let hub = TestHub::start().await;
    create_tool(&hub, daily_limit_tool()).await;
    let ask = || call_text(&hub, "get_user_daily_limit", json!({"user_name": "hong"}));
    let published = r#"{"user_nm":"hong","max_count":50}"#;
    let draft = with_changes(
        daily_limit_tool(),
        json!({"definition": "SELECT 1 AS one WHERE :user_name <> ''"}),
    );
    let saved = hub
        .send_as_admin("PUT", &tool_route("/draft"), draft.clone())
        .await;
    assert_eq!(saved.status, 200);
    assert_eq!(
        ask().await,
        (published.to_owned(), false),
        "clients see no draft"
    );
    let shown = shown_tool(&hub).await;
    assert_eq!(
        (&shown["version"], &shown["is_active"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(shown["draft"]["tool"]["definition"], draft["definition"]);
    assert_eq!(shown["draft"]["saved_by"], "admin");

    // A draft need not be complete, but it cannot be published so.
    let half = json!({"description_agent": "", "definition": "SELEC"});
    let saved = hub.send_as_admin("PUT", &tool_route("/draft"), half).await;
    assert_eq!(saved.status, 200);
    let refused = hub
        .send_as_admin("POST", &tool_route("/publish"), json!({}))
        .await;
    assert_eq!(refused.status, 400);
    let list = hub
        .send_as_admin("POST", &tool_route("/publish"), json!({"tool": []}))
        .await;
    assert_eq!(list.status, 400);
    assert_eq!(ask().await.0, published);
    assert!(shown_tool(&hub).await["draft"].is_object(), "it is kept");

    hub.send_as_admin("PUT", &tool_route("/draft"), draft).await;
    let done = hub
        .send_as_admin("POST", &tool_route("/publish"), json!({}))
        .await
        .json()
        .await;
    assert_eq!(
        (&done["version"], &done["change"], &done["draft"]),
        (&json!(2), &json!("changed"), &Value::Null)
    );
    assert_eq!(ask().await.0, r#"{"one":1}"#);
    let none = hub
        .send_as_admin("POST", &tool_route("/publish"), json!({}))
        .await;
    assert_eq!(none.status, 404);

    // A draft of a tool that was never published.
    let route = format!("{CUSTOM_TOOLS_ROUTE}/later");
    let half = json!({"name": "later", "definition": "SELECT 1"});
    assert_eq!(
        hub.send_as_admin("PUT", &format!("{route}/draft"), half)
            .await
            .status,
        200
    );
    assert!(!hub.tool_names().await.contains("later"));
    let shown = hub
        .send_as_admin("GET", &route, Value::Null)
        .await
        .json()
        .await;
    assert_eq!(
        (&shown["version"], &shown["is_active"]),
        (&json!(0), &json!(false))
    );
    for wrong in ["search_docs", "test", "a b"] {
        let path = format!("{CUSTOM_TOOLS_ROUTE}/{}/draft", wrong.replace(' ', "%20"));
        let status = hub.send_as_admin("PUT", &path, json!({})).await.status;
        assert!(
            status == 400 || status == 409 || status == 405,
            "{wrong} {status}"
        );
    }
    assert_eq!(
        hub.send_as_admin("DELETE", &format!("{route}/draft"), Value::Null)
            .await
            .status,
        204
    );
    assert_eq!(
        hub.send_as_admin("GET", &route, Value::Null).await.status,
        404
    );
}

#[tokio::test]
async fn draft_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = || Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: directory.path().to_owned(),
        ..Config::default()
    };
    let hub = TestHub::with_directory(config()).await;
    create_tool(&hub, daily_limit_tool()).await;
    hub.send_as_admin(
        "PUT",
        &tool_route("/draft"),
        json!({"definition": "SELECT 2"}),
    )
    .await;
    let before = shown_tool(&hub).await;
    hub.running.stop().await;
    let hub = TestHub::with_directory(config()).await;
    assert_eq!(shown_tool(&hub).await, before);
}

#[tokio::test]
async fn switch_of_the_list_and_is_active_are_one() {
    let hub = TestHub::start().await;
    create_tool(&hub, daily_limit_tool()).await;
    let name = "get_user_daily_limit";
    let listed = async || {
        let all = hub.send_as_admin("GET", "/api/tools", Value::Null).await;
        let all = all.json().await;
        let tool = all.as_array().unwrap().iter().find(|it| it["name"] == name);
        tool.map(|it| it["enabled"] == true)
    };
    let states = async || {
        let active = shown_tool(&hub).await["is_active"] == true;
        (
            listed().await,
            active,
            hub.tool_names().await.contains(name),
        )
    };
    let switch = format!("/api/tools/{name}");
    hub.send_as_admin("PUT", &switch, json!({"enabled": false}))
        .await;
    assert_eq!(states().await, (Some(false), false, false));
    hub.send_as_admin("POST", &tool_route("/activate"), Value::Null)
        .await;
    assert_eq!(states().await, (Some(true), true, true));
    hub.send_as_admin("PUT", &tool_route(""), json!({"is_active": false}))
        .await;
    assert_eq!(states().await, (Some(false), false, false));
    let both = json!({"names": [name, "search_docs"], "enabled": false});
    hub.send_as_admin("PUT", "/api/tools", both.clone()).await;
    assert!(!hub.tool_names().await.contains("search_docs"));
    let both = with_changes(both, json!({"enabled": true}));
    let changed = hub
        .send_as_admin("PUT", "/api/tools", both)
        .await
        .json()
        .await;
    assert_eq!(changed["changed"], json!([name, "search_docs"]));
    assert_eq!(states().await, (Some(true), true, true));
    assert_eq!(
        shown_tool(&hub).await["version"],
        1,
        "a switch is no version"
    );

    // Restoring keeps the switch; a removed tool leaves none behind.
    hub.send_as_admin("PUT", &tool_route(""), json!({"description_user": "two"}))
        .await;
    hub.send_as_admin("PUT", &switch, json!({"enabled": false}))
        .await;
    let back = hub
        .send_as_admin("POST", &tool_route("/versions/1/restore"), Value::Null)
        .await;
    assert_eq!(back.json().await["version"], 3);
    assert_eq!(states().await, (Some(false), false, false));
    hub.send_as_admin("DELETE", &tool_route(""), Value::Null)
        .await;
    create_tool(&hub, daily_limit_tool()).await;
    assert_eq!(states().await, (Some(true), true, true));
}

#[tokio::test]
async fn unchanged_save_makes_no_version() {
    let hub = TestHub::start().await;
    create_tool(&hub, daily_limit_tool()).await;
    let save = async |body: Value| {
        let saved = hub.send_as_admin("PUT", &tool_route(""), body).await;
        let saved = saved.json().await;
        (saved["version"].clone(), saved["change"].clone())
    };
    assert_eq!(
        save(daily_limit_tool()).await,
        (json!(1), json!("unchanged"))
    );
    assert_eq!(
        save(json!({"is_active": false})).await,
        (json!(1), json!("switched"))
    );
    assert_eq!(
        save(json!({"is_active": true})).await,
        (json!(1), json!("switched"))
    );
    assert_eq!(
        save(json!({"description_user": "for people"})).await,
        (json!(2), json!("changed"))
    );
    let back = hub
        .send_as_admin("POST", &tool_route("/versions/2/restore"), Value::Null)
        .await;
    assert_eq!(back.json().await["change"], "unchanged");
    let versions = hub
        .send_as_admin("GET", &tool_route("/versions"), Value::Null)
        .await;
    assert_eq!(versions.json().await.as_array().unwrap().len(), 2);
}

/// Creates the tables of an SQLite store as they were in `version`.
fn create_older_tables(store: &rusqlite::Connection, version: u8) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite");
    let entries = fs::read_dir(directory).unwrap();
    let mut migrations: Vec<_> = entries.map(|it| it.unwrap().path()).collect();
    migrations.sort();
    for migration in &migrations[..version.into()] {
        store
            .execute_batch(&fs::read_to_string(migration).unwrap())
            .unwrap();
    }
    store.pragma_update(None, "user_version", version).unwrap();
}

/// Before version 13 of the tables a custom tool had two switches.
#[tokio::test]
async fn older_store_keeps_a_tool_off_that_its_list_had_switched_off() {
    let directory = tempfile::tempdir().unwrap();
    let config = || Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: directory.path().to_owned(),
        ..Config::default()
    };
    let store = rusqlite::Connection::open(directory.path().join("maru.db")).unwrap();
    create_older_tables(&store, 12);
    let tool = daily_limit_tool();
    store
        .execute(
            "INSERT INTO h_custom_tool (name, description_agent, tool_type, source, definition)
             VALUES (?1, ?2, 'SQL', 'sample', ?3)",
            ["name", "description_agent", "definition"].map(|it| tool[it].as_str().unwrap()),
        )
        .unwrap();
    store
        .execute_batch(
            "INSERT INTO h_custom_tool_param (tool_id, param_name, param_type)
                 SELECT id, 'user_name', 'STRING' FROM h_custom_tool;
             INSERT INTO tool_off (server, tool)
                 VALUES ('maru', 'get_user_daily_limit'), ('maru', 'search_docs')",
        )
        .unwrap();
    drop(store);
    let hub = TestHub::with_directory(config()).await;
    let names = hub.tool_names().await;
    assert!(!names.contains("get_user_daily_limit") && !names.contains("search_docs"));
    assert_eq!(shown_tool(&hub).await["is_active"], false);
    hub.send_as_admin("POST", &tool_route("/activate"), Value::Null)
        .await;
    assert!(hub.tool_names().await.contains("get_user_daily_limit"));
}

/// Limits without those of the users of the sample data.
fn without_sample_users(limits: &Value) -> Value {
    let is_sample = |it: &&Value| {
        let name = it["target_id"].as_str().unwrap_or_default();
        ["hong", "kim", "이영희"].contains(&name)
    };
    let limits = limits.as_array().unwrap().iter();
    limits.filter(|it| !is_sample(it)).cloned().collect()
}
