//! Servers that send too much: what they send is bounded before it is kept.

use super::{
    bench::{
        Bench,
        Expected::{self, Echo, Fails},
        LATE, resident,
    },
    evil::Evil,
};

/// What the hub may grow by in MiB: an answer is taken up to 16 MiB, and some
/// copies of it exist at the same time.
const GROWTH: usize = 128;

async fn check(bench: &Bench, name: &str, mode: &str, expected: Expected) {
    let before = resident();
    let flood = async {
        bench.judge(name, mode, expected).await;
        let grown = resident().saturating_sub(before);
        assert!(grown < GROWTH, "{mode}: {grown} MiB");
        bench.remove(name).await;
    };
    bench.while_healthy(flood).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_floods_is_bounded() {
    let bench = Bench::start().await;
    for (mode, expected) in [
        ("huge-line:64", LATE),
        ("huge-result:20", Fails("a line of more than 16 MiB")),
        ("huge-result:9", Echo),
        ("stderr-flood:32", Echo),
        ("notify-flood:20000", Echo),
        ("list-changed-storm:5000", Echo),
        ("escape-ansi", Echo),
    ] {
        let name = mode.split(':').next().unwrap();
        bench.add_program(name, mode).await;
        if mode == "huge-result:9" || mode == "escape-ansi" {
            // Passed on, but not as it was sent.
            continue;
        }
        check(&bench, name, mode, expected).await;
    }
    let cut = bench.echo("huge-result", "x").await.unwrap();
    assert!(cut.len() <= 8 << 20 && cut.ends_with("ask for less]"));
    let text = bench.echo("escape-ansi", "x").await.unwrap();
    assert!(text.starts_with("\u{1b}[2J"));
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_lists_too_much_is_bounded() {
    let bench = Bench::start().await;
    let before = resident();
    let view = bench
        .while_healthy(bench.add_program("evil", "many-tools:10000"))
        .await;
    assert_eq!(view.status.state.name(), "CONNECTED");
    assert_eq!(view.status.tools.len(), 2000);
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH, "{grown} MiB");
    let text = bench
        .call("evil__t0", serde_json::json!({"text": "x"}))
        .await;
    assert!(text.is_ok(), "{text:?}");
    bench.remove("evil").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_that_floods_is_bounded() {
    let (bench, evil) = (Bench::start().await, Evil::start().await);
    for (at, (kind, mode, expected)) in [
        ("HTTP", "hugeevent:64", Fails("more than 16 MiB")),
        ("HTTP", "gzipbomb:32", Expected::Down("compressed")),
        ("HTTP", "bigheaders", Expected::Down("broke")),
        ("HTTP", "endless", LATE),
        ("SSE", "hugeevent:64", Fails("more than 16 MiB")),
        ("SSE", "noeol:64", Fails("more than 16 MiB")),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("evil{at}");
        bench.add(&name, kind, evil.config(kind, mode)).await;
        check(&bench, &name, mode, expected).await;
    }
}
