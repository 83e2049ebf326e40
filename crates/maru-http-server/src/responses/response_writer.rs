//! Responses in the form of OpenAI's Responses API: items, each with its events.

use std::{collections::HashMap, fmt::Write as _};

use maru_protocol::{begin_event, end_event, push_json_string};
use maru_runtime::clock;
use serde_json::{Value, json};

use super::super::{
    model_api::{ApiError, ClientApi, ParsedRequest, ResponseEnd, ResponsePiece},
    openai::ChatCompletionWriter,
};
use super::{
    client_tools::{ToolOrigin, custom_input},
    open_item::OpenItem,
    output_item::{write_refusal_part, write_summary_part, write_text_part},
    response_request,
    response_state::{ResponseState, write_usage},
    settings_echo::SettingsEcho,
};
use maru_llm::{ChatResponse, random_id};

/// Writes a response as events, or whole.
#[derive(Debug)]
pub(in super::super) struct ResponseWriter {
    model: String,
    id: String,
    created_at: i64,
    settings: SettingsEcho,
    origins: HashMap<String, ToolOrigin>,
    seals_reasoning: bool,
    has_begun: bool,
    sequence_number: u64,
    open_item: Option<OpenItem>,
    /// The items that are complete, as JSON.
    output: Vec<String>,
}

impl ResponseWriter {
    pub(super) fn new(
        model: &str,
        settings: SettingsEcho,
        origins: HashMap<String, ToolOrigin>,
        seals_reasoning: bool,
    ) -> Self {
        Self {
            model: model.to_owned(),
            id: random_id("resp_"),
            created_at: clock::now_ms() / 1000,
            settings,
            origins,
            seals_reasoning,
            has_begun: false,
            sequence_number: 0,
            open_item: None,
            output: Vec::new(),
        }
    }

