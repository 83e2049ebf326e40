//! Pages that the hub writes itself, without scripts: those of people on their way through
//! a sign-in.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};

use maru_downstream::http::reply;

/// The cookie by which the console says in which language it is.
const LANGUAGE_COOKIE: &str = "maru_language";

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#d5d8dd;--soft:#5b6470;--accent:#0b6b53;--on:#fff;--card:#fff;--ground:#f4f5f7;--text:#15191e}\
@media(prefers-color-scheme:dark){:root{--line:#343b44;--soft:#9aa4b0;--accent:#3fbf98;--on:#06231b;--card:#181c21;--ground:#0f1215;--text:#e8ebee}}\
*{box-sizing:border-box}body{margin:0;min-height:100vh;display:grid;place-items:center;padding:24px;background:var(--ground);color:var(--text);font:15px/1.6 system-ui,'Noto Sans KR',sans-serif}\
main{width:100%;max-width:460px;background:var(--card);border:1px solid var(--line);border-radius:12px;padding:28px}\
h1{font-size:20px;line-height:1.35;margin:0 0 12px}h1,p,label,dt{word-break:keep-all;overflow-wrap:anywhere}p{margin:0 0 14px}a{color:var(--accent)}\
dl{display:grid;grid-template-columns:auto 1fr;gap:6px 16px;margin:0 0 18px;padding:14px 0;border-block:1px solid var(--line)}\
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\
fieldset{border:0;margin:0 0 16px;padding:0}legend{font-weight:600;padding:0;margin-bottom:4px}\
label{display:block;padding:2px 0;overflow-wrap:anywhere}.field{margin-bottom:14px}.field input{display:block;width:100%;margin-top:4px}\
input[type=text],input[type=password]{font:inherit;padding:8px 10px;border:1px solid var(--line);border-radius:8px;background:transparent;color:inherit}\
.servers{max-height:180px;overflow:auto;padding-left:24px}\
.actions{display:flex;gap:10px;margin-top:20px}button{font:inherit;font-weight:600;padding:9px 18px;border-radius:8px;border:1px solid var(--line);background:transparent;color:inherit;cursor:pointer}\
button.main{background:var(--accent);border-color:var(--accent);color:var(--on)}:focus-visible{outline:2px solid var(--accent);outline-offset:2px}\
.soft{color:var(--soft);font-size:13px}.error{color:#c0322b;font-weight:600}";

/// The language of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageLanguage {
    English,
    Korean,
}

/// A page with its title and body, which is HTML.
pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) language: PageLanguage,
    pub(super) title: String,
    pub(super) body: String,
    /// Where its form may lead, beside the hub, as a source of a content security policy.
    pub(super) form_target: Option<String>,
    /// A path of the hub that the browser opens next, by itself.
    pub(super) next: Option<String>,
}

impl PageLanguage {
    /// The language of the console in this browser, else the one that the browser prefers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get(header::ACCEPT_LANGUAGE);
        let accepted = accepted.and_then(|it| it.to_str().ok()).unwrap_or_default();
        let chosen = cookie(headers, LANGUAGE_COOKIE);
        if chosen.unwrap_or(accepted).starts_with("ko") {
            Self::Korean
        } else {
            Self::English
        }
    }

    /// The text in this language.
    pub(super) fn pick<'a>(self, english: &'a str, korean: &'a str) -> &'a str {
        match self {
            Self::English => english,
            Self::Korean => korean,
        }
    }
}

impl Page {
    /// A page that leads nowhere else.
    pub(super) fn new(language: PageLanguage, title: &str, body: String) -> Self {
        Self {
            status: StatusCode::OK,
            language,
            title: title.to_owned(),
            body,
            form_target: None,
            next: None,
        }
    }

    /// A page that opens `path` of the hub. Other than after a redirect, the browser sends
    /// the hub's cookies then, also if another site led to this page.
    pub(super) fn leading_to(language: PageLanguage, path: &str) -> Self {
        let link = escape(path);
        let text = language.pick("Continue", "계속");
        Self {
            next: Some(path.to_owned()),
            ..Self::new(
                language,
                "maru",
                format!("<p><a href=\"{link}\">{text}</a></p>"),
            )
        }
    }

    /// Writes the page. It is kept out of caches and frames; forms lead to the hub only.
    pub(super) fn into_response(self) -> Response {
        let code = self.language.pick("en", "ko");
        let title = escape(&self.title);
        let next = self.next.as_deref().map(escape);
        let next = next.map_or(String::new(), |it| {
            format!("<meta http-equiv=\"refresh\" content=\"0;url={it}\">")
        });
        let body = &self.body;
        let html = format!(
            "<!doctype html><html lang=\"{code}\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">{next}\
             <title>{title}</title><style>{STYLE}</style></head>\
             <body><main>{body}</main></body></html>"
        );
        let mut response = Response::new(Body::from(html));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("text/html; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, kind);
        let target = self.form_target.unwrap_or_default();
        let policy = format!(
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'self' {target}"
        );
        if let Ok(policy) = HeaderValue::from_str(policy.trim_end()) {
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        secure(response)
    }
}

/// A page that shows one sentence.
pub(super) fn sentence_page(status: StatusCode, language: PageLanguage, text: &str) -> Response {
    let console = language.pick("Open the console", "콘솔 열기");
    let text = escape(text);
    let body = format!("<p>{text}</p><p><a href=\"/\">{console}</a></p>");
    let page = Page {
        status,
        ..Page::new(language, "maru", body)
    };
    page.into_response()
}

/// Sends the browser to `url`.
pub(super) fn redirect(url: &str) -> Response {
    let mut response = reply::empty(StatusCode::SEE_OTHER);
    if let Ok(location) = HeaderValue::from_str(url) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    secure(response)
}

/// Escapes a text for HTML, also within quotes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Returns the value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let mut pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(it, _)| *it == name).map(|(_, value)| value)
}

/// Keeps a response out of caches and frames, and its address out of `Referer` elsewhere.
/// Without any referrer, browsers would send forms with the origin `null`.
fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
