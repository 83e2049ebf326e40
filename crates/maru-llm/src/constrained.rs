//! Output constrained to a JSON Schema of maru, so that even a very small model
//! writes a call that can be parsed.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{ChatTool, ToolChoice};

/// Constrained output, parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConstrainedOutput {
    Answer(String),
    /// A call; the arguments are JSON text.
    Call {
        name: String,
        arguments: String,
    },
}

/// JSON Schema of the output: one object per tool, and one for an answer unless
/// the model must call.
pub(super) fn output_schema(tools: &[ChatTool], choice: &ToolChoice) -> Value {
    let wanted = tools.iter().filter(|it| match choice {
        ToolChoice::Named(name) => *name == it.name,
        _ => true,
    });
    let mut forms: Vec<Value> = wanted.map(call).collect();
    if *choice == ToolChoice::Auto {
        forms.push(object(&[("answer", json!({"type": "string"}))]));
    }
    match forms.len() {
        1 => forms.swap_remove(0),
        _ => json!({"anyOf": forms}),
    }
}

fn call(tool: &ChatTool) -> Value {
    let mut arguments = tool.parameters.clone();
    if arguments.get("type").is_none() {
        arguments = json!({"type": "object"});
    }
    let name = json!({"type": "string", "enum": [tool.name]});
    object(&[("name", name), ("arguments", arguments)])
}

fn object(members: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let members: serde_json::Map<String, Value> = members
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    json!({"type": "object", "properties": members, "required": names, "additionalProperties": false})
}

/// Parses output in our form; `None` if it is in another.
pub(super) fn parse_output(text: &str) -> Option<ConstrainedOutput> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OutputMembers<'a> {
        answer: Option<String>,
        name: Option<String>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let form: OutputMembers<'_> = serde_json::from_str(text.trim()).ok()?;
    match (form.answer, form.name, form.arguments) {
        (Some(answer), None, None) => Some(ConstrainedOutput::Answer(answer)),
        (None, Some(name), Some(arguments)) => Some(ConstrainedOutput::Call {
            name,
            arguments: arguments.get().to_owned(),
        }),
        _ => None,
    }
}

/// Reads constrained output while it arrives: an answer is streamed, a call is held.
#[derive(Debug, Default)]
pub(super) struct ConstrainedReader {
    /// Everything so far, unless it is an answer.
    held: String,
    form: OutputForm,
}

/// What the next piece of output is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConstrainedPiece {
    /// Nothing as yet.
    Held,
    /// Text of an answer, decoded.
    Answer(String),
    /// JSON of a call, as it was written.
    Call(String),
    /// The backend did not constrain its output: everything so far. The reader is done.
    Free(String),
}

#[derive(Debug, Default)]
enum OutputForm {
    #[default]
    Undecided,
    Answer(StringDecoder),
    Call,
}

impl ConstrainedReader {
    /// Adds the next piece of output.
    pub(super) fn push(&mut self, text: &str) -> ConstrainedPiece {
        match &mut self.form {
            OutputForm::Undecided => {
                self.held.push_str(text);
                self.decide()
            }
            OutputForm::Answer(decoder) => answer_piece(decoder.push(text)),
            OutputForm::Call => {
                self.held.push_str(text);
                ConstrainedPiece::Call(text.to_owned())
            }
        }
    }

    /// How many bytes were not handed out.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// What was not handed out.
    pub(super) fn into_held(self) -> String {
        self.held
    }

    fn decide(&mut self) -> ConstrainedPiece {
        let answer = match_tokens(&self.held, &["{", "\"answer\"", ":", "\""]);
        let call = match_tokens(&self.held, &["{", "\"name\""]);
        match (answer, call) {
            (TokenMatch::Whole(end), _) => {
                let mut decoder = StringDecoder::default();
                let text = decoder.push(&self.held[end..]);
                self.held.clear();
                self.form = OutputForm::Answer(decoder);
                answer_piece(text)
            }
            (_, TokenMatch::Whole(_)) => {
                self.form = OutputForm::Call;
                ConstrainedPiece::Call(self.held.clone())
            }
            (TokenMatch::Prefix, _) | (_, TokenMatch::Prefix) => ConstrainedPiece::Held,
            (TokenMatch::None, TokenMatch::None) => {
                ConstrainedPiece::Free(std::mem::take(&mut self.held))
            }
        }
    }
}

