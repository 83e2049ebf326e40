//! Tool search over the operations of GitHub's API: `cargo bench --bench tool_search`.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use futures_util::FutureExt as _;
use maru::{
    auth::Principal,
    tools::{
        Caller, Catalog, CatalogEntry, CatalogEntryKind, CatalogScope, OWN_SERVER_NAME,
        ResultLimits, ToolSearch,
    },
};
use maru_protocol::RpcError;
use maru_retrieval::Embedder;
use maru_runtime::tasks::Tasks;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const OPERATIONS: &str = include_str!("../tests/data/toolsearch/github.json");
const QUESTIONS: [&str; 3] = [
    "close an issue with a comment",
    "who may push to the main branch of this repository?",
    "저장소의 이슈 목록을 보여줘",
];

fn searches(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let caller = Caller::new(Principal::local(), CatalogScope::All);
    for count in [1_000, 10_000] {
        let catalog = new_catalog();
        catalog.publish(OWN_SERVER_NAME, &tools(count));
        let mut questions = QUESTIONS.iter().cycle();
        c.bench_function(&format!("rank {count} tools"), |b| {
            b.to_async(&runtime).iter(|| {
                let question = questions.next().expect("endless");
                catalog.rank_tools(&caller, black_box(question))
            });
        });
    }
    let mut group = c.benchmark_group("publish 1,000 tools");
    group.sample_size(20);
    group.bench_function("list", |b| {
        b.iter_batched(
            || (new_catalog(), tools(1000)),
            |(catalog, tools)| catalog.publish(OWN_SERVER_NAME, &tools),
            BatchSize::LargeInput,
        );
    });
    // The first search waits for the index, which is otherwise built in the background.
    group.bench_function("list and index", |b| {
        b.iter_batched(
            || (new_catalog(), tools(1000)),
            |(catalog, tools)| {
                catalog.publish(OWN_SERVER_NAME, &tools);
                runtime.block_on(catalog.rank_tools(&caller, QUESTIONS[0]))
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn new_catalog() -> Catalog {
    let sizes = ResultLimits::from_max_bytes(8 << 20);
    let catalog = Catalog::new(Duration::from_secs(30), sizes);
    let search = ToolSearch::new(Embedder::builtin(), Tasks::default());
    catalog.set_search(Arc::new(search));
    catalog
}

fn tools(count: usize) -> Vec<Arc<CatalogEntry>> {
    let operations: Vec<Value> = serde_json::from_str(OPERATIONS).expect("operations");
    let numbered = operations.iter().cycle().enumerate().take(count);
    let tools = numbered.map(|(at, operation)| {
        let name = operation["name"].as_str().expect("a name");
        let parameters = operation["parameters"].as_array().expect("parameters");
        let properties = parameters.iter().filter_map(Value::as_str);
        let properties = properties.map(|it| (it.to_owned(), json!({"type": "string"})));
        let described = json!({
            "name": format!("{name}_{at}"), "description": operation["description"],
            "inputSchema": {"type": "object", "properties": Value::from_iter(properties)},
        });
        let unused = |_| async { Err(RpcError::invalid_params("unused")) }.boxed();
        CatalogEntry::builtin(CatalogEntryKind::Tool, described, Arc::new(unused))
    });
    tools.collect()
}

criterion_group!(benches, searches);
criterion_main!(benches);
