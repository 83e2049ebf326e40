//! Two hubs on one PostgreSQL database: what changes at one reaches the other.

mod balancer;
mod console;
mod moving;
mod news;
mod pooler;
mod runs;
mod sessions;
mod single_program;
mod store_faults;

use futures_util::future::BoxFuture;
use maru::config::{Config, SecretString};
use serde_json::{Value, json};

use crate::{
    fixture_server::fixture_program,
    http_client::{TestRequest, wait_until},
    postgres_cluster::PostgresCluster,
    test_hub::{TestHub, stateless_message},
};

pub(crate) struct TwoHubs {
    cluster: PostgresCluster,
    database: String,
    pub(crate) one: TestHub,
    pub(crate) other: TestHub,
}

impl TwoHubs {
    async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(crate) async fn start_with(change: impl Fn(&mut Config)) -> Self {
        let cluster = PostgresCluster::start().await;
        let database = cluster.create_database();
        let url = cluster.url(&database);
        Self::start_on(cluster, database, &url, change).await
    }

    /// Starts two hubs that reach the database at `url`.
    async fn start_on(
        cluster: PostgresCluster,
        database: String,
        url: &str,
        change: impl Fn(&mut Config),
    ) -> Self {
        let open = |name: &str| {
            let (url, name) = (url.to_owned(), name.to_owned());
            TestHub::with_config(|config| {
                config.store_url = Some(SecretString::from(url));
                config.hub.name = Some(name);
                change(config);
            })
        };
        let (one, other) = (Box::pin(open("one")).await, Box::pin(open("other")).await);
        Self {
            cluster,
            database,
            one,
            other,
        }
    }

    /// Waits until both hubs listen on their two channels. They do not poll from then on.
    async fn wait_until_listening(&self) {
        let listening = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'maru-listener' AND query LIKE 'LISTEN%'";
        wait_until(async || self.cluster.run_sql(&self.database, listening) == "4").await;
    }

    /// Waits until the other hub has applied what changed at the first one: lists of the API
    /// may be newer than what is in force.
    async fn wait_until_applied(&self) {
        let marker = json!({"name": "marker", "autoConnect": false, "transportType": "HTTP",
            "config": {"url": "http://127.0.0.1:9/mcp"}});
        let added = self.one.send_as_admin("POST", "/api/mcp/servers", marker);
        assert_eq!(added.await.status, 201);
        wait_until(async || {
            let marker = get(&self.other, "/api/mcp/servers/marker").await;
            marker["name"] == "marker"
        })
        .await;
    }

    /// Boxed, because two hubs are large.
    pub(crate) fn stop(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.one.running.stop().await;
            self.other.running.stop().await;
        })
    }
}

fn tool(definition: &str) -> Value {
    json!({"name": "next_number", "description_agent": "Adds one.", "tool_type": "PYTHON",
        "definition": definition, "params": [{"param_name": "n", "param_type": "INTEGER"}]})
}

async fn call(hub: &TestHub) -> Value {
    let params = json!({"name": "next_number", "arguments": {"n": 1}});
    let request = hub.stateless_request("tools/call", params);
    request.send().await.rpc_response().await["result"]["structuredContent"]["result"].clone()
}

