//! `maru tools search`, `maru tools override` and `maru toolsets`, on a running hub.

use std::process::Output;

use serde_json::{Value, json};

use super::{assert_refused, run_maru, utf8};
use crate::test_hub::TestHub;

/// Runs `maru` on the hub, and says what it printed.
pub(super) fn run(hub: &TestHub, arguments: &[&str]) -> Output {
    let directory = hub.directory.path().display().to_string();
    std::process::Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(arguments)
        .args(["--data-dir", &directory])
        .env_remove("MARU_CONFIG")
        .output()
        .unwrap()
}

fn shown(hub: &TestHub, arguments: &[&str]) -> String {
    let output = run(hub, arguments);
    assert!(output.status.success(), "{}", utf8(&output.stderr));
    utf8(&output.stdout)
}

#[test]
fn tools_are_found_without_a_hub_too() {
    let directory = tempfile::tempdir().unwrap();
    let search = |words: &[&str]| {
        let output = run_maru(directory.path(), &[&["tools", "search"], words].concat());
        assert!(output.status.success(), "{}", utf8(&output.stderr));
        utf8(&output.stdout)
    };
    let found = search(&["remote", "work", "rules", "--limit", "1"]);
    assert!(
        found.lines().nth(1).unwrap().starts_with("search_docs"),
        "{found}"
    );
    assert_eq!(found.lines().count(), 2, "{found}");
    let found: Value =
        serde_json::from_str(&search(&["직원", "명단", "--output", "json"])).unwrap();
    assert_eq!(found[0]["name"], "get_all_employees", "{found}");
    assert_eq!(found[0]["inputSchema"]["type"], "object");
    assert_eq!(search(&["xyzzy"]), "no tool fits\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn override_is_set_shown_as_differences_and_removed() {
    let hub = TestHub::start().await;
    let change = json!({"name": "who_is", "description": "Says who somebody is."}).to_string();
    let same = "clients see get_employee_info as its server describes it\n";
    let set = ["tools", "override", "get_employee_info", &change];
    for arguments in [&set[..], &set[..3]] {
        let differences = shown(&hub, arguments);
        for part in [
            "/name",
            "get_employee_info",
            "who_is",
            "Says who somebody is.",
        ] {
            assert!(differences.contains(part), "{part}: {differences}");
        }
    }
    assert!(hub.tool_names().await.contains("who_is "));
    assert!(shown(&hub, &["tools", "search", "who", "is", "this"]).contains("who_is"));
    assert_eq!(
        shown(
            &hub,
            &["tools", "override", "get_employee_info", "--remove"]
        ),
        same
    );
    assert_eq!(
        shown(&hub, &["tools", "override", "get_employee_info"]),
        same
    );
    assert!(!hub.tool_names().await.contains("who_is "));
    for (name, change, reason) in [
        ("get_employee_info", "{name}", "no JSON object"),
        ("get_employee_info", r#"{"surprise": 1}"#, "surprise"),
        ("get_employee_infos", "{}", "get_employee_infos"),
    ] {
        assert_refused(&run(&hub, &["tools", "override", name, change]), &[reason]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn toolset_is_made_shown_and_removed() {
    let hub = TestHub::start().await;
    let set = [
        "toolsets",
        "set",
        "people",
        "--include",
        "get_*",
        "--exclude",
        "*_search",
    ];
    let made = shown(
        &hub,
        &[&set[..], &["--tools", "list", "--calls-per-day", "7"]].concat(),
    );
    for text in [made, shown(&hub, &["toolsets", "show", "people"])] {
        assert!(
            text.contains("get_all_employees") && !text.contains("get_sim_search"),
            "{text}"
        );
    }
    let listed = shown(&hub, &["toolsets", "--output", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["name"], "people");
    assert_eq!(listed[0]["calls_per_day"], 7);
    shown(&hub, &["toolsets", "remove", "people"]);
    assert_eq!(shown(&hub, &["toolsets", "--output", "json"]).trim(), "[]");
    let wrong = ["toolsets", "set", "people", "--include", "kind:x"];
    assert_refused(&run(&hub, &wrong), &["kind:x"]);
    assert_refused(&run(&hub, &["toolsets", "show", "people"]), &["people"]);
}
