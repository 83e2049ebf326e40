//! A search over the sections of all pages, which needs no script in the browser.

use std::{fmt::Write as _, sync::LazyLock};

use super::{layout, markdown, pages};

const MAX_QUERY_CHARS: usize = 100;
const MAX_WORDS: usize = 8;
const MAX_RESULTS: usize = 30;
const EXCERPT_CHARS: usize = 160;
/// A word in a heading counts as much as this many in the text.
const HEADING_WEIGHT: usize = 10;

static SECTIONS: LazyLock<Vec<SearchSection>> = LazyLock::new(|| {
    let pages = pages::doc_pages().iter();
    pages
        .flat_map(|page| {
            let sections = markdown::sections(page.text).into_iter();
            sections.map(|(id, heading, body)| SearchSection {
                address: format!("{}#{id}", page.address()),
                page: page.title(),
                lowercase_heading: heading.to_lowercase(),
                lowercase_body: body.to_lowercase(),
                heading,
                body,
            })
        })
        .collect()
});

struct SearchSection {
    address: String,
    page: &'static str,
    heading: String,
    body: String,
    lowercase_heading: String,
    lowercase_body: String,
}

/// The page with the sections that contain every word of `query`.
pub fn search_page(query: &str) -> String {
    let query: String = query.chars().take(MAX_QUERY_CHARS).collect();
    let lowercase = query.to_lowercase();
    let words: Vec<&str> = lowercase.split_whitespace().take(MAX_WORDS).collect();
    let mut found: Vec<(usize, &SearchSection)> = SECTIONS
        .iter()
        .filter_map(|it| Some((it.score(&words)?, it)))
        .collect();
    found.sort_by_key(|(score, _)| usize::MAX - score);
    let mut content = format!("<h1>Search: {}</h1>\n", markdown::escape(&query));
    if found.is_empty() {
        content.push_str("<p>No section contains all of these words.</p>\n");
    }
    for (_, section) in found.iter().take(MAX_RESULTS) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            content,
            "<p><a href=\"{}\">{}</a> <small>{}</small><br>{}</p>",
            markdown::escape(&section.address),
            markdown::escape(&section.heading),
            markdown::escape(section.page),
            markdown::escape(&section.excerpt(&words)),
        );
    }
    layout::document(None, "Search", &content)
}

impl SearchSection {
    /// How well the section matches; `None` unless it contains every word.
    fn score(&self, words: &[&str]) -> Option<usize> {
        let mut score = 0;
        for word in words {
            let in_heading = self.lowercase_heading.matches(word).count();
            let in_body = self.lowercase_body.matches(word).count();
            if in_heading + in_body == 0 {
                return None;
            }
            score += in_heading * HEADING_WEIGHT + in_body;
        }
        (!words.is_empty()).then_some(score)
    }

    /// The text around the first word.
    fn excerpt(&self, words: &[&str]) -> String {
        let first = words.first().copied().unwrap_or_default();
        let before = self.lowercase_body.find(first).unwrap_or_default();
        let before = self.lowercase_body[..before].chars().count();
        let from = before.saturating_sub(EXCERPT_CHARS / 2);
        let text = self.body.chars().skip(from).take(EXCERPT_CHARS);
        let mark = if from == 0 { "" } else { "… " };
        format!("{mark}{}", text.collect::<String>().trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_with_every_word_are_found_in_both_languages() {
        assert!(search_page("back restore").contains("/docs/operations#back-up-and-restore"));
        assert!(search_page("설치").contains("/docs/ko/install#"));
        assert!(search_page("nosuchword").contains("No section contains"));
        assert!(search_page("").contains("No section contains"));
    }

    #[test]
    fn query_is_escaped_and_bounded() {
        let page = search_page("<script>alert(1)</script>");
        assert!(!page.contains("<script"), "{page}");
        assert!(search_page(&"x".repeat(1 << 20)).len() < 20_000);
    }
}
