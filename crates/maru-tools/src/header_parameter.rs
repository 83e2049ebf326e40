//! Parameters that 2026-07-28 mirrors in headers, so that proxies can use them without
//! reading the body.

use serde_json::Value;

/// A parameter and its header, without the prefix `Mcp-Param-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParameter {
    /// Name of the parameter.
    pub parameter: String,
    /// Name of the header.
    pub header: String,
}

/// The mirrored parameters of a tool's input schema.
pub fn parse_header_parameters(schema: &Value) -> Result<Vec<HeaderParameter>, String> {
    let mut found: Vec<HeaderParameter> = Vec::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let Some(header) = property.get("x-mcp-header") else {
            continue;
        };
        let header = header.as_str().unwrap_or_default();
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let plain = matches!(
            property["type"].as_str(),
            Some("string" | "integer" | "boolean")
        );
        let taken = found
            .iter()
            .any(|it| it.header.eq_ignore_ascii_case(header));
        if header.is_empty() || !header.bytes().all(token) || !plain || taken {
            return Err(format!(
                "the x-mcp-header of its parameter {name:?} is not valid"
            ));
        }
        found.push(HeaderParameter {
            parameter: name.clone(),
            header: header.to_owned(),
        });
    }
    Ok(found)
}

impl HeaderParameter {
    /// The value of the header for these arguments; `None` for a missing argument.
    pub fn header_value(&self, arguments: &Value) -> Option<String> {
        match arguments.get(&self.parameter)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// Whether a header with the value `sent` agrees with the arguments.
    pub fn matches_header(&self, sent: Option<&str>, arguments: &Value) -> bool {
        let Some(value) = self.header_value(arguments) else {
            return true;
        };
        let number = |text: &str| text.parse::<f64>().ok();
        if arguments[&self.parameter].is_number() {
            sent.and_then(number) == number(&value)
        } else {
            sent == Some(&value)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn header_and_argument_must_agree() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
        }});
        let [region, count] = &parse_header_parameters(&schema).unwrap()[..] else {
            panic!("two")
        };
        let arguments = json!({"region": "서울", "count": 7});
        assert!(region.matches_header(Some("서울"), &arguments));
        assert!(
            !region.matches_header(Some("부산"), &arguments)
                && !region.matches_header(None, &arguments)
        );
        assert!(
            count.matches_header(Some("7"), &arguments)
                && count.matches_header(Some("7.0"), &arguments)
        );
        assert!(!count.matches_header(Some("8"), &arguments));
        assert!(region.matches_header(None, &json!({"region": null})));
    }
}
