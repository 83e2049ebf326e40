//! Parses `maru.yaml` into values with their line numbers.

use maru_runtime::{
    files::{file_error_reason, read_text_file},
    permissions::mode_of,
};
use std::{collections::HashMap, path::Path};

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use serde_json::{Map, Value};

use super::{layers::EnvironmentVariables, prefix, schema};

/// The values of the file, and the line of each by its pointer.
#[derive(Debug, Default)]
pub(super) struct ConfigTree {
    pub(super) value: Value,
    pub(super) lines: HashMap<String, usize>,
}

/// Why the file cannot be used, with the line of the error.
#[derive(Debug)]
pub(super) struct FileError {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// Parses the text of a file and replaces `${NAME}` by the variables of `environment`.
pub(super) fn parse_config(
    text: &str,
    environment: &EnvironmentVariables,
) -> Result<ConfigTree, FileError> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| FileError {
        line: error.marker().line(),
        reason: format!("not valid YAML: {}", error.info()),
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
        .convert(root, "")?;
        // An empty file, or one with comments only, sets nothing.
        if !value.is_null() {
            tree.value = value;
        }
        prefix::move_prefixed_to_root(&mut tree)?;
    }
    Ok(tree)
}

/// Whether every user of this machine may change the file, and so control maru.
pub(super) fn is_world_writable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|it| mode_of(&it) & 0o002 != 0)
}

struct YamlConverter<'a> {
    lines: &'a mut HashMap<String, usize>,
    environment: &'a EnvironmentVariables,
}

impl YamlConverter<'_> {
    fn convert(&mut self, node: &MarkedYaml<'_>, pointer: &str) -> Result<Value, FileError> {
        let line = node.span.start.line();
        self.lines.entry(pointer.to_owned()).or_insert(line);
        let file_error = |reason: String| FileError { line, reason };
        match &node.data {
            YamlData::Value(scalar) => self.convert_scalar(scalar, pointer).map_err(file_error),
            YamlData::Sequence(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.convert(item, &format!("{pointer}/{index}")))
                .collect(),
            YamlData::Mapping(members) => {
                let mut object = Map::new();
                for (key, value) in members {
                    let Some(name) = key.data.as_str() else {
                        return Err(file_error("a key must be text".to_owned()));
                    };
                    let pointer = format!("{pointer}/{name}");
                    self.lines.insert(pointer.clone(), key.span.start.line());
                    object.insert(name.to_owned(), self.convert(value, &pointer)?);
                }
                Ok(Value::Object(object))
            }
            _ => Err(file_error(
                "only plain values, lists and mappings are supported here".to_owned(),
            )),
        }
    }

    fn convert_scalar(&self, scalar: &Scalar<'_>, pointer: &str) -> Result<Value, String> {
        Ok(match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(it) => Value::from(*it),
            Scalar::Integer(it) => Value::from(*it),
            Scalar::FloatingPoint(it) => Value::from(it.into_inner()),
            Scalar::String(text) if text.contains("${") => schema::coerce_text(
                strip_prefix(pointer),
                &expand_variables(text, self.environment)?,
            ),
            Scalar::String(text) => Value::from(text.as_ref()),
        })
    }
}

/// The pointer without the nested prefix `arc: reactor:`.
fn strip_prefix(pointer: &str) -> &str {
    match pointer.strip_prefix("/arc/reactor") {
        Some(rest) if rest.starts_with('/') => rest,
        _ => pointer,
    }
}

/// Replaces `${NAME}`, `${NAME:-default}` and `${file:/path}`.
fn expand_variables(text: &str, environment: &EnvironmentVariables) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((reference, after)) = after.split_once('}') else {
            return Err(format!("\"{text}\" has \"${{\" without \"}}\""));
        };
        expanded.push_str(before);
        expanded.push_str(&resolve_reference(reference, environment)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn resolve_reference(
    reference: &str,
    environment: &EnvironmentVariables,
) -> Result<String, String> {
    if let Some(path) = reference.strip_prefix("file:") {
        let text = read_text_file(Path::new(path)).map_err(|error| {
            format!("cannot read the file {path}: {}", file_error_reason(&error))
        })?;
        return Ok(text.trim_end_matches(['\n', '\r']).to_owned());
    }
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let value = environment.get(name).map(|(value, _)| value.as_str());
    let value = value.or(default).ok_or_else(|| {
        format!("the environment variable {name} is not set; set it, or write ${{{name}:-default}}")
    })?;
    Ok(value.to_owned())
}
