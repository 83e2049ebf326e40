//! The items of a response, as JSON text.

use std::fmt::Write as _;

use maru_protocol::push_json_string;

use super::client_tools::{ToolOrigin, custom_input};

/// A message of the model.
pub(super) struct MessageItem<'a> {
    pub(super) id: &'a str,
    pub(super) text: &'a str,
    pub(super) refusal: &'a str,
    pub(super) status: &'static str,
}

/// A call of a tool.
pub(super) struct CallItem<'a> {
    pub(super) id: &'a str,
    pub(super) call_id: &'a str,
    pub(super) origin: &'a ToolOrigin,
    /// JSON text of an object.
    pub(super) arguments: &'a str,
    pub(super) status: &'static str,
}

/// Reasoning of the model.
pub(super) struct ReasoningItem<'a> {
    pub(super) id: &'a str,
    pub(super) text: &'a str,
    /// The reasoning as the client sends it back, where it asked for that.
    pub(super) sealed: Option<String>,
}

impl MessageItem<'_> {
    pub(super) fn write(&self, out: &mut String) {
        let (id, status) = (self.id, self.status);
        let _ = write!(
            out,
            "{{\"type\":\"message\",\"id\":\"{id}\",\"status\":\"{status}\",\"role\":\"assistant\",\"content\":["
        );
        if !self.text.is_empty() || (self.refusal.is_empty() && status != "in_progress") {
            write_text_part(self.text, out);
        }
        if !self.refusal.is_empty() {
            if !self.text.is_empty() {
                out.push(',');
            }
            write_refusal_part(self.refusal, out);
        }
        out.push_str("]}");
    }
}

pub(super) fn write_text_part(text: &str, out: &mut String) {
    out.push_str("{\"type\":\"output_text\",\"text\":");
    push_json_string(out, text);
    out.push_str(",\"annotations\":[],\"logprobs\":[]}");
}

pub(super) fn write_refusal_part(refusal: &str, out: &mut String) {
    out.push_str("{\"type\":\"refusal\",\"refusal\":");
    push_json_string(out, refusal);
    out.push('}');
}

pub(super) fn write_summary_part(text: &str, out: &mut String) {
    out.push_str("{\"type\":\"summary_text\",\"text\":");
    push_json_string(out, text);
    out.push('}');
}

impl CallItem<'_> {
    pub(super) fn write(&self, out: &mut String) {
        let kind = if self.origin.is_custom {
            "custom_tool_call"
        } else {
            "function_call"
        };
        let _ = write!(
            out,
            "{{\"type\":\"{kind}\",\"id\":\"{}\",\"status\":\"{}\",\"call_id\":",
            self.id, self.status
        );
        push_json_string(out, self.call_id);
        out.push_str(",\"name\":");
        push_json_string(out, &self.origin.name);
        if let Some(namespace) = &self.origin.namespace {
            out.push_str(",\"namespace\":");
            push_json_string(out, namespace);
        }
        if self.origin.is_custom {
            out.push_str(",\"input\":");
            if self.arguments.is_empty() {
                out.push_str("\"\"");
            } else {
                push_json_string(out, &custom_input(self.arguments));
            }
        } else {
            out.push_str(",\"arguments\":");
            push_json_string(out, self.arguments);
        }
        out.push('}');
    }
}

impl ReasoningItem<'_> {
    pub(super) fn write(&self, out: &mut String) {
        let _ = write!(
            out,
            "{{\"type\":\"reasoning\",\"id\":\"{}\",\"summary\":[",
            self.id
        );
        if !self.text.is_empty() {
            write_summary_part(self.text, out);
        }
        out.push(']');
        if let Some(sealed) = &self.sealed {
            out.push_str(",\"encrypted_content\":");
            push_json_string(out, sealed);
        }
        out.push('}');
    }
}