    fn write_created(&mut self, out: &mut String) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        for kind in ["response.created", "response.in_progress"] {
            self.write_event_head(kind, out);
            out.push_str("\"response\":");
            self.write_response(&ResponseState::IN_PROGRESS, out);
            end_object(out);
        }
    }

    /// An event up to its own members.
    fn write_event_head(&mut self, kind: &str, out: &mut String) {
        let number = self.sequence_number;
        self.sequence_number += 1;
        begin_event(out, Some(kind));
        let _ = write!(out, "{{\"type\":\"{kind}\",\"sequence_number\":{number},");
    }

    /// An event of the open item, up to its own members.
    fn write_item_event_head(&mut self, kind: &str, part_index: &str, out: &mut String) {
        self.write_event_head(kind, out);
        let index = self.output.len();
        let id = self.open_item.as_ref().map_or("", OpenItem::id);
        let _ = write!(
            out,
            "\"item_id\":\"{id}\",\"output_index\":{index},{part_index}"
        );
    }

    fn open(&mut self, item: OpenItem, out: &mut String) {
        self.write_created(out);
        self.close_item("completed", out);
        self.write_event_head("response.output_item.added", out);
        let _ = write!(out, "\"output_index\":{},\"item\":", self.output.len());
        item.write("in_progress", false, out);
        end_object(out);
        self.open_item = Some(item);
    }

    fn write_text(&mut self, text: &str, out: &mut String) {
        if !matches!(self.open_item, Some(OpenItem::Message { .. })) {
            self.open_message(out);
        }
        if matches!(&self.open_item, Some(OpenItem::Message { text, .. }) if text.is_empty()) {
            let kind = "response.content_part.added";
            self.write_part_event(kind, CONTENT_PART, out, |out| write_text_part("", out));
        }
        self.write_item_event_head("response.output_text.delta", CONTENT_PART, out);
        out.push_str("\"delta\":");
        push_json_string(out, text);
        out.push_str(",\"logprobs\":[]");
        end_object(out);
        if let Some(OpenItem::Message { text: all, .. }) = &mut self.open_item {
            all.push_str(text);
        }
    }

    fn write_refusal(&mut self, text: &str, out: &mut String) {
        if !matches!(self.open_item, Some(OpenItem::Message { .. })) {
            self.open_message(out);
        }
        let (part, is_first) = self.refusal_part();
        if is_first {
            self.write_part_event("response.content_part.added", part, out, |out| {
                write_refusal_part("", out);
            });
        }
        self.write_item_event_head("response.refusal.delta", part, out);
        out.push_str("\"delta\":");
        push_json_string(out, text);
        end_object(out);
        if let Some(OpenItem::Message { refusal, .. }) = &mut self.open_item {
            refusal.push_str(text);
        }
    }

    /// Which part of the message the refusal is, and whether it begins now.
    fn refusal_part(&self) -> (&'static str, bool) {
        match &self.open_item {
            Some(OpenItem::Message { text, refusal, .. }) if text.is_empty() => {
                (CONTENT_PART, refusal.is_empty())
            }
            Some(OpenItem::Message { refusal, .. }) => (SECOND_PART, refusal.is_empty()),
            _ => (CONTENT_PART, false),
        }
    }

    fn open_message(&mut self, out: &mut String) {
        let item = OpenItem::Message {
            id: random_id("msg_"),
            text: String::new(),
            refusal: String::new(),
        };
        self.open(item, out);
    }

    fn write_part_event(
        &mut self,
        kind: &str,
        part: &str,
        out: &mut String,
        write_part: impl FnOnce(&mut String),
    ) {
        self.write_item_event_head(kind, part, out);
        out.push_str("\"part\":");
        write_part(out);
        end_object(out);
    }

    fn write_reasoning(&mut self, text: &str, out: &mut String) {
        self.open_reasoning(out);
        if matches!(&self.open_item, Some(OpenItem::Reasoning { text, .. }) if text.is_empty()) {
            let kind = "response.reasoning_summary_part.added";
            self.write_part_event(kind, SUMMARY_PART, out, |out| write_summary_part("", out));
        }
        self.write_item_event_head("response.reasoning_summary_text.delta", SUMMARY_PART, out);
        out.push_str("\"delta\":");
        push_json_string(out, text);
        end_object(out);
        if let Some(OpenItem::Reasoning { text: all, .. }) = &mut self.open_item {
            all.push_str(text);
        }
    }

    fn open_reasoning(&mut self, out: &mut String) {
        if !matches!(self.open_item, Some(OpenItem::Reasoning { .. })) {
            let item = OpenItem::Reasoning {
                id: random_id("rs_"),
                text: String::new(),
                blocks: Vec::new(),
                signed: 0,
            };
            self.open(item, out);
        }
    }

    /// Keeps what the backend signed, which goes out with the item.
    fn sign_reasoning(&mut self, signature: &str, out: &mut String) {
        self.open_reasoning(out);
        if let Some(OpenItem::Reasoning {
            text,
            blocks,
            signed,
            ..
        }) = &mut self.open_item
        {
            let thinking = &text[*signed..];
            blocks.push(json!({"type": "thinking", "thinking": thinking, "signature": signature}));
            *signed = text.len();
        }
    }

    fn add_redacted(&mut self, data: &str, out: &mut String) {
        self.open_reasoning(out);
        if let Some(OpenItem::Reasoning { blocks, .. }) = &mut self.open_item {
            blocks.push(json!({"type": "redacted_thinking", "data": data}));
        }
    }

    fn open_call(&mut self, call_id: String, name: &str, out: &mut String) {
        let origin = self.origin_of(name);
        let item = OpenItem::Call {
            id: random_id(call_prefix(&origin)),
            call_id,
            origin,
            arguments: String::new(),
        };
        self.open(item, out);
    }

    fn origin_of(&self, name: &str) -> ToolOrigin {
        let origin = self.origins.get(name).cloned();
        origin.unwrap_or_else(|| ToolOrigin::function(name))
    }

    /// The input of a custom tool is only known when its arguments are complete.
    fn write_arguments(&mut self, piece: &str, out: &mut String) {
        let Some(OpenItem::Call {
            origin, arguments, ..
        }) = &mut self.open_item
        else {
            return;
        };
        arguments.push_str(piece);
        if !origin.is_custom && !piece.is_empty() {
            self.write_item_event_head("response.function_call_arguments.delta", "", out);
            out.push_str("\"delta\":");
            push_json_string(out, piece);
            end_object(out);
        }
    }

    /// Ends the open item. One that was cut off has the status `incomplete`.
    fn close_item(&mut self, status: &'static str, out: &mut String) {
        let Some(item) = self.open_item.take() else {
            return;
        };
        self.write_item_end(&item, status == "completed", out);
        let mut text = String::new();
        item.write(status, self.seals_reasoning, &mut text);
        self.write_event_head("response.output_item.done", out);
        let _ = write!(
            out,
            "\"output_index\":{},\"item\":{text}",
            self.output.len()
        );
        end_object(out);
        self.output.push(text);
    }

    /// The events that end the parts of an item.
    fn write_item_end(&mut self, item: &OpenItem, is_complete: bool, out: &mut String) {
        let id = item.id();
        let index = self.output.len();
        let mut done = |kind: &str, part: &str, member: &str, text: &str, tail: &str| {
            self.write_event_head(kind, out);
            let _ = write!(
                out,
                "\"item_id\":\"{id}\",\"output_index\":{index},{part}\"{member}\":"
            );
            if member == "part" {
                out.push_str(text);
            } else {
                push_json_string(out, text);
            }
            out.push_str(tail);
            end_object(out);
        };
        match item {
            OpenItem::Message { text, refusal, .. } => {
                if !text.is_empty() {
                    let tail = ",\"logprobs\":[]";
                    done(
                        "response.output_text.done",
                        CONTENT_PART,
                        "text",
                        text,
                        tail,
                    );
                    let mut part = String::new();
                    write_text_part(text, &mut part);
                    let kind = "response.content_part.done";
                    done(kind, CONTENT_PART, "part", &part, "");
                }
                if !refusal.is_empty() {
                    let at = if text.is_empty() {
                        CONTENT_PART
                    } else {
                        SECOND_PART
                    };
                    done("response.refusal.done", at, "refusal", refusal, "");
                    let mut part = String::new();
                    write_refusal_part(refusal, &mut part);
                    done("response.content_part.done", at, "part", &part, "");
                }
            }
            OpenItem::Reasoning { text, .. } if !text.is_empty() => {
                let kind = "response.reasoning_summary_text.done";
                done(kind, SUMMARY_PART, "text", text, "");
                let mut part = String::new();
                write_summary_part(text, &mut part);
                let kind = "response.reasoning_summary_part.done";
                done(kind, SUMMARY_PART, "part", &part, "");
            }
            OpenItem::Call {
                origin, arguments, ..
            } if is_complete => {
                if origin.is_custom {
                    let input = custom_input(arguments);
                    let kind = "response.custom_tool_call_input.delta";
                    done(kind, "", "delta", &input, "");
                    let kind = "response.custom_tool_call_input.done";
                    done(kind, "", "input", &input, "");
                } else {
                    let mut tail = String::from(",\"name\":");
                    push_json_string(&mut tail, &origin.name);
                    let kind = "response.function_call_arguments.done";
                    done(kind, "", "arguments", arguments, &tail);
                }
            }
            OpenItem::Reasoning { .. } | OpenItem::Call { .. } => (),
        }
    }

    /// Adds an item of a whole response.
    fn push_whole(&mut self, item: &OpenItem, status: &'static str) {
        let mut text = String::new();
        item.write(status, self.seals_reasoning, &mut text);
        self.output.push(text);
    }

    /// The response itself, with the items that are complete.
    fn write_response(&self, state: &ResponseState<'_>, out: &mut String) {
        let (id, created_at, status) = (&self.id, self.created_at, state.status);
        let _ = write!(
            out,
            "{{\"id\":\"{id}\",\"object\":\"response\",\"created_at\":{created_at},\"status\":\"{status}\",\"model\":"
        );
        push_json_string(out, &self.model);
        let error = state.error.unwrap_or(&Value::Null);
        let _ = write!(out, ",\"error\":{error},\"incomplete_details\":");
        match state.incomplete {
            Some(reason) => {
                let _ = write!(out, "{{\"reason\":\"{reason}\"}}");
            }
            None => out.push_str("null"),
        }
        out.push_str(",\"output\":[");
        out.push_str(&self.output.join(","));
        out.push_str("],\"usage\":");
        match state.usage {
            Some(usage) => write_usage(usage, out),
            None => out.push_str("null"),
        }
        out.push(',');
        out.push_str(&self.settings.0);
        out.push('}');
    }
}

