//! Support for the key prefix `arc.reactor.`, which the documents of another hub use for
//! the same keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::file::{ConfigTree, FileError};

const ARC_REACTOR_STEPS: [&str; 2] = ["arc", "reactor"];

/// A value under the prefix that is moved to the root.
struct PrefixedValue {
    /// The path from the root; a dotted key is several steps.
    steps: Vec<String>,
    /// The pointer of the value in the file.
    pointer: String,
    value: Value,
}

/// Moves the values under the prefix to the same keys without it.
pub(super) fn move_prefixed_to_root(tree: &mut ConfigTree) -> Result<(), FileError> {
    let Value::Object(root) = &mut tree.value else {
        return Ok(());
    };
    let is_prefixed = |key: &&String| key.split('.').next() == Some(ARC_REACTOR_STEPS[0]);
    let keys: Vec<String> = root.keys().filter(is_prefixed).cloned().collect();
    for key in keys {
        let prefixed = PrefixedValue {
            steps: key.split('.').map(str::to_owned).collect(),
            pointer: format!("/{key}"),
            value: root.remove(&key).unwrap_or_default(),
        };
        move_to_root(root, &mut tree.lines, prefixed)?;
    }
    Ok(())
}

fn move_to_root(
    root: &mut Map<String, Value>,
    lines: &mut HashMap<String, usize>,
    prefixed: PrefixedValue,
) -> Result<(), FileError> {
    let PrefixedValue {
        steps,
        pointer,
        value,
    } = prefixed;
    let line = lines.get(&pointer).copied().unwrap_or(1);
    let file_error = |reason: String| FileError { line, reason };
    if steps
        .iter()
        .zip(ARC_REACTOR_STEPS)
        .any(|(step, expected)| step != expected)
    {
        return Err(file_error(format!(
            "unknown key \"{}\"; did you mean \"arc.reactor\"?",
            steps.join(".")
        )));
    }
    if let Some(target) = steps
        .get(ARC_REACTOR_STEPS.len()..)
        .filter(|it| !it.is_empty())
    {
        if !insert_at(root, target, value) {
            return Err(file_error(format!("{} is set twice", target.join("."))));
        }
        move_lines(lines, &pointer, &format!("/{}", target.join("/")));
        return Ok(());
    }
    let Value::Object(members) = value else {
        return Err(file_error(format!("{} must be a mapping", steps.join("."))));
    };
    for (key, value) in members {
        let mut steps = steps.clone();
        steps.extend(key.split('.').map(str::to_owned));
        let pointer = format!("{pointer}/{key}");
        move_to_root(
            root,
            lines,
            PrefixedValue {
                steps,
                pointer,
                value,
            },
        )?;
    }
    Ok(())
}

/// Inserts `value` at the path `steps` and merges objects; false if a value is there.
fn insert_at(parent: &mut Map<String, Value>, steps: &[String], value: Value) -> bool {
    let [first, rest @ ..] = steps else {
        return false;
    };
    if !rest.is_empty() {
        let child = parent
            .entry(first)
            .or_insert_with(|| Value::Object(Map::new()));
        return match child {
            Value::Object(child) => insert_at(child, rest, value),
            _ => false,
        };
    }
    match (parent.get_mut(first), value) {
        (None, value) => {
            parent.insert(first.clone(), value);
            true
        }
        (Some(Value::Object(child)), Value::Object(members)) => members
            .into_iter()
            .all(|(key, value)| insert_at(child, &[key], value)),
        _ => false,
    }
}

fn move_lines(lines: &mut HashMap<String, usize>, from: &str, to: &str) {
    let descendants = format!("{from}/");
    let pointers: Vec<String> = lines
        .keys()
        .filter(|it| *it == from || it.starts_with(&descendants))
        .cloned()
        .collect();
    for pointer in pointers {
        if let Some(line) = lines.remove(&pointer) {
            lines.insert(format!("{to}{}", &pointer[from.len()..]), line);
        }
    }
}
