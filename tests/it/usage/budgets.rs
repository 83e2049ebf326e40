//! Budgets are checked before a request is sent.

use futures_util::future::join_all;
use maru::config::{BudgetDefinition, BudgetPeriod, Config};
use serde_json::{Value, json};

use super::{ask, counted_response, priced, wait_for_requests};
use crate::{
    http_client::TestRequest,
    model_apis::TestedApi,
    openai::{
        chat_client::{chat_body, chat_request},
        fake_model::{FakeModelServer, ScriptStep},
    },
    test_hub::TestHub,
};

fn daily_tokens(name: &str, tokens: i64) -> BudgetDefinition {
    BudgetDefinition {
        name: name.to_owned(),
        caller: None,
        model: None,
        period: BudgetPeriod::Day,
        tokens: Some(tokens),
        money: None,
    }
}

async fn send_budget(
    hub: &TestHub,
    method: &'static str,
    name: &str,
    body: &Value,
) -> (u16, Value) {
    let path = format!("/api/budgets/{name}");
    let reply = hub.send_as_admin(method, &path, body.clone()).await;
    let status = reply.status.as_u16();
    let text = reply.text().await;
    (status, serde_json::from_str(&text).unwrap_or_default())
}

async fn budgets(hub: &TestHub) -> Value {
    let request = TestRequest::new(&hub.address, "GET", "/api/budgets");
    request.send().await.json().await["budgets"].take()
}

#[tokio::test]
async fn budget_that_is_used_up_answers_429_and_sends_nothing() {
    let backend = FakeModelServer::start(|_, _| counted_response(3000, 1000)).await;
    let models = vec![priced(&backend, "a"), priced(&backend, "b")];
    let hub = TestHub::with_config(|config: &mut Config| {
        config.models = models;
        config.usage.budgets = vec![BudgetDefinition {
            model: Some("a".to_owned()),
            ..daily_tokens("fixed", 5000)
        }];
    })
    .await;
    assert_eq!(ask(&hub, "a", None).await.0, 200);
    wait_for_requests(&hub, 1).await;
    let reply = chat_request(&hub, &chat_body(json!({"model": "a", "stream": true})))
        .send()
        .await;
    assert_eq!(reply.status, 429);
    let wait: u64 = reply.headers["retry-after"].parse().unwrap();
    assert!(wait <= 86_400, "{wait}");
    let error = &reply.json().await["error"];
    assert_eq!(error["code"], "insufficient_quota");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("\"fixed\"") && message.contains("4000 of 5000 tokens a day"),
        "{message}"
    );
    for api in TestedApi::ALL {
        for stream in [false, true] {
            let mut body = api.question("a", "get_weather", &json!({"type": "object"}), stream);
            if api == TestedApi::Messages {
                body["max_tokens"] = 2000.into();
            }
            let reply = api.request(&hub, &body).send().await;
            assert_eq!(reply.status, 429, "{api:?}");
            assert!(reply.headers.contains_key("retry-after"), "{api:?}");
            let (_, message) = api.error_of(&reply.json().await);
            assert!(message.contains("\"fixed\""), "{api:?} {message}");
        }
    }
    let text = json!({"model": "a", "prompt": "x"});
    let reply = TestRequest::post(&hub.address, "/v1/completions", &text);
    assert_eq!(reply.send().await.status, 429);
    assert_eq!(backend.seen().len(), 1);
    // Another model is not affected, until a budget is made for everything.
    assert_eq!(ask(&hub, "b", None).await.0, 200);
    wait_for_requests(&hub, 2).await;
    let money = json!({"caller": "local", "period": "month", "money": 0.02});
    let (status, saved) = send_budget(&hub, "PUT", "team", &money).await;
    assert_eq!(status, 200, "{saved}");
    // What was used before the budget was made counts: 1500 + 1500 at half, and 1000 at 10, twice.
    assert_eq!(saved["used"], 0.029);
    assert_eq!(ask(&hub, "b", None).await.0, 429);
    let agent = ask(&hub, "agent/b", None).await;
    assert_eq!(
        (agent.0, &agent.1["error"]["code"]),
        (429, &json!("insufficient_quota"))
    );
    assert_eq!(backend.seen().len(), 2);
    let listed = budgets(&hub).await;
    assert_eq!(
        (&listed[0]["name"], &listed[0]["from"]),
        (&json!("fixed"), &json!("settings"))
    );
    assert_eq!(
        (&listed[1]["name"], &listed[1]["from"]),
        (&json!("team"), &json!("api"))
    );
    assert_eq!(
        send_budget(&hub, "DELETE", "fixed", &json!({})).await.0,
        409
    );
    assert_eq!(send_budget(&hub, "DELETE", "team", &json!({})).await.0, 204);
    assert_eq!(send_budget(&hub, "DELETE", "team", &json!({})).await.0, 404);
    assert_eq!(ask(&hub, "b", None).await.0, 200);
}

#[tokio::test]
async fn budgets_that_make_no_sense_are_refused() {
    let hub = TestHub::start().await;
    for wrong in [
        json!({"period": "day"}),
        json!({"period": "day", "tokens": 5, "money": 1}),
        json!({"period": "week", "tokens": 5}),
        json!({"period": "day", "tokens": -1}),
        json!({"period": "day", "tokens": 5, "calls": 1}),
        json!({"period": "day", "tokens": 5, "model": ""}),
    ] {
        let (status, reply) = send_budget(&hub, "PUT", "x", &wrong).await;
        assert_eq!(status, 400, "{wrong} {reply}");
    }
    let reader = hub
        .create_token(json!({"name": "r", "role": "reader"}))
        .await;
    let body = json!({"period": "day", "tokens": 5});
    let request = TestRequest::new(&hub.address, "PUT", "/api/budgets/x")
        .header("content-type", "application/json")
        .header("authorization", &format!("Bearer {reader}"))
        .body(&body.to_string());
    assert_eq!(request.send().await.status, 403);
}

#[tokio::test]
async fn parallel_requests_cannot_overrun_a_budget() {
    let backend = FakeModelServer::start(|_, _| {
        let mut steps = vec![ScriptStep::Pause(std::time::Duration::from_millis(300))];
        steps.extend(counted_response(900, 100));
        steps
    })
    .await;
    let model = priced(&backend, "a");
    let hub = TestHub::with_config(|config: &mut Config| {
        config.models = vec![model];
        // Each reserves 1000 tokens for its response, and some for its prompt.
        config.usage.budgets = vec![daily_tokens("all", 10_000)];
    })
    .await;
    let asked = join_all((0..60).map(|_| ask(&hub, "a", None))).await;
    let count = |status: u16| asked.iter().filter(|it| it.0 == status).count();
    assert_eq!(count(200) + count(429), 60);
    assert!((5..=10).contains(&count(200)), "{}", count(200));
    assert_eq!(backend.seen().len(), count(200));
    let all = &budgets(&hub).await[0];
    assert!(all["used"].as_i64().unwrap() <= 10_000, "{all}");
    assert_eq!(all["reserved"], 0);
}