async fn get(hub: &TestHub, path: &str) -> Value {
    hub.send_as_admin("GET", path, Value::Null)
        .await
        .json()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn change_at_one_hub_reaches_the_other_and_its_clients() {
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let mut stream = other
        .stateless_request("subscriptions/listen", listen)
        .send()
        .await;
    let acknowledged = stream.next_message().await.unwrap();
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );

    let made = one
        .send_as_admin("POST", "/api/custom-tools", tool("n + 1"))
        .await;
    assert_eq!(made.status, 201);
    let pushed = stream.next_message().await.unwrap();
    assert_eq!(pushed["method"], "notifications/tools/list_changed");
    wait_until(async || other.tool_names().await.contains("next_number ")).await;
    assert_eq!(call(other).await, 2);

    let changed = other
        .send_as_admin("PUT", "/api/custom-tools/next_number", tool("n + 10"))
        .await;
    assert_eq!(changed.status, 200);
    wait_until(async || call(one).await == 11).await;
    let shown = get(one, "/api/custom-tools/next_number").await;
    assert_eq!(shown["version"], 2, "{shown}");

    let off = json!({"tools": [{"server": "maru", "tool": "embed_texts"}], "enabled": false});
    one.send_as_admin("POST", "/api/tools/enabled", off).await;
    let deactivate = "/api/custom-tools/next_number/deactivate";
    one.send_as_admin("POST", deactivate, Value::Null).await;
    wait_until(async || !other.tool_names().await.contains("next_number ")).await;
    one.send_as_admin("DELETE", "/api/custom-tools/next_number", Value::Null)
        .await;
    wait_until(async || {
        let listed = get(other, "/api/custom-tools").await;
        !listed.to_string().contains("next_number")
    })
    .await;

    let limit = json!({"max_count": 7});
    one.send_as_admin("PUT", "/api/limits/USER/local", limit)
        .await;
    wait_until(async || {
        get(other, "/api/limits")
            .await
            .to_string()
            .contains("\"local\"")
    })
    .await;
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_tokens_are_the_same_at_both_hubs() {
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let status = async |hub: &TestHub| get(hub, "/api/mcp/servers/far").await["status"].clone();
    let server = json!({"name": "far", "autoConnect": true, "transportType": "STDIO",
        "config": {"command": fixture_program(), "args": ["stdio"]}});
    let added = one.send_as_admin("POST", "/api/mcp/servers", server).await;
    assert_eq!(added.status, 201);
    wait_until(async || status(other).await == "CONNECTED").await;
    wait_until(async || other.tool_names().await.contains("far__test_simple_text ")).await;
    other
        .send_as_admin("POST", "/api/mcp/servers/far/disable", Value::Null)
        .await;
    wait_until(async || status(one).await == "DISABLED").await;
    one.send_as_admin("DELETE", "/api/mcp/servers/far", Value::Null)
        .await;
    wait_until(async || status(other).await.is_null()).await;

    // A token is valid everywhere, and nowhere after it was revoked.
    let token = one
        .create_token(json!({"name": "ci", "role": "agent"}))
        .await;
    let status_of = async |hub: &TestHub, token: &str| {
        let request = TestRequest::new(&hub.address, "GET", "/api/tools");
        let request = request.header("authorization", &format!("Bearer {token}"));
        request.send().await.status
    };
    wait_until(async || status_of(other, &token).await == 200).await;
    other
        .send_as_admin("DELETE", "/api/tokens/ci", Value::Null)
        .await;
    wait_until(async || status_of(one, &token).await == 401).await;

    // Each hub keeps its own admin, who is admin of the other one, too.
    for hub in [one, other] {
        let admin = hub.running.admin_token.reveal();
        assert_eq!(status_of(one, admin).await, 200);
        assert_eq!(status_of(other, admin).await, 200);
    }
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_was_cut_off_from_the_store_catches_up() {
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    // Ends every connection; notifications that are sent meanwhile are lost.
    hubs.cluster.run_sql(
        &hubs.database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    wait_until(async || {
        let made = one
            .send_as_admin("POST", "/api/custom-tools", tool("n + 1"))
            .await;
        made.status == 201
    })
    .await;
    wait_until(async || other.tool_names().await.contains("next_number ")).await;
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_per_minute_holds_for_all_hubs_together() {
    const PER_MINUTE: u32 = 120;
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let limit = json!({"max_per_minute": PER_MINUTE});
    let set = one.send_as_admin("PUT", "/api/limits/TOOL/serialize_for_cell", limit);
    assert_eq!(set.await.status, 200);
    hubs.wait_until_applied().await;
    let call = json!({"name": "serialize_for_cell", "arguments": {"data": "x"}});
    let began = tokio::time::Instant::now();
    let mut made = 0;
    // First most calls at one hub, then in turn.
    for number in 0..2 * PER_MINUTE {
        let hub = if number < 90 || number % 2 == 0 {
            one
        } else {
            other
        };
        let answer = hub
            .stateless_request("tools/call", call.clone())
            .send()
            .await;
        let answer = answer.rpc_response().await;
        made += u32::from(answer["result"]["isError"] != true && answer["error"].is_null());
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let allowed = f64::from(PER_MINUTE) * (1.0 + minutes);
    assert!(f64::from(made) <= allowed * 1.05, "{made} of {allowed}");
    assert!(
        f64::from(made) >= f64::from(PER_MINUTE) * 0.95,
        "{made} of {allowed}"
    );
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_per_minute_of_a_toolset_holds_for_all_hubs_together() {
    const PER_MINUTE: u32 = 6;
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let toolset = json!({"include": ["serialize_for_cell"], "calls_per_minute": PER_MINUTE});
    let saved = one.send_as_admin("PUT", "/api/toolsets/few", toolset);
    assert_eq!(saved.await.status, 200);
    wait_until(async || {
        let toolsets = get(other, "/api/toolsets").await.to_string();
        toolsets.contains("\"few\"")
    })
    .await;
    let call = json!({"name": "serialize_for_cell", "arguments": {"data": "x"}});
    let call = stateless_message("tools/call", call);
    let began = tokio::time::Instant::now();
    let mut made = 0;
    for hub in [one, other] {
        for _ in 0..2 * PER_MINUTE {
            let request = TestRequest::post(&hub.address, "/mcp/t/few", &call)
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "tools/call")
                .header("mcp-name", "serialize_for_cell");
            let answer = request.send().await.rpc_response().await;
            made += u32::from(answer["result"]["isError"] != true && answer["error"].is_null());
        }
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let allowed = f64::from(PER_MINUTE) * (1.0 + minutes) + 1.0;
    assert!(f64::from(made) <= allowed, "{made} of {allowed}");
    assert!(made >= PER_MINUTE, "{made}");
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hubs_with_one_admin_token_keep_it_when_one_of_them_ends() {
    const TOKEN: &str = "one-recovery-token-of-all-hubs-0123";
    let cluster = PostgresCluster::start().await;
    let url = cluster.url(&cluster.create_database());
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = async |number: usize| {
        let data_dir = directories[number].path().to_owned();
        std::fs::write(data_dir.join("admin-token"), TOKEN).unwrap();
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir,
            store_url: Some(SecretString::from(url.clone())),
            ..Config::default()
        };
        Box::pin(TestHub::with_directory(config)).await
    };
    let is_admin = async |hub: &TestHub| {
        let request = TestRequest::new(&hub.address, "GET", "/api/audit");
        let request = request.header("authorization", &format!("Bearer {TOKEN}"));
        request.send().await.status == 200
    };
    let (one, other) = (start(0).await, start(1).await);
    for hub in [&one, &other] {
        assert!(is_admin(hub).await);
    }
    Box::pin(one.running.stop()).await;
    let again = start(0).await;
    let made = again
        .create_token(json!({"name": "ci", "role": "agent"}))
        .await;
    // The other one has read the tokens again when it knows the new one.
    wait_until(async || {
        let request = TestRequest::new(&other.address, "GET", "/api/tools");
        let request = request.header("authorization", &format!("Bearer {made}"));
        request.send().await.status == 200
    })
    .await;
    assert!(is_admin(&other).await && is_admin(&again).await);
    Box::pin(again.running.stop()).await;
    Box::pin(other.running.stop()).await;
}
