//! The tools, prompts and resources of the conformance suite as entries of the hub
//! itself, so that a failure with them is a defect of the hub.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use maru::tools::{
    Catalog, CatalogEntry, CatalogEntryKind, EntryAction, EntryRequest, EntryResponse,
    InputRequired, OWN_SERVER_NAME,
};
use maru_protocol::{LoggingLevel, RpcError, code};
use serde_json::{Value, json};
use tokio::sync::Barrier;

const PNG_BASE64: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const WAV_BASE64: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

type ToolOutcome = Result<EntryResponse, RpcError>;

pub(crate) fn suite_entries(catalog: &Arc<Catalog>) -> Vec<Arc<CatalogEntry>> {
    [
        fixed_tools(),
        notifying_tools(),
        input_requesting_tools(),
        list_changing_tools(catalog),
        prompts(),
        resources(),
    ]
    .concat()
}

fn fixed_tools() -> Vec<Arc<CatalogEntry>> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": PNG_BASE64, "mimeType": "image/png"});
    let resource = |uri: &str, kind: &str, text: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}});
    let fixed = |name: &str, content: Value, is_error: bool| {
        tool(name, json!({}), move |_| {
            let result = json!({"content": content, "isError": is_error}).into();
            async move { Ok(EntryResponse::Complete(result)) }
        })
    };
    vec![
        fixed(
            "test_simple_text",
            json!([text("This is a simple text response for testing.")]),
            false,
        ),
        fixed("test_image_content", json!([image]), false),
        fixed(
            "test_audio_content",
            json!([{"type": "audio", "data": WAV_BASE64, "mimeType": "audio/wav"}]),
            false,
        ),
        fixed(
            "test_embedded_resource",
            json!([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )]),
            false,
        ),
        fixed(
            "test_multiple_content_types",
            json!([
                text("Multiple content types test:"),
                image,
                resource(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#
                ),
            ]),
            false,
        ),
        fixed(
            "test_error_handling",
            json!([text("This tool intentionally returns an error for testing")]),
            true,
        ),
    ]
}

fn notifying_tools() -> Vec<Arc<CatalogEntry>> {
    let slowly = || tokio::time::sleep(Duration::from_millis(50));
    let logging = move |ask: EntryRequest| async move {
        for message in [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed",
        ] {
            ask.context
                .send_log(LoggingLevel::Info, "fixture", &json!(message))
                .await;
            slowly().await;
        }
        text_result("Logged")
    };
    vec![
        tool("test_tool_with_logging", json!({}), logging),
        tool("test_logging_tool", json!({}), logging),
        tool(
            "test_tool_with_progress",
            json!({}),
            move |ask| async move {
                for progress in [0.0, 50.0, 100.0] {
                    ask.context.send_progress(progress, Some(100.0), None).await;
                    slowly().await;
                }
                text_result("Progressed")
            },
        ),
    ]
}

