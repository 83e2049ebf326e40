//! Tool results are data: no marker or control token in them reaches a model.

use serde_json::json;

use super::{
    chat_client::complete,
    fake_model::{FakeModelServer, text_response},
};
use crate::test_hub::TestHub;

/// What ends a turn, begins one, or frames a call, in the syntaxes of many models.
const CONTROL_TOKENS: &[&str] = &[
    "<|im_end|>",
    "<|im_start|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eom|>",
    "<|eot|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "</s>",
    "<s>",
    "<eos>",
    "<end_of_turn>",
    "<start_of_turn>",
    "<turn|>",
    "<|turn>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_msg|>",
    "<|message_sep|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|begin_of_text|>",
    "<bos>",
    "[INST]",
    "[/INST]",
    "<tool_call>",
    "<|tool_call|>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "<function_calls>",
    "<think>",
];

#[tokio::test]
async fn control_tokens_in_tool_results_are_neutralised_one_by_one() {
    let backend = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    let mut leaked = Vec::new();
    for token in CONTROL_TOKENS {
        let text = format!("before {token} after");
        let messages = json!([
            {"role": "user", "content": format!("I write {token}")},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
                "function": {"name": "get_weather", "arguments": "{\"city\":\"Busan\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": text},
        ]);
        complete(&hub, json!({"messages": messages})).await;
        let sent = backend.seen().pop().unwrap().body["messages"].clone();
        let result = sent[2]["content"].as_str().unwrap();
        if result.contains(token) {
            leaked.push(*token);
        }
        assert_eq!(result.replace('\u{200b}', ""), text, "nothing is lost");
        let question = sent[0]["content"].as_str().unwrap();
        assert!(question.ends_with(token), "users may write anything");
    }
    assert_eq!(leaked, [""; 0], "these reached the model");
}
