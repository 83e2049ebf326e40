//! The tools, prompts and resources that the conformance suite asks for, as
//! offers of the hub itself: what fails with them is the hub's doing.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use maru::{
    mcp::{LogLevel, RpcError, code},
    tool::{Action, Answer, Ask, Catalog, InputRequired, Kind, OWN_SERVER, Offer},
};
use serde_json::{Value, json};
use tokio::sync::Barrier;

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

type Outcome = Result<Answer, RpcError>;

pub(crate) fn offers(catalog: &Arc<Catalog>) -> Vec<Arc<Offer>> {
    [
        fixed_tools(),
        telling_tools(),
        asking_tools(),
        changing_tools(catalog),
        prompts(),
        resources(),
    ]
    .concat()
}

fn fixed_tools() -> Vec<Arc<Offer>> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": PIXEL, "mimeType": "image/png"});
    let resource = |uri: &str, kind: &str, text: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}});
    let fixed = |name: &str, content: Value, is_error: bool| {
        tool(name, json!({}), move |_| {
            let result = json!({"content": content, "isError": is_error}).to_string();
            async move { Ok(Answer::Complete(result)) }
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
            json!([{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}]),
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

fn telling_tools() -> Vec<Arc<Offer>> {
    let slowly = || tokio::time::sleep(Duration::from_millis(50));
    let logging = move |ask: Ask| async move {
        for message in [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed",
        ] {
            ask.peer
                .log(LogLevel::Info, "fixture", &json!(message))
                .await;
            slowly().await;
        }
        done("Logged")
    };
    vec![
        tool("test_tool_with_logging", json!({}), logging),
        tool("test_logging_tool", json!({}), logging),
        tool(
            "test_tool_with_progress",
            json!({}),
            move |ask| async move {
                for progress in [0.0, 50.0, 100.0] {
                    ask.peer.progress(progress, Some(100.0), None).await;
                    slowly().await;
                }
                done("Progressed")
            },
        ),
    ]
}

fn asking_tools() -> Vec<Arc<Offer>> {
    let name = || elicit("What is your name?", &json!({"name": {"type": "string"}}));
    vec![
        asking(
            "test_sampling",
            json!({"prompt": {"type": "string"}}),
            |ask| {
                vec![(
                    "it",
                    sample(arguments(ask)["prompt"].as_str().unwrap_or_default(), 100),
                )]
            },
            |it| {
                format!(
                    "LLM response: {}",
                    it["content"]["text"].as_str().unwrap_or_default()
                )
            },
        ),
        asking(
            "test_elicitation",
            json!({"message": {"type": "string"}}),
            |ask| {
                let fields = json!({
                    "username": {"type": "string", "description": "User's response"},
                    "email": {"type": "string", "description": "User's email address"},
                });
                vec![(
                    "it",
                    elicit(
                        arguments(ask)["message"].as_str().unwrap_or_default(),
                        &fields,
                    ),
                )]
            },
            |it| format!("User response: {it}"),
        ),
        asking(
            "test_elicitation_sep1034_defaults",
            json!({}),
            |_| {
                let mut request = elicit(
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
            completed,
        ),
        asking(
            "test_elicitation_sep1330_enums",
            json!({}),
            |_| {
                let titled = |it: &str| json!([{"const": "value1", "title": format!("First {it}")}, {"const": "value2", "title": format!("Second {it}")}, {"const": "value3", "title": format!("Third {it}")}]);
                let plain = json!(["option1", "option2", "option3"]);
                vec![(
                    "it",
                    elicit(
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
            completed,
        ),
        asking(
            "test_missing_capability",
            json!({}),
            |_| vec![("it", sample("Hi", 10))],
            completed,
        ),
        asking(
            "test_streaming_elicitation",
            json!({}),
            move |_| vec![("it", name())],
            completed,
        ),
        asking(
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
        asking(
            "test_input_required_result_sampling",
            json!({}),
            |_| {
                vec![(
                    "capital_question",
                    sample("What is the capital of France?", 100),
                )]
            },
            completed,
        ),
        asking(
            "test_input_required_result_list_roots",
            json!({}),
            |_| vec![("client_roots", roots())],
            completed,
        ),
        asking(
            "test_input_required_result_multiple_inputs",
            json!({}),
            move |_| {
                vec![
                    ("user_name", name()),
                    ("greeting", sample("Generate a greeting", 50)),
                    ("client_roots", roots()),
                ]
            },
            completed,
        ),
        asking(
            "test_input_required_result_tampered_state",
            json!({}),
            move |_| vec![("user_name", name())],
            completed,
        ),
        asking(
            "test_input_required_result_capabilities",
            json!({}),
            move |ask| {
                let can = |name: &str| ask.peer.capabilities.get(name).is_some();
                let all = [
                    ("elicitation", "user_name", name()),
                    ("sampling", "greeting", sample("Generate a greeting", 50)),
                ];
                all.into_iter()
                    .filter(|it| can(it.0))
                    .map(|it| (it.1, it.2))
                    .collect()
            },
            completed,
        ),
        tool(
            "test_input_required_result_request_state",
            json!({}),
            |ask| async move {
                let request = elicit("Please confirm", &json!({"ok": {"type": "boolean"}}));
                match (
                    ask.peer.inputs.responses.get("confirm"),
                    ask.peer.inputs.state.as_deref(),
                ) {
                    (Some(_), Some("confirming")) => done("state-ok"),
                    _ => needed([("confirm", request)], Some("confirming")),
                }
            },
        ),
        tool(
            "test_input_required_result_multi_round",
            json!({}),
            |ask| async move {
                let responses = &ask.peer.inputs.responses;
                let step =
                    |text: &str, field: &str| elicit(text, &json!({field: {"type": "string"}}));
                match (
                    responses.get("step1"),
                    responses.get("step2"),
                    ask.peer.inputs.state.as_deref(),
                ) {
                    (_, Some(_), Some("two")) => done("All steps done"),
                    (Some(_), _, Some("one")) => needed(
                        [(
                            "step2",
                            step("Step 2: What is your favorite color?", "color"),
                        )],
                        Some("two"),
                    ),
                    _ => needed(
                        [("step1", step("Step 1: What is your name?", "name"))],
                        Some("one"),
                    ),
                }
            },
        ),
    ]
}

/// Tools that change what is on offer: each call adds one more.
fn changing_tools(catalog: &Arc<Catalog>) -> Vec<Arc<Offer>> {
    let changing = |name: &'static str, kind: Kind| {
        let catalog = Arc::clone(catalog);
        tool(name, json!({}), move |_| {
            static ADDED: AtomicUsize = AtomicUsize::new(0);
            let name = format!("added_{}", ADDED.fetch_add(1, Relaxed));
            let described = match kind {
                Kind::Tool => {
                    json!({"name": name, "description": "New", "inputSchema": {"type": "object"}})
                }
                _ => json!({"name": name, "description": "New"}),
            };
            let mut all = offers(&catalog);
            all.push(Offer::own(
                kind,
                described,
                Arc::new(|_| async { done("new") }.boxed()),
            ));
            catalog.publish(OWN_SERVER, &all);
            async { done("Changed") }
        })
    };
    vec![
        changing("test_trigger_tool_change", Kind::Tool),
        changing("test_trigger_prompt_change", Kind::Prompt),
    ]
}

/// A tool that takes its time; too slow for the suite, which calls what it finds.
pub(crate) fn slow() -> Arc<Offer> {
    tool(
        "slow",
        json!({"milliseconds": {"type": "integer"}}),
        |ask| async move {
            let wait = arguments(&ask)["milliseconds"].as_u64().unwrap_or(60_000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            done("Slept")
        },
    )
}

/// A tool that answers when as many calls are in progress as the barrier asks for.
pub(crate) fn meeting(name: &'static str, barrier: &Arc<Barrier>) -> Arc<Offer> {
    let barrier = Arc::clone(barrier);
    tool(name, json!({"n": {"type": "integer"}}), move |_| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            done("Met")
        }
    })
}

fn prompts() -> Vec<Arc<Offer>> {
    let text = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
    let image = json!({"role": "user", "content": {"type": "image", "data": PIXEL, "mimeType": "image/png"}});
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
        Offer::own(
            Kind::Prompt,
            json!({"name": "test_input_required_result_prompt", "description": "Asks back"}),
            Arc::new(|ask| {
                async move {
                let request = elicit("What context should the prompt use?", &json!({"context": {"type": "string"}}));
                match ask.peer.inputs.responses.get("user_context") {
                    None => needed([("user_context", request)], None),
                    Some(it) => Ok(Answer::Complete(json!({"messages": [{"role": "user", "content": {"type": "text", "text": it["content"]["context"]}}]}).to_string())),
                }
            }
            .boxed()
            }),
        ),
    ]
}

fn resources() -> Vec<Arc<Offer>> {
    let fixed = |uri: &'static str, content: Value| {
        let described = json!({"uri": uri, "name": uri, "description": "A test resource", "mimeType": content["mimeType"]});
        Offer::own(
            Kind::Resource,
            described,
            Arc::new(move |_| {
                let result = json!({"contents": [content]}).to_string();
                async move { Ok(Answer::Complete(result)) }.boxed()
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
            json!({"uri": "test://static-binary", "mimeType": "image/png", "blob": PIXEL}),
        ),
        fixed(
            "test://watched-resource",
            json!({"uri": "test://watched-resource", "mimeType": "text/plain", "text": "Watched"}),
        ),
        Offer::own(
            Kind::Template,
            template,
            Arc::new(|ask| {
                let Action::Read(uri) = ask.action else {
                    return async { Err(RpcError::params("read it")) }.boxed();
                };
                let id = uri
                    .trim_start_matches("test://template/")
                    .trim_end_matches("/data")
                    .to_owned();
                let text =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")})
                        .to_string();
                let result = json!({"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}).to_string();
                async move { Ok(Answer::Complete(result)) }.boxed()
            }),
        ),
    ]
}

pub(crate) fn tool<F, Fut>(name: &str, properties: Value, answer: F) -> Arc<Offer>
where
    F: Fn(Ask) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let described = json!({
        "name": name, "description": "A test tool",
        "inputSchema": {"type": "object", "properties": properties},
    });
    Offer::own(
        Kind::Tool,
        described,
        Arc::new(move |ask| answer(ask).boxed()),
    )
}

/// A tool that asks the client, then answers with what it got first.
fn asking(
    name: &str,
    properties: Value,
    questions: impl Fn(&Ask) -> Vec<(&'static str, Value)> + Send + Sync + 'static,
    answer: impl Fn(&Value) -> String + Send + Sync + 'static,
) -> Arc<Offer> {
    tool(name, properties, move |ask| {
        let questions = questions(&ask);
        let responses = &ask.peer.inputs.responses;
        let all = questions
            .iter()
            .all(|(key, _)| responses.get(*key).is_some_and(Value::is_object));
        let outcome = match questions.first() {
            Some((first, _)) if all => done(&answer(&responses[*first])),
            _ => needed(questions, None),
        };
        async move { outcome }
    })
}

fn prompt(
    name: &str,
    accepted: Value,
    messages: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> Arc<Offer> {
    let described = json!({"name": name, "description": "A test prompt", "arguments": accepted});
    Offer::own(
        Kind::Prompt,
        described,
        Arc::new(move |ask| {
            let outcome = match ask.action {
                Action::Get(arguments) => Ok(json!({"messages": messages(&arguments)})),
                Action::Complete { value, .. } => {
                    let values: Vec<&str> = ["paris", "park", "party"]
                        .into_iter()
                        .filter(|it| it.starts_with(&value))
                        .collect();
                    Ok(
                        json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}),
                    )
                }
                _ => Err(RpcError::new(code::INTERNAL, "neither get nor complete")),
            };
            async move { outcome.map(|it| Answer::Complete(it.to_string())) }.boxed()
        }),
    )
}

fn arguments(ask: &Ask) -> Value {
    match &ask.action {
        Action::Call(arguments) => Value::clone(arguments),
        _ => Value::Null,
    }
}

fn done(text: &str) -> Outcome {
    Ok(Answer::Complete(
        json!({"content": [{"type": "text", "text": text}]}).to_string(),
    ))
}

fn completed(it: &Value) -> String {
    format!(
        "Elicitation completed: action={}, content={it}",
        it["action"].as_str().unwrap_or_default()
    )
}

fn needed(
    requests: impl IntoIterator<Item = (&'static str, Value)>,
    state: Option<&str>,
) -> Outcome {
    Ok(Answer::InputRequired(InputRequired {
        requests: requests
            .into_iter()
            .map(|(key, it)| (key.to_owned(), it))
            .collect(),
        state: state.map(str::to_owned),
    }))
}

fn elicit(message: &str, fields: &Value) -> Value {
    let required: Vec<&String> = fields.as_object().unwrap().keys().collect();
    let schema = json!({"type": "object", "properties": fields, "required": required});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn sample(text: &str, tokens: u32) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}
