//! Masks secrets in text that is logged or shown: in JSON (also truncated or nested in a
//! string), URLs, command lines and plain text.

mod encoded;

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use base64::{Engine as _, prelude::BASE64_STANDARD};

/// Replaces a secret.
pub const MASK: &str = "***";

/// A value is masked if its name contains one of these.
const SECRET_NAME_PARTS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "authorization",
    "credential",
    "privatekey",
    "accesskey",
    "cookie",
    "connectionstring",
];
/// A parameter of a URL, a connection string or a command line is masked if this is its
/// whole name.
const SECRET_PARAMETERS: [&str; 8] = [
    "key",
    "sig",
    "signature",
    "auth",
    "pwd",
    "pass",
    "pat",
    "code",
];
/// A name that contains one of these is not secret: `max_tokens` is a number.
const HARMLESS_NAME_PARTS: [&str; 5] = ["tokens", "count", "limit", "tokenizer", "tokentype"];
/// Prefixes of the tokens of well-known services, which are recognised anywhere in a
/// text.
const SECRET_PREFIXES: [&str; 25] = [
    "Bearer ",
    "bearer ",
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxs-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "hf_",
    "npm_",
    "AccountKey=",
    "maru_",
    "eyJhbGciOi",
];
/// A text without one of these, a secret name and a secret prefix is returned unchanged.
const SECRET_HINTS: [&str; 14] = [
    "://", "key=", "sig=", "nature=", "auth=", "pwd=", "pass=", "pat=", "code=", "asic ", "\"-",
    "--", "-u", "-user",
];
/// Command-line options whose value is `user:password`.
const CREDENTIAL_OPTIONS: [&str; 4] = ["-u", "-U", "--user", "--proxy-user"];

static SECRET_NAME_MATCHER: LazyLock<AhoCorasick> =
    LazyLock::new(|| build_matcher(&SECRET_NAME_PARTS));
static SECRET_PREFIX_MATCHER: LazyLock<AhoCorasick> =
    LazyLock::new(|| build_matcher(&SECRET_PREFIXES));
static SECRET_HINT_MATCHER: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(SECRET_HINTS)
        .expect("few short words")
});

fn build_matcher(words: &[&str]) -> AhoCorasick {
    AhoCorasick::new(words).expect("few short words")
}

/// Replaces every value in `text` that looks like a secret by `***`, including
/// percent-encoded values.
pub fn mask_secrets(text: &str) -> String {
    let masked = mask_plain(text);
    if encoded::is_encoded(&masked) {
        encoded::mask_encoded(&masked)
    } else {
        masked
    }
}

/// Masks secrets that are not percent-encoded.
fn mask_plain(text: &str) -> String {
    // Most texts contain no secret; this skips the scan below.
    if !SECRET_NAME_MATCHER.is_match(&to_alphanumeric(text))
        && !SECRET_PREFIX_MATCHER.is_match(text)
        && !SECRET_HINT_MATCHER.is_match(text)
    {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        let escaped = rest[..at].ends_with('\\');
        let (before, string) = rest.split_at(at + 1);
        push_masked_text(&mut out, before);
        let end = string_end(string, escaped);
        let (content, after) = string.split_at(end);
        rest = after;
        match secret_value_range(content, after, escaped) {
            Some(value) => {
                out.push_str(content);
                out.push_str(&after[..value.start]);
                out.push_str(MASK);
                rest = &after[value.end..];
            }
            None => {
                // JSON nested in a string has its quotes escaped.
                if content.contains("\\\"") {
                    out.push_str(&mask_plain(content));
                } else {
                    push_masked_text(&mut out, content);
                }
                // Copy the closing quote, so that the loop does not take it for an
                // opening one.
                let quote = rest.len().min(if escaped { 2 } else { 1 });
                let quote = if rest.is_char_boundary(quote) {
                    quote
                } else {
                    0
                };
                out.push_str(&rest[..quote]);
                rest = &rest[quote..];
            }
        }
    }
    push_masked_text(&mut out, rest);
    out
}

/// Masks secrets in the arguments of a program, such as `--api-key VALUE`,
/// `--token=VALUE`, `-u user:password` and `X-Api-Key: VALUE`.
pub fn mask_arguments(arguments: &[String]) -> Vec<String> {
    let mut option = "";
    arguments
        .iter()
        .map(|argument| {
            let before = std::mem::replace(&mut option, argument);
            if is_secret_option(before) && !argument.starts_with('-') {
                return MASK.to_owned();
            }
            if let Some(masked) = mask_credentials(before, argument) {
                return masked;
            }
            match argument.split_once(':') {
                // A header whose name marks its value as a secret.
                Some((name, value)) if is_secret_name(name) && !value.starts_with("//") => {
                    format!("{name}: {MASK}")
                }
                _ => mask_secrets(argument),
            }
        })
        .collect()
}