fn answer_piece(text: String) -> ConstrainedPiece {
    if text.is_empty() {
        ConstrainedPiece::Held
    } else {
        ConstrainedPiece::Answer(text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenMatch {
    /// Up to this many bytes.
    Whole(usize),
    /// More text may make it whole.
    Prefix,
    None,
}

/// Whether `text` begins with `tokens`, with any space before each of them.
fn match_tokens(text: &str, tokens: &[&str]) -> TokenMatch {
    let mut rest = text;
    for token in tokens {
        rest = rest.trim_start();
        match rest.strip_prefix(token) {
            Some(after) => rest = after,
            None if token.starts_with(rest) => return TokenMatch::Prefix,
            None => return TokenMatch::None,
        }
    }
    TokenMatch::Whole(text.len() - rest.len())
}

/// Decodes the rest of a JSON string that arrives in pieces.
#[derive(Debug, Default)]
struct StringDecoder {
    /// An escape sequence that is not complete.
    escape: String,
    has_ended: bool,
}

impl StringDecoder {
    fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                _ if self.has_ended => break,
                c if !self.escape.is_empty() || c == '\\' => {
                    self.escape.push(c);
                    self.decode_escape(&mut out);
                }
                '"' => self.has_ended = true,
                c => out.push(c),
            }
        }
        out
    }

    fn decode_escape(&mut self, out: &mut String) {
        let escape = self.escape.as_bytes();
        let whole = match (escape.get(1), escape.get(2..4)) {
            (None, _) => return,
            (Some(b'u'), None) => return,
            // The first half of a character beyond the basic plane.
            (Some(b'u'), Some([b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B'])) => 12,
            (Some(b'u'), Some(_)) => 6,
            (Some(_), _) => 2,
        };
        if escape.len() < whole {
            return;
        }
        match serde_json::from_str::<String>(&format!("\"{}\"", self.escape)) {
            Ok(decoded) => out.push_str(&decoded),
            Err(_) => out.push_str(self.escape.trim_start_matches('\\')),
        }
        self.escape.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ChatTool {
        ChatTool {
            name: name.to_owned(),
            prompt_name: None,
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
            other: serde_json::Map::new(),
        }
    }

    #[test]
    fn a_model_that_must_call_cannot_answer() {
        let tools = [tool("one"), tool("two")];
        let free = output_schema(&tools, &ToolChoice::Auto);
        assert_eq!(free["anyOf"].as_array().unwrap().len(), 3);
        assert_eq!(free["anyOf"][2]["required"], json!(["answer"]));
        let must = output_schema(&tools, &ToolChoice::Required);
        assert_eq!(must["anyOf"].as_array().unwrap().len(), 2);
        let named = output_schema(&tools, &ToolChoice::Named("two".to_owned()));
        assert_eq!(named["properties"]["name"]["enum"], json!(["two"]));
    }

    /// What is handed out, in pieces of one character and whole.
    fn check_pieces(output: &str, answer: &str, held: &str, free: &str) {
        let one_by_one: Vec<String> = output.chars().map(String::from).collect();
        for pieces in [one_by_one, vec![output.to_owned()]] {
            let mut reader = ConstrainedReader::default();
            let (mut said, mut called, mut rest) = (String::new(), String::new(), String::new());
            for piece in &pieces {
                if !rest.is_empty() {
                    rest.push_str(piece);
                    continue;
                }
                match reader.push(piece) {
                    ConstrainedPiece::Held => (),
                    ConstrainedPiece::Answer(text) => said.push_str(&text),
                    ConstrainedPiece::Call(text) => called.push_str(&text),
                    ConstrainedPiece::Free(text) => rest = text,
                }
            }
            assert_eq!((said.as_str(), rest.as_str()), (answer, free), "{output}");
            assert!(called.is_empty() || called == output, "{output}");
            assert_eq!(reader.into_held(), held, "{output}");
        }
    }

    #[test]
    fn answer_is_streamed_and_a_call_is_held() {
        check_pieces(
            r#" { "answer" : "a\n\"b\" \uac00\ud83d\ude00" } "#,
            "a\n\"b\" 가😀",
            "",
            "",
        );
        check_pieces(r#"{"answer":"cut of"#, "cut of", "", "");
        check_pieces(r#"{"name":"one","ar"#, "", r#"{"name":"one","ar"#, "");
        check_pieces(r#"{"an"#, "", r#"{"an"#, "");
        check_pieces("Free words.", "", "", "Free words.");
        check_pieces(r#"{"other":1}"#, "", "", r#"{"other":1}"#);
    }

    #[test]
    fn only_our_own_form_is_parsed() {
        assert_eq!(
            parse_output(r#" {"answer":"hi\n"} "#),
            Some(ConstrainedOutput::Answer("hi\n".to_owned()))
        );
        assert_eq!(
            parse_output(r#"{"name":"one","arguments":{"a":1}}"#),
            Some(ConstrainedOutput::Call {
                name: "one".to_owned(),
                arguments: r#"{"a":1}"#.to_owned()
            })
        );
        for other in [
            "",
            "hi",
            "{}",
            r#"{"answer":1}"#,
            r#"{"name":"x"}"#,
            r#"{"answer":"a"#,
        ] {
            assert_eq!(parse_output(other), None, "{other}");
        }
    }
}
