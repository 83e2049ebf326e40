//! What holds for every API of models: hostile requests, bounds, agents, client modes, and
//! web pages on other origins.

use maru::config::{ClientMode, Config, ModelDefinition};
use serde_json::{Value, json};

use crate::{
    anthropic::{message_body, message_request, read_message_stream, whole_message},
    http_client::{TestRequest, TestResponse},
    ollama::{ollama_body, read_lines},
    openai::{
        chat_client::{chat_body, chat_request, read_stream},
        fake_model::{FakeModelServer, streamed_by_byte, text_response},
    },
    responses::{read_response_stream, response_body, response_request, whole_response},
    test_hub::TestHub,
};

/// An API of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestedApi {
    Chat,
    Messages,
    Responses,
    Ollama,
}

/// What a client of any API makes of an answer.
#[derive(Debug, Default)]
pub(crate) struct AnyAnswer {
    pub(crate) text: String,
    /// Name and arguments.
    pub(crate) calls: Vec<(String, Value)>,
    /// What an error says.
    pub(crate) error: Option<Value>,
    /// Whether a stream says that the model had more to write.
    pub(crate) is_cut: bool,
}

impl TestedApi {
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Messages, Self::Responses, Self::Ollama];

    /// A question to `model`, with one tool.
    pub(crate) fn question(self, model: &str, tool: &str, schema: &Value, stream: bool) -> Value {
        let change = |tool: Value| json!({"model": model, "stream": stream, "tools": [tool]});
        match self {
            Self::Chat => chat_body(change(
                json!({"type": "function", "function": {"name": tool, "parameters": schema}}),
            )),
            Self::Ollama => ollama_body(change(
                json!({"type": "function", "function": {"name": tool, "parameters": schema}}),
            )),
            Self::Messages => message_body(change(json!({"name": tool, "input_schema": schema}))),
            Self::Responses => response_body(change(
                json!({"type": "function", "name": tool, "parameters": schema}),
            )),
        }
    }

    pub(crate) fn request(self, hub: &TestHub, body: &Value) -> TestRequest {
        match self {
            Self::Chat => chat_request(hub, body),
            Self::Messages => message_request(hub, body),
            Self::Responses => response_request(hub, body),
            Self::Ollama => TestRequest::post(&hub.address, self.path(), body),
        }
    }

    pub(crate) async fn read_stream(self, reply: TestResponse) -> AnyAnswer {
        match self {
            Self::Chat => {
                let found = read_stream(reply).await;
                AnyAnswer {
                    text: found.text,
                    calls: found.calls,
                    error: found.error,
                    is_cut: found.finish == "length",
                }
            }
            Self::Messages => {
                let found = read_message_stream(reply).await;
                AnyAnswer {
                    text: found.text(),
                    calls: found.calls(),
                    error: found.error,
                    is_cut: found.stop_reason == "max_tokens",
                }
            }
            Self::Ollama => read_lines(reply).await,
            Self::Responses => {
                let found = read_response_stream(reply).await;
                let error = &found.response["error"];
                AnyAnswer {
                    // What was open at the error stands only in the deltas.
                    text: match error {
                        Value::Null => found.text(),
                        _ => found.deltas.concat(),
                    },
                    calls: found.calls(),
                    error: (!error.is_null()).then(|| error.clone()),
                    is_cut: found.response["status"] == "incomplete",
                }
            }
        }
    }

    /// A whole answer.
    pub(crate) fn read_whole(self, answer: &Value) -> AnyAnswer {
        let arguments = |text: &Value| serde_json::from_str(text.as_str().unwrap()).unwrap();
        let name = |of: &Value| of["name"].as_str().unwrap().to_owned();
        let mut found = AnyAnswer::default();
        match self {
            Self::Chat => {
                let choice = &answer["choices"][0];
                let message = &choice["message"];
                found.text = message["content"].as_str().unwrap_or_default().to_owned();
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let function = &call["function"];
                    found
                        .calls
                        .push((name(function), arguments(&function["arguments"])));
                }
                let is_call = choice["finish_reason"] == "tool_calls";
                assert_eq!(is_call, !found.calls.is_empty(), "{answer}");
            }
            Self::Ollama => {
                assert_eq!(answer["done"], true, "{answer}");
                let message = &answer["message"];
                found.text = message["content"].as_str().unwrap().to_owned();
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let function = &call["function"];
                    found
                        .calls
                        .push((name(function), function["arguments"].clone()));
                }
            }
            Self::Messages => {
                for block in answer["content"].as_array().unwrap() {
                    match block["type"].as_str().unwrap() {
                        "text" => found.text.push_str(block["text"].as_str().unwrap()),
                        "tool_use" => found.calls.push((name(block), block["input"].clone())),
                        other => panic!("unknown block {other}"),
                    }
                }
                let is_call = answer["stop_reason"] == "tool_use";
                assert_eq!(is_call, !found.calls.is_empty(), "{answer}");
            }
            Self::Responses => {
                for item in answer["output"].as_array().unwrap() {
                    match item["type"].as_str().unwrap() {
                        "message" => {
                            let part = &item["content"][0];
                            let text = part["text"].as_str().or(part["refusal"].as_str());
                            found.text.push_str(text.unwrap());
                        }
                        "function_call" => {
                            found
                                .calls
                                .push((name(item), arguments(&item["arguments"])));
                        }
                        "reasoning" => (),
                        other => panic!("unknown item {other}"),
                    }
                }
            }
        }
        found
    }

    /// The kind and the message of an error, in the form of this API.
    pub(crate) fn error_of(self, answer: &Value) -> (String, String) {
        if self == Self::Ollama {
            assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
            let message = answer["error"].as_str().unwrap().to_owned();
            // It has no kinds.
            return ("invalid_request_error".to_owned(), message);
        }
        if self == Self::Messages {
            assert_eq!(answer["type"], "error", "{answer}");
        } else {
            let members: Vec<&str> = answer["error"]
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            assert_eq!(members, ["message", "type", "param", "code"], "{answer}");
        }
        let text = |name: &str| answer["error"][name].as_str().unwrap().to_owned();
        (text("type"), text("message"))
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
            Self::Ollama => "/api/chat",
        }
    }
}

