//! Rules of this code base that neither the compiler nor clippy checks.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

const MAX_LINES: usize = 550;
/// How many of a hundred type names may be a single word.
const MAX_ONE_WORD_PERCENT: usize = 15;

#[test]
fn files_stay_readable() {
    let mut long = Vec::new();
    for (path, text) in sources() {
        let lines = shipped(&text).lines().count();
        if MAX_LINES < lines {
            long.push(format!(
                "{}: {lines} lines before its tests",
                path.display()
            ));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// A type is found by its name alone. Errors are called `Error` in every module.
#[test]
fn every_type_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (path, text) in sources() {
        for name in shipped(&text).lines().filter_map(defined_type) {
            places
                .entry(name.to_owned())
                .or_default()
                .push(path.clone());
        }
    }
    let shared: Vec<String> = places
        .iter()
        .filter(|(name, places)| *name != "Error" && places.len() > 1)
        .map(|(name, places)| format!("{name}: {places:?}"))
        .collect();
    assert!(shared.is_empty(), "{}", shared.join("\n"));
    let one_word: Vec<&String> = places
        .keys()
        .filter(|name| name.chars().filter(char::is_ascii_uppercase).count() == 1)
        .collect();
    assert!(
        one_word.len() * 100 <= places.len() * MAX_ONE_WORD_PERCENT,
        "{} of {} type names are one word: {one_word:?}",
        one_word.len(),
        places.len()
    );
}

#[test]
fn definitions_of_types_are_found() {
    let check = |line, expected| assert_eq!(defined_type(line), expected, "{line}");
    check("pub struct Catalog {", Some("Catalog"));
    check("    pub(super) enum ToolKind {", Some("ToolKind"));
    check("trait Dialect: Send {", Some("Dialect"));
    check("            struct Local;", None);
    check("    structure: String,", None);
}

/// The methods of a type stand where a reader looks for them: in the file that defines
/// it, or in a child module of that file. `Store` has one `impl` per table.
#[test]
fn methods_stand_in_the_file_of_their_type() {
    let sources = sources();
    let mut places: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for (path, text) in &sources {
        for name in shipped(text).lines().filter_map(defined_type) {
            places.entry(name).or_default().push(path);
        }
    }
    let mut misplaced = Vec::new();
    for (path, text) in &sources {
        for name in shipped(text).lines().filter_map(implemented_type) {
            let definitions = places.get(name).map(Vec::as_slice).unwrap_or_default();
            if name != "Store" && !definitions.iter().any(|it| is_file_or_child(path, it)) {
                misplaced.push(format!(
                    "{}: impl {name}, defined in {definitions:?}",
                    path.display()
                ));
            }
        }
    }
    assert!(misplaced.is_empty(), "{}", misplaced.join("\n"));
}

#[test]
fn inherent_implementations_are_found() {
    let check = |line, expected| assert_eq!(implemented_type(line), expected, "{line}");
    check("impl Catalog {", Some("Catalog"));
    check("impl<'a> HubRoute<'a> {", Some("HubRoute"));
    check(
        "impl<T: Fn(u8) -> Vec<u8>> Decoder<T> where",
        Some("Decoder"),
    );
    check("impl fmt::Display for Hazard {", None);
    check("impl<T> From<T> for Hazard {", None);
    check("implement(", None);
}

/// The name of the type whose own methods begin at this line.
fn implemented_type(line: &str) -> Option<&str> {
    let mut text = line.strip_prefix("impl")?;
    if text.starts_with('<') {
        let mut depth = 0;
        let mut previous = ' ';
        let end = text.find(|c| {
            depth += match c {
                '<' => 1,
                '>' if previous != '-' => -1,
                _ => 0,
            };
            previous = c;
            depth == 0
        })?;
        text = &text[end + 1..];
    }
    let text = text.strip_prefix(' ')?;
    if text.contains(" for ") || text.ends_with(" for") {
        return None;
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(&text[..end])
}

/// Whether `path` is `file`, or below its folder: `parser.rs` and `parser/*.rs`. The
/// folder of a crate's `lib.rs` is the one it is in.
fn is_file_or_child(path: &Path, file: &Path) -> bool {
    let folder = if file.file_name() == Some(OsStr::new("lib.rs")) {
        file.with_file_name("")
    } else {
        file.with_extension("")
    };
    path == file || path.starts_with(folder)
}

/// The name of the type that a line defines, unless it is inside a function.
fn defined_type(line: &str) -> Option<&str> {
    let text = line.trim_start();
    if line.len() - text.len() > 4 {
        return None;
    }
    let text = match text.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => text,
    };
    let keywords = ["struct ", "enum ", "trait "];
    let rest = keywords.iter().find_map(|it| text.strip_prefix(it))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// The file up to its test module.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// Every source file of the binary and its crates, without their tests.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut queue = vec![root.join("src"), root.join("crates")];
    while let Some(directory) = queue.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
            let is_test = stem == "tests";
            // What other systems have instead of a file of the same name.
            let is_stand_in = stem.ends_with("_unsupported") || stem.ends_with("_windows");
            if path.is_dir() {
                if !is_test {
                    queue.push(path);
                }
            } else if path.extension().is_some_and(|it| it == "rs") && !is_test && !is_stand_in {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}