/// Returns the secrets that [`mask_arguments`] masks in `arguments`.
pub fn masked_argument_values(arguments: &[String]) -> Vec<String> {
    let shown = mask_arguments(arguments);
    let masked_value = |(argument, shown): (&String, &String)| {
        let (before, after) = shown.split_once(MASK)?;
        let inner = argument.strip_prefix(before)?.strip_suffix(after)?;
        Some(inner.trim().to_owned())
    };
    let values = arguments.iter().zip(&shown).filter_map(masked_value);
    // Shorter values also occur in ordinary text.
    values.filter(|it| it.len() >= 6 && it != MASK).collect()
}

/// Whether `argument` is an option such as `--api-key` whose value is the next argument.
fn is_secret_option(argument: &str) -> bool {
    let name = argument.trim_start_matches('-');
    argument.len() > name.len()
        && !name.contains(['=', ' ', ':'])
        && (is_secret_name(name) || is_secret_parameter(name))
}

/// Masks the password of `user:password` behind an option such as `-u`.
fn mask_credentials(option: &str, value: &str) -> Option<String> {
    let (user, password) = value.split_once(':')?;
    // `docker run -u 1000:1000` names a user and a group.
    let is_number = |it: &str| it.bytes().all(|byte| byte.is_ascii_digit());
    let is_secret = CREDENTIAL_OPTIONS.contains(&option)
        && !value.starts_with('-')
        && !(is_number(user) && is_number(password));
    is_secret.then(|| format!("{user}:{MASK}"))
}

fn is_secret_parameter(name: &str) -> bool {
    SECRET_PARAMETERS
        .iter()
        .any(|it| it.eq_ignore_ascii_case(name))
}

/// Returns the position of the closing quote of a JSON string; `string` starts behind the
/// opening quote.
fn string_end(string: &str, escaped: bool) -> usize {
    let bytes = string.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'"')) if escaped => return at,
            (b'\\', Some(_)) => at += 2,
            (b'"', _) => return at,
            _ => at += 1,
        }
    }
    string.len()
}

/// Returns the range of the secret in `after`, the text behind `name`, if `name` is a
/// member or an option with a secret value.
fn secret_value_range(name: &str, after: &str, escaped: bool) -> Option<std::ops::Range<usize>> {
    let is_option = is_secret_option(name) || CREDENTIAL_OPTIONS.contains(&name);
    if !is_secret_name(name) && !is_option {
        return None;
    }
    let quote = if escaped { "\\\"" } else { "\"" };
    let rest = after.strip_prefix(quote)?.trim_start();
    if let Some(next) = rest.strip_prefix(',').filter(|_| is_option) {
        // The next argument of a command line.
        let string = next.trim_start().strip_prefix(quote)?;
        let start = after.len() - string.len();
        let end = start + string_end(string, escaped);
        let value = &after[start..end];
        let is_secret = is_secret_option(name) || mask_credentials(name, value).is_some();
        return (is_secret && !value.starts_with('-')).then_some(start..end);
    }
    let value = rest.strip_prefix(':')?.trim_start();
    let start = after.len() - value.len();
    if let Some(string) = value.strip_prefix(quote) {
        let start = start + quote.len();
        return Some(start..start + string_end(string, escaped));
    }
    if value.starts_with(['{', '[', 'n', 't', 'f']) {
        return None;
    }
    let end = value
        .find([',', '}', ']', '\n', ' '])
        .unwrap_or(value.len());
    Some(start..start + end)
}

fn is_secret_name(name: &str) -> bool {
    if name.len() > 100 {
        return false;
    }
    let plain = to_alphanumeric(name);
    SECRET_NAME_MATCHER.is_match(&plain) && !HARMLESS_NAME_PARTS.iter().any(|it| plain.contains(it))
}

/// Keeps ASCII letters and digits only, in lower case: `X-Api_Key` and `xapikey` are the
/// same name.
fn to_alphanumeric(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for byte in text.bytes().filter(u8::is_ascii_alphanumeric) {
        plain.push(byte.to_ascii_lowercase().into());
    }
    plain
}

