//! Hubs behind hubs: nobody offers what is its own, and no tool goes round.

use maru::upstream::{ServerView, WithheldEntry};
use serde_json::json;

use crate::{http_client::wait_for, test_hub::TestHub};

impl TestHub {
    /// Waits until what is known of a server fits.
    async fn wait_for_server(&self, name: &str, fits: impl Fn(&ServerView) -> bool) -> ServerView {
        let view = async || self.running.servers().get(name).ok();
        let view = wait_for(view, |it| it.as_ref().is_some_and(&fits)).await;
        view.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hubs_registered_with_each_other_offer_each_tool_once() {
    for kind in ["HTTP", "SSE"] {
        let (a, b) = (TestHub::start().await, TestHub::start().await);
        let own = a.tool_names().await.split_whitespace().count();
        let url = |hub: &TestHub| {
            let path = if kind == "SSE" { "sse" } else { "mcp" };
            json!({"url": format!("http://{}/{path}", hub.address)})
        };
        let view = a.register_server("b", kind, url(&b)).await;
        assert_eq!(view.status.state.as_str(), "CONNECTED", "{:?}", view.status);
        let view = b.register_server("a", kind, url(&a)).await;
        assert_eq!(view.status.tools.len(), own, "{:?}", view.status.tools);
        // It has seen its own tools and resources come back, and stops there.
        let withheld = &view.status.withheld;
        assert!(withheld.len() >= own, "{withheld:?}");
        let view = a
            .wait_for_server("b", |it| it.status.withheld.len() >= own)
            .await;
        let comes_from_here = |it: &WithheldEntry| it.reason.contains("comes from this hub");
        assert!(view.status.withheld.iter().all(comes_from_here));
        for (hub, prefix) in [(&a, "b__"), (&b, "a__")] {
            let names = hub.tool_names().await;
            assert_eq!(names.split_whitespace().count(), 2 * own, "{names}");
            let called = hub
                .stateless_request(
                    "tools/call",
                    json!({"name": format!("{prefix}get_all_employees"), "arguments": {}}),
                )
                .send()
                .await
                .rpc_response()
                .await;
            assert_eq!(called["result"]["isError"], false, "{called}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hubs_in_a_circle_stop_after_one_round() {
    let hubs = [
        TestHub::start().await,
        TestHub::start().await,
        TestHub::start().await,
    ];
    let own = hubs[0].tool_names().await.split_whitespace().count();
    for at in 0..3 {
        let next = &hubs[(at + 1) % 3];
        let view = hubs[at].register_server("next", "HTTP", json!({"url": next.url()}));
        assert_eq!(view.await.status.state.as_str(), "CONNECTED");
    }
    for hub in &hubs {
        let has_come_back = |it: &ServerView| it.status.withheld.len() >= own;
        let view = hub.wait_for_server("next", has_come_back).await;
        assert_eq!(view.status.tools.len(), 2 * own, "{:?}", view.status.tools);
    }
}

/// A program that joins the hub which started it is that hub.
#[tokio::test(flavor = "multi_thread")]
async fn hub_registered_with_itself_is_refused() {
    let hub = TestHub::start().await;
    let before = hub.tool_names().await;
    let directory = hub.directory.path().display().to_string();
    let config = json!({
        "command": env!("CARGO_BIN_EXE_maru"),
        "args": ["stdio", "--data-dir", directory],
        "cwd": directory,
    });
    let view = hub.register_server("itself", "STDIO", config).await;
    let cause = view.status.cause.unwrap_or_default();
    assert!(cause.contains("this is the hub itself"), "{cause}");
    assert_eq!(view.status.state.as_str(), "FAILED");
    assert_eq!(hub.tool_names().await, before);
}

/// The ids of hubs are new at every start; a tool is the same tool all the same.
#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_hub_behind_a_hub_stay_accepted_when_it_starts_again() {
    let last = TestHub::start().await;
    let middle = TestHub::start().await;
    let own = middle.tool_names().await.split_whitespace().count();
    let view = middle
        .register_server("last", "HTTP", json!({"url": last.url()}))
        .await;
    assert_eq!(view.status.tools.len(), own);
    let first = TestHub::start().await;
    let config = json!({"url": middle.url()});
    let view = first.register_server("middle", "HTTP", config).await;
    assert_eq!(view.status.tools.len(), 2 * own);
    let port = last.running.address;
    let TestHub {
        running, directory, ..
    } = last;
    running.stop().await;
    let again = maru::config::Config {
        listen: port,
        data_dir: directory.path().to_owned(),
        ..maru::config::Config::default()
    };
    let _last = TestHub::with_directory(again).await;
    middle.running.servers().connect("last").await.unwrap();
    first.running.servers().connect("middle").await.unwrap();
    let view = first
        .wait_for_server("middle", |it| it.status.tools.len() == 2 * own)
        .await;
    assert!(
        view.status.withheld.is_empty(),
        "{:?}",
        view.status.withheld
    );
}
