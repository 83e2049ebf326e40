//! The body of a change without its secrets.

use serde_json::Value;

use crate::config::{MASK, masked, masked_arguments};

/// Objects whose values are secrets whatever they are called.
const SECRET: [&str; 2] = ["env", "headers"];

/// `body` as it may be written down. What is no JSON is not.
pub fn redacted(body: &[u8]) -> String {
    match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            hide(&mut value, false);
            masked(&value.to_string())
        }
        Err(_) if body.is_empty() => String::new(),
        Err(_) => "(not JSON)".to_owned(),
    }
}

/// The reader of JSON bounds its depth.
fn hide(value: &mut Value, secret: bool) {
    match value {
        Value::Object(members) => {
            for (name, it) in members {
                hide(it, secret || SECRET.contains(&name.as_str()));
            }
        }
        Value::Array(items) if secret => items.iter_mut().for_each(|it| hide(it, true)),
        Value::Array(items) => match texts(items) {
            Some(texts) => {
                *items = masked_arguments(&texts)
                    .into_iter()
                    .map(Value::from)
                    .collect();
            }
            None => items.iter_mut().for_each(|it| hide(it, false)),
        },
        other if secret => *other = MASK.into(),
        _ => (),
    }
}

/// The items, if all of them are texts, as the arguments of a program are.
fn texts(items: &[Value]) -> Option<Vec<String>> {
    let text = |it: &Value| it.as_str().map(str::to_owned);
    items.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_servers_are_hidden_whatever_they_are_called() {
        let body = br#"{"name":"fx","config":{"env":{"X":"s3cret"},"headers":{"Y":["s3cret"]},"args":["a"]},"password":"s3cret"}"#;
        let expected = r#"{"name":"fx","config":{"env":{"X":"***"},"headers":{"Y":["***"]},"args":["a"]},"password":"***"}"#;
        assert_eq!(redacted(body), expected);
        assert_eq!(redacted(b"s3cret"), "(not JSON)");
        assert_eq!(redacted(b""), "");
    }
}
