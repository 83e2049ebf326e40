//! Documents that must say what the code does.

mod messages;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use maru_docs::{CodeBlock, code_blocks, doc_page, doc_pages};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::{http_client::TestRequest, signals::ServeProcess, test_hub::TestHub};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The address that commands and output in the documents have.
const DEFAULT_ADDRESS: &str = "127.0.0.1:20006";

#[test]
fn references_are_what_maru_prints() {
    for (path, printed) in [
        ("docs/config.md", maru::config::reference_markdown()),
        ("docs/commands.md", maru::cli::reference_markdown()),
    ] {
        let written = fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_default();
        assert!(written == printed, "{path} is out of date; run `make docs`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documentation_is_served_without_token_and_script() {
    let hub = TestHub::with_config(|config| config.require_token = true).await;
    let get = async |path: &str| TestRequest::new(&hub.address, "GET", path).send().await;
    for page in doc_pages() {
        let path = match page.path {
            "index" => "/docs".to_owned(),
            path => format!("/docs/{path}"),
        };
        let reply = get(&path).await;
        assert_eq!(reply.status, 200, "{path}");
        let policy = reply.headers["content-security-policy"].clone();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'self'"),
            "{policy}"
        );
        let text = reply.text().await;
        assert!(text.contains(page.title()), "{path}");
        assert!(
            !text.contains("<script") && !text.contains("style="),
            "{path}"
        );
    }
    let found = get("/docs/search?q=oauth%20issuer").await.text().await;
    assert!(
        found.contains("href=\"/docs/security#oauth-21\""),
        "{found}"
    );
    for (path, expected) in [
        ("/docs/", 200),
        ("/docs/files/style.css", 200),
        ("/docs/files/console-servers.png", 200),
        ("/docs/files/..%2f..%2fCargo.toml", 404),
        ("/docs/no-such-page", 404),
        ("/docs/../api/tokens", 404),
    ] {
        assert_eq!(get(path).await.status, expected, "{path}");
    }
}

#[test]
fn every_link_of_the_pages_resolves() {
    let mut dead = BTreeSet::new();
    for page in doc_pages() {
        let html = page.html();
        for link in attributes(html, "href").chain(attributes(html, "src")) {
            if !is_alive(page.path, link) {
                dead.insert(format!("{}: {link}", page.source));
            }
        }
        for title in attributes(html, "title") {
            let path = title.trim_end_matches(" in the repository");
            if !Path::new(ROOT).join(path).exists() {
                dead.insert(format!("{}: {path}", page.source));
            }
        }
    }
    // On GitHub these are files.
    for name in [
        "README.md",
        "README.ko.md",
        ".github/PULL_REQUEST_TEMPLATE.md",
    ] {
        let text = fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|it| it.split(')').next())
        {
            let path = link.split('#').next().unwrap_or_default();
            if !link.contains("://") && !Path::new(ROOT).join(path).exists() {
                dead.insert(format!("{name}: {link}"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

fn is_alive(from: &str, link: &str) -> bool {
    if link.starts_with("https://") || link.starts_with("http://") {
        return true;
    }
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => doc_page(from),
        "/" | "/api/openapi.json" => return true,
        "/docs" => doc_page("index"),
        path => match path.strip_prefix("/docs/files/") {
            Some(name) => return maru_docs::doc_file(name).is_some(),
            None => path.strip_prefix("/docs/").and_then(doc_page),
        },
    };
    // Browsers decode a fragment before they look for it.
    let id = percent_decode_str(fragment).decode_utf8_lossy();
    let has_id = |html: &str| html.contains(&format!("id=\"{id}\""));
    target.is_some_and(|it| fragment.is_empty() || has_id(it.html()))
}

fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let mark = format!(" {name}=\"");
    let parts: Vec<&str> = html.split(mark.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|it| it.split('"').next())
}

/// Blocks with the language `console` or `sh` are run, on a new hub for each page, unless
/// they are marked `illustration`. What `console` shows is compared; `…` stands for any text.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_pages_works() {
    let mut failures = Vec::new();
    let mut count = 0;
    let sources = doc_pages().iter().map(|it| it.source);
    for source in sources.chain(["README.md", "README.ko.md"]) {
        let text = fs::read_to_string(Path::new(ROOT).join(source)).unwrap();
        let blocks: Vec<CodeBlock> = code_blocks(&text)
            .into_iter()
            .filter(|it| matches!(it.info.as_str(), "console" | "sh"))
            .collect();
        if blocks.is_empty() {
            continue;
        }
        let mut hub = ServeProcess::start("{}").await;
        for block in &blocks {
            for command in shell_commands(block) {
                count += 1;
                if let Err(failure) = command.run(&hub) {
                    failures.push(format!("{source}: {failure}"));
                }
            }
        }
        hub.stop().await;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(count > 30, "only {count} commands were found");
}

/// A command of a document, and what the document says that it prints.
#[derive(Debug, PartialEq)]
struct ShellCommand {
    text: String,
    expected: Vec<String>,
}

impl ShellCommand {
    fn run(&self, hub: &ServeProcess) -> Result<(), String> {
        let directory = hub.directory();
        let bin = directory.join("bin");
        if !bin.exists() {
            fs::create_dir(&bin).unwrap();
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_maru"), bin.join("maru")).unwrap();
            // The documents name the default data directory.
            let share = directory.join(".local/share");
            fs::create_dir_all(&share).unwrap();
            std::os::unix::fs::symlink(directory.join("data"), share.join("maru")).unwrap();
        }
        let output = Command::new("sh")
            .args(["-ec", &self.text.replace(DEFAULT_ADDRESS, &hub.address)])
            .current_dir(directory)
            .env_clear()
            .env("HOME", directory)
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
            .replace(&hub.address, DEFAULT_ADDRESS);
        let lines: Vec<&str> = printed.lines().collect();
        if output.status.success() && matches_lines(&self.expected, &lines) {
            return Ok(());
        }
        Err(format!(
            "$ {}\nexit {:?}, printed:\n{printed}",
            self.text,
            output.status.code()
        ))
    }
}

fn shell_commands(block: &CodeBlock) -> Vec<ShellCommand> {
    if block.info == "sh" {
        let text = block.text.clone();
        let expected = Vec::new();
        return vec![ShellCommand { text, expected }];
    }
    let mut commands: Vec<ShellCommand> = Vec::new();
    let mut lines = block.text.lines();
    while let Some(line) = lines.next() {
        let Some(text) = line.strip_prefix("$ ") else {
            if let Some(command) = commands.last_mut() {
                command.expected.push(line.to_owned());
            }
            continue;
        };
        let mut text = text.to_owned();
        let is_heredoc = text.contains("<<'END'");
        while (is_heredoc && !text.ends_with("\nEND"))
            || (!is_heredoc && (text.ends_with('\\') || text.matches('\'').count() % 2 == 1))
        {
            text.push('\n');
            text.push_str(lines.next().expect("the command ends"));
        }
        let expected = Vec::new();
        commands.push(ShellCommand { text, expected });
    }
    for command in &mut commands {
        while command.expected.last().is_some_and(String::is_empty) {
            command.expected.pop();
        }
    }
    commands
}

/// Whether the lines are as expected; a document that shows none expects nothing.
pub(crate) fn matches_lines(expected: &[String], lines: &[&str]) -> bool {
    match expected {
        [] => true,
        [any] if any == "…" => true,
        [any, rest @ ..] if any == "…" => {
            (0..=lines.len()).any(|from| matches_lines(rest, &lines[from..]))
        }
        [first, rest @ ..] => match lines {
            [line, others @ ..] => {
                matches_line(first, line)
                    && (!rest.is_empty() || others.is_empty())
                    && matches_lines(rest, others)
            }
            [] => false,
        },
    }
}

fn matches_line(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|it| line.strip_prefix(it)) else {
        return false;
    };
    let mut found_end = rest.is_empty();
    for part in parts {
        let Some(at) = rest.rfind(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        found_end = part.is_empty() || rest.is_empty();
    }
    found_end
}

#[test]
fn commands_of_a_block_are_found() {
    let block = CodeBlock {
        info: "console".to_owned(),
        text: "$ a 'x\ny'\none\n…\n\n$ b \\\n  c\n$ d <<'END'\ne\nEND\n".to_owned(),
    };
    let commands = shell_commands(&block);
    let texts: Vec<&str> = commands.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(texts, ["a 'x\ny'", "b \\\n  c", "d <<'END'\ne\nEND"]);
    assert_eq!(commands[0].expected, ["one", "…"]);
    assert!(matches_lines(&commands[0].expected, &["one", "two"]));
    assert!(!matches_lines(&commands[0].expected, &["two"]));
    assert!(matches_line("a … b", "a 1 2 b"));
    assert!(!matches_line("a … b", "a 1 2 bc"));
    assert!(!matches_line("a", "ab"));
}

#[test]
fn version_is_the_same_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    let document: Value = serde_json::from_str(maru_docs::OPENAPI_JSON).unwrap();
    assert_eq!(document["info"]["version"], version);
    let changelog = doc_page("changelog").unwrap().text;
    assert!(
        changelog.contains(&format!("\n## {version}")),
        "CHANGELOG.md"
    );
    for path in [
        "packaging/oci/compose.yaml",
        "packaging/compose/compose.yaml",
        "packaging/helm/maru/values.yaml",
        "examples/data-team/compose.yaml",
    ] {
        let text = fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
        // The name under which `make dist` packs the image.
        assert!(text.contains(&format!("image: maru:{version}\n")), "{path}");
        assert_eq!(text.matches("image: maru").count(), 1, "{path}");
    }
    for page in doc_pages().iter().filter(|it| it.source != "CHANGELOG.md") {
        for line in page.text.lines().filter(|it| it.contains("is ready. 마루")) {
            assert!(line.contains(version), "{}: {line}", page.source);
        }
    }
}
