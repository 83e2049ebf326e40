//! Reading `maru.yaml`: a tree of values that knows its lines.

use std::{collections::HashMap, path::Path};

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use serde_json::{Map, Value};

use super::{layers::EnvironmentVariables, prefix, schema};

/// The file as values, and the line that each pointer stands on.
#[derive(Debug, Default)]
pub(super) struct ConfigTree {
    pub(super) value: Value,
    pub(super) lines: HashMap<String, usize>,
}

/// What is wrong with the file, and where.
#[derive(Debug)]
pub(super) struct FileError {
    pub(super) line: usize,
    pub(super) why: String,
}

/// Reads the text of a file; `${NAME}` is replaced from `environment`.
pub(super) fn parse_config(
    text: &str,
    environment: &EnvironmentVariables,
) -> Result<ConfigTree, FileError> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| FileError {
        line: error.marker().line(),
        why: format!("not valid YAML: {}", error.info()),
    })?;
    let mut tree = ConfigTree {
        value: Value::Object(Map::new()),
        lines: HashMap::new(),
    };
    if let Some(root) = documents.first() {
        let value = YamlConverter {
            lines: &mut tree.lines,
            environment,
        }
        .value(root, "")?;
        // An empty file, or one with comments only, sets nothing.
        if !value.is_null() {
            tree.value = value;
        }
        prefix::move_prefixed_to_root(&mut tree)?;
    }
    Ok(tree)
}

/// Whether others may change the file and so decide what maru does.
pub(super) fn is_world_writable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0)
}

struct YamlConverter<'a> {
    lines: &'a mut HashMap<String, usize>,
    environment: &'a EnvironmentVariables,
}

impl YamlConverter<'_> {
    fn value(&mut self, node: &MarkedYaml<'_>, pointer: &str) -> Result<Value, FileError> {
        let line = node.span.start.line();
        self.lines.entry(pointer.to_owned()).or_insert(line);
        let wrong = |why: String| FileError { line, why };
        match &node.data {
            YamlData::Value(scalar) => self.scalar(scalar, pointer).map_err(wrong),
            YamlData::Sequence(items) => items
                .iter()
                .enumerate()
                .map(|(at, item)| self.value(item, &format!("{pointer}/{at}")))
                .collect(),
            YamlData::Mapping(members) => {
                let mut out = Map::new();
                for (name, value) in members {
                    let Some(name_text) = name.data.as_str() else {
                        return Err(wrong("a key must be text".to_owned()));
                    };
                    let inner = format!("{pointer}/{name_text}");
                    self.lines.insert(inner.clone(), name.span.start.line());
                    out.insert(name_text.to_owned(), self.value(value, &inner)?);
                }
                Ok(Value::Object(out))
            }
            _ => Err(wrong(
                "only plain values, lists and keys are understood here".to_owned(),
            )),
        }
    }

    fn scalar(&self, scalar: &Scalar<'_>, pointer: &str) -> Result<Value, String> {
        Ok(match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(it) => Value::from(*it),
            Scalar::Integer(it) => Value::from(*it),
            Scalar::FloatingPoint(it) => Value::from(it.into_inner()),
            Scalar::String(text) if text.contains("${") => schema::coerce_text(
                unprefixed(pointer),
                &expand_variables(text, self.environment)?,
            ),
            Scalar::String(text) => Value::from(text.as_ref()),
        })
    }
}

/// Where a value under the nested form of the prefix belongs.
fn unprefixed(pointer: &str) -> &str {
    match pointer.strip_prefix("/arc/reactor") {
        Some(rest) if rest.starts_with('/') => rest,
        _ => pointer,
    }
}

/// Replaces `${NAME}`, `${NAME:-default}` and `${file:/path}`.
fn expand_variables(text: &str, environment: &EnvironmentVariables) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let Some(end) = rest[start..].find('}') else {
            return Err(format!("\"{text}\" has \"${{\" without \"}}\""));
        };
        let inner = &rest[start + 2..start + end];
        if let Some(path) = inner.strip_prefix("file:") {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read the file {path}: {}", error.kind()))?;
            out.push_str(text.trim_end_matches(['\n', '\r']));
            rest = &rest[start + end + 1..];
            continue;
        }
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let value = environment
            .get(name)
            .map(|(value, _)| value.as_str())
            .or(default);
        out.push_str(value.ok_or_else(|| {
            format!(
                "the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        })?);
        rest = &rest[start + end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}
