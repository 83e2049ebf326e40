//! Why a call failed, as text: from the result of the tool, or our own message.

use serde_json::Value;

use crate::journal::{CallRecord, ToolCallOutcome, mask_secrets};

/// The error of a call that failed, masked.
pub fn error_text(record: &CallRecord) -> Option<String> {
    if !record.outcome.is_error() {
        return None;
    }
    let result = &*record.result;
    let text = match serde_json::from_str::<Value>(result) {
        Ok(parsed) => content_text(&parsed),
        // The record keeps only the beginning of a long result.
        Err(_) => first_text(result),
    };
    let text = text.unwrap_or_else(|| result.to_owned());
    let text = error_member(&text).unwrap_or(text);
    let text = match text.trim() {
        "" if record.outcome == ToolCallOutcome::Failed => "the tool gave no reason",
        "" => return None,
        text => text,
    };
    Some(mask_secrets(text))
}

/// All texts of the content of a result.
fn content_text(result: &Value) -> Option<String> {
    let content = result.get("content")?.as_array()?;
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|it| it["text"].as_str())
        .collect();
    Some(texts.join("\n"))
}

/// The reason in a text that is a JSON object, as maru's own tools return it.
fn error_member(text: &str) -> Option<String> {
    let parsed: Value = serde_json::from_str(text).ok()?;
    let reason = ["error", "message"]
        .iter()
        .find_map(|it| parsed[*it].as_str());
    reason.map(str::to_owned)
}

/// The first text of a truncated result, as far as it is kept.
fn first_text(result: &str) -> Option<String> {
    let (_, rest) = result.split_once("\"text\":")?;
    let rest = rest.trim_start().strip_prefix('"')?;
    let end = end_of_string(rest);
    let kept = &rest[..end];
    // The last escape may be truncated, at most by the length of `\uXXXX\uXXXX`.
    let ends = (0..12).filter_map(|cut| kept.get(..kept.len().checked_sub(cut)?));
    let mut parsed = ends.filter_map(|it| serde_json::from_str(&format!("\"{it}\"")).ok());
    parsed.next()
}

/// The position of the quote that ends a JSON string, or the end of the text.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return at,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::journal::{CallRequest, RequestId};

    fn check(outcome: ToolCallOutcome, result: &str, expected: Option<&str>) {
        let record = CallRecord {
            id: 1,
            ended_at: 0,
            request: CallRequest {
                tool: "t".into(),
                server: "s".into(),
                principal: "p".into(),
                client: None,
                remote_ip: None,
                request_id: RequestId::next(),
                arguments: "{}".into(),
            },
            outcome,
            duration: Duration::ZERO,
            server_duration: Duration::ZERO,
            argument_bytes: 0,
            result_bytes: 0,
            result: result.into(),
        };
        assert_eq!(error_text(&record).as_deref(), expected, "{result}");
    }

    #[test]
    fn error_is_the_text_of_the_result() {
        use ToolCallOutcome::{Cancelled, Failed, Ok, Refused};
        let result = r#"{"content":[{"type":"text","text":"no such \"table\""},{"type":"image","data":""},{"type":"text","text":"(users)"}],"isError":true}"#;
        check(Ok, result, None);
        check(Cancelled, "", None);
        check(Failed, result, Some("no such \"table\"\n(users)"));
        check(Failed, &result[..50], Some("no such \"table"));
        check(
            Failed,
            r#"{"content":[],"isError":true}"#,
            Some("the tool gave no reason"),
        );
        let own = r#"{"content":[{"type":"text","text":"{\"success\":false,\"error\":\"no such id\"}"}]}"#;
        check(Failed, own, Some("no such id"));
        check(Refused, "Unknown tool: x", Some("Unknown tool: x"));
        check(
            Failed,
            r#"{"content":[{"type":"text","text":"cut \u00e"#,
            Some("cut"),
        );
        check(
            Refused,
            "password=s3cret1234 is wrong",
            Some("password=*** is wrong"),
        );
    }
}
