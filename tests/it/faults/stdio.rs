//! Programs that misbehave.

use futures_util::future::join_all;
use serde_json::json;

use super::harness::ExpectedOutcome;
use super::harness::{
    CALL_TIMES_OUT,
    ExpectedOutcome::{Down, Echo, Fails},
    FaultHarness, zombies,
};

/// Registers every server of the table at once, calls it and removes it, while
/// the healthy one is asked all the time.
async fn check_table(table: &[(&str, ExpectedOutcome)]) {
    let bench = FaultHarness::start().await;
    let one = async |(at, (mode, expected)): (usize, &(&str, ExpectedOutcome))| {
        let name = format!("evil{at}");
        bench.add_program(&name, mode).await;
        bench.check_server(&name, mode, *expected).await;
        bench.remove(&name).await;
    };
    let all = join_all(table.iter().enumerate().map(one));
    bench.while_healthy_server_answers(all).await;
    bench.hub.running.stop().await;
    assert_eq!(zombies(), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_program_is_down_with_its_cause() {
    check_table(&[
        ("exit-now", Down("exit code 1")),
        ("hang-init", Down("did not connect within 4s")),
        ("hang-list", Down("did not connect within 4s")),
        ("stdin-ignore", Down("did not connect within 4s")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_program_is_reported() {
    let bench = FaultHarness::start().await;
    let config = json!({"command": "no-such-program-here"});
    let view = bench.add_server("evil", "STDIO", config).await;
    assert_eq!(view.status.state.as_str(), "FAILED");
    assert_eq!(
        view.status.cause.as_deref(),
        Some("cannot start no-such-program-here: not found")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_but_valid_programs_are_accepted() {
    check_table(&[
        ("good", Echo),
        ("slow:300", Echo),
        ("garbage-first", Echo),
        ("garbage-between", Echo),
        ("crlf", Echo),
        ("blank-lines", Echo),
        ("bom", Echo),
        ("drip:5", Echo),
        ("dup-response", Echo),
        ("cursor-loop", Echo),
        ("rug-pull", Echo),
        ("poison", Echo),
        ("shadow", Echo),
        ("bad-schema", Echo),
        ("ask-client", Echo),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_with_a_malformed_response_ends_before_the_deadline() {
    const UNREADABLE_CAUSE: &str = "something that is no answer";
    check_table(&[
        ("hang-call", CALL_TIMES_OUT),
        ("exit-on-call", Fails("exit code 3")),
        ("kill-on-call", Fails("SIGKILL")),
        ("binary", CALL_TIMES_OUT),
        ("bad-utf8", Fails(UNREADABLE_CAUSE)),
        ("half-json-exit", Fails("exit code 0")),
        ("half-json-hang", CALL_TIMES_OUT),
        ("deep:100000", Fails(UNREADABLE_CAUSE)),
        ("drip:50", CALL_TIMES_OUT),
        ("stdout-close", Fails("closed its output")),
        ("wrong-id", CALL_TIMES_OUT),
        ("string-id", CALL_TIMES_OUT),
        ("both", Fails(UNREADABLE_CAUSE)),
        ("error-null", CALL_TIMES_OUT),
        ("late-after-cancel", CALL_TIMES_OUT),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn response_reaches_only_the_call_that_requested_it() {
    let bench = FaultHarness::start().await;
    bench.add_program("late", "late-after-cancel").await;
    bench.add_program("twice", "dup-response").await;
    bench.add_program("other", "wrong-id").await;
    let ask = async |at: u64| {
        // The first calls are answered, too late, while the last still wait.
        tokio::time::sleep(std::time::Duration::from_millis(at * 300)).await;
        let text = format!("call {at}");
        assert_eq!(bench.echo("twice", &text).await, Ok(text.clone()));
        for server in ["late", "other"] {
            let outcome = bench.echo(server, &text).await;
            assert!(
                outcome
                    .as_ref()
                    .is_err_and(|it| it.contains("did not answer")),
                "{outcome:?}"
            );
        }
    };
    bench
        .while_healthy_server_answers(join_all((0..8).map(ask)))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stderr_of_a_failed_program_is_visible_to_admins_only() {
    let bench = FaultHarness::start().await;
    bench.add_program("evil", "complain").await;
    for how in ["exit code 4", "exit code 1"] {
        let said = bench.echo("evil", "x").await.unwrap_err();
        assert!(said.contains(how), "{said}");
        let lost = bench.wait_for("evil", |it| it.status.cause.is_some()).await;
        let cause = lost.status.cause.unwrap();
        assert!(cause.ends_with("secret-internal-host is down"), "{cause}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_are_sanitised_before_they_are_published() {
    let bench = FaultHarness::start().await;
    for mode in ["shadow", "ref-schema", "poison"] {
        bench.add_program(mode, mode).await;
    }
    let shadow = bench.view("shadow").status;
    let offered: Vec<&str> = shadow.tools.iter().map(String::as_str).collect();
    assert_eq!(
        offered,
        ["../echo", "__proto__", "admin.shutdown", "echo", "fx.echo"]
    );
    let withheld: Vec<&str> = shadow.withheld.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(withheld, ["echo", "e?cho", ""]);
    let referring = bench.view("ref-schema").status;
    assert_eq!(referring.withheld[0].name, "echo");
    let add = json!({"a": 1, "b": 2});
    assert_eq!(bench.call("ref-schema__add", add).await, Ok("3".to_owned()));

    let listed = bench
        .hub
        .stateless_request("tools/list", json!({}))
        .send()
        .await;
    let listed = listed.json().await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|it| it["name"].as_str()).collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    assert!(
        names
            .iter()
            .all(|it| it.len() <= 64 && it.chars().all(plain)),
        "{names:?}"
    );
    let of_fx = names.iter().filter(|it| it.starts_with("fx__"));
    assert_eq!(of_fx.count(), 4);
    let poisoned = tools
        .iter()
        .find(|it| it["name"] == "poison__echo")
        .unwrap();
    let shown = poisoned["description"].as_str().unwrap();
    assert!(shown.len() <= 4096 && !shown.contains(['\u{200b}', '\u{202e}']));
}

#[tokio::test(flavor = "multi_thread")]
async fn program_sees_only_its_own_environment() {
    let bench = FaultHarness::start().await;
    let seen = bench.call("fx__env", json!({})).await.unwrap();
    let harmless = [
        "HOME",
        "PATH",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
    ];
    for name in seen.split(',') {
        assert!(harmless.contains(&name), "{name}");
    }
}
