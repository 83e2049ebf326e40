//! Which files of the repository are pages, in the order of the side bar.

use std::sync::{LazyLock, OnceLock};

use super::{DOCS_PATH, api_reference, layout, markdown};

macro_rules! pages {
    ($($section:literal: { $($path:literal = $source:literal),* $(,)? })*) => {
        vec![$($(DocPage {
            section: $section,
            path: $path,
            source: $source,
            text: include_str!(concat!("../../../", $source)),
            html: OnceLock::new(),
        }),*),*]
    };
}

static PAGES: LazyLock<Vec<DocPage>> = LazyLock::new(|| {
    pages! {
    "Start": {
        "index" = "docs/index.md",
        "install" = "docs/install.md",
        "start-laptop" = "docs/start-laptop.md",
        "start-data-team" = "docs/start-data-team.md",
        "start-admin" = "docs/start-admin.md",
    }
    "Help": {
        "troubleshooting" = "docs/troubleshooting.md",
        "errors" = "docs/errors.md",
    }
    "How to": {
        "console" = "docs/console.md",
        "servers" = "docs/servers.md",
        "signing-in" = "docs/signing-in.md",
        "toolsets" = "docs/toolsets.md",
        "custom-tools" = "docs/custom-tools.md",
        "expressions" = "docs/expressions.md",
        "data" = "docs/data.md",
        "models" = "docs/models.md",
        "coding-agents" = "docs/coding-agents.md",
        "agent" = "docs/agent.md",
        "usage" = "docs/usage.md",
        "operations" = "docs/operations.md",
        "scaling" = "docs/scaling.md",
    }
    "Reference": {
        "config" = "docs/config.md",
        "command-line" = "docs/command-line.md",
        "commands" = "docs/commands.md",
        "api" = "docs/api.md",
        "transports" = "docs/transports.md",
        "support" = "docs/support.md",
        "changelog" = "CHANGELOG.md",
    }
    "Background": {
        "security" = "docs/security.md",
        "reliability" = "docs/reliability.md",
        "performance" = "docs/performance.md",
        "architecture" = "ARCHITECTURE.md",
        "contributing" = "CONTRIBUTING.md",
        "vulnerabilities" = "SECURITY.md",
    }
    "한국어": {
        "ko/index" = "docs/ko/index.md",
        "ko/install" = "docs/ko/install.md",
        "ko/start-laptop" = "docs/ko/start-laptop.md",
        "ko/start-data-team" = "docs/ko/start-data-team.md",
        "ko/start-admin" = "docs/ko/start-admin.md",
        "ko/console" = "docs/ko/console.md",
        "ko/servers" = "docs/ko/servers.md",
        "ko/signing-in" = "docs/ko/signing-in.md",
        "ko/toolsets" = "docs/ko/toolsets.md",
        "ko/custom-tools" = "docs/ko/custom-tools.md",
        "ko/data" = "docs/ko/data.md",
        "ko/models" = "docs/ko/models.md",
        "ko/troubleshooting" = "docs/ko/troubleshooting.md",
    }
    }
});

static FILES: &[DocFile] = &[
    DocFile {
        source: "docs/console-servers.png",
        content_type: "image/png",
        content: include_bytes!("../../../docs/console-servers.png"),
    },
    DocFile {
        source: "docs/console-builder.png",
        content_type: "image/png",
        content: include_bytes!("../../../docs/console-builder.png"),
    },
    DocFile {
        source: "docs/architecture.svg",
        content_type: "image/svg+xml",
        content: include_bytes!("../../../docs/architecture.svg"),
    },
    DocFile {
        source: "style.css",
        content_type: "text/css; charset=utf-8",
        content: include_bytes!("style.css"),
    },
];

/// A page of the documentation.
#[derive(Debug)]
pub struct DocPage {
    /// The heading above it in the side bar.
    pub(super) section: &'static str,
    /// The last part of its address.
    pub path: &'static str,
    /// Its file in the repository.
    pub source: &'static str,
    /// Its Markdown.
    pub text: &'static str,
    html: OnceLock<String>,
}

/// A picture or the style sheet.
#[derive(Debug)]
pub struct DocFile {
    /// Its file in the repository.
    source: &'static str,
    /// Its `Content-Type`.
    pub content_type: &'static str,
    /// Its bytes.
    pub content: &'static [u8],
}

/// Returns all pages, in the order of the side bar.
pub fn doc_pages() -> &'static [DocPage] {
    &PAGES
}

/// Finds a page by its path below `/docs/`.
pub fn doc_page(path: &str) -> Option<&'static DocPage> {
    PAGES.iter().find(|it| it.path == path)
}

/// Finds a picture or the style sheet by its name below `/docs/files/`.
pub fn doc_file(name: &str) -> Option<&'static DocFile> {
    FILES.iter().find(|it| file_name(it.source) == name)
}

/// The address of a file of the repository, if the hub serves it.
pub(super) fn address_of(source: &str) -> Option<String> {
    if let Some(page) = PAGES.iter().find(|it| it.source == source) {
        return Some(page.address());
    }
    if source == "docs/openapi.json" {
        return Some("/api/openapi.json".to_owned());
    }
    let file = FILES.iter().find(|it| it.source == source)?;
    Some(format!("{DOCS_PATH}/files/{}", file_name(file.source)))
}

fn file_name(source: &str) -> &str {
    source.rsplit('/').next().unwrap_or(source)
}

impl DocPage {
    /// The page as an HTML document, which is rendered once.
    pub fn html(&self) -> &str {
        self.html.get_or_init(|| {
            let mut content = markdown::render(self.source, self.text);
            if self.path == "api" {
                content.push_str(&api_reference::render());
            }
            layout::document(Some(self), self.title(), &content)
        })
    }

    /// The first heading.
    pub fn title(&self) -> &'static str {
        let first = self.text.lines().find_map(|it| it.strip_prefix("# "));
        first.unwrap_or(self.path)
    }

    pub(super) fn address(&self) -> String {
        match self.path {
            "index" => DOCS_PATH.to_owned(),
            path => format!("{DOCS_PATH}/{path}"),
        }
    }

    pub(super) fn is_korean(&self) -> bool {
        self.path.starts_with("ko/")
    }

    /// The page in the other language.
    pub(super) fn translation(&self) -> Option<&'static Self> {
        match self.path.strip_prefix("ko/") {
            Some(path) => doc_page(path),
            None => doc_page(&format!("ko/{}", self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_document_is_a_page() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        for directory in ["docs", "docs/ko"] {
            for entry in fs::read_dir(root.join(directory)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let source = format!("{directory}/{name}");
                if name.ends_with(".md") || name.ends_with(".png") {
                    assert!(address_of(&source).is_some(), "{source} is not served");
                }
            }
        }
    }

    #[test]
    fn every_page_has_a_title_and_an_address_of_its_own() {
        for page in doc_pages() {
            assert_ne!(page.title(), page.path, "{} has no heading", page.source);
            let found = doc_page(page.path).unwrap();
            assert_eq!(found.source, page.source);
            let same = doc_pages().iter().filter(|it| it.path == page.path);
            assert_eq!(same.count(), 1, "{} is named twice", page.path);
            assert!(page.html().starts_with("<!doctype html>"));
        }
    }
}
