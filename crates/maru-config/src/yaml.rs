//! Reads YAML as JSON, for files that are no settings.

use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::Value;

/// Parses the first document of `text`; an error says what is wrong with it. Aliases are
/// copied, so text of others must not have them: see [`has_yaml_aliases`].
pub fn parse_yaml(text: &str) -> Result<Value, String> {
    let documents =
        Yaml::load_from_str(text).map_err(|error| format!("not valid YAML: {error}"))?;
    documents.first().map_or(Ok(Value::Null), to_json)
}

/// Whether `text` may refer to its own parts, with which some lines become gigabytes.
pub fn has_yaml_aliases(text: &str) -> bool {
    let names = |sign: char| {
        let mut before = '\n';
        text.chars()
            .zip(text.chars().skip(1))
            .any(|(letter, next)| {
                let begins =
                    before.is_whitespace() || matches!(before, '[' | '{' | ',' | ':' | '-');
                before = letter;
                begins && letter == sign && (next.is_alphanumeric() || next == '_')
            })
    };
    names('&') && names('*')
}

fn to_json(node: &Yaml<'_>) -> Result<Value, String> {
    Ok(match node {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(it)) => Value::from(*it),
        Yaml::Value(Scalar::Integer(it)) => Value::from(*it),
        Yaml::Value(Scalar::FloatingPoint(it)) => Value::from(it.into_inner()),
        Yaml::Value(Scalar::String(it)) => Value::from(it.as_ref()),
        Yaml::Sequence(items) => items.iter().map(to_json).collect::<Result<_, _>>()?,
        Yaml::Mapping(members) => {
            let members = members.iter().map(|(name, it)| match name.as_str() {
                Some(name) => Ok((name.to_owned(), to_json(it)?)),
                None => Err("a key must be text".to_owned()),
            });
            Value::Object(members.collect::<Result<_, String>>()?)
        }
        _ => return Err("only plain values, lists and mappings are supported here".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_seen_before_they_are_copied() {
        assert!(has_yaml_aliases("a: &x [1, 1]\nb: [*x, *x]"));
        assert!(has_yaml_aliases("- &x 1\n- *x"));
        for harmless in [
            "a: 2 * 3 & 4",
            "a: count(*)",
            "- '*'\n- R&D",
            "a: **bold** &c",
            "* a",
        ] {
            assert!(!has_yaml_aliases(harmless), "{harmless}");
        }
        let read = parse_yaml("maru: 1\nmodels:\n  - name: \"*\"\n").unwrap();
        assert_eq!(read["models"][0]["name"], "*");
        assert!(parse_yaml("a: [").is_err());
    }
}
