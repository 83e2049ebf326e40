//! Number and string literals.

use num_bigint::BigInt;

use super::{
    error::{Result, syntax_error},
    limits::MAX_SOURCE_BYTES,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Int(i64),
    BigInt(BigInt),
    Float(f64),
    Text(String),
}

/// The prefix and opening quote of a string literal.
#[derive(Clone, Copy, Debug)]
pub(super) struct StringOpening {
    pub(super) quote: &'static str,
    pub(super) length: usize,
    pub(super) is_raw: bool,
    pub(super) is_fstring: bool,
}

/// Parses the opening of a string literal, if `rest` starts with one.
pub(super) fn parse_string_opening(rest: &str) -> Option<StringOpening> {
    let is_quote = |c: &u8| matches!(c, b'"' | b'\'');
    let prefix = rest.as_bytes().iter().take(3).position(is_quote)?;
    let letters = rest.get(..prefix)?.to_ascii_lowercase();
    if !matches!(letters.as_str(), "" | "r" | "f" | "rf" | "fr" | "u") {
        return None;
    }
    let quoted = &rest[prefix..];
    let quote = ["\"\"\"", "'''", "\"", "'"]
        .into_iter()
        .find(|it| quoted.starts_with(it))?;
    Some(StringOpening {
        quote,
        length: prefix + quote.len(),
        is_raw: letters.contains('r'),
        is_fstring: letters.contains('f'),
    })
}

/// Returns the offset of the closing `quote`.
pub(super) fn find_closing_quote(text: &str, quote: &str) -> Result<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if text[at..].starts_with(quote) {
            return Ok(at);
        } else if c == '\n' && quote.len() == 1 {
            break;
        }
    }
    Err(syntax_error("unterminated string literal"))
}

/// Parses the number that `rest` starts with, and returns its length.
pub(super) fn parse_number(rest: &str) -> Result<(Literal, usize)> {
    let bytes = rest.as_bytes();
    let radix = match bytes.get(1).map(u8::to_ascii_lowercase) {
        Some(b'x') if bytes[0] == b'0' => 16,
        Some(b'o') if bytes[0] == b'0' => 8,
        Some(b'b') if bytes[0] == b'0' => 2,
        _ => return parse_decimal(rest),
    };
    let length = 2 + digits_length(&rest[2..], |c| c.is_digit(radix));
    let written = strip_underscores(&rest[2..length])?;
    Ok((parse_integer(&written, radix)?, length))
}

fn parse_decimal(rest: &str) -> Result<(Literal, usize)> {
    let whole = digits_length(rest, |c| c.is_ascii_digit());
    let mut length = whole;
    if rest[length..].starts_with('.') {
        length += 1;
        length += digits_length(&rest[length..], |c| c.is_ascii_digit());
    }
    length += exponent_length(&rest[length..]);
    if rest[length..].starts_with(['j', 'J']) {
        return Err(syntax_error("complex numbers are not supported"));
    }
    let written = strip_underscores(&rest[..length])?;
    if length > whole {
        let number = written.parse();
        let number = number.map_err(|_| syntax_error("invalid decimal literal"))?;
        return Ok((Literal::Float(number), length));
    }
    let zeros = written.bytes().all(|c| c == b'0');
    if written.starts_with('0') && !zeros {
        return Err(syntax_error(
            "leading zeros in decimal integer literals are not permitted",
        ));
    }
    Ok((parse_integer(&written, 10)?, length))
}

fn exponent_length(rest: &str) -> usize {
    if !rest.starts_with(['e', 'E']) {
        return 0;
    }
    let sign = usize::from(rest[1..].starts_with(['+', '-']));
    match digits_length(&rest[1 + sign..], |c| c.is_ascii_digit()) {
        0 => 0,
        length => 1 + sign + length,
    }
}

/// Returns the length of a run of digits and underscores.
fn digits_length(rest: &str, is_digit: impl Fn(char) -> bool) -> usize {
    rest.find(|c| !is_digit(c) && c != '_')
        .unwrap_or(rest.len())
}

/// Removes underscores, which are allowed between digits only.
fn strip_underscores(written: &str) -> Result<String> {
    let single = |part: &str| part.ends_with(|c: char| c.is_ascii_hexdigit());
    let mut parts = written.split('_');
    let last = parts.next_back();
    let is_invalid = !parts.all(single) || last.is_some_and(str::is_empty);
    if is_invalid || written.len() > MAX_SOURCE_BYTES {
        Err(syntax_error("invalid decimal literal"))
    } else {
        Ok(written.replace('_', ""))
    }
}

fn parse_integer(written: &str, radix: u32) -> Result<Literal> {
    if let Ok(small) = i64::from_str_radix(written, radix) {
        return Ok(Literal::Int(small));
    }
    match BigInt::parse_bytes(written.as_bytes(), radix) {
        Some(big) => Ok(Literal::BigInt(big)),
        None => Err(syntax_error("invalid integer literal")),
    }
}

/// Replaces the escapes in the body of a string literal.
pub(super) fn unescape(body: &str) -> Result<String> {
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = unescape_one(&rest[at + 1..], &mut out)?;
    }
    out.push_str(rest);
    Ok(out)
}

/// Appends the character of one escape and returns the rest.
fn unescape_one<'s>(rest: &'s str, out: &mut String) -> Result<&'s str> {
    let Some(first) = rest.chars().next() else {
        return Err(syntax_error("unterminated string literal"));
    };
    let after = &rest[first.len_utf8()..];
    let c = match first {
        '\n' => return Ok(after),
        '\\' | '\'' | '"' => first,
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        'x' => return unescape_code_point(after, 2, out),
        'u' => return unescape_code_point(after, 4, out),
        'U' => return unescape_code_point(after, 8, out),
        '0'..='7' => return unescape_octal(rest, out),
        'N' => return Err(syntax_error("\\N{…} escapes are not supported")),
        other => {
            out.push('\\');
            other
        }
    };
    out.push(c);
    Ok(after)
}

fn unescape_code_point<'s>(rest: &'s str, length: usize, out: &mut String) -> Result<&'s str> {
    let code = rest.get(..length);
    let code = code.and_then(|it| u32::from_str_radix(it, 16).ok());
    match code.and_then(char::from_u32) {
        Some(found) => out.push(found),
        None => return Err(syntax_error("an escape that is no character")),
    }
    Ok(&rest[length..])
}

fn unescape_octal<'s>(rest: &'s str, out: &mut String) -> Result<&'s str> {
    let length = rest
        .find(|c| !matches!(c, '0'..='7'))
        .unwrap_or(rest.len())
        .min(3);
    let code = u32::from_str_radix(&rest[..length], 8).ok();
    out.extend(code.and_then(char::from_u32));
    Ok(&rest[length..])
}
