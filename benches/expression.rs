//! Expressions: `cargo bench --bench expression`.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};

use maru_expression::{EvaluationLimits, compile};
use serde_json::json;

fn ordinary(c: &mut Criterion) {
    let arguments = json!({"num1": 5, "num2": 3, "xs": [3, 1, 2], "name": "hong"});
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let names: Vec<&str> = arguments.keys().map(String::as_str).collect();
    let limits = EvaluationLimits::default();
    for source in [
        "num1 * num2",
        "round(num1 / num2 * 100, 2)",
        "f'{name}: {num1:,}'",
        "sorted([x * 2 for x in xs if x > 1], reverse=True)",
    ] {
        let program = compile(source, &names).expect("an expression");
        c.bench_function(&format!("run {source}"), |b| {
            b.iter(|| program.run(black_box(&arguments), &limits));
        });
        c.bench_function(&format!("compile {source}"), |b| {
            b.iter(|| compile(black_box(source), &names));
        });
    }
}

fn hostile(c: &mut Criterion) {
    let mut group = c.benchmark_group("hostile");
    group.sample_size(10);
    let limits = EvaluationLimits::default();
    for (name, source) in [
        ("power", "9**9**9".to_owned()),
        (
            "loops",
            "sum(1 for x in range(9999) for y in range(9999))".to_owned(),
        ),
        ("lists", "[[0] * 9999 for x in range(9999)]".to_owned()),
        (
            "modular power",
            "[pow(3, 2**1000, 2**1024 - 3) for i in range(1000)]".to_owned(),
        ),
        (
            "shared lists",
            format!("a = [0] * 10\n{}result = a", "a = [a] * 10\n".repeat(9)),
        ),
        (
            "shared keys",
            format!("a = (1,)\n{}result = {{a: 1}}", "a = (a, a)\n".repeat(60)),
        ),
        (
            "replace",
            "[('a' * 90000).replace('a', 'b') for i in range(9999)]".to_owned(),
        ),
        (
            "tables",
            "[{i: i for i in range(9999)} for j in range(9999)]".to_owned(),
        ),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                compile(black_box(&source), &[]).and_then(|it| it.run(&Default::default(), &limits))
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = ordinary, hostile
}
criterion_main!(benches);