/// Appends `text`, which is not JSON, with its secrets masked.
fn push_masked_text(out: &mut String, text: &str) {
    let text = mask_user_info(text);
    let text = mask_parameters(&text);
    let text = mask_options(&text);
    let mut text = text.as_str();
    while let Some(known) = SECRET_PREFIX_MATCHER.find(text) {
        let start = known.end();
        let tail = &text[start..];
        let end = tail
            .find(|c: char| !c.is_ascii_alphanumeric() && !"-_.~+/=".contains(c))
            .unwrap_or(tail.len());
        out.push_str(&text[..start]);
        // A shorter word is not a token: `task-force` contains `sk-`.
        out.push_str(if end >= 12 { MASK } else { &tail[..end] });
        text = &tail[end..];
    }
    out.push_str(text);
}

/// Masks the password of `scheme://user:password@host`, or the user if it stands alone.
fn mask_user_info(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, tail) = rest.split_at(at + 3);
        out.push_str(before);
        let word = tail
            .find(|c: char| c.is_whitespace() || "\"'<>`\\".contains(c))
            .unwrap_or(tail.len());
        let authority = tail[..word].find(['/', '?', '#']).unwrap_or(word);
        // A password may contain an unencoded slash; a port cannot.
        let has_password = tail[..authority].rsplit_once(':').is_some_and(|(_, it)| {
            !it.ends_with(']') && !it.bytes().all(|byte| byte.is_ascii_digit())
        });
        let end = if has_password { word } else { authority };
        rest = tail;
        if let Some(at) = tail[..end].rfind('@') {
            if let Some((user, _)) = tail[..at].split_once(':') {
                out.push_str(user);
                out.push(':');
            }
            out.push_str(MASK);
            rest = &tail[at..];
        }
    }
    out.push_str(rest);
    out
}

/// Masks `name=value` with a secret name, as in the query of a URL, a connection string
/// or an option, and the credentials behind `Basic`.
fn mask_parameters(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['=', ' ']) {
        let (before, tail) = rest.split_at(at + 1);
        out.push_str(before);
        rest = tail;
        let named = &before[..at];
        let is_outside = |c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c);
        let name = named.rsplit(is_outside).next().unwrap_or_default();
        let name = name.trim_start_matches('-');
        let quote = tail.chars().next().filter(|it| "'\"".contains(*it));
        let value = &tail[quote.map_or(0, char::len_utf8)..];
        let end = match quote {
            Some(quote) => value.find(quote),
            None => value.find(|c: char| c.is_whitespace() || "&;,#\"'\\)<>".contains(c)),
        };
        let end = end.unwrap_or(value.len());
        let is_secret = if before.ends_with('=') {
            is_secret_name(name) || is_secret_parameter(name)
        } else {
            name.eq_ignore_ascii_case("basic") && is_user_and_password(&value[..end])
        };
        if is_secret && end > 0 {
            out.extend(quote);
            out.push_str(MASK);
            rest = &value[end..];
        }
    }
    out.push_str(rest);
    out
}

/// Whether `word` is the base64 of `user:password`.
fn is_user_and_password(word: &str) -> bool {
    let decoded = BASE64_STANDARD.decode(word.trim_end_matches('.'));
    decoded.is_ok_and(|it| it.contains(&b':'))
}

