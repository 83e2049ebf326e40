//! What requests to models use is counted, to the token, and budgets hold.

mod budgets;
mod sdk_sums;

use std::time::Duration;

use maru::config::{Config, ModelDefinition, ModelPrice};
use serde_json::{Value, json};

use crate::{
    http_client::{TestRequest, wait_until},
    openai::{
        chat_client::{chat_body, chat_request, complete_streamed},
        fake_model::{
            FakeModelServer, ScriptStep, completion_response, delta_step, json_response,
            stream_head, text_response,
        },
    },
    test_hub::TestHub,
};

/// A whole answer that used so many tokens.
fn counted_response(input: u64, output: u64) -> Vec<ScriptStep> {
    let message = json!({"role": "assistant", "content": "yes"});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    let usage = json!({"prompt_tokens": input, "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": input / 2}});
    json_response(200, "", &json!({"choices": [choice], "usage": usage}))
}

fn priced(backend: &FakeModelServer, name: &str) -> ModelDefinition {
    ModelDefinition {
        name: name.to_owned(),
        price: Some(ModelPrice {
            input: 2.0,
            output: 10.0,
            cached: Some(1.0),
        }),
        ..backend.model()
    }
}

async fn usage(hub: &TestHub, query: &str) -> Value {
    let path = format!("/api/usage?{query}");
    let reply = TestRequest::new(&hub.address, "GET", &path).send().await;
    assert_eq!(reply.status, 200);
    reply.json().await
}

/// Waits until so many requests are counted.
async fn wait_for_requests(hub: &TestHub, count: i64) {
    wait_until(async || usage(hub, "group=").await["totals"]["requests"] == count).await;
}

async fn ask(hub: &TestHub, model: &str, token: Option<&str>) -> (u16, Value) {
    let mut request = chat_request(hub, &chat_body(json!({"model": model})));
    if let Some(token) = token {
        request = request.header("authorization", &format!("Bearer {token}"));
    }
    let reply = request.send().await;
    (reply.status.as_u16(), reply.json().await)
}

