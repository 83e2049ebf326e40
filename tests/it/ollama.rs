//! Ollama's API, with its own clients.

use maru::config::ModelDefinition;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    clients::{client_tools_dir, node_program, run_successfully},
    http_client::{TestRequest, TestResponse, wait_until},
    model_apis::AnyAnswer,
    openai::{
        chat_client::chat_body,
        fake_model::{
            FakeModelServer, ScriptStep, completion_response, json_response, stream_head,
            streamed_response, text_response,
        },
    },
    test_hub::TestHub,
};

const ANSWER_TEXT: &str = "안녕, \"world\".";
const TOOL_CALL_TEXT: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>";

/// A question with a tool: such requests look like those of OpenAI.
pub(crate) fn ollama_body(change: Value) -> Value {
    chat_body(change)
}

/// Reads a stream to its end; every rule of the output is checked.
pub(crate) async fn read_lines(reply: TestResponse) -> AnyAnswer {
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/x-ndjson");
    let text = reply.text().await;
    let lines: Vec<Value> = text
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let (last, before) = lines.split_last().unwrap();
    let mut found = AnyAnswer::default();
    for line in before {
        assert_eq!(
            (&line["done"], &line["message"]["role"]),
            (&json!(false), &json!("assistant"))
        );
        found
            .text
            .push_str(line["message"]["content"].as_str().unwrap());
        for call in line["message"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let function = &call["function"];
            assert_eq!(function["index"], found.calls.len());
            let name = function["name"].as_str().unwrap().to_owned();
            found.calls.push((name, function["arguments"].clone()));
        }
    }
    match &last["error"] {
        Value::Null => {
            assert_eq!(last["done"], true, "{last}");
            found.is_cut = last["done_reason"] == "length";
            assert!(
                last["done_reason"].is_string() && last["eval_count"].is_u64(),
                "{last}"
            );
        }
        error => found.error = Some(error.clone()),
    }
    found
}

async fn ollama_hub() -> (FakeModelServer, TestHub) {
    let backend = FakeModelServer::start(|_, seen| {
        let text = match seen.body["model"].as_str() {
            Some("text") => ANSWER_TEXT,
            Some("call") => TOOL_CALL_TEXT,
            Some("broken") => {
                return vec![stream_head(), ScriptStep::Send("data: {".to_owned())];
            }
            _ => return json_response(404, "", &json!({"error": {"message": "no"}})),
        };
        if seen.body["stream"] == true {
            let pieces = text.chars().map(|it| json!({"content": it.to_string()}));
            let thinking = json!({"reasoning_content": "Hm."});
            return streamed_response(std::iter::once(thinking).chain(pieces).collect(), "stop");
        }
        let message = json!({"role": "assistant", "content": text, "reasoning_content": "Hm."});
        completion_response(message, "stop")
    })
    .await;
    let models = ["text", "call", "broken", "missing"].map(|name| ModelDefinition {
        name: name.to_owned(),
        ..backend.model()
    });
    let hub = TestHub::with_config(|config| config.models = models.to_vec()).await;
    (backend, hub)
}

fn check_client(client: &str, seen: &Value, backend: &FakeModelServer) {
    let call = json!([["get_weather", {"city": "Seoul"}]]);
    for name in [
        "text",
        "streamed",
        "after",
        "formed",
        "generated",
        "streamed_generated",
    ] {
        assert_eq!(seen[name], ANSWER_TEXT, "{client} {name}");
    }
    assert_eq!(seen["thinking"], "Hm.", "{client}");
    assert_eq!(seen["reason"], "stop", "{client}");
    assert_eq!(seen["counts"], json!([3, 2]), "{client}");
    assert_eq!(
        (&seen["call"], &seen["streamed_call"]),
        (&call, &call),
        "{client}"
    );
    let names = ["broken", "call", "missing", "text"];
    let agents = names.map(|it| format!("agent/{it}"));
    let all: Vec<&str> = agents.iter().map(String::as_str).chain(names).collect();
    assert_eq!(seen["models"], json!(all), "{client}");
    assert_eq!(seen["shown"], json!(["completion", "tools"]), "{client}");
    assert_eq!(seen["running"], 0, "{client}");
    assert_eq!(seen["vectors"], json!([1024, 1024]), "{client}");
    assert_eq!(seen["vector"], 1024, "{client}");
    assert_eq!(seen["missing"][0], 404, "{client} {seen}");
    let sent = backend.seen();
    let after = sent.iter().find(|it| it.body["max_tokens"] == 9).unwrap();
    let messages = &after.body["messages"];
    assert_eq!(after.body["temperature"], 0.5);
    assert_eq!(
        messages[2]["tool_call_id"],
        messages[1]["tool_calls"][0]["id"]
    );
    assert!(
        sent.iter().any(|it| it.body["response_format"].is_object()),
        "{client}"
    );
}

#[tokio::test]
async fn ollama_python() {
    let (backend, hub) = ollama_hub().await;
    // The lines of the Connect page as they are, in front of the program.
    let page = TestRequest::new(&hub.address, "GET", "/api/connect");
    let page = page.send().await.json().await;
    let clients = page["clients"].as_array().unwrap();
    let guide = clients.iter().find(|it| it["id"] == "ollama").unwrap();
    let lines = guide["models"]["methods"][0]["text"].as_str().unwrap();
    let seen = run_successfully(
        Command::new("sh")
            .args(["-c", &format!("{lines}\nexec \"$@\""), "sh"])
            .arg(client_tools_dir().join("ollama/bin/python"))
            .arg(client_tools_dir().join("ollama_client.py")),
    )
    .await;
    check_client(
        "ollama-python",
        &serde_json::from_str(&seen).unwrap(),
        &backend,
    );
}

