//! The catalogue of messages says what the code says.

use std::{fs, path::Path};

use maru_docs::doc_page;

use super::ROOT;

#[test]
fn every_message_of_the_catalogue_is_in_the_code() {
    let mut code = String::new();
    read_code(&Path::new(ROOT).join("src"), &mut code);
    read_code(&Path::new(ROOT).join("crates"), &mut code);
    let page = doc_page("errors").unwrap().text;
    let (_, catalogue) = page.split_once("\n## Messages\n").unwrap();
    let messages = catalogue.lines().filter_map(|it| it.strip_prefix("| `"));
    let messages: Vec<&str> = messages.filter_map(|it| it.split('`').next()).collect();
    assert!(messages.len() > 60, "{messages:?}");
    let unknown: Vec<&str> = messages
        .into_iter()
        .filter(|it| !it.split('…').all(|part| code.contains(part.trim())))
        .collect();
    assert!(unknown.is_empty(), "the code has no {unknown:#?}");
}

/// Reads the Rust files below `directory`, with texts as they are printed: without escaped
/// quotes and line ends.
fn read_code(directory: &Path, code: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_code(&path, code);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut lines = text.split("\\\n");
            code.push_str(&lines.next().unwrap_or_default().replace("\\\"", "\""));
            for line in lines {
                code.push_str(&line.trim_start().replace("\\\"", "\""));
            }
        }
    }
}
