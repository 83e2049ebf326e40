//! Masks the secrets in the body of a change.

use serde_json::Value;

use maru_config::{MASK, mask_arguments, mask_secrets};

/// Members whose values are all secrets.
const SECRET_OBJECTS: [&str; 4] = ["auth", "env", "headers", "redirect_url"];

/// `body` with its secrets masked. A body that is not JSON is left out.
pub fn redact_body(body: &[u8]) -> String {
    match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            mask_members(&mut value, false);
            mask_secrets(&value.to_string())
        }
        Err(_) if body.is_empty() => String::new(),
        Err(_) => "(not JSON)".to_owned(),
    }
}

/// Recursion is bounded, because the JSON parser limits the depth.
fn mask_members(value: &mut Value, secret: bool) {
    match value {
        Value::Object(members) => {
            for (name, it) in members {
                mask_members(it, secret || SECRET_OBJECTS.contains(&name.as_str()));
            }
        }
        Value::Array(items) if secret => items.iter_mut().for_each(|it| mask_members(it, true)),
        Value::Array(items) => match as_strings(items) {
            Some(texts) => {
                *items = mask_arguments(&texts)
                    .into_iter()
                    .map(Value::from)
                    .collect();
            }
            None => items.iter_mut().for_each(|it| mask_members(it, false)),
        },
        other if secret => *other = MASK.into(),
        _ => (),
    }
}

/// The items, if all of them are strings, as the arguments of a program are.
fn as_strings(items: &[Value]) -> Option<Vec<String>> {
    let text = |it: &Value| it.as_str().map(str::to_owned);
    items.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_and_headers_are_masked_whatever_their_names() {
        let body = br#"{"name":"fx","config":{"env":{"X":"s3cret"},"headers":{"Y":["s3cret"]},"args":["a"]},"password":"s3cret"}"#;
        let expected = r#"{"name":"fx","config":{"env":{"X":"***"},"headers":{"Y":["***"]},"args":["a"]},"password":"***"}"#;
        assert_eq!(redact_body(body), expected);
        assert_eq!(redact_body(b"s3cret"), "(not JSON)");
        assert_eq!(redact_body(b""), "");
    }
}
