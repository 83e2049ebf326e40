//! `POST /v1/completions`: a text that a model continues, or whose gap before `suffix` it
//! fills. Editors complete code with it.

use maru_protocol::{begin_event, end_event, push_json_string, write_event};
use maru_runtime::clock;
use serde_json::{Map, Value, json};

use super::{
    super::model_api::{
        ApiError, ClientApi, ParsedRequest, ResponseEnd, ResponsePiece, check_members,
        check_numbers, parse_model, parse_stream,
    },
    error::error_body,
};
use maru_llm::{ChatRequest, ChatResponse, FinishReason, TextPrompt, random_id};

/// Writes a response as chunks, or whole.
#[derive(Debug)]
pub(in super::super) struct TextCompletionWriter {
    /// Everything before the choices of a response.
    head: Map<String, Value>,
    /// An event up to `{"id":…,"model":…,` of every chunk.
    chunk_prefix: String,
    wants_usage: bool,
}

impl TextCompletionWriter {
    fn new(model: &str, wants_usage: bool) -> Self {
        let head = json!({
            "id": random_id("cmpl-"),
            "object": "text_completion",
            "created": clock::now_ms() / 1000,
            "model": model,
        });
        let Value::Object(head) = head else {
            unreachable!("it is an object");
        };
        Self {
            chunk_prefix: chunk_prefix(&head),
            head,
            wants_usage,
        }
    }

    fn write_choice(
        &self,
        text: &str,
        logprobs: Option<&Map<String, Value>>,
        finish: Option<FinishReason>,
        out: &mut String,
    ) {
        out.push_str(&self.chunk_prefix);
        if self.wants_usage {
            out.push_str("\"usage\":null,");
        }
        out.push_str("\"choices\":[{\"index\":0,\"text\":");
        push_json_string(out, text);
        let logprobs = json!(logprobs);
        let finish = Value::from(finish.map(FinishReason::as_str));
        out.push_str(&format!(
            ",\"logprobs\":{logprobs},\"finish_reason\":{finish}}}]}}"
        ));
        end_event(out);
    }
}

fn chunk_prefix(head: &Map<String, Value>) -> String {
    let head = serde_json::to_string(head).expect("values are JSON");
    let mut prefix = String::new();
    begin_event(&mut prefix, None);
    prefix.push_str(head.trim_end_matches('}'));
    prefix.push(',');
    prefix
}

impl ClientApi for TextCompletionWriter {
    fn parse(body: Value) -> Result<ParsedRequest<Self>, ApiError> {
        let mut body = check_members(body)?;
        let model = parse_model(body.remove("model"))?;
        let stream = parse_stream(body.remove("stream").as_ref())?;
        check_numbers(&body)?;
        let prompt = parse_prompt(body.remove("prompt"))?;
        let suffix = match body.remove("suffix") {
            None | Some(Value::Null) => None,
            Some(Value::String(suffix)) => Some(suffix).filter(|it| !it.is_empty()),
            Some(_) => return Err(ApiError::invalid("suffix", "suffix must be text")),
        };
        let wants_usage = body
            .get("stream_options")
            .is_some_and(|it| it["include_usage"] == true);
        Ok(ParsedRequest {
            api: Self::new(&model, wants_usage),
            request: ChatRequest {
                model,
                text_prompt: Some(TextPrompt { prompt, suffix }),
                other: body,
                ..ChatRequest::default()
            },
            stream,
        })
    }

    fn error_body(error: &ApiError) -> Value {
        error_body(error)
    }

    fn response_body(mut self, response: ChatResponse) -> String {
        if let Some(name) = response.system_fingerprint {
            self.head
                .insert("system_fingerprint".to_owned(), name.into());
        }
        let text = response.refusal.unwrap_or(response.text);
        let choice = json!({
            "index": 0,
            "text": text,
            "logprobs": response.logprobs,
            "finish_reason": response.finish_reason.as_str(),
        });
        self.head.insert("choices".to_owned(), json!([choice]));
        if let Some(usage) = response.usage {
            self.head.insert("usage".to_owned(), usage.0.into());
        }
        serde_json::to_string(&self.head).expect("values are JSON")
    }

    /// Nothing stands there: a client of this API counts every chunk as text.
    fn write_start(&mut self, _out: &mut String) {}

    fn write_piece(&mut self, piece: ResponsePiece, out: &mut String) {
        match piece {
            ResponsePiece::Text(text) | ResponsePiece::Refusal(text) => {
                self.write_choice(&text, None, None, out);
            }
            ResponsePiece::Logprobs(logprobs) => self.write_choice("", Some(&logprobs), None, out),
            ResponsePiece::SystemFingerprint(name) => {
                self.head
                    .insert("system_fingerprint".to_owned(), name.into());
                self.chunk_prefix = chunk_prefix(&self.head);
            }
            // This API has no place for calls and reasoning, which only an agent has here.
            _ => (),
        }
    }

    fn write_end(&mut self, end: ResponseEnd, out: &mut String) {
        self.write_choice("", None, Some(end.finish), out);
        if let Some(usage) = end.usage.filter(|_| self.wants_usage) {
            let (prefix, usage) = (&self.chunk_prefix, Value::Object(usage.0));
            out.push_str(&format!("{prefix}\"choices\":[],\"usage\":{usage}}}"));
            end_event(out);
        }
        out.push_str(&write_event(None, None, "[DONE]"));
    }

    fn write_error(&mut self, error: &ApiError, out: &mut String) {
        out.push_str(&write_event(None, None, &error_body(error).to_string()));
    }
}

/// One prompt: text, or the numbers of its tokens.
fn parse_prompt(given: Option<Value>) -> Result<Value, ApiError> {
    let is_tokens = |it: &[Value]| !it.is_empty() && it.iter().all(Value::is_u64);
    let prompt = match given {
        Some(Value::Array(mut prompts)) if prompts.len() == 1 && !prompts[0].is_number() => {
            prompts.pop()
        }
        given => given,
    };
    match prompt {
        Some(prompt @ Value::String(_)) => Ok(prompt),
        Some(Value::Array(tokens)) if is_tokens(&tokens) => Ok(tokens.into()),
        _ => Err(ApiError::invalid(
            "prompt",
            "prompt must be one text, or a list of the numbers of its tokens",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_is_one_text_or_its_tokens() {
        let check = |given: Value, expected: Value| {
            let parsed = parse_prompt(Some(given.clone())).unwrap_or_default();
            assert_eq!(parsed, expected, "{given}");
        };
        check(json!("a"), json!("a"));
        check(json!(["a"]), json!("a"));
        check(json!([1, 2]), json!([1, 2]));
        check(json!([1]), json!([1]));
        check(json!([[1, 2]]), json!([1, 2]));
        for invalid in [
            json!(["a", "b"]),
            json!([]),
            json!([[]]),
            json!([-1]),
            json!(5),
        ] {
            check(invalid, Value::Null);
        }
        assert!(parse_prompt(None).is_err());
    }
}
