//! House rules that the compiler does not know.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Rooms, low to high. A room may use itself and rooms before it.
const MODULES_LOW_TO_HIGH: &[&str] = &[
    "clock",
    "tasks",
    "lanes",
    "queue",
    "config",
    "mcp",
    "expression",
    "outbound",
    "store",
    "access",
    "source",
    "retrieval",
    "journal",
    "audit",
    "telemetry",
    "tool",
    "upstream",
    "dialect",
    "llm",
    "downstream",
    "agent",
    "api",
    "app",
    "cli",
];
const MAX_FILE_LINES: usize = 500;

#[test]
fn rooms_only_use_rooms_below_them() {
    let mut wrong = Vec::new();
    for (path, text) in source_files() {
        let Some(here) = module_rank(&path) else {
            continue;
        };
        for used in modules_used(without_tests(&text)) {
            if MODULES_LOW_TO_HIGH
                .iter()
                .skip(here + 1)
                .any(|room| *room == used)
            {
                wrong.push(format!("{} uses `{used}`", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_stay_readable() {
    let mut long = Vec::new();
    for (path, text) in source_files() {
        let lines = without_tests(&text).lines().count();
        if MAX_FILE_LINES < lines {
            long.push(format!(
                "{}: {lines} lines before its tests",
                path.display()
            ));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn grouped_and_plain_imports_are_both_seen() {
    let text = "use crate::{agent::{A, B}, tool};\nlet x = crate::llm::ask();";
    assert_eq!(modules_used(text), ["agent", "tool", "llm"]);
}

/// First path segment after every `crate::`, grouped imports included.
fn modules_used(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for rest in text.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => found.push(leading_identifier(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut start = 0;
                for (at, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth > 0 => depth -= 1,
                        ',' | '}' if depth == 0 => {
                            found.push(leading_identifier(group[start..at].trim_start()));
                            start = at + 1;
                            if c == '}' {
                                break;
                            }
                        }
                        _ => (),
                    }
                }
            }
        }
    }
    found.retain(|room| !room.is_empty());
    found
}

fn leading_identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The file up to its test module.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn module_rank(path: &Path) -> Option<usize> {
    let relative = path.strip_prefix(source_root()).ok()?;
    let first = relative.iter().next()?.to_str()?.trim_end_matches(".rs");
    MODULES_LOW_TO_HIGH.iter().position(|room| *room == first)
}

fn source_files() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut queue = vec![source_root()];
    while let Some(dir) = queue.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                queue.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

fn source_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")
}
