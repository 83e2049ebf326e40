//! Addresses that servers choose without knowing of each other: user interfaces (MCP Apps)
//! and skills. The hub puts the server's name into them: `ui://clock/face.html` of the
//! server `office` is `ui://office/clock/face.html`.

use std::borrow::Cow;

/// The schemes of such addresses.
const SCHEMES: [&str; 2] = ["ui://", "skill://"];

/// The address under which clients know `uri` of `server`.
pub fn public_uri<'a>(server: &str, uri: &'a str) -> Cow<'a, str> {
    match split_scheme(uri) {
        Some((scheme, rest)) => Cow::Owned(format!("{scheme}{server}/{rest}")),
        None => Cow::Borrowed(uri),
    }
}

/// The address by which `server` knows what clients know as `uri`.
pub fn original_uri<'a>(server: &str, uri: &'a str) -> Cow<'a, str> {
    match split_server(uri) {
        Some((scheme, named, rest)) if named == server => Cow::Owned(format!("{scheme}{rest}")),
        _ => Cow::Borrowed(uri),
    }
}

/// The server whose address a public `uri` is; `None` if servers share its scheme.
pub(super) fn server_of(uri: &str) -> Option<&str> {
    split_server(uri).map(|(_, server, _)| server)
}

fn split_server(uri: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = split_scheme(uri)?;
    let (server, rest) = rest.split_once('/')?;
    Some((scheme, server, rest))
}

fn split_scheme(uri: &str) -> Option<(&str, &str)> {
    let scheme = SCHEMES.into_iter().find(|it| uri.starts_with(it))?;
    Some(uri.split_at(scheme.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_two_servers_differ_and_lead_back() {
        for (uri, is_unique) in [
            ("ui://clock/face.html", true),
            ("ui://x", true),
            ("ui://", true),
            ("skill://pdf/SKILL.md", true),
            ("file:///ui://x", false),
        ] {
            let (one, other) = (public_uri("a", uri), public_uri("b", uri));
            assert_eq!(one != other, is_unique);
            assert_eq!(server_of(&one), is_unique.then_some("a"));
            assert_eq!(original_uri("a", &one), uri);
            assert_eq!(original_uri("b", &other), uri);
        }
        assert_eq!(original_uri("a", "ui://ab/x"), "ui://ab/x");
    }
}
