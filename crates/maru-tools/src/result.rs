//! Results of tools, prompts and resources: received and parsed once, or built here.

mod limits;

use std::fmt::Write as _;

use maru_protocol::{object_members, push_json_string, remove_members};
use serde::Serialize;
use serde_json::{Value, json};

pub use limits::ResultLimits;

/// A result as it is sent to a client, and what the hub needs to know about it. The JSON is
/// parsed once, when the result arrives; no code searches it again.
#[derive(Clone, Debug)]
pub struct EntryResult {
    /// An object without `resultType`.
    json: String,
    status: ResultStatus,
    structure: StructuredContent,
}

/// How a call ended, according to its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultStatus {
    /// The tool succeeded.
    Success,
    /// The tool reports an error (`isError`).
    ToolError,
    /// The tool's server could not be reached.
    ServerUnavailable,
}

/// The type of a result's `structuredContent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructuredContent {
    /// The result has none.
    Absent,
    /// An object, which every client accepts.
    Object,
    /// Any other value, which only clients of 2026-07-28 accept.
    Other,
}

/// The form in which maru reports that a call failed. It fits the output schema of the tool,
/// because clients validate structured content even if the call failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureFormat {
    /// `{"success": false, "error": message}` as text and as structured content.
    #[default]
    SuccessFlag,
    /// `{"success": false, "error": message}` as text only.
    TextOnly,
    /// `{"status": "error", "message": message}` as text and as structured content.
    StatusObject,
}

impl EntryResult {
    /// Parses a result, a JSON object that was validated when it arrived.
    pub fn parse(json: String) -> Self {
        let (mut is_error, mut structure) = (None, None);
        for (name, raw) in object_members(&json).into_iter().flatten() {
            match &*name {
                "isError" => is_error = Some(raw),
                "structuredContent" => structure = Some(raw),
                _ => (),
            }
        }
        let (status, structure) = (
            ResultStatus::from_member(is_error),
            StructuredContent::from_member(structure),
        );
        Self {
            json,
            status,
            structure,
        }
    }

    /// A result whose members were parsed already.
    pub fn from_parts(json: String, status: ResultStatus, structure: StructuredContent) -> Self {
        Self {
            json,
            status,
            structure,
        }
    }

    /// `value` as structured content and as text.
    pub fn structured(value: &impl Serialize) -> Self {
        let json = serde_json::to_string(value).expect("our own values are JSON");
        Self::text_and_structure(&json, &json)
    }

    /// A failed call, in the default format.
    pub fn failure(message: &str) -> Self {
        Self::failure_in(FailureFormat::SuccessFlag, message)
    }

    /// A failed call, in the format of its tool.
    pub fn failure_in(format: FailureFormat, message: &str) -> Self {
        let json = match format {
            FailureFormat::SuccessFlag | FailureFormat::TextOnly => {
                json!({"success": false, "error": message})
            }
            FailureFormat::StatusObject => json!({"status": "error", "message": message}),
        };
        let json = json.to_string();
        let structure = (format != FailureFormat::TextOnly).then_some(json.as_str());
        Self::write(&json, structure, ResultStatus::ToolError)
    }

    /// A failed call without `isError`: the tool reports the error in its value, which is
    /// JSON. The hub still counts it as failed.
    pub fn reported_failure(json: &str) -> Self {
        Self {
            status: ResultStatus::ToolError,
            ..Self::text_and_structure(json, json)
        }
    }

    /// A failed call of a tool whose server could not be reached.
    pub fn server_unavailable(server: &str, reason: &str) -> Self {
        Self {
            status: ResultStatus::ServerUnavailable,
            ..Self::failure(&format!("server {server} did not answer: {reason}"))
        }
    }

    /// A successful call with this text and this structured content, which is JSON.
    pub fn text_and_structure(text: &str, structure: &str) -> Self {
        Self::write(text, Some(structure), ResultStatus::Success)
    }

    /// A successful call with this text, and this JSON as `result` of the structured
    /// content.
    pub fn text_and_value(text: &str, json: &str) -> Self {
        Self::text_and_structure(text, &format!("{{\"result\":{json}}}"))
    }