impl ClientApi for ResponseWriter {
    fn parse(body: Value) -> Result<ParsedRequest<Self>, ApiError> {
        response_request::parse(body)
    }

    fn error_body(error: &ApiError) -> Value {
        ChatCompletionWriter::error_body(error)
    }

    fn response_body(mut self, response: ChatResponse) -> String {
        let state = ResponseState::ended(response.finish_reason, response.usage.as_ref());
        if !response.reasoning.is_empty() || !response.reasoning_blocks.is_empty() {
            let item = OpenItem::Reasoning {
                id: random_id("rs_"),
                text: response.reasoning,
                blocks: response.reasoning_blocks,
                signed: 0,
            };
            self.push_whole(&item, "completed");
        }
        let refusal = response.refusal.unwrap_or_default();
        let is_silent = response.text.is_empty() && refusal.is_empty();
        if !is_silent || response.calls.is_empty() {
            let item = OpenItem::Message {
                id: random_id("msg_"),
                text: response.text,
                refusal,
            };
            self.push_whole(&item, state.status);
        }
        for call in response.calls {
            let origin = self.origin_of(&call.name);
            let item = OpenItem::Call {
                id: random_id(call_prefix(&origin)),
                call_id: call.id,
                origin,
                arguments: call.arguments,
            };
            self.push_whole(&item, "completed");
        }
        let mut out = String::new();
        self.write_response(&state, &mut out);
        out
    }

