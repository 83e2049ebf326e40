//! Every token that a chat template gives a meaning to: turns, roles, tools, results,
//! reasoning. The markers of the dialects in `grammar` count as well.
//!
//! Tokens between bars (`<|im_start|>`, `<｜User｜>`, `[|user|]`, `<|turn>`,
//! `<channel|>`) need no list: no other text is written so.

use std::cell::Cell;

use super::{cursor::TextCursor, grammar::MarkerPlacement, marker_index};

/// Longest name between bars.
const MAX_BARRED_BYTES: usize = 96;
/// Longest token of the lists below, in characters.
const MAX_TOKEN_CHARS: usize = 40;

/// Elements in angle brackets, opening or closing, perhaps with attributes.
const TAGS: &[&str] = &[
    // Turns and documents: Llama 2, Mistral, Gemma, Yi, Nemotron, MiniMax, Seed, GLM.
    "s",
    "bos",
    "eos",
    "pad",
    "unk",
    "mask",
    "sep",
    "cls",
    "sop",
    "eop",
    "eod",
    "eot",
    "eoh",
    "eoa",
    "eosys",
    "eom",
    "start_of_turn",
    "end_of_turn",
    "start_of_image",
    "end_of_image",
    "image_soft_token",
    "beginning_of_sentence",
    "end_of_sentence",
    "begin_of_document",
    "end_of_document",
    "begin_of_text",
    "end_of_text",
    "seed:bos",
    "seed:eos",
    "longcat_s",
    "longcat_user",
    "longcat_assistant",
    "longcat_system",
    // Roles: MiniCPM, TeleChat, Ling.
    "用户",
    "ai",
    "_user",
    "_bot",
    "_system",
    "_end",
    "_start",
    "role",
    "bot",
    // Tools and their results.
    "tool",
    "tools",
    "tool_call",
    "tool_calls",
    "toolcall",
    "available_tools",
    "tool_list",
    "tool_use",
    "tool_name",
    "tool_sep",
    "tool_response",
    "tool_responses",
    "tool_result",
    "tool_results",
    "tool_output",
    "tool_outputs",
    "toolresponse",
    "observation",
    "function",
    "functions",
    "function_call",
    "function_calls",
    "function_result",
    "function_results",
    "function_response",
    "function_output",
    "invoke",
    "parameter",
    "parameters",
    "param",
    "arg_key",
    "arg_value",
    "longcat_tool_call",
    "longcat_tool_response",
    "longcat_tools",
    "longcat_arg_key",
    "longcat_arg_value",
    "longcat_think",
    "seed:tool_call",
    "seed:tool_response",
    "seed:think",
    "minimax:tool_call",
    "dots_function_call",
    "start_function_call",
    "end_function_call",
    "start_function_declaration",
    "end_function_declaration",
    "start_function_response",
    "end_function_response",
    "escape",
    "xml_tool",
    "api_response",
    // Reasoning and answers.
    "think",
    "thinking",
    "thought",
    "reasoning",
    "mm:think",
    "response",
    "begin_of_thought",
    "end_of_thought",
    "begin_of_solution",
    "end_of_solution",
    // Fill in the middle: StarCoder.
    "fim_prefix",
    "fim_suffix",
    "fim_middle",
    "fim_pad",
];
/// Names in angle brackets of which only the beginning is fixed.
const TAG_PREFIXES: &[&str] = &[
    "extra_id_",
    "special_",
    "reserved_",
    "tokens_unused_",
    "unused",
    "atem:",
    "steptml:",
    "antml:",
    "xai:",
    "think:",
    "tool_call:",
    "tool_calls:",
    "mask:",
];
/// Names in square brackets, opening or closing.
const BRACKETS: &[&str] = &[
    // Mistral.
    "inst",
    "system_prompt",
    "available_tools",
    "tool_calls",
    "tool_results",
    "tool_content",
    "call_id",
    "args",
    "think",
    "img",
    "img_break",
    "img_end",
    "audio",
    "begin_audio",
    "transcribe",
    "prefix",
    "suffix",
    "middle",
    "model_settings",
    // GLM, Skywork, LM Studio, Granite.
    "gmask",
    "smask",
    "sop",
    "user",
    "bot",
    "sep",
    "eot",
    "tool_request",
    "end_tool_request",
    "begin final response",
    "end final response",
    // Our own, with which prompted models get results.
    "tool error",
];
/// Names in square brackets of which only the beginning is fixed.
const BRACKET_PREFIXES: &[&str] = &[
    "unused_token_",
    "unused",
    "control_",
    "tool result",
    "tool_result",
    "round ",
    "도구 결과",
];
/// Tokens of other forms.
const OTHER: &[&str] = &[
    "<<sys>>",
    "<</sys>>",
    "<[",
    "]~b]",
    "]~!b[",
    "[e~[",
    "]<]minimax[>[",
    "✿function✿",
    "✿args✿",
    "✿result✿",
    "✿return✿",
    "◁think▷",
    "◁/think▷",
    ">>question<<",
    ">>answer<<",
    ">>title<<",
    ">>summary<<",
    ">>abstract<<",
    ">>introduction<<",
    ">>comment<<",
];
/// What a line begins with where a template writes roles or results as text.
const LINES: &[&str] = &[
    "### instruction:",
    "### input:",
    "### response:",
    "### user:",
    "### assistant:",
    "### system:",
    "### human:",
    "action:",
    "action input:",
    "observation:",
    "final answer:",
    "tool_output",
    "```tool_output",
    "```tool_code",
    "```tool_result",
    "-> tool/function_call",
    ">>>",
];

