//! What becomes of a run when the hub stops.

use serde_json::json;

use super::*;
use crate::{http_client::wait_until, openai::fake_model::delta_step};

/// Half of the time that requests have at shutdown is too short for a model that never
/// answers.
#[tokio::test(flavor = "multi_thread")]
async fn run_in_progress_at_shutdown_is_kept_and_its_client_gets_an_error() {
    let backend = FakeModelServer::start_with_steps(vec![
        stream_head(),
        delta_step(json!({"content": "Hal"}), None),
        ScriptStep::WaitForClose,
    ])
    .await;
    let hub = hub_with_model(&backend, |config| config.limits.drain_ms = 4000).await;
    let TestHub {
        address,
        running,
        directory,
    } = hub;
    let question = question_request(json!({}));
    let chat = |model: &str| json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "?"}]});
    let whole = TestRequest::post(&address, GENERATE_ROUTE, &question).send();
    let streamed = TestRequest::post(&address, GENERATE_ROUTE, &question)
        .header("accept", "text/event-stream")
        .send();
    let (plain, agent) = (chat("small"), chat("agent/small"));
    let plain = TestRequest::post(&address, "/v1/chat/completions", &plain).send();
    let agent = TestRequest::post(&address, "/v1/chat/completions", &agent).send();
    let stop = async {
        wait_until(async || backend.seen().len() >= 4).await;
        running.stop().await;
    };
    let ((), whole, streamed, plain, agent) = tokio::join!(
        stop,
        async { whole.await.json().await },
        async { collect_events(streamed.await).await },
        async { plain.await.text().await },
        async { agent.await.text().await },
    );
    assert_eq!(whole["error"]["code"], -32000, "{whole}");
    let (name, data) = streamed.last().unwrap();
    assert_eq!(name, "error", "{streamed:?}");
    assert_eq!(data["error"]["message"], "the hub is stopping");
    for text in [plain, agent] {
        let last = text.trim_end().rsplit("data: ").next().unwrap();
        let error: Value = serde_json::from_str(last).unwrap();
        assert_eq!(error["error"]["code"], "stopping", "{text}");
    }
    let hub = hub_with_model(&backend, |config| {
        config.data_dir = directory.path().to_owned();
    })
    .await;
    let listed = TestRequest::new(&hub.address, "GET", "/api/runs")
        .send()
        .await
        .json()
        .await;
    let states: Vec<&Value> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["state"])
        .collect();
    assert_eq!(states, ["stopped", "stopped", "stopped"], "{listed}");
}
