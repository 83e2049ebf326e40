//! Models that are added, changed, tested and removed while the hub runs.

use maru::config::{Config, ModelDefinition};
use serde_json::{Value, json};

use crate::{
    http_client::TestRequest,
    network_namespace::{is_in_namespace, run_in_namespace},
    openai::fake_model::{FakeModelServer, text_response},
    test_hub::TestHub,
};

const MODELS_ROUTE: &str = "/api/models";

async fn send(hub: &TestHub, method: &'static str, path: &str, body: Value) -> (u16, Value) {
    let reply = hub.send_as_admin(method, path, body).await;
    let status = reply.status.as_u16();
    let text = reply.text().await;
    (status, serde_json::from_str(&text).unwrap_or_default())
}

/// What the model of this name answers, or the error.
async fn ask(hub: &TestHub, model: &str) -> String {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    let (_, answer) = send(hub, "POST", "/v1/chat/completions", body).await;
    let text = answer["choices"][0]["message"]["content"].as_str();
    text.map_or_else(|| answer.to_string(), str::to_owned)
}

async fn entry(hub: &TestHub, name: &str) -> Option<Value> {
    let (_, all) = send(hub, "GET", MODELS_ROUTE, Value::Null).await;
    let all = all.as_array().unwrap().clone();
    all.into_iter().find(|it| it["name"] == name)
}

/// What an import says of the only model in its file.
fn imported_model(done: &Value) -> Value {
    let items = done["items"].as_array().unwrap().clone();
    items.into_iter().find(|it| it["kind"] == "model").unwrap()
}

#[tokio::test]
async fn model_is_added_changed_tested_and_removed_without_a_restart() {
    let first = FakeModelServer::start(|_, _| text_response("from the first")).await;
    let second = FakeModelServer::start(|_, _| text_response("from the second")).await;
    let everything = FakeModelServer::start(|_, _| text_response("from the settings")).await;
    let hub = TestHub::with_config(|config| everything.configure(config)).await;
    assert_eq!(ask(&hub, "helper").await, "from the settings");

    // A test asks the model and saves nothing.
    let helper = json!({"name": "helper", "base_url": first.url(), "model": "big"});
    let body = json!({"definition": helper});
    let (_, tested) = send(&hub, "POST", "/api/models/test", body).await;
    assert_eq!(
        (&tested["ok"], &tested["text"], &tested["model"]),
        (&json!(true), &json!("from the first"), &json!("helper")),
        "{tested}"
    );
    assert_eq!(first.seen()[0].body["model"], "big");
    assert_eq!(entry(&hub, "helper").await, None);

    // Added, it comes before the `*` of the settings.
    let (status, added) = send(&hub, "POST", MODELS_ROUTE, helper.clone()).await;
    assert_eq!(status, 201, "{added}");
    assert_eq!(ask(&hub, "helper").await, "from the first");
    assert_eq!(ask(&hub, "another").await, "from the settings");
    let shown = entry(&hub, "helper").await.unwrap();
    assert_eq!(shown["origin"], "console");
    assert_eq!(entry(&hub, "*").await.unwrap()["origin"], "settings");
    let (_, listed) = send(&hub, "GET", "/v1/models", Value::Null).await;
    assert!(listed.to_string().contains("agent/helper"), "{listed}");

    let changed = json!({"base_url": second.url(), "max_waiting": 3});
    let (status, shown) = send(&hub, "PUT", "/api/models/helper", changed).await;
    assert_eq!((status, &shown["max_waiting"]), (200, &json!(3)), "{shown}");
    assert_eq!(ask(&hub, "helper").await, "from the second");
    let (status, _) = send(&hub, "DELETE", "/api/models/helper", Value::Null).await;
    assert_eq!(status, 204);
    assert_eq!(ask(&hub, "helper").await, "from the settings");

    // A family that was added serves what nothing else does.
    let family = json!({"name": "*", "base_url": first.url()});
    let (status, _) = send(&hub, "POST", MODELS_ROUTE, family).await;
    assert_eq!(status, 409, "the settings have it");
    let family = json!({"name": "help*", "base_url": first.url()});
    assert_eq!(send(&hub, "POST", MODELS_ROUTE, family).await.0, 201);
    assert_eq!(ask(&hub, "helper").await, "from the settings");
    hub.running.stop().await;
}

