//! Masks secrets that are percent-encoded, as in the query of a URL.

use super::{MASK, mask_plain};

/// How often a value is decoded: a URL inside the query of a URL is encoded twice.
const MAX_ENCODING_DEPTH: usize = 3;

/// Masks the parts of `text` that contain a secret once they are decoded. The name of a
/// parameter stays readable.
pub(super) fn mask_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive(is_separator) {
        let bare = part.trim_end_matches(is_separator);
        if is_encoded(bare) && contains_secret(bare) {
            if let Some((name, _)) = bare.split_once('=') {
                out.push_str(name);
                out.push('=');
            }
            out.push_str(MASK);
            out.push_str(&part[bare.len()..]);
        } else {
            out.push_str(part);
        }
    }
    out
}

/// Whether percent-decoding would change `text`.
pub(super) fn is_encoded(text: &str) -> bool {
    text.contains(['%', '+'])
}

fn contains_secret(part: &str) -> bool {
    let mut decoded = decode(part);
    for _ in 1..MAX_ENCODING_DEPTH {
        if mask_plain(&decoded) != decoded {
            return true;
        }
        if !decoded.contains('%') {
            return false;
        }
        decoded = decode(&decoded);
    }
    mask_plain(&decoded) != decoded
}

/// Whether `c` separates two query parameters or two URLs.
fn is_separator(c: char) -> bool {
    c.is_whitespace() || "?&;#\"'<>`\\".contains(c)
}

/// Decodes `%41` and `+` as in a query string.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let byte = digits.and_then(|it| u8::from_str_radix(std::str::from_utf8(it).ok()?, 16).ok());
        decoded.push(match (byte, bytes[at]) {
            (Some(byte), _) => byte,
            (None, b'+') => b' ',
            (None, other) => other,
        });
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::mask_secrets;

    #[test]
    fn encoded_secrets_in_urls_are_masked() {
        for (text, expected) in [
            (
                "http://h/?API%5FKEY=S3CRET&n=1",
                "http://h/?API%5FKEY=***&n=1",
            ),
            ("http://h/?x=Bearer%20S3CRET-S3CRET", "http://h/?x=***"),
            ("http://h/?x=Bearer+S3CRET-S3CRET", "http://h/?x=***"),
            (
                "http://h/?redirect=http%3A%2F%2Fu%3AS3CRET%40h%2F&n=1",
                "http://h/?redirect=***&n=1",
            ),
            ("http://h/?a=api%255Fkey%253DS3CRET", "http://h/?a=***"),
            ("?API%5FKEY=S3CRET", "?API%5FKEY=***"),
            (
                "http://u:p%40ss@h/a%20b?c=d%20e",
                "http://u:***@h/a%20b?c=d%20e",
            ),
            ("a + b is 100 % of c", "a + b is 100 % of c"),
            (
                "http://h/%EC%97%B0%EC%B0%A8?q=%",
                "http://h/%EC%97%B0%EC%B0%A8?q=%",
            ),
        ] {
            assert_eq!(mask_secrets(text), expected);
        }
    }

    #[test]
    fn malformed_encoding_does_not_panic() {
        for text in ["%", "%4", "%zz", "%가", "+%", "%+1token=x", "%ff%fe=%00"] {
            mask_secrets(text);
        }
        mask_secrets(&"%25".repeat(100_000));
    }
}