fn input_requesting_tools() -> Vec<Arc<CatalogEntry>> {
    let name = || elicitation_request("What is your name?", &json!({"name": {"type": "string"}}));
    vec![
        input_requesting_tool(
            "test_sampling",
            json!({"prompt": {"type": "string"}}),
            |ask| {
                vec![(
                    "it",
                    sampling_request(arguments(ask)["prompt"].as_str().unwrap_or_default(), 100),
                )]
            },
            |it| {
                format!(
                    "LLM response: {}",
                    it["content"]["text"].as_str().unwrap_or_default()
                )
            },
        ),
        input_requesting_tool(
            "test_elicitation",
            json!({"message": {"type": "string"}}),
            |ask| {
                let fields = json!({
                    "username": {"type": "string", "description": "User's response"},
                    "email": {"type": "string", "description": "User's email address"},
                });
                vec![(
                    "it",
                    elicitation_request(
                        arguments(ask)["message"].as_str().unwrap_or_default(),
                        &fields,
                    ),
                )]
            },
            |it| format!("User response: {it}"),
        ),
        input_requesting_tool(
            "test_elicitation_sep1034_defaults",
            json!({}),
            |_| {
                let mut request = elicitation_request(
                    "Defaults",
                    &json!({
                        "name": {"type": "string", "default": "John Doe"},
                        "age": {"type": "integer", "default": 30},
                        "score": {"type": "number", "default": 95.5},
                        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                        "verified": {"type": "boolean", "default": true},
                    }),
                );
                request["params"]["requestedSchema"]["required"] = json!([]);
                vec![("it", request)]
            },
            completed_text,
        ),
        input_requesting_tool(
            "test_elicitation_sep1330_enums",
            json!({}),
            |_| {
                let titled = |it: &str| json!([{"const": "value1", "title": format!("First {it}")}, {"const": "value2", "title": format!("Second {it}")}, {"const": "value3", "title": format!("Third {it}")}]);
                let plain = json!(["option1", "option2", "option3"]);
                vec![(
                    "it",
                    elicitation_request(
                        "Enums",
                        &json!({
                            "untitledSingle": {"type": "string", "enum": plain},
                            "titledSingle": {"type": "string", "oneOf": titled("Option")},
                            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
                            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
                            "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
                        }),
                    ),
                )]
            },
            completed_text,
        ),
        input_requesting_tool(
            "test_missing_capability",
            json!({}),
            |_| vec![("it", sampling_request("Hi", 10))],
            completed_text,
        ),
        input_requesting_tool(
            "test_streaming_elicitation",
            json!({}),
            move |_| vec![("it", name())],
            completed_text,
        ),
        input_requesting_tool(
            "test_input_required_result_elicitation",
            json!({}),
            move |_| vec![("user_name", name())],
            |it| {
                format!(
                    "Hello, {}!",
                    it["content"]["name"].as_str().unwrap_or_default()
                )
            },
        ),
        input_requesting_tool(
            "test_input_required_result_sampling",
            json!({}),
            |_| {
                vec![(
                    "capital_question",
                    sampling_request("What is the capital of France?", 100),
                )]
            },
            completed_text,
        ),
        input_requesting_tool(
            "test_input_required_result_list_roots",
            json!({}),
            |_| vec![("client_roots", roots_request())],
            completed_text,
        ),
        input_requesting_tool(
            "test_input_required_result_multiple_inputs",
            json!({}),
            move |_| {
                vec![
                    ("user_name", name()),
                    ("greeting", sampling_request("Generate a greeting", 50)),
                    ("client_roots", roots_request()),
                ]
            },
            completed_text,
        ),
        input_requesting_tool(
            "test_input_required_result_tampered_state",
            json!({}),
            move |_| vec![("user_name", name())],
            completed_text,
        ),
        input_requesting_tool(
            "test_input_required_result_capabilities",
            json!({}),
            move |ask| {
                let can = |name: &str| ask.context.capabilities.get(name).is_some();
                let all = [
                    ("elicitation", "user_name", name()),
                    (
                        "sampling",
                        "greeting",
                        sampling_request("Generate a greeting", 50),
                    ),
                ];
                all.into_iter()
                    .filter(|it| can(it.0))
                    .map(|it| (it.1, it.2))
                    .collect()
            },
            completed_text,
        ),
        tool(
            "test_input_required_result_request_state",
            json!({}),
            |ask| async move {
                let request =
                    elicitation_request("Please confirm", &json!({"ok": {"type": "boolean"}}));
                match (
                    ask.context.inputs.responses.get("confirm"),
                    ask.context.inputs.state.as_deref(),
                ) {
                    (Some(_), Some("confirming")) => text_result("state-ok"),
                    _ => input_required([("confirm", request)], Some("confirming")),
                }
            },
        ),
        tool(
            "test_input_required_result_multi_round",
            json!({}),
            |ask| async move {
                let responses = &ask.context.inputs.responses;
                let step = |text: &str, field: &str| {
                    elicitation_request(text, &json!({field: {"type": "string"}}))
                };
                match (
                    responses.get("step1"),
                    responses.get("step2"),
                    ask.context.inputs.state.as_deref(),
                ) {
                    (_, Some(_), Some("two")) => text_result("All steps done"),
                    (Some(_), _, Some("one")) => input_required(
                        [(
                            "step2",
                            step("Step 2: What is your favorite color?", "color"),
                        )],
                        Some("two"),
                    ),
                    _ => input_required(
                        [("step1", step("Step 1: What is your name?", "name"))],
                        Some("one"),
                    ),
                }
            },
        ),
    ]
}

