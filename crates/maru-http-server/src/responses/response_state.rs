//! How far a response is, and its usage.

use std::fmt::Write as _;

use serde_json::Value;

use maru_llm::{FinishReason, TokenUsage};

/// How far a response is.
pub(super) struct ResponseState<'a> {
    pub(super) status: &'static str,
    pub(super) incomplete: Option<&'static str>,
    pub(super) error: Option<&'a Value>,
    pub(super) usage: Option<&'a TokenUsage>,
}

impl<'a> ResponseState<'a> {
    pub(super) const IN_PROGRESS: Self = Self {
        status: "in_progress",
        incomplete: None,
        error: None,
        usage: None,
    };

    pub(super) fn ended(finish: FinishReason, usage: Option<&'a TokenUsage>) -> Self {
        let incomplete = match finish {
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Paused => None,
            FinishReason::Length | FinishReason::ContextWindow => Some("max_output_tokens"),
            FinishReason::ContentFilter => Some("content_filter"),
        };
        Self {
            status: if incomplete.is_some() {
                "incomplete"
            } else {
                "completed"
            },
            incomplete,
            error: None,
            usage,
        }
    }
}

pub(super) fn write_usage(usage: &TokenUsage, out: &mut String) {
    let (input, output) = (usage.input(), usage.output());
    let (cached, reasoning) = (usage.cached(), usage.reasoning());
    let total = usage.total();
    let _ = write!(
        out,
        "{{\"input_tokens\":{input},\"input_tokens_details\":{{\"cached_tokens\":{cached}}},\"output_tokens\":{output},\"output_tokens_details\":{{\"reasoning_tokens\":{reasoning}}},\"total_tokens\":{total}}}"
    );
}
