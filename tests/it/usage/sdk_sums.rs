//! The sums of maru are those of the clients' libraries, to the token.

use serde_json::{Value, json};
use tokio::process::Command;

use super::{priced, usage, wait_for_requests};
use crate::{
    clients::{client_tools_dir, run_successfully},
    openai::fake_model::{FakeModelServer, ScriptStep, delta_step, event_step, stream_head},
    test_hub::TestHub,
};

const STREAMS: i64 = 1000;

#[tokio::test]
async fn sums_of_a_thousand_streams_equal_those_of_the_sdks() {
    // Other counts for each request, repeated with every chunk as some backends do.
    let backend = FakeModelServer::start(|number, _| {
        let number = number as u64;
        let usage = |share: u64| {
            json!({"choices": [], "usage": {
                "prompt_tokens": 100 + number * 7 % 1013,
                "completion_tokens": (50 + number * 13 % 509) / share,
                "prompt_tokens_details": {"cached_tokens": number % 97},
                "completion_tokens_details": {"reasoning_tokens": number % 31},
                "total_tokens": 1}})
        };
        vec![
            stream_head(),
            delta_step(json!({"content": "안"}), None),
            event_step(&usage(2)),
            delta_step(json!({"content": "녕"}), Some("stop")),
            event_step(&usage(1)),
            ScriptStep::Send("data: [DONE]\n\n".to_owned()),
        ]
    })
    .await;
    let apis = ["chat", "responses", "messages"];
    let models = apis.map(|it| priced(&backend, it)).to_vec();
    let hub = TestHub::with_config(|config| config.models = models).await;
    let token = hub
        .create_token(json!({"name": "sdk", "role": "agent"}))
        .await;
    let sums = run_successfully(
        Command::new(client_tools_dir().join("openai/bin/python"))
            .arg(client_tools_dir().join("usage_client.py"))
            .arg(format!("http://{}", hub.address))
            .args([token.as_str(), &STREAMS.to_string(), "50"]),
    )
    .await;
    let sums: Value = serde_json::from_str(&sums).unwrap();
    wait_for_requests(&hub, STREAMS).await;
    let mut requests = 0;
    for api in apis {
        let sums = &sums[api];
        let seen = usage(&hub, &format!("caller=sdk&model={api}")).await;
        let totals = &seen["totals"];
        for (name, sum) in sums.as_object().unwrap() {
            assert_eq!(&totals[name], sum, "{api} {name}");
        }
        requests += sums["requests"].as_i64().unwrap();
        assert_eq!(
            (&totals["errors"], &totals["estimated"]),
            (&json!(0), &json!(0)),
            "{api}"
        );
        let count = |name: &str| sums[name].as_u64().unwrap();
        let uncached = count("input_tokens") - count("cached_tokens");
        let millionths = uncached * 2 + count("cached_tokens") + count("output_tokens") * 10;
        let cost = totals["cost"].as_f64().unwrap() * 1e6;
        assert!(
            (cost - millionths as f64).abs() < 0.001,
            "{api}: {cost} {millionths}"
        );
    }
    assert_eq!(requests, STREAMS);
}