#[tokio::test]
async fn ollama_javascript() {
    let (backend, hub) = ollama_hub().await;
    let seen = run_successfully(
        Command::new(node_program())
            .arg(client_tools_dir().join("ollama_client.mjs"))
            .arg(format!("http://{}", hub.address)),
    )
    .await;
    check_client("ollama-js", &serde_json::from_str(&seen).unwrap(), &backend);
}

async fn post(hub: &TestHub, path: &str, body: &Value) -> (u16, Vec<Value>) {
    let reply = TestRequest::post(&hub.address, path, body).send().await;
    let status = reply.status.as_u16();
    let text = reply.text().await;
    let lines = text.lines().map(|it| serde_json::from_str(it).unwrap());
    (status, lines.collect())
}

#[tokio::test]
async fn streams_are_lines_and_errors_have_the_form_of_ollama() {
    let (_backend, hub) = ollama_hub().await;
    let messages = json!([{"role": "user", "content": "?"}]);
    let body = |model: &str| json!({"model": model, "messages": messages});
    // Without `stream` it is one.
    let (status, lines) = post(&hub, "/api/chat", &body("text")).await;
    assert_eq!(status, 200);
    assert_eq!(lines[0]["message"]["thinking"], "Hm.");
    let (last, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|it| it["done"] == false));
    assert_eq!(
        (&last["done"], &last["done_reason"]),
        (&json!(true), &json!("stop"))
    );
    let text: String = lines
        .iter()
        .map(|it| it["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(text, ANSWER_TEXT);
    let (status, lines) = post(&hub, "/api/chat", &body("broken")).await;
    assert_eq!(status, 200);
    assert!(lines.last().unwrap()["error"].is_string(), "{lines:?}");
    let agent = json!({"model": "agent/text", "messages": messages, "stream": false});
    let (status, whole) = post(&hub, "/api/chat", &agent).await;
    assert_eq!(
        (status, &whole[0]["message"]["content"]),
        (200, &json!(ANSWER_TEXT))
    );
    for (path, wrong) in [
        ("/api/chat", json!({"model": "text", "messages": [5]})),
        (
            "/api/chat",
            json!({"model": "text", "messages": [{"role": "root", "content": "x"}]}),
        ),
        ("/api/chat", json!({"messages": messages})),
        (
            "/api/chat",
            json!({"model": "text", "messages": messages, "format": 5}),
        ),
        (
            "/api/chat",
            json!({"model": "text", "messages": messages, "stream": "yes"}),
        ),
        (
            "/api/chat",
            json!({"model": "text", "messages": messages, "api_base": "http://x"}),
        ),
        ("/api/chat", json!([])),
        ("/api/generate", json!({"model": "text", "prompt": 5})),
        ("/api/embed", json!({"model": "text"})),
        ("/api/show", json!({})),
    ] {
        let (status, reply) = post(&hub, path, &wrong).await;
        assert_eq!(status, 400, "{path} {wrong}");
        assert!(reply[0]["error"].is_string(), "{path} {wrong} {reply:?}");
    }
    let (status, reply) = post(&hub, "/api/show", &json!({"model": "nothing"})).await;
    assert_eq!((status, reply[0]["error"].is_string()), (404, true));
    let count = async || {
        let request = TestRequest::new(&hub.address, "GET", "/api/usage?model=text&group=");
        request.send().await.json().await["totals"]["requests"].clone()
    };
    wait_until(async || count().await == 2).await;
}

#[tokio::test]
async fn parallel_calls_of_a_stream_are_numbered() {
    let calls = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>\n\
        <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Busan\"}}\n</tool_call>";
    let model = FakeModelServer::start_with_steps(text_response(calls)).await;
    let hub = TestHub::with_config(|config| model.configure(config)).await;
    let body = ollama_body(json!({"stream": true}));
    let found = read_lines(
        TestRequest::post(&hub.address, "/api/chat", &body)
            .send()
            .await,
    )
    .await;
    let cities: Vec<&Value> = found.calls.iter().map(|it| &it.1["city"]).collect();
    assert_eq!(cities, ["Seoul", "Busan"]);
}

/// What clients send to load a model, or to free its memory.
#[tokio::test]
async fn request_without_a_question_asks_the_model_nothing() {
    let model = FakeModelServer::start_with_steps(text_response("no")).await;
    let named = ModelDefinition {
        name: "m".to_owned(),
        ..model.model()
    };
    let hub = TestHub::with_config(|config| config.models = vec![named]).await;
    for (path, body, reason) in [
        ("/api/generate", json!({"model": "m"}), "load"),
        (
            "/api/generate",
            json!({"model": "agent/m", "prompt": "", "stream": false}),
            "load",
        ),
        (
            "/api/generate",
            json!({"model": "m", "keep_alive": 0}),
            "unload",
        ),
        ("/api/chat", json!({"model": "m", "messages": []}), "load"),
        (
            "/api/chat",
            json!({"model": "m", "keep_alive": "0"}),
            "unload",
        ),
    ] {
        let (status, lines) = post(&hub, path, &body).await;
        assert_eq!((status, lines.len()), (200, 1), "{body}");
        assert_eq!(
            (&lines[0]["done"], &lines[0]["done_reason"]),
            (&json!(true), &json!(reason))
        );
    }
    let (status, reply) = post(&hub, "/api/generate", &json!({"model": "other"})).await;
    assert_eq!((status, reply[0]["error"].is_string()), (404, true));
    assert!(model.seen().is_empty());
}
