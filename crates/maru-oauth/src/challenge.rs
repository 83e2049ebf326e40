//! The `WWW-Authenticate` header of a server (RFC 6750, RFC 9728). Pure.

use super::scope::ScopeSet;

/// Longer headers are not read.
const MAX_HEADER_BYTES: usize = 8 << 10;

/// What a server says about the token that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Where the protected resource metadata is.
    pub resource_metadata: Option<String>,
    /// The scopes that the request needs.
    pub scope: Option<ScopeSet>,
    /// The error code, such as `insufficient_scope`.
    pub error: Option<String>,
}

impl Challenge {
    /// Parses the value of `WWW-Authenticate`; other schemes than Bearer are skipped.
    pub fn parse(header: &str) -> Self {
        let mut challenge = Self::default();
        if header.len() > MAX_HEADER_BYTES {
            return challenge;
        }
        let mut is_bearer = false;
        let mut rest = header;
        while let Some((token, after)) = next_token(rest) {
            rest = after;
            let Some(value) = rest.trim_start().strip_prefix('=') else {
                // A word without a value is the name of a scheme.
                is_bearer = token.eq_ignore_ascii_case("bearer");
                continue;
            };
            let (value, after) = read_value(value.trim_start());
            rest = after;
            if is_bearer {
                challenge.set(token, value);
            }
        }
        challenge
    }

    /// Whether the token lacks a scope.
    pub fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn set(&mut self, name: &str, value: String) {
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => self.resource_metadata = Some(value),
            "scope" => self.scope = Some(ScopeSet::parse(&value)).filter(|it| !it.is_empty()),
            "error" => self.error = Some(value),
            _ => (),
        }
    }
}

/// Splits off the next word, after commas and spaces.
fn next_token(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches([' ', ',', '\t']);
    let end = text.find([' ', ',', '=', '\t', '"']).unwrap_or(text.len());
    match end {
        0 if text.is_empty() => None,
        // A stray quote or equals sign is skipped.
        0 => Some(text.split_at(1)),
        end => Some(text.split_at(end)),
    }
}

/// Reads a quoted or bare value.
fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', ',', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, metadata: Option<&str>, scope: Option<&str>, error: Option<&str>) {
        let expected = Challenge {
            resource_metadata: metadata.map(str::to_owned),
            scope: scope.map(ScopeSet::parse),
            error: error.map(str::to_owned),
        };
        assert_eq!(Challenge::parse(header), expected, "{header}");
    }

    #[test]
    fn bearer_parameters_are_read_and_other_schemes_skipped() {
        check("Bearer", None, None, None);
        check(
            r#"Bearer scope="a b", resource_metadata="https://x/y", error="insufficient_scope""#,
            Some("https://x/y"),
            Some("a b"),
            Some("insufficient_scope"),
        );
        check(
            r#"Basic realm="scope=\"evil\", x", bearer error=invalid_token,scope=a"#,
            None,
            Some("a"),
            Some("invalid_token"),
        );
        check(r#"Digest scope="a""#, None, None, None);
        check(r#"Bearer scope="""#, None, None, None);
        check(r#"Bearer scope="unclosed"#, None, Some("unclosed"), None);
        check(r#"Bearer = " , ="#, None, None, None);
        check(
            &format!("Bearer scope={}", "x".repeat(9000)),
            None,
            None,
            None,
        );
    }
}
