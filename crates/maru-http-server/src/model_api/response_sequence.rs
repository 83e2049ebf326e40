//! Puts the events of a response into the order that every client can read. Several clients
//! concatenate ids and names, ignore calls that come twice, or fail on text after a call.

use super::{
    ResponseEnd, ResponsePiece,
    call_text::{CallOutput, finish_reason},
};
use maru_llm::{ChatEvent, ChatToolCall, FinishReason, InvalidToolCall, TokenUsage};

/// Turns events into pieces: text first, then one call after the other.
#[derive(Debug)]
pub(super) struct ResponseSequence {
    output: CallOutput,
    /// The text does not end with a line break; a call in the text needs one.
    has_open_line: bool,
    /// Complete calls that wait for the end of the text.
    held_calls: Vec<ChatToolCall>,
    /// Calls that were handed out as calls.
    call_count: usize,
    /// Bytes of arguments that were handed out of the call that is not complete.
    open_arguments: Option<usize>,
    usage: Option<TokenUsage>,
    finish: Option<FinishReason>,
    stop_sequence: Option<String>,
}

impl ResponseSequence {
    pub(super) fn new(output: CallOutput) -> Self {
        Self {
            output,
            has_open_line: false,
            held_calls: Vec::new(),
            call_count: 0,
            open_arguments: None,
            usage: None,
            finish: None,
            stop_sequence: None,
        }
    }

    /// Hands out what can be written; complete calls wait for the end of the text.
    pub(super) fn push(&mut self, events: &mut Vec<ChatEvent>, mut out: impl FnMut(ResponsePiece)) {
        let mut events = events.drain(..).peekable();
        while let Some(event) = events.next() {
            match event {
                ChatEvent::Text(mut text)
                | ChatEvent::InvalidCall(InvalidToolCall {
                    mut text,
                    native: None,
                    ..
                }) => {
                    // What arrived together goes out together: a piece for each of a
                    // million broken calls would be ten times as long as they are.
                    while let Some(
                        ChatEvent::Text(more)
                        | ChatEvent::InvalidCall(InvalidToolCall { text: more, .. }),
                    ) = events.next_if(|it| {
                        matches!(
                            it,
                            ChatEvent::Text(_)
                                | ChatEvent::InvalidCall(InvalidToolCall { native: None, .. })
                        )
                    }) {
                        text.push_str(&more);
                    }
                    self.push_text(text, &mut out);
                }
                ChatEvent::Reasoning(mut text) => {
                    while let Some(ChatEvent::Reasoning(more)) =
                        events.next_if(|it| matches!(it, ChatEvent::Reasoning(_)))
                    {
                        text.push_str(&more);
                    }
                    if !text.is_empty() {
                        out(ResponsePiece::Reasoning(text));
                    }
                }
                ChatEvent::ReasoningSignature(signature) => {
                    out(ResponsePiece::ReasoningSignature(signature));
                }
                ChatEvent::RedactedReasoning(data) => out(ResponsePiece::RedactedReasoning(data)),
                // The text is out already: what follows is another paragraph.
                ChatEvent::TextWasReasoning => self.push_text("\n\n".to_owned(), &mut out),
                ChatEvent::InvalidCall(invalid) => {
                    // One that stands apart from the text gets a line of its own.
                    let gap = if self.has_open_line { "\n" } else { "" };
                    self.push_text(format!("{gap}{}", invalid.text), &mut out);
                }
                ChatEvent::Refusal(text) => out(ResponsePiece::Refusal(text)),
                ChatEvent::ToolCallStarted {
                    id,
                    name,
                    extra_content,
                } => {
                    self.push_held_calls(&mut out);
                    self.call_count += 1;
                    self.open_arguments = Some(0);
                    out(ResponsePiece::CallStart {
                        id,
                        name,
                        extra_content,
                    });
                }
                ChatEvent::ToolCallArguments(mut piece) => {
                    while let Some(ChatEvent::ToolCallArguments(more)) =
                        events.next_if(|it| matches!(it, ChatEvent::ToolCallArguments(_)))
                    {
                        piece.push_str(&more);
                    }
                    if let Some(written) = &mut self.open_arguments {
                        *written += piece.len();
                        out(ResponsePiece::CallArguments(piece));
                    }
                }
                ChatEvent::ToolCall(mut call) => match self.open_arguments.take() {
                    Some(written) => {
                        let rest = call.arguments.split_off(written);
                        if !rest.is_empty() {
                            out(ResponsePiece::CallArguments(rest));
                        }
                        out(ResponsePiece::CallEnd);
                    }
                    None => self.held_calls.push(call),
                },
                ChatEvent::Logprobs(logprobs) => out(ResponsePiece::Logprobs(logprobs)),
                ChatEvent::SystemFingerprint(name) => out(ResponsePiece::SystemFingerprint(name)),
                ChatEvent::StopSequence(text) => self.stop_sequence = Some(text),
                ChatEvent::Usage(usage) => self.usage = Some(usage),
                ChatEvent::Finish(finish) => self.finish = Some(finish),
            }
        }
    }

    /// Whether the finish reason is known.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// The response is complete: hands out the calls that are left, and how it ended.
    pub(super) fn finish(&mut self, mut out: impl FnMut(ResponsePiece)) -> ResponseEnd {
        self.push_held_calls(&mut out);
        let finish = self.finish.unwrap_or(FinishReason::Stop);
        ResponseEnd {
            finish: finish_reason(finish, self.call_count > 0),
            stop_sequence: self.stop_sequence.take(),
            usage: self.usage.take(),
        }
    }

    /// Text for the user. No client expects any after a call: what a model adds there is
    /// not lost, but no answer.
    fn push_text(&mut self, text: String, out: &mut impl FnMut(ResponsePiece)) {
        if text.is_empty() {
            return;
        }
        if self.call_count == 0 {
            self.has_open_line = !text.ends_with('\n');
            out(ResponsePiece::Text(text));
        } else if !text.trim().is_empty() && self.open_arguments.is_none() {
            out(ResponsePiece::Reasoning(text));
        }
    }

    fn push_held_calls(&mut self, out: &mut impl FnMut(ResponsePiece)) {
        for call in std::mem::take(&mut self.held_calls) {
            if let Some(text) = self.output.render(&call) {
                let gap = if self.has_open_line { "\n\n" } else { "" };
                self.push_text(format!("{gap}{text}\n"), out);
                continue;
            }
            self.call_count += 1;
            out(ResponsePiece::CallStart {
                id: call.id,
                name: call.name,
                extra_content: call.extra_content,
            });
            out(ResponsePiece::CallArguments(call.arguments));
            out(ResponsePiece::CallEnd);
        }
    }
}
