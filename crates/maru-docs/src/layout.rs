//! The frame around the content of every page.

use std::fmt::Write as _;

use super::{DOCS_PATH, markdown::escape, pages};

/// An HTML document with the side bar of the page's language.
pub(super) fn document(page: Option<&pages::DocPage>, title: &str, content: &str) -> String {
    let is_korean = page.is_some_and(pages::DocPage::is_korean);
    let (language, search, skip) = if is_korean {
        ("ko", "문서 검색", "본문으로")
    } else {
        ("en", "Search the documentation", "Skip to the content")
    };
    let style = format!("{DOCS_PATH}/files/style.css");
    format!(
        "<!doctype html>\n<html lang=\"{language}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · maru</title>\n<link rel=\"stylesheet\" href=\"{style}\">\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#content\">{skip}</a>\n<nav>\n\
         <p class=\"brand\"><a href=\"/\">maru</a></p>\n\
         <form action=\"{DOCS_PATH}/search\"><input type=\"search\" name=\"q\" maxlength=\"100\" \
         aria-label=\"{search}\"></form>\n{side_bar}</nav>\n\
         <main id=\"content\">\n{other_language}{content}</main>\n</body>\n</html>\n",
        title = escape(title),
        side_bar = side_bar(page, is_korean),
        other_language = other_language(page),
    )
}

fn side_bar(current: Option<&pages::DocPage>, is_korean: bool) -> String {
    let mut out = String::new();
    let mut section = "";
    // Korean readers see their pages first.
    let own = pages::doc_pages().iter();
    let own = own.filter(|it| it.is_korean() == is_korean);
    let others = pages::doc_pages().iter();
    let others = others.filter(|it| it.is_korean() != is_korean);
    for page in own.chain(others) {
        if page.section != section {
            if !section.is_empty() {
                out.push_str("</ul>\n");
            }
            section = page.section;
            let _ = writeln!(out, "<p class=\"section\">{}</p>\n<ul>", escape(section));
        }
        let mark = match current {
            Some(current) if current.path == page.path => " aria-current=\"page\"",
            _ => "",
        };
        let _ = writeln!(
            out,
            "<li><a href=\"{}\"{mark}>{}</a></li>",
            page.address(),
            escape(page.title())
        );
    }
    out.push_str("</ul>\n");
    out
}

fn other_language(page: Option<&pages::DocPage>) -> String {
    let Some(other) = page.and_then(pages::DocPage::translation) else {
        return String::new();
    };
    let (language, name) = if other.is_korean() {
        ("ko", "한국어")
    } else {
        ("en", "English")
    };
    format!(
        "<p class=\"language\"><a href=\"{}\" lang=\"{language}\">{name}</a></p>\n",
        other.address()
    )
}