#[tokio::test]
async fn usage_is_told_apart_by_caller_model_backend_and_day() {
    let backend = FakeModelServer::start(|_, seen| match seen.body["model"].as_str() {
        Some("bad") => json_response(400, "", &json!({"error": {"message": "no"}})),
        _ => counted_response(1000, 10),
    })
    .await;
    let models = vec![
        priced(&backend, "a"),
        priced(&backend, "b"),
        priced(&backend, "bad"),
    ];
    let hub = TestHub::with_config(|config: &mut Config| config.models = models).await;
    let token = hub
        .create_token(json!({"name": "bot", "role": "agent"}))
        .await;
    assert_eq!(ask(&hub, "a", None).await.0, 200);
    assert_eq!(ask(&hub, "a", Some(&token)).await.0, 200);
    assert_eq!(ask(&hub, "b", Some(&token)).await.0, 200);
    assert_eq!(ask(&hub, "bad", Some(&token)).await.0, 400);
    wait_for_requests(&hub, 4).await;
    let by_caller = usage(&hub, "group=caller,model").await;
    let rows = by_caller["rows"].as_array().unwrap();
    let seen: Vec<Value> = rows
        .iter()
        .map(|it| {
            json!([
                it["caller"],
                it["model"],
                it["requests"],
                it["errors"],
                it["input_tokens"],
                it["cached_tokens"],
                it["output_tokens"]
            ])
        })
        .collect();
    assert_eq!(
        json!(seen),
        json!([
            ["bot", "a", 1, 0, 1000, 500, 10],
            ["bot", "b", 1, 0, 1000, 500, 10],
            ["bot", "bad", 1, 1, 0, 0, 0],
            ["local", "a", 1, 0, 1000, 500, 10],
        ])
    );
    // 500 at 2, 500 at 1 and 10 at 10 per million.
    assert_eq!(rows[0]["cost"], 0.0016);
    let one = usage(&hub, "caller=bot&model=b").await;
    assert_eq!(
        one["rows"][0]["backend"],
        format!("127.0.0.1:{}", backend.port)
    );
    assert_eq!(one["rows"][0]["day"], one["to"]);
    assert_eq!(usage(&hub, "to=2020-01-01").await["rows"], json!([]));
    let request = TestRequest::new(&hub.address, "GET", "/api/usage?format=csv&group=model");
    let csv = request.send().await.text().await;
    assert!(
        csv.starts_with("model,requests,errors,estimated,input_tokens"),
        "{csv}"
    );
    assert!(csv.contains("\r\n\"a\",2,0,0,2000,1000,20,0,"), "{csv}");
    for wrong in ["from=yesterday", "group=name", "format=xml", "since=1"] {
        let path = format!("/api/usage?{wrong}");
        let reply = TestRequest::new(&hub.address, "GET", &path).send().await;
        assert_eq!(reply.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn usage_survives_a_restart_and_streams_without_usage_are_estimated() {
    let directory = tempfile::tempdir().unwrap();
    let backend = FakeModelServer::start(|_, seen| {
        if seen.body["stream"] == true {
            crate::openai::fake_model::streamed_by_byte(&"word ".repeat(80), "stop")
        } else {
            text_response("yes")
        }
    })
    .await;
    let start = async || {
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: directory.path().to_owned(),
            models: vec![backend.model()],
            ..Config::default()
        };
        TestHub::with_directory(config).await
    };
    let hub = start().await;
    complete_streamed(&hub, json!({})).await;
    ask(&hub, "m", None).await;
    // Stops at once: what was counted last is written then.
    hub.running.stop().await;
    let hub = start().await;
    let seen = usage(&hub, "group=model").await;
    assert_eq!(seen["rows"][0]["model"], "m");
    let totals = &seen["totals"];
    assert_eq!(
        (&totals["requests"], &totals["estimated"]),
        (&json!(2), &json!(1))
    );
    // 400 bytes are about 100 tokens; the other answer reports 2.
    assert_eq!(totals["output_tokens"], 102);
}

#[tokio::test]
async fn times_of_a_slow_model_are_counted() {
    const PAUSE_MS: u64 = 120;
    let pause = || ScriptStep::Pause(Duration::from_millis(PAUSE_MS));
    let backend = FakeModelServer::start(move |_, _| {
        vec![
            stream_head(),
            pause(),
            delta_step(json!({"content": "Good day."}), None),
            pause(),
            delta_step(json!({}), Some("stop")),
            ScriptStep::Send("data: [DONE]\n\n".to_owned()),
        ]
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let start = async || {
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: directory.path().to_owned(),
            models: vec![backend.model()],
            ..Config::default()
        };
        TestHub::with_directory(config).await
    };
    let hub = start().await;
    complete_streamed(&hub, json!({})).await;
    complete_streamed(&hub, json!({})).await;
    hub.running.stop().await;
    // From the store.
    let hub = start().await;
    let row = usage(&hub, "group=model").await["rows"][0].clone();
    let (first, all) = (&row["first_token_ms"], &row["duration_ms"]);
    assert!(first.as_u64() >= Some(PAUSE_MS), "{row}");
    assert!(
        all.as_u64() >= Some(first.as_u64().unwrap() + PAUSE_MS / 2),
        "{row}"
    );
    let request = TestRequest::new(&hub.address, "GET", "/api/usage?format=csv&group=model");
    let csv = request.send().await.text().await;
    let mut lines = csv.lines().map(|it| it.split(',').collect::<Vec<_>>());
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    for (name, value) in [("first_token_ms", first), ("duration_ms", all)] {
        let at = names.iter().position(|it| *it == name).unwrap();
        assert_eq!(values[at], value.to_string(), "{csv}");
    }
}

#[tokio::test]
async fn agent_runs_failovers_and_embeddings_are_counted_once() {
    let broken = FakeModelServer::start(|_, _| json_response(500, "", &json!({}))).await;
    let backend = FakeModelServer::start(|_, _| {
        completion_response(json!({"role": "assistant", "content": "done"}), "stop")
    })
    .await;
    let models = vec![
        ModelDefinition {
            name: "m".to_owned(),
            ..broken.model()
        },
        ModelDefinition {
            name: "m".to_owned(),
            ..backend.model()
        },
    ];
    let hub = TestHub::with_config(|config: &mut Config| config.models = models).await;
    assert_eq!(ask(&hub, "m", None).await.0, 200);
    assert_eq!(ask(&hub, "agent/m", None).await.0, 200);
    let body = json!({"model": "any", "input": ["one", "two"]});
    let reply = TestRequest::post(&hub.address, "/v1/embeddings", &body)
        .send()
        .await;
    assert_eq!(reply.status, 200);
    wait_for_requests(&hub, 3).await;
    let seen = usage(&hub, "group=model,backend").await;
    let rows: Vec<Value> = seen["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            json!([
                it["model"],
                it["backend"],
                it["requests"],
                it["errors"],
                it["output_tokens"]
            ])
        })
        .collect();
    assert_eq!(
        json!(rows),
        json!([
            ["builtin-hash-1024", "maru", 1, 0, 0],
            ["m", format!("127.0.0.1:{}", backend.port), 2, 0, 4],
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_and_budgets_stand_in_the_terminal() {
    let backend = FakeModelServer::start(|_, _| counted_response(1000, 10)).await;
    let models = vec![priced(&backend, "a")];
    let hub = TestHub::with_config(|config: &mut Config| config.models = models).await;
    assert_eq!(ask(&hub, "a", None).await.0, 200);
    wait_for_requests(&hub, 1).await;
    let maru = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_maru"))
            .arg("--data-dir")
            .arg(hub.directory.path())
            .arg("usage")
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (
            output.status.success(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (done, shown, errors) = maru(&["--by", "caller,model"]);
    assert!(done, "{errors}");
    let row = shown.lines().find(|it| it.starts_with("local")).unwrap();
    let columns: Vec<&str> = row.split_whitespace().collect();
    assert!(columns.starts_with(&["local", "a", "1"]), "{shown}");
    let (_, json, _) = maru(&["--model", "a", "-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["totals"]["input_tokens"], &json["totals"]["cost"]),
        (&json!(1000), &json!(0.0016))
    );
    let budget = ["set-budget", "all", "--period", "month", "--tokens", "1100"];
    let (done, _, errors) = maru(&budget);
    assert!(done, "{errors}");
    assert!(maru(&["budgets"]).1.contains("1010"));
    assert_eq!(ask(&hub, "a", None).await.0, 429);
    assert!(maru(&["remove-budget", "all"]).0);
    assert_eq!(ask(&hub, "a", None).await.0, 200);
    let (done, _, errors) = maru(&["set-budget", "x", "--period", "year", "--tokens", "1"]);
    assert!(!done && errors.contains("period"), "{errors}");
}
