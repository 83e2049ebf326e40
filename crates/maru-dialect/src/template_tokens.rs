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
    "end_of_utterance",
    "endoftext",
    "eos_token",
    "bos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
    "eop_token",
    "eoi_token",
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
    "human",
    // Baichuan, NexusRaven.
    "b_sys",
    "b_usys",
    "b_ape",
    "b_func",
    "b_code",
    "c_q",
    "c_a",
    "human_start",
    "human_end",
    "bot_start",
    "bot_end",
    // Documents: Cohere, Jamba, Granite.
    "results",
    "document",
    "documents",
    "citations",
    "co",
    "active_output_modes",
    // Tools and their results.
    "tool",
    "tools",
    "tool_call",
    "tool_calls",
    "toolcall",
    "available_tools",
    "tool_list",
    "tool_definitions",
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
    "answer",
    "mm:think",
    "response",
    "begin_of_thought",
    "end_of_thought",
    "begin_of_solution",
    "end_of_solution",
    // Code: StarCoder, Granite, MiniMax.
    "fim_prefix",
    "fim_suffix",
    "fim_middle",
    "fim_pad",
    "fim_sep",
    "filename",
    "reponame",
    "repo_name",
    "file_sep",
    "gh_stars",
    "empty_output",
    "empty_source_file",
    "intermediate_to_code",
    "code_to_intermediate",
    "code_context",
    "file_content",
    "source_files",
    "repo_struct",
    "add_file",
    "delete_file",
    "rename_file",
    "edit_file",
    "review_comment",
    // Images, audio and video: LLaVA, InternVL, Step, Molmo, Idefics, Gemma, Kosmos.
    "imagehere",
    "image_placeholder",
    "video_placeholder",
    "audio_placeholder",
    "img_context",
    "img_start",
    "img_end",
    "im_start",
    "im_end",
    "im_patch",
    "im_col",
    "low_res_im_start",
    "image_start",
    "image_end",
    "image_pad",
    "image_id",
    "image_newline",
    "image_tokens",
    "image_break_token",
    "vid_start",
    "vid_end",
    "vid_patch",
    "video_start",
    "video_end",
    "video_pad",
    "audio_start",
    "audio_end",
    "audio_pad",
    "start_of_audio",
    "end_of_audio",
    "start_of_video",
    "end_of_video",
    "audio_soft_token",
    "video_soft_token",
    "patch_start",
    "patch_end",
    "patch_newline",
    "fake_token_around_image",
    "global-img",
    "grounding",
    "delimiter_of_multi_objects",
    "ovis_visual_atom",
];
/// Placeholders and labels that are tokens without attributes only: with some they are
/// elements of HTML.
const BARE_TAGS: &[&str] = &[
    "img", "image", "images", "audio", "video", "speech", "slice", "point", "box", "quad", "ref",
    "object", "phrase", "start", "blank", "pr",
];
/// Tokens that are elements of HTML unless they are written exactly so: Code Llama.
const CASED_TAGS: &[&str] = &["<PRE>", "<SUF>", "<MID>"];
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
    "jupyter_",
    "issue_",
    "pr_",
    "commit_",
    "tts_",
    "racm3:",
    "ovis_",
    "image_",
    "row_",
    "tile_",
    "patch_index_",
];
/// Names in angle brackets that end in a number.
const NUMBERED_TAGS: &[&str] = &["loc", "loc_", "seg", "box_", "point_"];
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
    "output_audio",
    "streaming_pad",
    "streaming_word",
    "next_audio_text",
    "repeat_audio_text",
    "text_to_audio",
    "audio_to_text",
    "transcribe",
    "multimodal",
    "video",
    "image",
    "prefix",
    "suffix",
    "middle",
    "model_settings",
    // Kimi, EXAONE and encoders.
    "bos",
    "eos",
    "pad",
    "unk",
    "cls",
    "mask",
    "eod",
    "eom",
    "bom",
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
];
/// Names in square brackets of which only the beginning is fixed.
const BRACKET_PREFIXES: &[&str] = &[
    "unused_token_",
    "unused",
    "control_",
    "reference_doc_",
    // Our own, with which prompted models get results.
    "tool error",
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
    "]!p~[",
    "]!d~[",
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
    ">>prefix<<",
    ">>suffix<<",
    ">>middle<<",
];
/// What a line begins with where a template writes roles or results as text.
const LINES: &[&str] = &[
    "### instruction:",
    "###instruction:",
    "### response:",
    "###response:",
    "### user:",
    "### user message",
    "###user:",
    "### human:",
    "###human:",
    "###system:",
    "### input:",
    "### assistant",
    "###assistant",
    "### system:",
    "### system prompt",
    "### question:",
    "### answer:",
    "### 명령어:",
    "### 입력:",
    "### 응답:",
    "### 질문:",
    "### 답변:",
    "### 맥락:",
    "gpt4 correct user:",
    "gpt4 correct assistant:",
    "code user:",
    "code assistant:",
    "beginning of conversation:",
    "user query:",
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
    "问:",
    "答:",
];
/// Roles that a line begins with, as Vicuna, Falcon, Orion and Reka write them. In other
/// letters they are keys of configuration files.
const ROLE_LINES: &[&str] = &[
    "USER:",
    "User:",
    "ASSISTANT:",
    "Assistant:",
    "assistant:",
    "SYSTEM:",
    "System:",
    "HUMAN:",
    "Human:",
    "human:",
    "Falcon:",
    "Bot:",
    "BOT:",
    "AI:",
    "Instruct:",
    "Question:\n",
    "Answer:\n",
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
        ']' => text.starts_with("]~") || text.starts_with("]<]") || is_listed(text),
        '>' => (text.starts_with(">>") && is_listed(text)) || (at_line_start && is_line(text)),
        '✿' | '◁' => is_listed(text),
        _ => at_line_start && (is_line(text) || is_role_line(text) || is_marker(text, true)),
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
    if CASED_TAGS.iter().any(|it| text.starts_with(it)) {
        return true;
    }
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
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':' | '-')))
            .unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        let label = name.strip_suffix(':').unwrap_or(name);
        after.starts_with(['>', ' ', '=', '/'])
            && (TAGS.contains(&label)
                || has_prefix(name, TAG_PREFIXES)
                || (after.starts_with('>') && (BARE_TAGS.contains(&label) || is_numbered(name))))
    } else {
        let end = name.find(']').unwrap_or(0);
        BRACKETS.contains(&&name[..end]) || has_prefix(name, BRACKET_PREFIXES)
    }
}

fn has_prefix(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a name is one of [`NUMBERED_TAGS`] and a number.
fn is_numbered(name: &str) -> bool {
    let number = |prefix: &&str| name.strip_prefix(*prefix);
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    NUMBERED_TAGS.iter().filter_map(number).any(is_number)
}

/// Whether a role is next, in the letters of its template.
fn is_role_line(text: &str) -> bool {
    let begins = |label: &&str| {
        let mut chars = text.chars().map(fold);
        label.chars().all(|wanted| chars.next() == Some(wanted))
    };
    ROLE_LINES.iter().any(begins)
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
        '：' => ':',
        c => c,
    }
}
