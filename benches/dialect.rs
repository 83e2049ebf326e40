//! The dialect engine: plain text, calls and hostile text.
//! `cargo bench --bench dialect`.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use maru_dialect::{DialectEvent, DialectOptions, DialectParser, DialectSelection, ToolSet};
use serde_json::json;

const MEGABYTE: usize = 1 << 20;
const PROSE: &str =
    "The quick brown fox jumps over the lazy dog, and then it rests under a tree.\n";
/// An answer as models write them: headings, lists, code in lines and in fences, a
/// table, a link.
const MARKDOWN: &str = "\
## What a pool is for

A **connection pool** keeps *open* connections, so that a request does not pay for
a new one; see [the manual](https://example.com/pool) for `max_size`.

1. Take a connection: `pool.get().await?`
2. Use it, and give it back by dropping it.
   - A broken one is closed.
   - An idle one (> 60 s) goes, too.

| Setting | Default | Meaning |
|---------|---------|---------|
| `min`   | 5       | kept open |
| `max`   | 20      | more wait |

```rust
let rows = client.query(\"SELECT id, name FROM users WHERE id = $1\", &[&id]).await?;
for row in rows {
    println!(\"{}: {}\", row.get::<_, i64>(0), row.get::<_, String>(1));
}
```

> Note: `a < b && c > d` is not HTML, and [1, 2] is a list.

";
const CALL: &str = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Gwangju\", \"days\": 3}}\n</tool_call>";

/// Plain text in pieces of several sizes, as backends send it.
fn plain(c: &mut Criterion) {
    let tools = tools();
    for (kind, text) in [("prose", PROSE), ("markdown", MARKDOWN)] {
        let text = text.repeat(MEGABYTE / text.len());
        let mut group = c.benchmark_group(kind);
        group.throughput(Throughput::Bytes(text.len() as u64));
        for size in [MEGABYTE, 4096, 32] {
            group.bench_function(format!("in pieces of {size}"), |b| {
                b.iter(|| read(&tools, black_box(&text), size));
            });
        }
        group.finish();
    }
}

fn calls(c: &mut Criterion) {
    let tools = tools();
    for size in [CALL.len(), 4] {
        c.bench_function(&format!("a call in pieces of {size}"), |b| {
            b.iter(|| read(&tools, black_box(CALL), size));
        });
    }
}

/// Text that a careless reader would spend minutes on.
fn hostile(c: &mut Criterion) {
    let tools = tools();
    let opener = "<tool_call>{\"name\": \"get_weather\", \"arguments\": ";
    let texts = [
        (
            "100,000 nested brackets",
            format!("{opener}{}", "[".repeat(100_000)),
        ),
        (
            "1 MB without an end",
            format!("{opener}{{\"city\": \"{}", "x".repeat(MEGABYTE)),
        ),
        ("1 MB of <", "<".repeat(MEGABYTE)),
        ("1 MB of {", "{".repeat(MEGABYTE)),
        ("1 MB of backticks", "`".repeat(MEGABYTE)),
        ("1 MB of openers", "<tool_call>".repeat(MEGABYTE / 11)),
        (
            "1 MB of open strings",
            "<tool_call>{\"a\":\"x</tool_call>".repeat(MEGABYTE / 30),
        ),
    ];
    let mut group = c.benchmark_group("hostile");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(2));
    for (name, text) in &texts {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(*name, |b| b.iter(|| read(&tools, black_box(text), 16)));
    }
    group.finish();
}

fn tools() -> Arc<ToolSet> {
    let weather = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]});
    Arc::new(ToolSet::new([("get_weather", &weather)]))
}

fn read(tools: &Arc<ToolSet>, text: &str, size: usize) -> Vec<DialectEvent> {
    let mut reader = DialectParser::new(
        Arc::clone(tools),
        DialectSelection::Auto,
        DialectOptions::default(),
    );
    let mut events = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(size.min(rest.len()));
        reader.push(piece, &mut events);
        rest = left;
    }
    reader.finish(false, &mut events);
    events
}

criterion_group!(benches, plain, calls, hostile);
criterion_main!(benches);