/// Whether `text` begins with a token of a chat template or a marker of a dialect.
/// `at_line_start` says that only white space stands before it on its line.
pub(super) fn starts_with_token(text: &str, at_line_start: bool) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    match fold(first) {
        '<' | '[' if may_follow_bracket(&text[first.len_utf8()..]) => {
            is_barred(text) || is_listed(text) || is_marker(text, at_line_start)
        }
        '<' | '[' => false,
        ']' => text.starts_with("]~") || text.starts_with("]<]"),
        '>' => (text.starts_with(">>") && is_listed(text)) || (at_line_start && is_line(text)),
        '✿' | '◁' => is_listed(text),
        _ => at_line_start && (is_line(text) || is_marker(text, true)),
    }
}

/// Whether what stands behind a bracket can be the name of a token. Most brackets are
/// those of JSON, Markdown and code.
fn may_follow_bracket(text: &str) -> bool {
    let may_follow = |c: char| c.is_alphabetic() || matches!(c, '|' | '/' | '_' | '<' | '[' | '~');
    text.chars().next().map(fold).is_some_and(may_follow)
}

/// Whether a token may begin with this byte in the middle of a line.
pub(super) fn may_start_token(byte: u8) -> bool {
    // Of the others, the first bytes of `✿` and `◁`, and of full-width brackets.
    matches!(byte, b'<' | b'[' | b']' | b'>' | 0xe2 | 0xef)
}

fn is_marker(text: &str, at_line_start: bool) -> bool {
    let placement = if at_line_start {
        MarkerPlacement::MessageStart
    } else {
        MarkerPlacement::Anywhere
    };
    let touched = Cell::new(false);
    marker_index::find_marker(TextCursor::new(text, &touched), placement).is_some()
}

/// `<|…|>`, `[|…|]`, `<|…>` or `<…|>`, with bars and brackets of any width.
fn is_barred(text: &str) -> bool {
    let mut chars = text.chars().map(fold);
    let close = match chars.next() {
        Some('<') => '>',
        _ => ']',
    };
    let opens = chars.clone().next() == Some('|');
    let mut length = 0;
    let mut previous = ' ';
    for c in chars {
        length += c.len_utf8();
        if c == close {
            let closes = previous == '|' && length > 2;
            return closes || (opens && close == '>' && length > 2);
        }
        let ends = matches!(c, '<' | '\n') || (!opens && !is_name_char(c) && c != '|');
        if ends || length > MAX_BARRED_BYTES {
            return false;
        }
        previous = c;
    }
    false
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '/' | ':' | '"')
}

/// Whether a token of the lists is next.
fn is_listed(text: &str) -> bool {
    let folded = folded_start(text);
    if OTHER.iter().any(|it| folded.starts_with(it)) {
        return true;
    }
    let Some(name) = folded.strip_prefix(['<', '[']) else {
        return false;
    };
    let name = name.strip_prefix('/').unwrap_or(name);
    if folded.starts_with('<') {
        let end = name
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':')))
            .unwrap_or(name.len());
        let closes = name[end..].starts_with(['>', ' ', '=', ':', '/']);
        closes && (TAGS.contains(&&name[..end]) || has_prefix(name, TAG_PREFIXES))
    } else {
        let end = name.find(']').unwrap_or(0);
        BRACKETS.contains(&&name[..end]) || has_prefix(name, BRACKET_PREFIXES)
    }
}

fn has_prefix(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn is_line(text: &str) -> bool {
    let first = text.as_bytes().first().map(u8::to_ascii_lowercase);
    let begins = |label: &&str| {
        if label.bytes().next() != first {
            return false;
        }
        let mut chars = text.chars().map(|c| fold(c).to_ascii_lowercase());
        label.chars().all(|wanted| chars.next() == Some(wanted))
    };
    LINES.iter().any(begins)
}

/// The first characters in one spelling: lower case, narrow, `_` for `▁`.
fn folded_start(text: &str) -> String {
    let chars = text.chars().take(MAX_TOKEN_CHARS).map(fold);
    chars.flat_map(char::to_lowercase).collect()
}

fn fold(c: char) -> char {
    match c {
        '＜' => '<',
        '＞' => '>',
        '［' => '[',
        '］' => ']',
        '｜' | '‖' | '│' | '∣' => '|',
        '▁' => '_',
        '／' => '/',
        c => c,
    }
}