#[tokio::test]
async fn key_of_a_model_is_sealed_masked_kept_and_bound_to_its_address() {
    let backend = FakeModelServer::start(|_, _| text_response("yes")).await;
    let directory = tempfile::tempdir().unwrap();
    let config = || Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: directory.path().to_owned(),
        ..Config::default()
    };
    let hub = TestHub::with_directory(config()).await;
    let url = backend.url();
    let helper = json!({"name": "team/helper", "base_url": url, "api_key": "canary-in-model"});
    let (status, added) = send(&hub, "POST", MODELS_ROUTE, helper).await;
    assert_eq!((status, &added["api_key"]), (201, &json!("***")), "{added}");
    let route = "/api/models/team%2Fhelper";
    let kept = json!({"base_url": url, "api_key": "***", "timeout_ms": 5000});
    let (status, shown) = send(&hub, "PUT", route, kept).await;
    assert_eq!((status, &shown["api_key"]), (200, &json!("***")), "{shown}");
    let elsewhere = json!({"base_url": "http://127.0.0.1:9/v1", "api_key": "***"});
    let (status, refused) = send(&hub, "PUT", route, elsewhere.clone()).await;
    assert_eq!(
        (status, &refused["field"]),
        (400, &json!("api_key")),
        "{refused}"
    );
    let mut definition = elsewhere;
    definition["name"] = "team/helper".into();
    let body = json!({"definition": definition});
    let (_, tested) = send(&hub, "POST", "/api/models/test", body).await;
    assert_eq!(tested["ok"], false, "nor by a test: {tested}");
    let (_, audit) = send(&hub, "GET", "/api/audit", Value::Null).await;
    assert!(audit.to_string().contains("POST /api/models"), "{audit}");
    let (_, list) = send(&hub, "GET", MODELS_ROUTE, Value::Null).await;
    let (_, export) = send(&hub, "GET", "/api/export", Value::Null).await;
    assert!(!format!("{audit}{list}{export}").contains("canary"));
    hub.running.stop().await;

    for file in ["maru.db", "maru.db-wal"] {
        let bytes = std::fs::read(directory.path().join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("canary-in-model"), "{file}");
    }
    let hub = TestHub::with_directory(config()).await;
    assert_eq!(ask(&hub, "team/helper").await, "yes");
    let head = backend.seen().pop().unwrap().head.to_lowercase();
    assert!(
        head.contains("bearer canary-in-model"),
        "it still has its key"
    );
    hub.running.stop().await;
}

#[tokio::test]
async fn what_is_no_model_is_refused() {
    let hub = TestHub::with_config(|config| {
        config.models = vec![ModelDefinition {
            name: "fixed".to_owned(),
            aliases: vec!["other".to_owned()],
            base_url: Some("http://127.0.0.1:9/v1".to_owned()),
            model: Some("m".to_owned()),
            ..ModelDefinition::default()
        }];
    })
    .await;
    let url = "http://127.0.0.1:9/v1";
    let cases = [
        (json!({}), 400, "name"),
        (json!({"name": "fixed", "base_url": url}), 409, "exists"),
        (json!({"name": "other", "base_url": url}), 409, "exists"),
        (
            json!({"name": "x", "base_ulr": url}),
            400,
            "did you mean \\\"base_url\\\"",
        ),
        (json!({"name": "x", "timeout_ms": 1}), 400, "timeout_ms"),
        (json!({"name": "x", "backend": "cohere"}), 400, "expected"),
        (json!({"name": "x", "dialect": "klingon"}), 400, "klingon"),
        (json!({"name": "**", "base_url": url}), 400, "one `*`"),
        (json!({"name": "x", "api_key": "***"}), 400, "placeholder"),
        (
            json!({"name": "x", "api_key": "${KEY}"}),
            400,
            "placeholder",
        ),
        (json!({"name": "x", "base_url": "ftp://x/"}), 400, "ftp"),
        (
            json!({"name": "x", "base_url": "http://10.0.0.7/v1"}),
            400,
            "allowed_hosts",
        ),
    ];
    for (body, expected, words) in cases {
        let (status, answer) = send(&hub, "POST", MODELS_ROUTE, body.clone()).await;
        assert_eq!(status, expected, "{body} {answer}");
        let message = answer["error"].to_string();
        assert!(message.contains(words), "{body} {answer}");
        let (_, tested) = send(
            &hub,
            "POST",
            "/api/models/test",
            json!({"definition": body}),
        )
        .await;
        assert_eq!(tested["ok"], false, "{body} {tested}");
    }
    for method in ["PUT", "DELETE"] {
        let (status, answer) = send(&hub, method, "/api/models/fixed", json!({})).await;
        assert_eq!(status, 409, "{answer}");
        let (status, _) = send(&hub, method, "/api/models/none", json!({})).await;
        assert_eq!(status, 404);
    }
    let keyless = json!({"name": "keyless", "base_url": url});
    assert_eq!(send(&hub, "POST", MODELS_ROUTE, keyless).await.0, 201);
    for (method, path) in [("PUT", "/api/models/keyless"), ("POST", MODELS_ROUTE)] {
        let (status, answer) = send(&hub, method, path, json!([])).await;
        assert_eq!(status, 400, "{method} {answer}");
    }
    // Programs on this machine may look and change none.
    let reply = TestRequest::post(&hub.address, MODELS_ROUTE, &json!({"name": "x"}));
    assert_eq!(reply.send().await.status, 401);
}