/// Tools that change the catalog: each call adds one more tool.
fn list_changing_tools(catalog: &Arc<Catalog>) -> Vec<Arc<CatalogEntry>> {
    let changing = |name: &'static str, kind: CatalogEntryKind| {
        let catalog = Arc::clone(catalog);
        tool(name, json!({}), move |_| {
            static ADDED: AtomicUsize = AtomicUsize::new(0);
            let name = format!("added_{}", ADDED.fetch_add(1, Relaxed));
            let described = match kind {
                CatalogEntryKind::Tool => {
                    json!({"name": name, "description": "New", "inputSchema": {"type": "object"}})
                }
                _ => json!({"name": name, "description": "New"}),
            };
            let mut all = suite_entries(&catalog);
            all.push(CatalogEntry::builtin(
                kind,
                described,
                Arc::new(|_| async { text_result("new") }.boxed()),
            ));
            catalog.publish(OWN_SERVER_NAME, &all);
            async { text_result("Changed") }
        })
    };
    vec![
        changing("test_trigger_tool_change", CatalogEntryKind::Tool),
        changing("test_trigger_prompt_change", CatalogEntryKind::Prompt),
    ]
}

/// How many calls of the slow tool have started in this process.
pub(crate) static SLOW_CALLS: AtomicUsize = AtomicUsize::new(0);

/// A slow tool. It is not part of the suite, which calls every tool it finds.
pub(crate) fn slow_tool() -> Arc<CatalogEntry> {
    tool(
        "slow",
        json!({"milliseconds": {"type": "integer"}}),
        |ask| async move {
            SLOW_CALLS.fetch_add(1, Relaxed);
            let wait = arguments(&ask)["milliseconds"].as_u64().unwrap_or(60_000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            text_result("Slept")
        },
    )
}

/// A tool that always returns `text`.
pub(crate) fn text_tool(name: &'static str, text: &'static str) -> Arc<CatalogEntry> {
    tool(name, json!({}), move |_| async move { text_result(text) })
}

/// A tool that responds once as many calls are in flight as the barrier expects.
pub(crate) fn barrier_tool(name: &'static str, barrier: &Arc<Barrier>) -> Arc<CatalogEntry> {
    let barrier = Arc::clone(barrier);
    tool(name, json!({"n": {"type": "integer"}}), move |_| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            text_result("Met")
        }
    })
}

fn prompts() -> Vec<Arc<CatalogEntry>> {
    let text = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
    let image = json!({"role": "user", "content": {"type": "image", "data": PNG_BASE64, "mimeType": "image/png"}});
    let argument =
        |name: &str| json!({"name": name, "description": "A test argument", "required": true});
    vec![
        prompt("test_simple_prompt", json!([]), move |_| {
            json!([text("This is a simple prompt for testing.")])
        }),
        prompt(
            "test_prompt_with_arguments",
            json!([argument("arg1"), argument("arg2")]),
            move |arguments| {
                let of = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
                json!([text(&format!(
                    "Prompt with arguments: arg1='{}', arg2='{}'",
                    of("arg1"),
                    of("arg2")
                ))])
            },
        ),
        prompt(
            "test_prompt_with_embedded_resource",
            json!([argument("resourceUri")]),
            move |arguments| {
                let resource = json!({"uri": arguments["resourceUri"], "mimeType": "text/plain", "text": "Embedded resource content for testing."});
                json!([{"role": "user", "content": {"type": "resource", "resource": resource}}, text("Please process the embedded resource above.")])
            },
        ),
        prompt("test_prompt_with_image", json!([]), move |_| {
            json!([image, text("Please analyze the image above.")])
        }),
        CatalogEntry::builtin(
            CatalogEntryKind::Prompt,
            json!({"name": "test_input_required_result_prompt", "description": "Asks back"}),
            Arc::new(|ask| {
                async move {
                let request = elicitation_request("What context should the prompt use?", &json!({"context": {"type": "string"}}));
                match ask.context.inputs.responses.get("user_context") {
                    None => input_required([("user_context", request)], None),
                    Some(it) => Ok(EntryResponse::Complete(json!({"messages": [{"role": "user", "content": {"type": "text", "text": it["content"]["context"]}}]}).into())),
                }
            }
            .boxed()
            }),
        ),
    ]
}

