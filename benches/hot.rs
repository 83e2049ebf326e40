//! Hot functions, without a network: `cargo bench`.

use std::{hint::black_box, sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, header},
};
use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::FutureExt as _;
use maru::{
    auth::Principal,
    config::LimitSettings,
    downstream::{
        McpEngine,
        http::{SESSION_ID_HEADER, StreamableRequest, post},
    },
    observability::journal::{CallJournal, CallRequest, RequestId, ToolCallOutcome},
    tools::{
        Caller, Catalog, CatalogEntry, CatalogEntryKind, CatalogScope, EntryResponse, EntryResult,
        OWN_SERVER_NAME, ResultLimits, builtin,
    },
};
use maru_protocol::{RequestParams, RpcMessage, validate_json, write_event};
use maru_runtime::tasks::Tasks;
use maru_sources::{DataSource, SourceSettings, write_sample};
use serde_json::json;
use tokio::runtime::Runtime;

const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get_employee_info","arguments":{"employee_id":"EMP001"}}}"#;
const ECHO: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}"#;
const SEARCHED_ECHO: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"call_tool","arguments":{"name":"echo","arguments":{"message":"hello"}}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;

fn words(c: &mut Criterion) {
    c.bench_function("check a call", |b| {
        b.iter(|| validate_json(black_box(CALL.as_bytes())).map(str::len));
    });
    c.bench_function("read a call", |b| {
        b.iter(|| match RpcMessage::parse(black_box(CALL)) {
            Ok(RpcMessage::Request(request)) => RequestParams::parse(request.params).is_ok(),
            _ => false,
        });
    });
    let answer = EntryResult::structured(&json!({"success": true, "result": "x".repeat(300)}));
    c.bench_function("write an event", |b| {
        b.iter(|| write_event(Some("message"), Some("1-1"), black_box(answer.as_json())));
    });
}

/// What every call pays for being remembered.
fn remembering(c: &mut Criterion) {
    let journal = CallJournal::default();
    let [tool, server, principal, arguments] = [
        "get_employee_info",
        "maru",
        "local",
        r#"{"employee_id":"EMP001"}"#,
    ]
    .map(Arc::<str>::from);
    let result = EntryResult::structured(&json!({"success": true, "result": "x".repeat(300)}));
    c.bench_function("journal: keep a call", |b| {
        b.iter(|| {
            let asked = CallRequest {
                tool: Arc::clone(&tool),
                server: Arc::clone(&server),
                principal: Arc::clone(&principal),
                client: None,
                arguments: Arc::clone(&arguments),
                remote_ip: None,
                request_id: RequestId::next(),
            };
            let mut started = journal.begin_call(asked, None);
            started.mark_forwarded();
            started.mark_answered();
            started.finish(ToolCallOutcome::Ok, black_box(result.as_json()));
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
    let source = DataSource::sqlite("sample", &path, SourceSettings::default(), &tasks)
        .expect("the sample data");
    let catalog = Arc::new(Catalog::new(
        Duration::from_secs(30),
        ResultLimits::from_max_bytes(8 << 20),
    ));
    let mut offers = builtin::sample_entries(&source);
    offers.extend((0..1000).map(|at| echo(&format!("echo_{at:04}"))));
    offers.push(echo("echo"));
    catalog.publish(OWN_SERVER_NAME, &offers);
    let engine = McpEngine::start(Arc::clone(&catalog), LimitSettings::default(), &tasks, None);
    let caller = Caller::new(Principal::local(), CatalogScope::All);

    c.bench_function("catalog: call get_employee_info", |b| {
        let arguments = Arc::new(json!({"employee_id": "EMP001"}).into());
        b.to_async(&runtime).iter(|| {
            catalog.call_tool(
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
        ("echo through call_tool", SEARCHED_ECHO),
        ("get_employee_info", CALL),
        ("list of 1,000 tools", LIST),
    ] {
        c.bench_function(&format!("endpoint: {name}"), |b| {
            b.to_async(&runtime).iter(|| {
                post(
                    arrival(&engine, &caller, Some(&session)),
                    Bytes::from_static(body.as_bytes()),
                )
            });
        });
    }
}

fn echo(name: &str) -> Arc<CatalogEntry> {
    let described = json!({
        "name": name, "description": "Returns its message",
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    });
    CatalogEntry::builtin(
        CatalogEntryKind::Tool,
        described,
        Arc::new(|_| {
            async {
                Ok(EntryResponse::Complete(EntryResult::structured(
                    &json!({"message": "hello"}),
                )))
            }
            .boxed()
        }),
    )
}

fn arrival(
    engine: &Arc<McpEngine>,
    caller: &Caller,
    session: Option<&HeaderValue>,
) -> StreamableRequest {
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
        headers.insert(&SESSION_ID_HEADER, session.clone());
        headers.insert(
            "mcp-protocol-version",
            HeaderValue::from_static("2025-11-25"),
        );
    }
    StreamableRequest {
        engine: Arc::clone(engine),
        caller: caller.clone(),
        allows_no_session: false,
        headers,
    }
}

async fn session(engine: &Arc<McpEngine>, caller: &Caller) -> HeaderValue {
    let reply = post(
        arrival(engine, caller, None),
        Bytes::from_static(INITIALIZE.as_bytes()),
    )
    .await;
    reply.headers()[&SESSION_ID_HEADER].clone()
}

criterion_group!(benches, words, remembering, calls);
criterion_main!(benches);