fn any_schema() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}})
}

/// One message and one tool more than a request may have.
fn over_the_bounds(api: TestedApi) -> Vec<Value> {
    let messages = match api {
        TestedApi::Responses => "input",
        TestedApi::Chat | TestedApi::Messages | TestedApi::Ollama => "messages",
    };
    vec![
        json!({messages: vec![json!({"role": "user", "content": "x"}); 10_001]}),
        json!({"tools": numbered_tools(api, 1025)}),
    ]
}

fn numbered_tools(api: TestedApi, count: usize) -> Vec<Value> {
    let tool = |at| api.question("m", &format!("t{at}"), &any_schema(), false)["tools"][0].clone();
    (0..count).map(tool).collect()
}

async fn hub_that_says(text: &'static str) -> (FakeModelServer, TestHub) {
    let model = FakeModelServer::start(move |_, seen| {
        if seen.body["stream"] == true {
            streamed_by_byte(text, "stop")
        } else {
            text_response(text)
        }
    })
    .await;
    let hub = TestHub::with_config(|config| model.configure(config)).await;
    (model, hub)
}

#[tokio::test]
async fn hostile_requests_get_errors_in_the_form_of_their_api() {
    let (model, hub) = hub_that_says("ok").await;
    let many = |count: usize, one: Value| Value::from(vec![one; count]);
    let common = [
        json!({"model": null}),
        json!({"model": 5}),
        json!({"model": ""}),
        json!({"model": "x".repeat(300)}),
        json!({"stream": "yes"}),
        json!({"tools": "all"}),
        json!({"tools": [1]}),
        json!({"tools": [{}]}),
        json!({"api_base": "http://169.254.169.254/"}),
        json!({"base_url": "http://169.254.169.254/"}),
        json!({"api_key": "x"}),
    ];
    // Ollama's API has them elsewhere, or not at all.
    let of_the_others = [
        json!({"tool_choice": 5}),
        json!({"temperature": "hot"}),
        json!({"top_p": 7}),
    ];
    let of_ollama = [
        json!({"messages": "hi"}),
        json!({"messages": [5]}),
        json!({"messages": [{"role": "root", "content": "x"}]}),
        json!({"messages": [{"role": "user", "content": 5}]}),
        json!({"options": 5}),
        json!({"options": {"temperature": "hot"}}),
        json!({"options": {"top_p": 7}}),
        json!({"options": {"num_predict": "many"}}),
        json!({"format": 5}),
        json!({"tools": many(2, json!({"type": "function", "function": {"name": "a"}}))}),
    ];
    let of_messages = [
        json!({"messages": []}),
        json!({"messages": "hi"}),
        json!({"messages": [{"role": "root", "content": "x"}]}),
        json!({"messages": [{"role": "user"}]}),
        json!({"messages": [{"role": "user", "content": 5}]}),
        json!({"messages": [{"role": "user", "content": [5]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}),
        json!({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "x"}]}]}),
        json!({"system": 5}),
        json!({"max_tokens": -1}),
        json!({"max_tokens": "many"}),
        json!({"stop_sequences": "END"}),
        json!({"tools": [{"name": "x".repeat(200), "input_schema": {}}]}),
        json!({"tools": [{"name": "a"}]}),
        json!({"tools": many(2, json!({"name": "a", "input_schema": {}}))}),
        json!({"tools": many(1025, json!({"type": "computer_2030"}))}),
        json!({"tool_choice": {"type": "tool", "name": "other"}}),
        json!({"tool_choice": {"type": "sometimes"}}),
        json!({"tools": [], "tool_choice": {"type": "any"}}),
    ];
    let of_responses = [
        json!({"input": null}),
        json!({"input": []}),
        json!({"input": 5}),
        json!({"input": [5]}),
        json!({"input": [{}]}),
        json!({"input": [{"role": "root", "content": "x"}]}),
        json!({"input": [{"role": "user", "content": 5}]}),
        json!({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}),
        json!({"input": [{"type": "function_call", "name": "x"}]}),
        json!({"input": [{"type": "function_call_output", "output": "x"}]}),
        json!({"input": [{"type": "item_reference", "id": "msg_1"}]}),
        json!({"instructions": 5}),
        json!({"previous_response_id": "resp_1"}),
        json!({"conversation": "conv_1"}),
        json!({"prompt": {"id": "p"}}),
        json!({"background": true}),
        json!({"max_output_tokens": 0}),
        json!({"parallel_tool_calls": "no"}),
        json!({"text": {"format": {"type": "yaml"}}}),
        json!({"text": {"format": {"type": "json_schema"}}}),
        json!({"tools": many(2, json!({"type": "function", "name": "a"}))}),
        json!({"tools": [{"type": "namespace", "name": "n"}]}),
        json!({"tools": [{"type": "function", "name": "a", "parameters": 5}]}),
        json!({"tool_choice": {"type": "function", "name": "other"}}),
        json!({"tool_choice": "sometimes"}),
    ];
    for api in TestedApi::ALL {
        let own: &[Value] = match api {
            TestedApi::Chat => &[],
            TestedApi::Ollama => &of_ollama,
            TestedApi::Messages => &of_messages,
            TestedApi::Responses => &of_responses,
        };
        let others: &[Value] = match api {
            TestedApi::Ollama => &[],
            _ => &of_the_others,
        };
        let bounds = over_the_bounds(api);
        for change in common.iter().chain(own).chain(others).chain(&bounds) {
            let mut body = api.question("m", "get_weather", &any_schema(), false);
            for (name, value) in change.as_object().unwrap() {
                body[name] = value.clone();
            }
            let reply = api.request(&hub, &body).send().await;
            let shown: String = change.to_string().chars().take(200).collect();
            assert_eq!(reply.status, 400, "{api:?} {shown}");
            let (kind, message) = api.error_of(&reply.json().await);
            assert_eq!(kind, "invalid_request_error", "{api:?} {shown}");
            assert!(
                !message.is_empty() && message.len() < 400,
                "{api:?} {shown}"
            );
        }
        for body in [
            "",
            "{",
            "[]",
            "5",
            "{\"model\":\"m\",\"model\":\"n\"}",
            "\u{feff}{}",
        ] {
            let request = TestRequest::post(&hub.address, api.path(), &json!({})).body(body);
            let reply = request.send().await;
            assert_eq!(reply.status, 400, "{api:?} {body}");
            api.error_of(&reply.json().await);
        }
        let deep = format!(
            "{{\"model\":\"m\",\"x\":{}1{}}}",
            "[".repeat(5000),
            "]".repeat(5000)
        );
        let reply = TestRequest::post(&hub.address, api.path(), &json!({}))
            .body(&deep)
            .send()
            .await;
        assert_eq!(reply.status, 400, "{api:?}");
        api.error_of(&reply.json().await);
    }
    assert!(model.seen().is_empty(), "none of them reached the model");
}