    /// The result without its structured content, which becomes text if the result has no
    /// other content.
    #[must_use]
    pub fn without_structure(self) -> Self {
        if self.structure == StructuredContent::Absent {
            return self;
        }
        let json = if self.has_content() {
            remove_members(&self.json, &["structuredContent"]).into_owned()
        } else {
            self.with_structure_as_text()
        };
        Self {
            json,
            status: self.status,
            structure: StructuredContent::Absent,
        }
    }

    /// The result with another spelling of its JSON; its status and whether it has structured
    /// content stay the same.
    #[must_use]
    pub fn map_json(self, write: impl FnOnce(&str) -> String) -> Self {
        Self {
            json: write(&self.json),
            ..self
        }
    }

    fn has_content(&self) -> bool {
        let content = self.member("content");
        content.is_some_and(|raw| {
            !raw.trim_matches(['[', ']', ' ', '\n', '\r', '\t'])
                .is_empty()
        })
    }

    fn with_structure_as_text(&self) -> String {
        let structure = self.member("structuredContent").unwrap_or("null");
        let content = json!([{"type": "text", "text": structure}]);
        let rest = remove_members(&self.json, &["structuredContent", "content"]);
        let rest = rest.trim().trim_start_matches('{');
        let comma = if rest.trim_start().starts_with('}') {
            ""
        } else {
            ","
        };
        format!("{{\"content\":{content}{comma}{rest}")
    }

    /// The raw JSON of a member.
    fn member(&self, wanted: &str) -> Option<&str> {
        let mut members = object_members(&self.json)?;
        members.find_map(|(name, raw)| (name == wanted).then_some(raw))
    }

    fn write(text: &str, structure: Option<&str>, status: ResultStatus) -> Self {
        let size = text.len() + text.len() / 4 + structure.map_or(0, str::len) + 128;
        let mut json = String::with_capacity(size);
        json.push_str("{\"content\":[{\"type\":\"text\",\"text\":");
        push_json_string(&mut json, text);
        json.push_str("}]");
        if let Some(structure) = structure {
            json.push_str(",\"structuredContent\":");
            json.push_str(structure);
        }
        let _ = write!(json, ",\"isError\":{}}}", status != ResultStatus::Success);
        Self {
            json,
            status,
            structure: StructuredContent::from_member(structure),
        }
    }

    /// The JSON object.
    pub fn as_json(&self) -> &str {
        &self.json
    }

    /// The JSON object, by value.
    pub fn into_json(self) -> String {
        self.json
    }

    /// How the call ended.
    pub fn status(&self) -> ResultStatus {
        self.status
    }

    /// Whether the call failed.
    pub fn is_error(&self) -> bool {
        self.status != ResultStatus::Success
    }

    /// The type of its structured content.
    pub fn structure(&self) -> StructuredContent {
        self.structure
    }

    /// The result as plain text.
    pub fn to_text(&self) -> String {
        let value: Value = serde_json::from_str(&self.json).unwrap_or_default();
        let parts: Vec<String> = value["content"]
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .map(content_text)
            .collect();
        if parts.is_empty() && !value["structuredContent"].is_null() {
            return value["structuredContent"].to_string();
        }
        parts.join("\n")
    }

    /// The result as plain text of at most `limit` characters; a note says how much was cut.
    pub fn to_text_within(&self, limit: usize) -> String {
        let mut text = self.to_text();
        limits::truncate_text(&mut text, limit);
        text
    }
}

impl From<Value> for EntryResult {
    fn from(value: Value) -> Self {
        Self::parse(value.to_string())
    }
}

impl ResultStatus {
    /// From the raw JSON of the member `isError`.
    pub fn from_member(is_error: Option<&str>) -> Self {
        if is_error == Some("true") {
            Self::ToolError
        } else {
            Self::Success
        }
    }
}

impl StructuredContent {
    /// From the raw JSON of the member `structuredContent`.
    pub fn from_member(raw: Option<&str>) -> Self {
        match raw {
            None => Self::Absent,
            Some(raw) if raw.starts_with('{') => Self::Object,
            Some(_) => Self::Other,
        }
    }
}

