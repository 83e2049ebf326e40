//! The dialects, as data: what opens a frame, what closes it, what it holds.

use FrameBody::{Gemma, Header, Json, KeyValueTags, Python, QwenAgent, ReactAction, Script, Tags};

/// What can stand in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameBody {
    /// JSON values.
    Json,
    /// A call as python, or several.
    Python,
    /// Like the variant above, between tags that are not tokens of a model.
    Script,
    /// Tags: calls, and in them one tag per parameter.
    Tags,
    /// The tool's name, then tags for keys and values, or JSON.
    KeyValueTags,
    /// The tool's name between separators, then its arguments.
    Header,
    /// `call:⟨n⟩{…}` with quotes that are tokens.
    Gemma,
    /// Labelled lines after `Action:`.
    ReactAction,
    /// Labelled lines of Qwen-Agent.
    QwenAgent,
}

/// Where a marker may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkerPlacement {
    Anywhere,
    /// First on its line.
    LineStart,
    /// First in the message.
    MessageStart,
}

/// What a marker means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkerRole {
    /// Opens a frame; the row of [`FRAMES`].
    FrameOpener(usize),
    /// Opens reasoning; the row of [`REASONING_TAGS`].
    ReasoningOpener(usize),
    /// Closes reasoning.
    ReasoningCloser(usize),
    /// Leads a message: role, channel and recipient follow.
    MessageHeader,
    /// Means nothing; dropped beside a frame and at the end.
    ControlToken,
    /// Structure of a message; always dropped.
    StructuralToken,
}

/// One kind of frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameSyntax {
    pub(super) dialect: &'static str,
    pub(super) opener: &'static str,
    pub(super) closers: &'static [&'static str],
    pub(super) bodies: &'static [FrameBody],
    pub(super) placement: MarkerPlacement,
    /// The opener is itself the first tag of the body.
    pub(super) body_includes_opener: bool,
}

const fn frame(
    dialect: &'static str,
    opener: &'static str,
    closers: &'static [&'static str],
    bodies: &'static [FrameBody],
) -> FrameSyntax {
    FrameSyntax {
        dialect,
        opener,
        closers,
        bodies,
        placement: MarkerPlacement::Anywhere,
        body_includes_opener: false,
    }
}

/// A call tag that stands without a frame around it.
const fn unframed_tag(dialect: &'static str, opener: &'static str) -> FrameSyntax {
    FrameSyntax {
        body_includes_opener: true,
        ..frame(dialect, opener, &[], &[Tags])
    }
}