#[tokio::test]
async fn hostile_counts_of_tokens_are_refused_like_messages() {
    let (model, hub) = hub_that_says("ok").await;
    let post = |body: &str| {
        TestRequest::post(&hub.address, "/v1/messages/count_tokens", &json!({})).body(body)
    };
    let mut bodies = vec![
        (String::new(), 400),
        ("{".to_owned(), 400),
        ("[]".to_owned(), 400),
    ];
    bodies.push((format!("{{\"x\":{}}}", "[".repeat(100_000)), 400));
    bodies.push((format!("{{\"x\":\"{}\"}}", "y".repeat(4 << 20)), 413));
    let mut changes = over_the_bounds(TestedApi::Messages);
    changes.extend([
        json!({"model": null}),
        json!({"messages": null}),
        json!({"messages": [5]}),
        json!({"system": 5}),
        json!({"tools": [1]}),
        json!({"tools": "all"}),
    ]);
    for change in changes {
        bodies.push((message_body(change).to_string(), 400));
    }
    for (body, status) in bodies {
        let reply = post(&body).send().await;
        let shown: String = body.chars().take(200).collect();
        assert_eq!(reply.status, status, "{shown}");
        TestedApi::Messages.error_of(&reply.json().await);
    }
    let most =
        json!({"messages": vec![json!({"role": "user", "content": "x".repeat(300)}); 10_000]});
    let reply = post(&message_body(most).to_string()).send().await;
    assert!(reply.json().await["input_tokens"].as_u64() > Some(10_000));
    assert!(model.seen().is_empty(), "no backend is asked");
}

