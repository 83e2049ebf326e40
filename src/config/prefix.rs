//! `arc.reactor.`: the prefix under which another hub's documents put the same keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::file::{ConfigTree, FileError};

const ARC_REACTOR_STEPS: [&str; 2] = ["arc", "reactor"];

/// A value on its way from under the prefix to the root.
struct PrefixedValue {
    /// The keys from the root to it; those that are written with dots are several.
    steps: Vec<String>,
    /// Where it stands in the file.
    pointer: String,
    value: Value,
}

/// Moves what stands under the prefix to where it belongs.
pub(super) fn move_prefixed_to_root(tree: &mut ConfigTree) -> Result<(), FileError> {
    let Value::Object(root) = &mut tree.value else {
        return Ok(());
    };
    let is_prefixed = |key: &&String| key.split('.').next() == Some(ARC_REACTOR_STEPS[0]);
    let keys: Vec<String> = root.keys().filter(is_prefixed).cloned().collect();
    for key in keys {
        let moved = PrefixedValue {
            steps: key.split('.').map(str::to_owned).collect(),
            pointer: format!("/{key}"),
            value: root.remove(&key).unwrap_or_default(),
        };
        move_to_root(root, &mut tree.lines, moved)?;
    }
    Ok(())
}

fn move_to_root(
    root: &mut Map<String, Value>,
    lines: &mut HashMap<String, usize>,
    moved: PrefixedValue,
) -> Result<(), FileError> {
    let PrefixedValue {
        steps,
        pointer,
        value,
    } = moved;
    let wrong = |lines: &HashMap<String, usize>, why: String| FileError {
        line: lines.get(&pointer).copied().unwrap_or(1),
        why,
    };
    if steps
        .iter()
        .zip(ARC_REACTOR_STEPS)
        .any(|(step, wanted)| step != wanted)
    {
        let why = format!(
            "unknown key \"{}\"; did you mean \"arc.reactor\"?",
            steps.join(".")
        );
        return Err(wrong(lines, why));
    }
    if let Some(target) = steps
        .get(ARC_REACTOR_STEPS.len()..)
        .filter(|it| !it.is_empty())
    {
        let to = format!("/{}", target.join("/"));
        if !insert_at(root, target, value) {
            let why = format!("{} is set a second time here", target.join("."));
            return Err(wrong(lines, why));
        }
        move_lines(lines, &pointer, &to);
        return Ok(());
    }
    let Value::Object(members) = value else {
        let why = format!("{} must hold keys", steps.join("."));
        return Err(wrong(lines, why));
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

/// Puts `value` at `steps`; false if something else is there.
fn insert_at(here: &mut Map<String, Value>, steps: &[String], value: Value) -> bool {
    let [first, rest @ ..] = steps else {
        return false;
    };
    if !rest.is_empty() {
        let inner = here
            .entry(first)
            .or_insert_with(|| Value::Object(Map::new()));
        return match inner {
            Value::Object(inner) => insert_at(inner, rest, value),
            _ => false,
        };
    }
    match (here.get_mut(first), value) {
        (None, value) => {
            here.insert(first.clone(), value);
            true
        }
        (Some(Value::Object(_)), Value::Object(members)) => {
            let mut deeper = [first.clone(), String::new()];
            members.into_iter().all(|(key, value)| {
                deeper[1] = key;
                insert_at(here, &deeper, value)
            })
        }
        _ => false,
    }
}

fn move_lines(lines: &mut HashMap<String, usize>, from: &str, to: &str) {
    let inner = format!("{from}/");
    let moved: Vec<String> = lines
        .keys()
        .filter(|it| *it == from || it.starts_with(&inner))
        .cloned()
        .collect();
    for old in moved {
        if let Some(line) = lines.remove(&old) {
            lines.insert(format!("{to}{}", &old[from.len()..]), line);
        }
    }
}