#[tokio::test]
async fn host_is_allowed_while_the_hub_runs() {
    // The list of models asks the backend, whose address must lead nowhere.
    if !is_in_namespace() {
        let test = "model_registry::host_is_allowed_while_the_hub_runs";
        return run_in_namespace(test).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let config = || Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: directory.path().to_owned(),
        ..Config::default()
    };
    let hub = TestHub::with_directory(config()).await;
    let server = json!({"name": "remote", "transportType": "HTTP", "config": {"url": "http://203.0.113.9:9/mcp"}, "autoConnect": false});
    let model = json!({"name": "remote", "base_url": "http://203.0.113.9:9/v1"});
    for (path, body) in [("/api/mcp/servers", &server), (MODELS_ROUTE, &model)] {
        let (status, refused) = send(&hub, "POST", path, body.clone()).await;
        assert_eq!(status, 400, "{refused}");
        assert!(
            refused.to_string().contains("allow it in the console"),
            "{refused}"
        );
    }
    for host in [
        "127.0.0.1",
        "169.254.169.254",
        "10.255.255.1",
        "a%2Fb",
        "a:80",
    ] {
        let path: &'static str = format!("/api/allowed-hosts/{host}").leak();
        assert_eq!(send(&hub, "PUT", path, Value::Null).await.0, 400, "{host}");
    }
    let route = "/api/allowed-hosts/203.0.113.9";
    let (status, list) = send(&hub, "PUT", route, Value::Null).await;
    assert_eq!(
        (status, &list["added"]),
        (200, &json!(["203.0.113.9"])),
        "{list}"
    );
    assert_eq!(send(&hub, "POST", "/api/mcp/servers", server).await.0, 201);
    assert_eq!(send(&hub, "POST", MODELS_ROUTE, model).await.0, 201);
    let (_, audit) = send(&hub, "GET", "/api/audit", Value::Null).await;
    assert!(
        audit.to_string().contains("PUT /api/allowed-hosts"),
        "{audit}"
    );
    hub.running.stop().await;
    // It is kept, and what needs it stops when it goes.
    let hub = TestHub::with_directory(config()).await;
    assert_eq!(entry(&hub, "remote").await.unwrap().get("fault"), None);
    assert_eq!(send(&hub, "DELETE", route, Value::Null).await.0, 200);
    assert_eq!(send(&hub, "DELETE", route, Value::Null).await.0, 404);
    let fault = entry(&hub, "remote").await.unwrap()["fault"].to_string();
    assert!(fault.contains("203.0.113.9"), "{fault}");
    let (_, tried) = send(&hub, "POST", "/api/mcp/servers/remote/connect", Value::Null).await;
    assert!(
        tried.to_string().contains("allow it in the console"),
        "{tried}"
    );
    hub.running.stop().await;
}

#[tokio::test]
async fn exported_model_is_imported_with_its_key_filled_in() {
    let backend = FakeModelServer::start(|_, _| text_response("yes")).await;
    let hub = TestHub::start().await;
    let helper = json!({"name": "helper", "base_url": backend.url(), "api_key": "canary", "price": {"input": 1.0, "output": 2.0}});
    assert_eq!(send(&hub, "POST", MODELS_ROUTE, helper).await.0, 201);
    let (_, document) = send(&hub, "GET", "/api/export", Value::Null).await;
    assert_eq!(
        document["models"][0]["api_key"], "${HELPER_API_KEY}",
        "{document}"
    );
    // Here nothing changes: the hub has the key.
    let body = json!({"document": document, "dryRun": true});
    let (_, same) = send(&hub, "POST", "/api/import", body).await;
    assert_eq!(
        (&same["missing"], &imported_model(&same)["change"]),
        (&json!([]), &json!("unchanged")),
        "{same}"
    );
    // The same as the text of a YAML file; one that copies its own parts is refused.
    let yaml = "maru: 1\nmodels:\n  - name: helper\n    base_url: http://127.0.0.1:9/v1\n";
    let body = json!({"document": yaml, "dryRun": true});
    let (_, changed) = send(&hub, "POST", "/api/import", body).await;
    assert_eq!(imported_model(&changed)["change"], "update", "{changed}");
    for broken in ["a: [", "a: &x [1]\nb: [*x, *x]", "just words"] {
        let body = json!({"document": broken, "dryRun": true});
        let (status, refused) = send(&hub, "POST", "/api/import", body).await;
        assert_eq!(
            (status, &refused["field"]),
            (400, &json!("document")),
            "{refused}"
        );
    }
    let other = TestHub::start().await;
    let body = json!({"document": document, "dryRun": false});
    let (status, refused) = send(&other, "POST", "/api/import", body.clone()).await;
    assert_eq!(
        (status, &refused["missing"]),
        (400, &json!(["HELPER_API_KEY"])),
        "{refused}"
    );
    let mut body = body;
    body["values"] = json!({"HELPER_API_KEY": "second"});
    let (_, done) = send(&other, "POST", "/api/import", body).await;
    assert_eq!(
        (
            &imported_model(&done)["change"],
            &imported_model(&done)["error"]
        ),
        (&json!("create"), &Value::Null),
        "{done}"
    );
    assert_eq!(ask(&other, "helper").await, "yes");
    assert!(backend.seen().pop().unwrap().head.contains("second"));
}