#[tokio::test]
async fn bounds_and_other_refusals_have_the_form_of_their_api() {
    let (_model, hub) = hub_that_says("ok").await;
    for api in TestedApi::ALL {
        let large = json!({"model": "m", "x": "y".repeat(4 * 1024 * 1024)});
        let reply = api.request(&hub, &large).send().await;
        assert_eq!(reply.status, 413, "{api:?}");
        let (kind, _) = api.error_of(&reply.json().await);
        if api == TestedApi::Messages {
            assert_eq!(kind, "request_too_large");
        }
        let reply = TestRequest::new(&hub.address, "GET", api.path())
            .send()
            .await;
        assert_eq!(reply.status, 405, "{api:?}");
        api.error_of(&reply.json().await);
        let body = api.question("m", "get_weather", &any_schema(), false);
        let foreign = api
            .request(&hub, &body)
            .header("host", "evil.test")
            .send()
            .await;
        assert_eq!(foreign.status, 403, "{api:?}");
        api.error_of(&foreign.json().await);
        let unknown = api
            .request(&hub, &body)
            .header("authorization", "Bearer wrong")
            .send()
            .await;
        assert_eq!(unknown.status, 401, "{api:?}");
        api.error_of(&unknown.json().await);
        // The most that is allowed.
        let mut body = api.question("m", "get_weather", &any_schema(), false);
        body["tools"] = numbered_tools(api, 1024).into();
        let name = if api == TestedApi::Responses {
            "input"
        } else {
            "messages"
        };
        // Turns that follow each other are one turn, whose text is not joined for each.
        let text = "x".repeat(350);
        body[name] = vec![json!({"role": "user", "content": text}); 10_000].into();
        assert_eq!(api.request(&hub, &body).send().await.status, 200, "{api:?}");
    }
    let missing = TestHub::with_config(|config| {
        config.models = vec![ModelDefinition {
            name: "only".to_owned(),
            ..ModelDefinition::default()
        }];
    })
    .await;
    for api in TestedApi::ALL {
        for stream in [false, true] {
            let body = api.question("other", "get_weather", &any_schema(), stream);
            let reply = api.request(&missing, &body).send().await;
            assert_eq!(reply.status, 404, "{api:?}");
            api.error_of(&reply.json().await);
        }
    }
}