/// A frame whose opening tag carries the tool's name.
const fn named_frame(opener: &'static str, closers: &'static [&'static str]) -> FrameSyntax {
    FrameSyntax {
        body_includes_opener: true,
        ..frame("hermes", opener, closers, &[Tags])
    }
}

const fn at_line_start(frame: FrameSyntax) -> FrameSyntax {
    FrameSyntax {
        placement: MarkerPlacement::LineStart,
        ..frame
    }
}

/// Every frame. Patterns are those of [`super::marker::match_length`].
pub(super) const FRAMES: &[FrameSyntax] = &[
    frame(
        "hermes",
        "<tool_call+>",
        &["</tool_call+>"],
        &[Json, Tags, Python, KeyValueTags],
    ),
    frame(
        "hermes",
        "<longcat_tool_call>",
        &["</longcat_tool_call>"],
        &[Json, Tags, KeyValueTags],
    ),
    frame("hermes", "<tools>", &["</tools>"], &[Json]),
    frame("hermes", "<tool>", &["</tool>"], &[Json]),
    frame("hermes", "<tool_use>", &["</tool_use>"], &[Json, Tags]),
    named_frame("<tool_call ", &["</tool_call>"]),
    named_frame("<function_call ", &["</function_call>"]),
    named_frame("<tool ", &["</tool>"]),
    named_frame("<tool_use ", &["</tool_use>"]),
    frame(
        "seed_oss",
        "<seed:tool_call>",
        &["</seed:tool_call>"],
        &[Tags, Json],
    ),
    frame("tool_calls", "<tool_calls+>", &["</tool_calls+>"], &[Json]),
    frame("mistral", "[TOOL_CALLS]", &[], &[Json, Header]),
    frame(
        "lmstudio",
        "[TOOL_REQUEST]",
        &["[END_TOOL_REQUEST]"],
        &[Json],
    ),
    frame(
        "llama3",
        "<|python_tag|>",
        &["<|eom_id|>", "<|eot_id|>"],
        &[Json, Python],
    ),
    frame(
        "pythonic",
        "<|python_start|>",
        &["<|python_end|>"],
        &[Python, Json],
    ),
    frame(
        "lfm2",
        "<|tool_call_start|>",
        &["<|tool_call_end|>"],
        &[Python, Json],
    ),
    frame(
        "claude_xml",
        "<function_calls>",
        &["</function_calls>"],
        &[Tags, Python, Json],
    ),
    frame(
        "claude_xml",
        "<antml:function_calls>",
        &["</antml:function_calls>"],
        &[Tags],
    ),
    frame("granite", "<function_call>", &["</function_call>"], &[Json]),
    frame(
        "granite",
        "<|tool_call|>",
        &["<|/tool_call|>", "</tool_call>"],
        &[Json],
    ),
    frame("sarashina", "<|tool_calls|>", &["<|/tool_calls|>"], &[Json]),
    frame("nemotron", "<TOOLCALL>", &["</TOOLCALL>"], &[Json]),
    frame("cohere", "<|START_ACTION|>", &["<|END_ACTION|>"], &[Json]),
    frame(
        "internlm",
        "<|action_start|>~<|plugin|>",
        &["<|action_end|>"],
        &[Json],
    ),
    frame(
        "internlm",
        "<|action_start|>~<|interpreter|>",
        &["<|action_end|>"],
        &[Json],
    ),
    frame(
        "apertus",
        "<|tools_prefix|>",
        &["<|tools_suffix|>"],
        &[Json],
    ),
    frame("gigachat3", "<|function_call|>", &[], &[Json]),
    frame(
        "gigachat3",
        "<|message_sep|>~function call<|role_sep|>",
        &["<|message_sep|>"],
        &[Json],
    ),
    at_line_start(frame(
        "gigachat3",
        "function call<|role_sep|>",
        &["<|message_sep|>"],
        &[Json],
    )),
    frame(
        "hyperclova_x",
        "<|im_start|>assistant -> tool/function_call",
        &["<|im_end|>"],
        &[Json],
    ),
    at_line_start(frame(
        "hyperclova_x",
        "-> tool/function_call",
        &["<|im_end|>"],
        &[Json],
    )),
    frame("functionary", "<|recipient|>", &["<|stop|>"], &[Header]),
    at_line_start(frame("functools", "functools", &[], &[Json])),
    frame(
        "inkling",
        "<|content_invoke_tool_json|>",
        &["<|end_message|>"],
        &[Json],
    ),
    frame(
        "dots",
        "<dots_function_call>",
        &["</dots_function_call>"],
        &[Tags, Json],
    ),
    frame(
        "functiongemma",
        "<start_function_call>",
        &["<end_function_call>"],
        &[Gemma],
    ),
    frame(
        "gemma4",
        "<|tool_call>",
        &["<tool_call|>", "<|tool_call|>"],
        &[Gemma],
    ),
    FrameSyntax {
        body_includes_opener: true,
        ..at_line_start(frame(
            "gemma4",
            "call:",
            &["<tool_call|>", "<end_function_call>"],
            &[Gemma],
        ))
    },
    frame(
        "deepseek_v3",
        "<|tool_call_begin|>",
        &["<|tool_call_end|>"],
        &[Header],
    ),
    frame(
        "deepseek_v3",
        "<|tool_calls_begin|>",
        &["<|tool_calls_end|>"],
        &[Header],
    ),
    frame(
        "solar",
        "<|tool_call:begin|>",
        &["<|tool_call:end|>"],
        &[Header],
    ),
    at_line_start(frame("functionary", ">>>", &[], &[Header])),
    frame(
        "deepseek_dsml",
        "<|DSML|~function_calls>",
        &["</|DSML|~function_calls>"],
        &[Tags],
    ),
    frame(
        "deepseek_dsml",
        "<|DSML|~tool_calls>",
        &["</|DSML|~tool_calls>"],
        &[Tags],
    ),
    frame(
        "deepseek_dsml",
        "<|DSML|~calls>",
        &["</|DSML|~calls>"],
        &[Tags],
    ),
    unframed_tag("deepseek_dsml", "<|DSML|~invoke"),
    frame(
        "minimax",
        "<minimax:tool_call>",
        &["</minimax:tool_call>"],
        &[Tags, Json],
    ),
    frame(
        "minimax_m3",
        "]<]minimax[>[<tool_call>",
        &["]<]minimax[>[</tool_call>"],
        &[Tags],
    ),
    unframed_tag("minimax_m3", "]<]minimax[>[<invoke"),
    frame(
        "kimi_k3",
        "<|open|>tools<|sep|>",
        &["<|close|>tools<|sep|>"],
        &[Tags],
    ),
    unframed_tag("kimi_k3", "<|open|>call "),
    frame(
        "step3",
        "<steptml:tool_calls>",
        &["</steptml:tool_calls>"],
        &[Tags],
    ),
    unframed_tag("step3", "<steptml:invoke"),
    frame(
        "atem",
        "<atem:function_calls>",
        &["</atem:function_calls>"],
        &[Tags],
    ),
    unframed_tag("atem", "<atem:invoke"),
    unframed_tag("qwen3_xml", "<function="),
    unframed_tag("minicpm5", "<function name="),
    unframed_tag("claude_xml", "<invoke name="),
    unframed_tag("claude_xml", "<antml:invoke name="),
    unframed_tag("claude_legacy", "<invoke>"),
    at_line_start(frame("tool_code", "<code>", &["</code>"], &[Script])),
    frame("qwen_agent", "✿FUNCTION✿", &[], &[QwenAgent]),
    at_line_start(frame("react", "Action:", &[], &[ReactAction])),
    at_line_start(frame("react", "**Action:**", &[], &[ReactAction])),
];

/// Reasoning frames: what opens and what closes them.
pub(super) const REASONING_TAGS: &[(&str, &str)] = &[
    ("<think+>", "</think+>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|thought_start|>", "<|thought_end|>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("◁think▷", "◁/think▷"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("<|content_thinking|>", "<|end_message|>"),
    // HyperCLOVA X: the role of the turn, of which the prompt holds the first half.
    ("/think\n", "<|im_end|>"),
];

/// What leads a message of a dialect that addresses its messages.
pub(super) const MESSAGE_HEADERS: &[(&str, MarkerPlacement)] = &[
    ("<|start|>", MarkerPlacement::Anywhere),
    ("<|channel|>", MarkerPlacement::Anywhere),
    ("to=", MarkerPlacement::MessageStart),
    ("assistant to=", MarkerPlacement::MessageStart),
    ("assistant<|channel|>", MarkerPlacement::MessageStart),
];

/// What ends such a message.
pub(super) const MESSAGE_ENDS: &[&str] = &[
    "<|call|>",
    "<|end|>",
    "<|return|>",
    "<|eom|>",
    "<|eot|>",
    "<|start|>",
];

/// Tokens that leak into text.
pub(super) const CONTROL_TOKENS: &[&str] = &[
    "<|im_end|>",
    "<|im_start|>assistant",
    "<start_of_turn>model",
    "<|start_header_id|>assistant<|end_header_id|>",
    "<|header_start|>assistant<|header_end|>",
    "<|im_start|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eom|>",
    "<|eot|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|message|>",
    "<|constrain|>",
    "</s>",
    "<s>",
    "<eos>",
    "<bos>",
    "<end_of_turn>",
    "<start_of_turn>",
    "<turn|>",
    "<|turn>",
    "<|tool_response>",
    "<|end_of_sentence|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|END_RESPONSE|>",
    "<|END_TEXT|>",
    "<|end_of_msg|>",
    "<|end_of_text|>",
    "<|message_sep|>",
    "<|role_sep|>",
    "<|end_message|>",
    "<|close|>message<|sep|>",
    "<|close|>response<|sep|>",
    "<|end_of_role|>",
    "<|tool_calls_end|>",
    "<|tool_calls_section_end|>",
    "<|assistant_end|>",
    "<|eos|>",
    "<|from|>assistant",
    "<|stop|>",
    "<|endofturn|>",
    "[|endofturn|]",
    "<|observation|>",
    "<|user|>",
    "<start_function_response>",
    "<longcat_s>",
    "</longcat_s>",
    "[/TOOL_CALLS]",
    "[END FINAL RESPONSE]",
    "<response>",
    "</response>",
    "</function>",
    "</invoke>",
    "</parameter>",
    "✿RESULT✿",
];

/// Tokens that only structure a message.
pub(super) const STRUCTURAL_TOKENS: &[&str] = &[
    "<|tool_calls_section_begin|>",
    "<|START_RESPONSE|>",
    "<|START_TEXT|>",
    "<|open|>response<|sep|>",
    "<|open|>message<|sep|>",
    "<|message_model|>",
    "<|content_text|>",
    "<|recipient|>all~<|content|>",
];

/// Text with which a model begins to invent the result of its own call.
pub(super) const HALLUCINATED_RESULT_MARKERS: &[&str] = &[
    "Observation",
    "[Tool Result",
    "[Tool result",
    "[TOOL_RESULT",
    "[tool_result",
    "Tool Result:",
    "Tool result:",
    "Tool Output:",
    "Tool output:",
    "Function Result:",
    "<tool_response>",
    "<tool_result",
    "<tool_output>",
    "<function_result",
    "<function_response>",
    "<|tool_response|>",
    "<|tool_output",
    "```tool_output",
    "```tool_result",
    "```output",
    "✿RESULT✿",
    "✿RETURN✿",
    "<|im_start|>user",
    "<|im_start|>tool",
    "<start_of_turn>user",
    "관찰:",
    "[도구 결과",
];
