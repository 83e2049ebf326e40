//! Extensions of the protocol behind the hub: skills, user interfaces, and one that the hub
//! does not know. The server is fastmcp's.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Child;

use crate::{
    clients::client_tools_dir,
    conformance::run_extension_scenario,
    mcp_client::McpClient,
    retrieval::services::{command_ending_with_test, free_port, wait_until_listening},
    test_hub::TestHub,
    toolsets::{ask, call},
};

/// A server that ends with the test.
struct ExtensionServer {
    _child: Child,
}

/// Adds a server with skills, a user interface and the extension `com.example/dice`. It is
/// reached over HTTP, because a busy machine starts programs slower than they are probed.
async fn add_server(hub: &TestHub, name: &str) -> ExtensionServer {
    let tools = client_tools_dir();
    let port = free_port();
    let skills = hub.directory.path().join(format!("skills of {name}"));
    let child = command_ending_with_test(tools.join("mcp2/bin/python"))
        .arg(tools.join("extension_server.py"))
        .arg(skills)
        .arg(port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until_listening(port).await;
    let config = json!({"url": format!("http://127.0.0.1:{port}/mcp")});
    let body =
        json!({"name": name, "autoConnect": true, "transportType": "HTTP", "config": config});
    let made = hub.send_as_admin("POST", "/api/mcp/servers", body).await;
    let made = made.json().await;
    assert_eq!(made["status"], "CONNECTED", "{made}");
    ExtensionServer { _child: child }
}

async fn extensions(hub: &TestHub, path: &str, token: Option<&str>) -> Value {
    let discovered = ask(hub, path, token, "server/discover", json!({})).await;
    discovered["result"]["capabilities"]["extensions"].clone()
}

fn uris(list: &Value) -> Vec<&str> {
    let entries = list.as_array().expect("a list").iter();
    entries.map(|it| it["uri"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_told_the_extensions_of_the_servers_that_they_see() {
    let hub = TestHub::start().await;
    assert_eq!(extensions(&hub, "/mcp", None).await, json!({}));
    let _one = add_server(&hub, "one").await;
    let expected = json!({
        "com.example/dice": {"sides": [6, 20]},
        "io.modelcontextprotocol/skills": {},
        "io.modelcontextprotocol/ui": {},
    });
    for path in ["/mcp", "/mcp/s/one"] {
        assert_eq!(extensions(&hub, path, None).await, expected, "{path}");
    }
    assert_eq!(extensions(&hub, "/mcp/s/maru", None).await, json!({}));
    let initialized = hub
        .post(&crate::test_hub::initialize_message(
            "2025-11-25",
            &json!({}),
        ))
        .send()
        .await
        .rpc_response()
        .await;
    let told = &initialized["result"]["capabilities"]["extensions"];
    assert_eq!(*told, expected);
    // A token of one tool sees its user interface, and nothing else of the server.
    let token = json!({"name": "t", "role": "agent", "tools": ["one__show_clock"]});
    let token = hub.create_token(token).await;
    let token = Some(token.as_str());
    let told = extensions(&hub, "/mcp", token).await;
    let interfaces = json!({"mimeTypes": ["text/html;profile=mcp-app"]});
    assert_eq!(told, json!({"io.modelcontextprotocol/ui": interfaces}));
    for (method, params) in [
        ("skills/list", json!({})),
        ("skills/get", json!({"uri": "skill://one/letters/SKILL.md"})),
        ("dice/roll", json!({})),
    ] {
        let refused = ask(&hub, "/mcp", token, method, params).await;
        assert_eq!(refused["error"]["code"], -32601, "{method}: {refused}");
    }
    let read = json!({"uri": "skill://one/letters/more.txt"});
    let refused = ask(&hub, "/mcp", token, "resources/read", read).await;
    assert!(refused["error"].is_object(), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_extension_passes_untouched_to_the_only_server_that_has_it() {
    let hub = TestHub::start().await;
    let _one = add_server(&hub, "one").await;
    let rolled = ask(&hub, "/mcp", None, "dice/roll", json!({"sides": 20})).await;
    assert_eq!(rolled["result"]["rolled"], 20, "{rolled}");
    assert_eq!(rolled["result"]["digits"].to_string(), "1.5");
    assert_eq!(rolled["result"]["resultType"], "complete");
    let mut legacy = McpClient::streamable_http(&hub, "/mcp", "2025-11-25").await;
    let rolled = legacy.request(1, "dice/roll", json!({})).await;
    assert_eq!(rolled["result"]["rolled"], 6, "{rolled}");
    let unknown = ask(&hub, "/mcp", None, "dice/throw", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    // Which of two is meant, only the endpoint of one tells.
    let _two = add_server(&hub, "two").await;
    let unclear = ask(&hub, "/mcp", None, "dice/roll", json!({})).await;
    assert_eq!(unclear["error"]["code"], -32601, "{unclear}");
    let rolled = ask(&hub, "/mcp/s/two", None, "dice/roll", json!({})).await;
    assert_eq!(rolled["result"]["rolled"], 6, "{rolled}");
    // Nothing of the protocol's own, and nothing that must be escaped.
    for method in ["tasks/list", "resources/forget", "dice/\"roll"] {
        let body = crate::test_hub::request_message(1, method, json!({}));
        let session = hub.initialize_session("2025-06-18", json!({})).await;
        let refused = hub.session_request(&session, &body).send().await;
        let refused = refused.rpc_response().await;
        assert_eq!(refused["error"]["code"], -32601, "{method}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn skills_of_two_servers_are_listed_described_and_read_by_unique_addresses() {
    let hub = TestHub::start().await;
    let _one = add_server(&hub, "one").await;
    let _two = add_server(&hub, "two").await;
    let listed = ask(&hub, "/mcp", None, "skills/list", json!({})).await;
    let listed = &listed["result"];
    assert!(
        listed["ttlMs"].is_number() && listed["cacheScope"].is_string(),
        "{listed}"
    );
    let expected = [
        "skill://one/invoices/SKILL.md",
        "skill://one/letters/SKILL.md",
        "skill://two/invoices/SKILL.md",
        "skill://two/letters/SKILL.md",
    ];
    assert_eq!(uris(&listed["skills"]), expected);
    assert_eq!(listed["skills"][3]["frontmatter"]["name"], "letters");
    let one = ask(
        &hub,
        "/mcp",
        None,
        "skills/get",
        json!({"uri": expected[3]}),
    )
    .await;
    assert_eq!(one["result"]["skill"], listed["skills"][3], "{one}");
    let files = uris(&one["result"]["skill"]["resources"]);
    assert_eq!(
        files,
        [
            "skill://two/letters/SKILL.md",
            "skill://two/letters/more.txt"
        ]
    );
    for uri in files {
        let read = ask(&hub, "/mcp", None, "resources/read", json!({"uri": uri})).await;
        let content = &read["result"]["contents"][0];
        assert_eq!(content["uri"], uri, "{read}");
        assert!(content["text"].as_str().unwrap().contains("letters"));
    }
    for uri in [
        "skill://none/letters/SKILL.md",
        "skill://one/none/SKILL.md",
        "file:///etc/passwd",
    ] {
        let unknown = ask(&hub, "/mcp", None, "skills/get", json!({"uri": uri})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{uri}: {unknown}");
    }
    // One that is gone is left out.
    hub.send_as_admin("POST", "/api/mcp/servers/one/disconnect", Value::Null)
        .await;
    let listed = ask(&hub, "/mcp", None, "skills/list", json!({})).await;
    assert_eq!(uris(&listed["result"]["skills"]), expected[2..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scenarios_of_the_suite_for_skills_pass_through_the_hub() {
    let hub = TestHub::start().await;
    let _one = add_server(&hub, "one").await;
    for (scenario, passed) in [
        ("sep-2640-skills-enumeration", "Passed: 32/32, 0 failed"),
        ("sep-2640-skills-manifest", "Passed: 3/3, 0 failed"),
        ("sep-2640-skills-directory", "0 failed"),
    ] {
        let shown = run_extension_scenario(&hub.url(), scenario).await;
        assert!(shown.contains(passed), "{scenario}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_two_servers_are_read_by_unique_addresses_also_if_they_are_not_listed() {
    let hub = TestHub::start().await;
    let _one = add_server(&hub, "one").await;
    let _two = add_server(&hub, "two").await;
    let listed = ask(&hub, "/mcp", None, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let page_of = |name: &str| {
        let tool = tools.iter().find(|it| it["name"] == name).unwrap();
        tool["_meta"]["ui"].clone()
    };
    for server in ["one", "two"] {
        let page = page_of(&format!("{server}__show_clock"));
        assert_eq!(
            page["resourceUri"],
            format!("ui://{server}/clock/face.html")
        );
        assert_eq!(
            page["csp"]["connectDomains"],
            json!(["https://clock.example"])
        );
        assert_eq!(page["visibility"], json!(["model", "app"]));
        // The links in a result can be read as they are.
        let name = format!("{server}__link_pages");
        let linked = call(&hub, "/mcp", None, &name, json!({})).await;
        let content = &linked["result"]["content"];
        let hidden = page_of(&name)["resourceUri"].clone();
        assert_eq!(content[0]["uri"], hidden, "{linked}");
        assert_eq!(content[1]["resource"]["uri"], page["resourceUri"]);
        for uri in [hidden, page["resourceUri"].clone()] {
            let read = ask(&hub, "/mcp", None, "resources/read", json!({"uri": uri})).await;
            assert_eq!(read["result"]["contents"][0]["uri"], uri, "{read}");
        }
    }
    // A page calls the tools of its server by their own names.
    let clock = async |path: &str| {
        let called = call(&hub, path, None, "show_clock", json!({})).await;
        called["result"]["content"][0]["text"] == "12:00"
    };
    assert!(
        clock("/mcp/s/two").await && !clock("/mcp").await,
        "of two servers"
    );
    let token = json!({"name": "o", "role": "agent", "servers": ["one"]});
    let token = hub.create_token(token).await;
    for (tool, is_called) in [("show_clock", true), ("roll", false)] {
        let called = call(&hub, "/mcp", Some(&token), tool, json!({})).await;
        assert_eq!(called["result"].is_object(), is_called, "{tool}: {called}");
    }
    // A token of one tool reads the page of that tool, which its server does not list.
    let token = json!({"name": "t", "role": "agent", "tools": ["one__link_pages"]});
    let token = hub.create_token(token).await;
    for (uri, is_readable) in [
        ("ui://one/clock/hidden.html", true),
        ("ui://one/clock/face.html", false),
        ("ui://two/clock/hidden.html", false),
    ] {
        let read = json!({"uri": uri});
        let read = ask(&hub, "/mcp", Some(&token), "resources/read", read).await;
        assert_eq!(read["result"].is_object(), is_readable, "{uri}: {read}");
    }
}
