//! Runs of the agent are seen and decided at any hub.

use serde_json::{Value, json};

use super::{TwoHubs, get};
use crate::{
    agent::native_tool_calls,
    http_client::TestRequest,
    openai::fake_model::{FakeModelServer, streamed_by_byte},
};

#[tokio::test(flavor = "multi_thread")]
async fn run_is_seen_and_its_call_approved_at_any_hub() {
    let backend = FakeModelServer::start(|number, _| match number {
        0 => native_tool_calls(&[("get_employee_info", json!({"employee_id": "EMP001"}))]),
        _ => streamed_by_byte("Done.", "stop"),
    })
    .await;
    let hubs = TwoHubs::start_with(|config| {
        config.models = vec![backend.model()];
        config.agent.model = Some("small".to_owned());
        config.agent.own_tools = true;
        config.agent.destructive_tools = vec!["maru.get_employee_info".to_owned()];
    })
    .await;
    let (one, other) = (&hubs.one, &hubs.other);
    let question = json!({"messages": [{"role": "user", "content": "Who is EMP001?"}],
        "approval": "ask"});
    let question = json!({"jsonrpc": "2.0", "id": 1, "method": "generate_content",
        "params": question});
    let mut reply = TestRequest::post(&one.address, "/generate_with_mcp", &question)
        .header("accept", "text/event-stream")
        .send()
        .await;
    let mut run = String::new();
    let mut outcome = Value::Null;
    loop {
        let event = reply.next_event().await.unwrap();
        let data: Value = serde_json::from_str(&event.data).unwrap();
        match event.name.as_str() {
            "run" => run = data["run_id"].as_str().unwrap().to_owned(),
            "approval" => {
                let listed = get(other, "/api/runs").await;
                assert_eq!(listed[0]["id"], *run, "{listed}");
                assert_eq!(listed[0]["hub"], "one", "{listed}");
                let shown = get(other, &format!("/api/runs/{run}")).await;
                assert_eq!(shown["hub"], "one", "{shown}");
                let call = data["id"].as_str().unwrap();
                let path = format!("/api/runs/{run}/calls/{call}/approve");
                for status in [204, 404] {
                    let decided = TestRequest::new(&other.address, "POST", &path).send();
                    assert_eq!(decided.await.status, status);
                }
            }
            "observation" => outcome = data["outcome"].clone(),
            "answer" => break,
            _ => (),
        }
    }
    assert_eq!(outcome, "ok");
    let missing = get(other, "/api/runs/run_0").await;
    assert!(missing["id"].is_null(), "{missing}");
    hubs.stop().await;
}