fn content_text(content: &Value) -> String {
    let member = |name: &str| content[name].as_str().unwrap_or("unknown");
    match content["type"].as_str() {
        Some("text") => content["text"].as_str().unwrap_or_default().to_owned(),
        Some("image") => format!("[Image: {}]", member("mimeType")),
        Some("audio") => format!("[Audio: {}]", member("mimeType")),
        Some("resource_link") => format!("[Resource: {}]", member("uri")),
        Some("resource") => {
            let resource = &content["resource"];
            let uri = resource["uri"].as_str().unwrap_or("unknown");
            format!("[Resource: {uri}]")
        }
        _ => content.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_and_text_say_the_same() {
        let value = json!({"success": true, "result": ["가", "a\"\\\n\u{1}"]});
        let made = EntryResult::structured(&value);
        let result: Value = serde_json::from_str(made.as_json()).unwrap();
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        assert_eq!(result["isError"], false);
    }

    #[test]
    fn only_the_members_of_the_result_itself_decide() {
        let check = |json: &str, status, structure| {
            let result = EntryResult::parse(json.to_owned());
            assert_eq!(
                (result.status(), result.structure()),
                (status, structure),
                "{json}"
            );
        };
        check(
            r#"{"content": [], "structuredContent": {"isError": true}}"#,
            ResultStatus::Success,
            StructuredContent::Object,
        );
        check(
            r#"{"content":[{"type":"text","text":"\"isError\":true"}]}"#,
            ResultStatus::Success,
            StructuredContent::Absent,
        );
        check(
            r#"{ "isError" : true , "structuredContent" : [1] }"#,
            ResultStatus::ToolError,
            StructuredContent::Other,
        );
        check(
            r#"{"content":[{"type":"text","text":"server x did not answer: y"}],"isError":true}"#,
            ResultStatus::ToolError,
            StructuredContent::Absent,
        );
    }

    #[test]
    fn what_is_made_here_is_known_as_if_it_were_parsed() {
        for made in [
            EntryResult::structured(&json!({"a": 1})),
            EntryResult::failure("why"),
            EntryResult::failure_in(FailureFormat::TextOnly, "why"),
            EntryResult::failure_in(FailureFormat::StatusObject, "why"),
            EntryResult::text_and_value("x", "[1]"),
        ] {
            let parsed = EntryResult::parse(made.as_json().to_owned());
            assert_eq!(parsed.status(), made.status());
            assert_eq!(parsed.structure(), made.structure());
        }
    }

    #[test]
    fn structure_is_taken_out_and_kept_as_text_where_there_is_no_other() {
        let check = |json: &str, expected: &str| {
            let result = EntryResult::parse(json.to_owned()).without_structure();
            assert_eq!(result.as_json(), expected);
            assert_eq!(result.structure(), StructuredContent::Absent);
        };
        check(
            r#"{"content":[{"type":"text","text":"a"}],"structuredContent":{"a":1},"isError":false}"#,
            r#"{"content":[{"type":"text","text":"a"}],"isError":false}"#,
        );
        let text = r#"{"content":[{"type":"text","text":"{\"a\":1}"}]"#;
        for empty in [r#""content":[ ],"#, ""] {
            check(
                &format!(r#"{{{empty}"structuredContent":{{"a":1}},"_meta":{{}}}}"#),
                &format!(r#"{text},"_meta":{{}}}}"#),
            );
            check(
                &format!(r#"{{{empty}"structuredContent":{{"a":1}}}}"#),
                &format!("{text}}}"),
            );
        }
    }

    #[test]
    fn reader_of_text_is_told_how_much_is_missing() {
        let long = json!({"content": [{"type": "text", "text": "가".repeat(300)}]});
        let long = EntryResult::from(long);
        let text = long.to_text_within(100);
        let expected = format!(
            "{}\n[cut: 51 of 300 characters shown; ask for less]",
            "가".repeat(51)
        );
        assert_eq!(text, expected);
        assert_eq!(text.chars().count(), 99);
        assert_eq!(long.to_text_within(300), "가".repeat(300));
    }

    #[test]
    fn content_of_every_kind_has_a_text() {
        let result = json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "mimeType": "image/png", "data": ""},
            {"type": "resource", "resource": {"uri": "x://y"}},
        ]});
        assert_eq!(
            EntryResult::from(result).to_text(),
            "a\n[Image: image/png]\n[Resource: x://y]"
        );
    }
}