fn resources() -> Vec<Arc<CatalogEntry>> {
    let fixed = |uri: &'static str, content: Value| {
        let described = json!({"uri": uri, "name": uri, "description": "A test resource", "mimeType": content["mimeType"]});
        CatalogEntry::builtin(
            CatalogEntryKind::Resource,
            described,
            Arc::new(move |_| {
                let result = json!({"contents": [content]}).into();
                async move { Ok(EntryResponse::Complete(result)) }.boxed()
            }),
        )
    };
    let template = json!({"uriTemplate": "test://template/{id}/data", "name": "template", "description": "A test template", "mimeType": "application/json"});
    vec![
        fixed(
            "test://static-text",
            json!({"uri": "test://static-text", "mimeType": "text/plain", "text": "This is the content of the static text resource."}),
        ),
        fixed(
            "test://static-binary",
            json!({"uri": "test://static-binary", "mimeType": "image/png", "blob": PNG_BASE64}),
        ),
        fixed(
            "test://watched-resource",
            json!({"uri": "test://watched-resource", "mimeType": "text/plain", "text": "Watched"}),
        ),
        CatalogEntry::builtin(
            CatalogEntryKind::ResourceTemplate,
            template,
            Arc::new(|ask| {
                let EntryAction::ReadResource(uri) = ask.action else {
                    return async { Err(RpcError::invalid_params("read it")) }.boxed();
                };
                let id = uri
                    .trim_start_matches("test://template/")
                    .trim_end_matches("/data")
                    .to_owned();
                let text =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")})
                        .to_string();
                let result = json!({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}).into();
                async move { Ok(EntryResponse::Complete(result)) }.boxed()
            }),
        ),
    ]
}

pub(crate) fn tool<F, Fut>(name: &str, properties: Value, answer: F) -> Arc<CatalogEntry>
where
    F: Fn(EntryRequest) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ToolOutcome> + Send + 'static,
{
    let described = json!({
        "name": name, "description": "A test tool",
        "inputSchema": {"type": "object", "properties": properties},
    });
    CatalogEntry::builtin(
        CatalogEntryKind::Tool,
        described,
        Arc::new(move |ask| answer(ask).boxed()),
    )
}

/// A tool that requests input from the client and responds with what it received.
fn input_requesting_tool(
    name: &str,
    properties: Value,
    questions: impl Fn(&EntryRequest) -> Vec<(&'static str, Value)> + Send + Sync + 'static,
    answer: impl Fn(&Value) -> String + Send + Sync + 'static,
) -> Arc<CatalogEntry> {
    tool(name, properties, move |ask| {
        let questions = questions(&ask);
        let responses = &ask.context.inputs.responses;
        let all = questions
            .iter()
            .all(|(key, _)| responses.get(*key).is_some_and(Value::is_object));
        let outcome = match questions.first() {
            Some((first, _)) if all => text_result(&answer(&responses[*first])),
            _ => input_required(questions, None),
        };
        async move { outcome }
    })
}

fn prompt(
    name: &str,
    accepted: Value,
    messages: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> Arc<CatalogEntry> {
    let described = json!({"name": name, "description": "A test prompt", "arguments": accepted});
    CatalogEntry::builtin(
        CatalogEntryKind::Prompt,
        described,
        Arc::new(move |ask| {
            let outcome = match ask.action {
                EntryAction::GetPrompt(arguments) => Ok(json!({"messages": messages(&arguments)})),
                EntryAction::Complete { value, .. } => {
                    let values: Vec<&str> = ["paris", "park", "party"]
                        .into_iter()
                        .filter(|it| it.starts_with(&value))
                        .collect();
                    Ok(
                        json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}),
                    )
                }
                _ => Err(RpcError::new(
                    code::INTERNAL_ERROR,
                    "neither get nor complete",
                )),
            };
            async move { outcome.map(|it| EntryResponse::Complete(it.into())) }.boxed()
        }),
    )
}

fn arguments(ask: &EntryRequest) -> Value {
    match &ask.action {
        EntryAction::CallTool(arguments) => Value::clone(arguments),
        _ => Value::Null,
    }
}

fn text_result(text: &str) -> ToolOutcome {
    Ok(EntryResponse::Complete(
        json!({"content": [{"type": "text", "text": text}]}).into(),
    ))
}

fn completed_text(it: &Value) -> String {
    format!(
        "Elicitation completed: action={}, content={it}",
        it["action"].as_str().unwrap_or_default()
    )
}

fn input_required(
    requests: impl IntoIterator<Item = (&'static str, Value)>,
    state: Option<&str>,
) -> ToolOutcome {
    Ok(EntryResponse::InputRequired(InputRequired {
        requests: requests
            .into_iter()
            .map(|(key, it)| (key.to_owned(), it))
            .collect(),
        state: state.map(str::to_owned),
    }))
}

fn elicitation_request(message: &str, fields: &Value) -> Value {
    let required: Vec<&String> = fields.as_object().unwrap().keys().collect();
    let schema = json!({"type": "object", "properties": fields, "required": required});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn sampling_request(text: &str, tokens: u32) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}})
}

fn roots_request() -> Value {
    json!({"method": "roots/list", "params": {}})
}
