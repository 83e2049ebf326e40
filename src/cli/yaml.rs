//! Reads and writes YAML files.

use anyhow::{Result, anyhow, bail};
use saphyr::{Mapping, Scalar, Yaml, YamlEmitter};
use serde_json::Value;

use crate::config::parse_yaml;

/// Parses the first document of `text`.
pub(super) fn read(text: &str) -> Result<Value> {
    parse_yaml(text).map_err(|reason| anyhow!(reason))
}

/// Writes one document, with multi-line texts as blocks.
pub(super) fn write(value: &Value) -> Result<String> {
    let mut text = String::new();
    let mut emitter = YamlEmitter::new(&mut text);
    emitter.multiline(true);
    emitter.dump(&to_yaml(value)?)?;
    let text = text.strip_prefix("---\n").unwrap_or(&text).trim_end();
    Ok(format!("{text}\n"))
}

fn to_yaml(value: &Value) -> Result<Yaml<'_>> {
    Ok(match value {
        Value::Null => Yaml::Value(Scalar::Null),
        Value::Bool(it) => Yaml::Value(Scalar::Boolean(*it)),
        Value::Number(number) => Yaml::Value(match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Scalar::Integer(whole),
            (None, Some(number)) => Scalar::FloatingPoint(number.into()),
            (None, None) => bail!("the number {number} cannot be written"),
        }),
        Value::String(text) => Yaml::Value(Scalar::String(text.as_str().into())),
        Value::Array(items) => Yaml::Sequence(items.iter().map(to_yaml).collect::<Result<_>>()?),
        Value::Object(members) => {
            let mut mapping = Mapping::new();
            for (name, it) in members {
                mapping.insert(
                    Yaml::Value(Scalar::String(name.as_str().into())),
                    to_yaml(it)?,
                );
            }
            Yaml::Mapping(mapping)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_back() {
        let texts = [
            "SELECT *\nFROM t\nWHERE a = :a",
            "SELECT 1\n",
            "  a\n b",
            "a: b # c",
            "true",
            "123",
            "",
            "가나\n다\t라",
            "x\n\n\n",
            "'{{x}}' ${Y} \"q\" \\",
            "\u{1}\u{a0}\r\n",
        ];
        let value = json!({"tools": [
            {"definition": texts, "n": 1.5, "i": -3, "b": true, "none": null, "empty": {}, "list": []},
        ]});
        let text = write(&value).unwrap();
        assert_eq!(read(&text).unwrap(), value, "{text}");
        assert!(text.contains("|-\n"), "{text}");
    }
}
