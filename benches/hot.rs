//! Hot functions, without a network: `cargo bench`.

use std::{hint::black_box, sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, header},
};
use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::FutureExt as _;
use maru::{
    access::Principal,
    config::Limits,
    downstream::{
        Engine,
        http::{Arrival, SESSION_ID, post},
    },
    journal::{Asked, Journal, Outcome, RequestId},
    mcp::{Message, Params, check, event},
    source::{Sqlite, write_sample},
    tasks::Tasks,
    tool::{Answer, Caller, Catalog, Kind, OWN_SERVER, Offer, ResultSizes, Scope, builtin, output},
};
use serde_json::json;
use tokio::runtime::Runtime;

const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_employee_info","arguments":{"employee_id":"EMP001"}}}"#;
const ECHO: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;

fn words(c: &mut Criterion) {
    c.bench_function("check a call", |b| {
        b.iter(|| check(black_box(CALL.as_bytes())).map(str::len));
    });
    c.bench_function("read a call", |b| {
        b.iter(|| match Message::read(black_box(CALL)) {
            Ok(Message::Request(request)) => Params::read(request.params).is_ok(),
            _ => false,
        });
    });
    let answer = output::structured(&json!({"success": true, "result": "x".repeat(300)}));
    c.bench_function("write an event", |b| {
        b.iter(|| event(Some("message"), Some("1-1"), black_box(&answer)));
    });
}

/// What every call pays for being remembered.
fn remembering(c: &mut Criterion) {
    let journal = Journal::default();
    let [tool, server, principal, arguments] = [
        "get_employee_info",
        "maru",
        "local",
        r#"{"employee_id":"EMP001"}"#,
    ]
    .map(Arc::<str>::from);
    let result = output::structured(&json!({"success": true, "result": "x".repeat(300)}));
    c.bench_function("journal: keep a call", |b| {
        b.iter(|| {
            let asked = Asked {
                tool: Arc::clone(&tool),
                server: Arc::clone(&server),
                principal: Arc::clone(&principal),
                client: None,
                arguments: Arc::clone(&arguments),
                from: None,
                request: RequestId::next(),
            };
            let mut started = journal.begin(asked);
            started.passed_on();
            started.answered();
            started.finish(Outcome::Ok, black_box(&result));
        });
    });
}

fn calls(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let _inside = runtime.enter();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("sample.db");
    write_sample(&path).expect("sample data");
    let tasks = Tasks::default();
    let source = Sqlite::open(&path, &tasks).expect("the sample data");
    let catalog = Arc::new(Catalog::new(
        Duration::from_secs(30),
        ResultSizes::of_bytes(8 << 20),
    ));
    let mut offers = builtin::samples(&source);
    offers.extend((0..1000).map(|at| echo(&format!("echo_{at:04}"))));
    offers.push(echo("echo"));
    catalog.publish(OWN_SERVER, &offers);
    let engine = Engine::start(Arc::clone(&catalog), Limits::default(), &tasks);
    let caller = Caller::new(Principal::local(), Scope::All);

    c.bench_function("catalog: call get_employee_info", |b| {
        let arguments = Arc::new(json!({"employee_id": "EMP001"}).into());
        b.to_async(&runtime).iter(|| {
            catalog.call(
                &caller,
                "get_employee_info",
                Arc::clone(&arguments),
                Arc::default(),
            )
        });
    });
    let session = runtime.block_on(session(&engine, &caller));
    for (name, body) in [
        ("echo", ECHO),
        ("get_employee_info", CALL),
        ("list of 1,000 tools", LIST),
    ] {
        c.bench_function(&format!("door: {name}"), |b| {
            b.to_async(&runtime).iter(|| {
                post(
                    arrival(&engine, &caller, Some(&session)),
                    Bytes::from_static(body.as_bytes()),
                )
            });
        });
    }
}

fn echo(name: &str) -> Arc<Offer> {
    let described = json!({
        "name": name, "description": "Returns its message",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    });
    Offer::own(
        Kind::Tool,
        described,
        Arc::new(|_| {
            async {
                Ok(Answer::Complete(output::structured(
                    &json!({"message": "hello"}),
                )))
            }
            .boxed()
        }),
    )
}

fn arrival(engine: &Arc<Engine>, caller: &Caller, session: Option<&HeaderValue>) -> Arrival {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
    if let Some(session) = session {
        headers.insert(&SESSION_ID, session.clone());
        headers.insert(
            "mcp-protocol-version",
            HeaderValue::from_static("2025-11-25"),
        );
    }
    Arrival {
        engine: Arc::clone(engine),
        caller: caller.clone(),
        lenient: false,
        headers,
    }
}

async fn session(engine: &Arc<Engine>, caller: &Caller) -> HeaderValue {
    let reply = post(
        arrival(engine, caller, None),
        Bytes::from_static(INITIALIZE.as_bytes()),
    )
    .await;
    reply.headers()[&SESSION_ID].clone()
}

criterion_group!(benches, words, remembering, calls);
criterion_main!(benches);
