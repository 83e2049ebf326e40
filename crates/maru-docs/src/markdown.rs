//! Markdown → HTML, with ids of headings and addresses of pages as they are on GitHub.

use std::collections::HashMap;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd, html};

use super::pages::address_of;

/// A fenced block of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeBlock {
    /// What stands after the fence, such as `console illustration`.
    pub info: String,
    /// The text between the fences.
    pub text: String,
}

/// Returns the fenced blocks of a text.
pub fn code_blocks(text: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut current: Option<CodeBlock> = None;
    for event in parse(text) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let info = match kind {
                    CodeBlockKind::Fenced(info) => info.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                let text = String::new();
                current = Some(CodeBlock { info, text });
            }
            Event::Text(text) => {
                if let Some(block) = &mut current {
                    block.text.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(current.take()),
            _ => (),
        }
    }
    blocks
}

/// Renders the Markdown of a file of the repository.
pub(super) fn render(source: &str, text: &str) -> String {
    let mut events = served_events(source, text);
    for (at, id) in heading_ids(&events) {
        if let Event::Start(Tag::Heading { id: slot, .. }) = &mut events[at] {
            *slot = Some(id.into());
        }
    }
    let mut out = String::with_capacity(text.len() * 2);
    html::push_html(&mut out, events.into_iter());
    // Wide tables scroll by themselves.
    out.replace("<table>", "<div class=\"table\"><table>")
        .replace("</table>", "</table></div>")
}

/// The sections of a text: id, heading and words, for the search.
pub(super) fn sections(text: &str) -> Vec<(String, String, String)> {
    let events: Vec<Event<'_>> = parse(text).collect();
    let ids: HashMap<usize, String> = heading_ids(&events).into_iter().collect();
    let mut found: Vec<(String, String, String)> = Vec::new();
    let mut in_heading = false;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                in_heading = true;
                let id = ids.get(&at).cloned().unwrap_or_default();
                found.push((id, String::new(), String::new()));
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Text(text) | Event::Code(text) => {
                if let Some((_, heading, body)) = found.last_mut() {
                    if in_heading {
                        heading.push_str(text);
                    } else {
                        body.push_str(text);
                    }
                }
            }
            Event::End(_) | Event::SoftBreak | Event::HardBreak => {
                if let Some((_, _, body)) = found.last_mut() {
                    body.push(' ');
                }
            }
            _ => (),
        }
    }
    found
}

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH)
}

/// Links lead to the pages of the hub. A file that the hub does not serve is named
/// without a link, and HTML in the text is shown as text.
fn served_events<'a>(source: &str, text: &'a str) -> Vec<Event<'a>> {
    let mut in_unserved_link = false;
    let served = |event| match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Link {
            link_type,
            dest_url,
            title,
            id,
        }) => match link_target(source, &dest_url) {
            Ok(dest_url) => Event::Start(Tag::Link {
                link_type,
                dest_url: dest_url.into(),
                title,
                id,
            }),
            Err(path) => {
                in_unserved_link = true;
                let path = escape(&path);
                Event::InlineHtml(format!("<span title=\"{path} in the repository\">").into())
            }
        },
        Event::End(TagEnd::Link) if in_unserved_link => {
            in_unserved_link = false;
            Event::InlineHtml("</span>".into())
        }
        Event::Start(Tag::Image {
            link_type,
            dest_url,
            title,
            id,
        }) => Event::Start(Tag::Image {
            link_type,
            dest_url: link_target(source, &dest_url).unwrap_or_default().into(),
            title,
            id,
        }),
        other => other,
    };
    parse(text).map(served).collect()
}

/// The address of a link in the file `source`, or the path of a file that the hub does not
/// serve.
fn link_target(source: &str, link: &str) -> Result<String, String> {
    if link.contains("://") || link.starts_with('#') || link.starts_with("mailto:") {
        return Ok(link.to_owned());
    }
    let (path, fragment) = match link.split_once('#') {
        Some((path, fragment)) => (path, format!("#{fragment}")),
        None => (link, String::new()),
    };
    let path = resolve(source, path);
    match address_of(&path) {
        Some(address) => Ok(format!("{address}{fragment}")),
        None => Err(path),
    }
}

/// Resolves a relative path of the file `source` of the repository.
fn resolve(source: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = source.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => (),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The ids of headings, as GitHub makes them, with the positions of their events.
fn heading_ids(events: &[Event<'_>]) -> Vec<(usize, String)> {
    let mut used: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    let mut current: Option<(usize, String)> = None;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Start(Tag::Heading { .. }) => current = Some((at, String::new())),
            Event::Text(text) | Event::Code(text) => {
                if let Some((_, heading)) = &mut current {
                    heading.push_str(text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                if let Some((at, heading)) = current.take() {
                    let slug = slug(&heading);
                    let count = used.entry(slug.clone()).or_default();
                    *count += 1;
                    let id = match *count {
                        1 => slug,
                        count => format!("{slug}-{}", count - 1),
                    };
                    found.push((at, id));
                }
            }
            _ => (),
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Escapes a text for HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_pages_and_headings_have_ids() {
        let html = render(
            "docs/index.md",
            "## OAuth 2.1\n[a](security.md#oauth-21) [b](../CHANGELOG.md) [c](../LICENSE) ![d](console-servers.png)",
        );
        for expected in [
            r#"<h2 id="oauth-21">"#,
            r#"href="/docs/security#oauth-21""#,
            r#"href="/docs/changelog""#,
            r#"<span title="LICENSE in the repository">c</span>"#,
            r#"src="/docs/files/console-servers.png""#,
        ] {
            assert!(html.contains(expected), "{expected} is not in {html}");
        }
    }

    #[test]
    fn html_in_a_text_is_shown_as_text() {
        let html = render("docs/index.md", "<script>alert(1)</script> a <b>c</b>");
        assert!(!html.contains("<script"), "{html}");
        assert!(!html.contains("<b>"), "{html}");
    }

    #[test]
    fn code_blocks_keep_their_info() {
        let blocks = code_blocks("```console illustration\n$ maru\n```\n");
        assert_eq!(blocks[0].info, "console illustration");
        assert_eq!(blocks[0].text, "$ maru\n");
    }
}
