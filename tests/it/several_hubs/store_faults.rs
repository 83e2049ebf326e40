//! The store that hubs share fails, loses messages, or gets more than it should keep.

use serde_json::{Value, json};

use super::{
    TwoHubs,
    sessions::{VERSION, ask_to_pay, list_tools, start_with_payments, start_with_suite_tools},
};
use crate::{
    http_client::TestRequest,
    test_hub::{TestHub, request_message},
};

const WATCHED: &str = "test://watched-resource";

async fn send(hub: &TestHub, session: &str, method: &str, uri: &str) -> Value {
    let message = request_message(2, method, json!({"uri": uri}));
    let reply = hub.session_request(session, &message).send().await;
    reply.rpc_response().await
}

async fn end(hub: &TestHub, session: &str) -> u16 {
    let end = TestRequest::new(&hub.address, "DELETE", "/mcp");
    end.header("mcp-session-id", session)
        .send()
        .await
        .status
        .as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn session_leaves_one_note_for_each_of_its_subscriptions() {
    let hubs = start_with_suite_tools().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let count = || {
        let sql = "SELECT count(*) FROM hub_envelope WHERE recipient = '*'";
        hubs.cluster.run_sql(&hubs.database, sql)
    };
    let session = one.initialize_session(VERSION, json!({})).await;
    for number in 0..3 {
        let uri = format!("test://{number}");
        send(one, &session, "resources/unsubscribe", &uri).await;
    }
    assert_eq!(count(), "0");
    let long = format!("test://{}", "x".repeat(3000));
    let refused = send(one, &session, "resources/subscribe", &long).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("2048 bytes"), "{refused}");
    for hub in [one, other, one] {
        let subscribed = send(hub, &session, "resources/subscribe", WATCHED).await;
        assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    }
    assert_eq!(count(), "1");
    send(other, &session, "resources/unsubscribe", WATCHED).await;
    assert_eq!(count(), "0");
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_may_have_ended_is_refused_while_the_store_cannot_tell() {
    let hubs = start_with_suite_tools().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let run_sql = |text| hubs.cluster.run_sql(&hubs.database, text);
    let session = one.initialize_session(VERSION, json!({})).await;
    let list = async |hub: &TestHub| {
        let listed = hub.session_request(&session, &list_tools()).send().await;
        listed.status.as_u16()
    };
    run_sql("ALTER TABLE hub_envelope RENAME TO away");
    assert_eq!(list(other).await, 404);
    // It would be alive again at a hub that does not know of its end.
    assert_eq!(end(one, &session).await, 503);
    run_sql("ALTER TABLE away RENAME TO hub_envelope");
    assert_eq!(list(one).await, 200);
    assert_eq!(list(other).await, 200);
    assert_eq!(end(other, &session).await, 204);
    assert_eq!(list(one).await, 404);
    assert_eq!(list(other).await, 404);
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_whose_result_is_lost_is_an_error_and_not_a_second_call() {
    let hubs: TwoHubs = start_with_payments().await;
    let answer = ask_to_pay(&hubs.one).await;
    hubs.cluster.run_sql(
        &hubs.database,
        "CREATE FUNCTION lose_message() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RETURN NULL; END $$;
         CREATE TRIGGER lose_message BEFORE INSERT ON hub_envelope
            FOR EACH ROW WHEN (NEW.kind = 'message') EXECUTE FUNCTION lose_message()",
    );
    let request = hubs.other.stateless_request("tools/call", answer);
    let failed = request.send().await.rpc_response().await;
    let message = failed["error"]["message"].as_str();
    let message = message.unwrap_or_else(|| panic!("{failed}"));
    assert!(message.contains("not repeated"), "{message}");
    hubs.stop().await;
}