#[tokio::test]
async fn agents_answer_on_every_api() {
    let model = FakeModelServer::start(|_, seen| {
        let messages = seen.body["messages"].as_array().unwrap();
        let text = match messages.last().unwrap()["role"].as_str() {
            Some("tool") => "There are tables.",
            _ => "<tool_call>\n{\"name\": \"list_tables\", \"arguments\": {}}\n</tool_call>",
        };
        if seen.body["stream"] == true {
            streamed_by_byte(text, "stop")
        } else {
            text_response(text)
        }
    })
    .await;
    let hub = TestHub::with_config(|config| model.configure(config)).await;
    for api in TestedApi::ALL {
        let body = api.question("agent/m", "get_weather", &any_schema(), false);
        let reply = api.request(&hub, &body).send().await;
        assert_eq!(reply.status, 200, "{api:?}");
        let whole = api.read_whole(&reply.json().await);
        let body = api.question("agent/m", "get_weather", &any_schema(), true);
        let streamed = api.read_stream(api.request(&hub, &body).send().await).await;
        for answer in [whole, streamed] {
            assert_eq!(answer.text, "There are tables.", "{api:?}");
            assert!(answer.calls.is_empty(), "the agent called the tool itself");
        }
    }
    let results = model
        .seen()
        .iter()
        .filter(|it| {
            it.body["messages"]
                .as_array()
                .unwrap()
                .iter()
                .any(|it| it["role"] == "tool")
        })
        .count();
    assert_eq!(results, 2 * TestedApi::ALL.len());
}

#[tokio::test]
async fn client_modes_work_on_every_api() {
    let (_model, hub) = hub_that_says(
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>",
    )
    .await;
    for api in TestedApi::ALL {
        let ask = |stream: bool, mode: &str| {
            let body = api.question("m", "get_weather", &any_schema(), stream);
            api.request(&hub, &body).header("x-maru-client-mode", mode)
        };
        let whole = api.read_whole(&ask(false, "xml").send().await.json().await);
        let streamed = api.read_stream(ask(true, "xml").send().await).await;
        for answer in [whole, streamed] {
            let text = answer.text.trim();
            assert_eq!(
                text, "<get_weather>\n<city>Seoul</city>\n</get_weather>",
                "{api:?}"
            );
            assert!(answer.calls.is_empty());
        }
        let unknown = ask(false, "morse").send().await;
        assert_eq!(unknown.status, 400);
        api.error_of(&unknown.json().await);
    }
}

#[tokio::test]
async fn tool_modes_work_on_every_api() {
    const CALL: &str = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}";
    let model = FakeModelServer::start(|_, seen| {
        assert!(seen.body.get("tools").is_none(), "they stand in the text");
        let text = if seen.body["model"] == "constrained" {
            CALL.to_owned()
        } else {
            format!("<tool_call>\n{CALL}\n</tool_call>")
        };
        if seen.body["stream"] == true {
            streamed_by_byte(&text, "stop")
        } else {
            text_response(&text)
        }
    })
    .await;
    let mode = |name: &str, tool_mode| ModelDefinition {
        name: name.to_owned(),
        tool_mode,
        ..model.model()
    };
    let models = vec![
        mode("prompt", maru::config::ToolMode::Prompt),
        mode("constrained", maru::config::ToolMode::Constrained),
    ];
    let hub = TestHub::with_config(|config: &mut Config| config.models = models).await;
    for api in TestedApi::ALL {
        for name in ["prompt", "constrained"] {
            let body = |stream| api.question(name, "get_weather", &any_schema(), stream);
            let whole = api.request(&hub, &body(false)).send().await.json().await;
            let streamed = api
                .read_stream(api.request(&hub, &body(true)).send().await)
                .await;
            let call = [("get_weather".to_owned(), json!({"city": "Seoul"}))];
            assert_eq!(api.read_whole(&whole).calls, call, "{api:?} {name}");
            assert_eq!(streamed.calls, call, "{api:?} {name}");
        }
    }
    // The mode of an entry applies on every API, too.
    let shown = ClientMode::Xml;
    let hub = TestHub::with_config(|config: &mut Config| {
        config.models = vec![ModelDefinition {
            client_mode: Some(shown),
            tool_mode: maru::config::ToolMode::Prompt,
            ..model.model()
        }];
    })
    .await;
    let message = whole_message(&hub, json!({})).await;
    assert!(
        message["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("<city>Seoul</city>")
    );
    let response = whole_response(&hub, json!({})).await;
    let text = response["output"][0]["content"][0]["text"]
        .as_str()
        .unwrap();
    assert!(text.contains("<city>Seoul</city>"));
}