    fn write_start(&mut self, out: &mut String) {
        self.write_created(out);
    }

    fn write_piece(&mut self, piece: ResponsePiece, out: &mut String) {
        match piece {
            ResponsePiece::Text(text) => self.write_text(&text, out),
            ResponsePiece::Refusal(text) => self.write_refusal(&text, out),
            ResponsePiece::Reasoning(text) => self.write_reasoning(&text, out),
            ResponsePiece::ReasoningSignature(signature) => self.sign_reasoning(&signature, out),
            ResponsePiece::RedactedReasoning(data) => self.add_redacted(&data, out),
            ResponsePiece::CallStart { id, name, .. } => self.open_call(id, &name, out),
            ResponsePiece::CallArguments(piece) => self.write_arguments(&piece, out),
            ResponsePiece::CallEnd => self.close_item("completed", out),
            ResponsePiece::Logprobs(_) | ResponsePiece::SystemFingerprint(_) => (),
        }
    }

    /// Writes the end of the last item, and of the response with its usage.
    fn write_end(&mut self, end: ResponseEnd, out: &mut String) {
        self.write_created(out);
        let state = ResponseState::ended(end.finish, end.usage.as_ref());
        self.close_item(state.status, out);
        if self.output.is_empty() {
            self.open_message(out);
            self.close_item(state.status, out);
        }
        let kind = match state.incomplete {
            Some(_) => "response.incomplete",
            None => "response.completed",
        };
        self.write_event_head(kind, out);
        out.push_str("\"response\":");
        self.write_response(&state, out);
        end_object(out);
    }

    fn write_error(&mut self, error: &ApiError, out: &mut String) {
        self.write_created(out);
        let code = error.code.unwrap_or("server_error");
        let shown = json!({"code": code, "message": error.message});
        let state = ResponseState {
            status: "failed",
            error: Some(&shown),
            ..ResponseState::IN_PROGRESS
        };
        self.write_event_head("response.failed", out);
        out.push_str("\"response\":");
        self.write_response(&state, out);
        end_object(out);
    }
}

const CONTENT_PART: &str = "\"content_index\":0,";
const SECOND_PART: &str = "\"content_index\":1,";
const SUMMARY_PART: &str = "\"summary_index\":0,";

/// Ends an event after the last member of its object.
fn end_object(out: &mut String) {
    out.push('}');
    end_event(out);
}

fn call_prefix(origin: &ToolOrigin) -> &'static str {
    if origin.is_custom { "ctc_" } else { "fc_" }
}