/// Masks the word behind an option such as `--api-key`.
fn mask_options(text: &str) -> String {
    if !text.contains('-') {
        return text.to_owned();
    }
    let mut option = "";
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(' ') {
        let bare = word.trim_end_matches(' ');
        let before = std::mem::replace(&mut option, bare);
        let hides_next = before.starts_with("--") && is_secret_option(before);
        if hides_next && !bare.is_empty() && !bare.starts_with('-') {
            out.push_str(MASK);
        } else if let Some(masked) = mask_credentials(before, bare) {
            out.push_str(&masked);
        } else {
            out.push_str(bare);
        }
        out.push_str(&word[bare.len()..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(mask_secrets(text), expected);
    }

    #[test]
    fn values_of_secret_names_are_masked() {
        check(
            r#"{"password":"p","user":"u"}"#,
            r#"{"password":"***","user":"u"}"#,
        );
        check(
            r#"{"api_key" : 12345, "n": 1}"#,
            r#"{"api_key" : ***, "n": 1}"#,
        );
        check(
            r#"{"a":{"X-Auth-Token":"a\"b"}}"#,
            r#"{"a":{"X-Auth-Token":"***"}}"#,
        );
        check(
            r#"{"token":null,"max_tokens":5}"#,
            r#"{"token":null,"max_tokens":5}"#,
        );
    }

    #[test]
    fn nested_and_truncated_json_is_masked() {
        check(
            r#"{"text":"{\"secret\":\"s3\",\"a\":\"b\"}"}"#,
            r#"{"text":"{\"secret\":\"***\",\"a\":\"b\"}"}"#,
        );
        check(r#"{"password":"hunter"#, r#"{"password":"***"#);
        check(
            r#"{"text":"{\"token\":\"hun"#,
            r#"{"text":"{\"token\":\"***"#,
        );
    }

    #[test]
    fn known_tokens_are_masked_anywhere() {
        check(
            r#"["Authorization: Bearer abcdefghijklmnop"]"#,
            r#"["Authorization: Bearer ***"]"#,
        );
        check("key ghp_0123456789abcdefXYZ.", "key ghp_***");
        check("a task-force, desk-top", "a task-force, desk-top");
    }

    #[test]
    fn secrets_in_urls_are_masked() {
        for (text, expected) in [
            (
                "https://u:p4ss@example.com/mcp?a=1",
                "https://u:***@example.com/mcp?a=1",
            ),
            ("https://t0ken@example.com/", "https://***@example.com/"),
            (
                "postgres://u:p/w:x@db:5432/x was refused",
                "postgres://u:***@db:5432/x was refused",
            ),
            (
                "http://h:80/@user?api_key=abc&n=1&sig=def#x",
                "http://h:80/@user?api_key=***&n=1&sig=***#x",
            ),
            (
                r#"{"url":"https://h/?access_token=abc","n":1}"#,
                r#"{"url":"https://h/?access_token=***","n":1}"#,
            ),
            ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
            (
                "host=db user=u password=abc dbname='x'",
                "host=db user=u password=*** dbname='x'",
            ),
            ("Server=x;Pwd='a b';Port=1", "Server=x;Pwd='***';Port=1"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn secrets_in_command_lines_are_masked() {
        let check_line = |arguments: &[&str], expected: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(mask_arguments(&arguments), expected);
            mask_secrets(&arguments.join(" "))
        };
        let line = check_line(
            &[
                "-y",
                "server",
                "--api-key",
                "abc",
                "--token=def",
                "--port",
                "80",
            ],
            &[
                "-y",
                "server",
                "--api-key",
                "***",
                "--token=***",
                "--port",
                "80",
            ],
        );
        assert_eq!(line, "-y server --api-key *** --token=*** --port 80");
        check("server --key abc --all", "server --key *** --all");
        check_line(
            &["--header", "X-Api-Key: abc", "--verbose", "--key", "--all"],
            &["--header", "X-Api-Key: ***", "--verbose", "--key", "--all"],
        );
        check(
            r#"{"args":["--api-key","abc","x"]}"#,
            r#"{"args":["--api-key","***","x"]}"#,
        );
        let arguments = ["--token=s3cret-word".to_owned(), "--n".to_owned()];
        assert_eq!(masked_argument_values(&arguments), ["s3cret-word"]);
    }

    #[test]
    fn password_behind_a_user_option_is_masked() {
        let arguments = ["-u", "ann:s3cret", "-u", "1000:1000"].map(str::to_owned);
        let shown = ["-u", "ann:***", "-u", "1000:1000"];
        assert_eq!(mask_arguments(&arguments), shown);
        assert_eq!(masked_argument_values(&arguments), ["s3cret"]);
        check("curl -u ann:s3cret http://h/", "curl -u ann:*** http://h/");
        check(
            r#"{"args":["-u","ann:s3cret","x"]}"#,
            r#"{"args":["-u","***","x"]}"#,
        );
    }

    #[test]
    fn basic_masks_credentials_but_not_prose() {
        check("Authorization: Basic dTpw", "Authorization: Basic ***");
        check("Basic knowledge is enough", "Basic knowledge is enough");
    }

    #[test]
    fn every_known_prefix_is_masked() {
        for prefix in SECRET_PREFIXES {
            let text = format!("가 {prefix}0123456789abcdef 나");
            check(&text, &format!("가 {prefix}*** 나"));
        }
    }

    #[test]
    fn malformed_text_does_not_panic() {
        for text in [
            "",
            "\"",
            "\\\"",
            "\"token\":",
            "\"token\":\"",
            "가\"나\\",
            "\"\\",
            "://",
            "://:@",
            "a://가:나@",
            "token=",
            "token='",
            "=가",
            "--token  ",
            "\"--token\",\"",
            "\"--token\",\"가",
        ] {
            mask_secrets(text);
        }
    }
}