#[tokio::test]
async fn pages_of_allowed_origins_get_cors_headers_and_no_others() {
    const PAGE: &str = "https://chat.example";
    let model = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = TestHub::with_config(|config| {
        model.configure(config);
        config.http.allowed_origins = vec![PAGE.to_owned()];
        config.require_token = true;
    })
    .await;
    let preflight = |path: &str, origin: &str| {
        TestRequest::new(&hub.address, "OPTIONS", path)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "authorization, content-type, mcp-session-id",
            )
    };
    for path in [
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/responses",
        "/v1/completions",
        "/v1/models",
        "/api/chat",
        "/api/tools",
        "/mcp",
        "/mcp/s/x",
        "/sse",
        "/sse/message",
        "/generate",
        "/generate_with_mcp",
    ] {
        let answer = preflight(path, PAGE).send().await;
        assert_eq!(answer.status, 204, "{path}");
        assert_eq!(answer.headers["access-control-allow-origin"], PAGE);
        assert!(answer.headers["access-control-allow-headers"].contains("mcp-session-id"));
        assert!(!answer.headers["access-control-allow-methods"].is_empty());
        assert_eq!(answer.headers["vary"], "origin");
        assert!(
            !answer
                .headers
                .contains_key("access-control-allow-credentials")
        );
        for foreign in [
            "https://evil.test",
            "null",
            "http://chat.example",
            "https://chat.example.evil.test",
        ] {
            let refused = preflight(path, foreign).send().await;
            assert_eq!(refused.status, 403, "{path} {foreign}");
            assert!(
                !refused
                    .headers
                    .keys()
                    .any(|it| it.starts_with("access-control")),
                "{path} {foreign}"
            );
        }
        let rebound = preflight(path, PAGE)
            .header("host", "evil.test")
            .send()
            .await;
        assert_eq!(rebound.status, 403, "{path}");
        assert!(!rebound.headers.contains_key("access-control-allow-origin"));
    }
    for path in ["/", "/healthz", "/metrics", "/assets/v/x/y"] {
        let answer = preflight(path, PAGE).send().await;
        assert!(
            !answer.headers.contains_key("access-control-allow-origin"),
            "{path}"
        );
    }
    // The page can read why it was refused, and the answer with a token.
    let get = || TestRequest::new(&hub.address, "GET", "/v1/models").header("origin", PAGE);
    let refused = get().send().await;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.headers["access-control-allow-origin"], PAGE);
    let token = hub
        .create_token(json!({"name": "page", "role": "agent"}))
        .await;
    let answer = get()
        .header("authorization", &format!("Bearer {token}"))
        .send()
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["access-control-allow-origin"], PAGE);
    assert!(answer.headers["access-control-expose-headers"].contains("mcp-session-id"));
    let plain = TestRequest::new(&hub.address, "OPTIONS", "/v1/models")
        .header("authorization", &format!("Bearer {token}"));
    assert_eq!(plain.send().await.status, 405, "no page, no preflight");
}

#[tokio::test]
async fn container_learns_which_setting_lets_it_in() {
    let hub = TestHub::start().await;
    let port = hub.address.rsplit(':').next().unwrap();
    let host = format!("host.docker.internal:{port}");
    let get =
        |hub: &TestHub| TestRequest::new(&hub.address, "GET", "/v1/models").header("host", &host);
    let refused = get(&hub).send().await;
    assert_eq!(refused.status, 403);
    let message = refused.json().await["error"]["message"].clone();
    assert!(
        message.as_str().unwrap().contains("http.allowed_hosts"),
        "{message}"
    );
    let open = TestHub::with_config(|config| {
        config.http.allowed_hosts = vec!["host.docker.internal".to_owned()];
    })
    .await;
    assert_eq!(get(&open).send().await.status, 200);
}
