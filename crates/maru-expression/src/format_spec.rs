//! The format specification of f-strings and `format()`.

use num_traits::{Signed as _, ToPrimitive as _};

use super::{
    dates,
    error::{Result, UnlocatedError, limit_error, overflow_error, type_error, value_error},
    format_float, integer,
    limits::ResourceMeter,
    repr,
    value::Value,
};

/// A parsed specification:
/// `[[fill]align][sign][#][0][width][grouping][.precision][type]`.
#[derive(Clone, Debug, Default)]
pub(super) struct FormatSpec {
    pub(super) fill: Option<char>,
    pub(super) align: Option<char>,
    pub(super) sign: Option<char>,
    pub(super) alternate: bool,
    pub(super) width: usize,
    pub(super) grouping: Option<char>,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
}

/// Formats `value` by `spec`.
pub(super) fn format(meter: &mut ResourceMeter<'_>, value: &Value, spec: &str) -> Result<String> {
    if spec.is_empty() {
        return repr::to_text(meter, value);
    }
    match value {
        Value::Date(_) | Value::DateTime(_) => dates::format_datetime(meter, value, spec),
        Value::Text(text) => format_text(meter, &text.body, &FormatSpec::parse(spec, "str")?),
        Value::Float(number) => {
            let spec = FormatSpec::parse(spec, "float")?;
            format_float::format(meter, *number, &spec)
        }
        Value::Bool(_) | Value::Int(_) | Value::BigInt(_) => {
            let spec = FormatSpec::parse(spec, value.type_name())?;
            format_integer(meter, value, &spec)
        }
        _ => Err(type_error(format!(
            "unsupported format string passed to {}.__format__",
            value.type_name()
        ))),
    }
}

impl FormatSpec {
    fn parse(text: &str, owner: &str) -> Result<Self> {
        let invalid_error = || {
            value_error(format!(
                "Invalid format specifier '{text}' for object of type '{owner}'"
            ))
        };
        let all: Vec<char> = text.chars().collect();
        let mut spec = Self::default();
        let mut rest = spec.parse_alignment(&all);
        spec.sign = take_one_of(&mut rest, &['+', '-', ' ']);
        spec.alternate = take_one_of(&mut rest, &['#']).is_some();
        if spec.fill.is_none() && take_one_of(&mut rest, &['0']).is_some() {
            spec.fill = Some('0');
            let inside = spec.align.is_none() && owner != "str";
            spec.align = if inside { Some('=') } else { spec.align };
        }
        spec.width = parse_number(&mut rest)?.unwrap_or_default();
        spec.grouping = take_one_of(&mut rest, &[',', '_']);
        if take_one_of(&mut rest, &['.']).is_some() {
            let precision = parse_number(&mut rest)?;
            let missing = || value_error("Format specifier missing precision");
            spec.precision = Some(precision.ok_or_else(missing)?);
        }
        match rest {
            [] => Ok(spec),
            [kind] => {
                spec.kind = Some(*kind);
                Ok(spec)
            }
            _ => Err(invalid_error()),
        }
    }

    fn parse_alignment<'c>(&mut self, all: &'c [char]) -> &'c [char] {
        let is_align = |c: &char| matches!(c, '<' | '>' | '=' | '^');
        match all {
            [fill, align, rest @ ..] if is_align(align) => {
                (self.fill, self.align) = (Some(*fill), Some(*align));
                rest
            }
            [align, rest @ ..] if is_align(align) => {
                self.align = Some(*align);
                rest
            }
            _ => all,
        }
    }

    /// Groups the digits and pads the number to the width.
    pub(super) fn align_number(
        &self,
        meter: &mut ResourceMeter<'_>,
        sign: &str,
        digits: &str,
        rest: &str,
    ) -> Result<String> {
        let long = digits.len() * 2 + sign.len() + rest.len();
        meter.charge_text(
            self.width,
            self.width.saturating_mul(4).saturating_add(long),
        )?;
        let zeros = self.fill == Some('0') && self.align == Some('=');
        let min_length = if zeros {
            self.width.saturating_sub(sign.len() + rest.len())
        } else {
            0
        };
        let grouped = match self.grouping {
            Some(mark) => group_digits(digits, mark, self.group_size(), min_length),
            None => format!("{digits:0>min_length$}"),
        };
        let body = format!("{grouped}{rest}");
        if self.align == Some('=') {
            let fill = self.width.saturating_sub(sign.len() + body.chars().count());
            let fill: String = std::iter::repeat_n(self.fill.unwrap_or(' '), fill).collect();
            return Ok(format!("{sign}{fill}{body}"));
        }
        Ok(self.pad(&format!("{sign}{body}"), '>'))
    }

    fn group_size(&self) -> usize {
        match self.kind {
            Some('b' | 'o' | 'x' | 'X') => 4,
            _ => 3,
        }
    }

    /// Pads `body` to the width; `align` is the default alignment.
    fn pad(&self, body: &str, align: char) -> String {
        let missing = self.width.saturating_sub(body.chars().count());
        let before = match self.align.unwrap_or(align) {
            '<' => 0,
            '^' => missing / 2,
            _ => missing,
        };
        let fill = |count| std::iter::repeat_n(self.fill.unwrap_or(' '), count).collect::<String>();
        format!("{}{body}{}", fill(before), fill(missing - before))
    }

    pub(super) fn sign_text(&self, negative: bool) -> &'static str {
        match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        }
    }
}

pub(super) fn unknown_format_code(kind: char, owner: &str) -> UnlocatedError {
    value_error(format!(
        "Unknown format code '{kind}' for object of type '{owner}'"
    ))
}

pub(super) fn format_text(
    meter: &mut ResourceMeter<'_>,
    body: &str,
    spec: &FormatSpec,
) -> Result<String> {
    if let Some(kind) = spec.kind.filter(|it| *it != 's') {
        return Err(unknown_format_code(kind, "str"));
    }
    if spec.sign.is_some() {
        return Err(value_error("Sign not allowed in string format specifier"));
    }
    if spec.alternate {
        return Err(value_error(
            "Alternate form (#) not allowed in string format specifier",
        ));
    }
    if let Some(mark) = spec.grouping {
        return Err(value_error(format!("Cannot specify '{mark}' with 's'.")));
    }
    if spec.align == Some('=') {
        return Err(value_error(
            "'=' alignment not allowed in string format specifier",
        ));
    }
    meter.charge_text(spec.width, spec.width.saturating_mul(4) + body.len())?;
    match spec.precision {
        Some(max_chars) => {
            let truncated: String = body.chars().take(max_chars).collect();
            Ok(spec.pad(&truncated, '<'))
        }
        None => Ok(spec.pad(body, '<')),
    }
}

pub(super) fn format_integer(
    meter: &mut ResourceMeter<'_>,
    value: &Value,
    spec: &FormatSpec,
) -> Result<String> {
    let number = value.to_bigint().unwrap_or_default();
    let kind = spec.kind.unwrap_or('d');
    if matches!(kind, 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') {
        return format_float::format(meter, integer::to_float(&number)?, spec);
    }
    if spec.precision.is_some() {
        return Err(value_error(
            "Precision not allowed in integer format specifier",
        ));
    }
    let (radix, prefix) = match kind {
        'd' | 'n' => (10, ""),
        'b' => (2, "0b"),
        'o' => (8, "0o"),
        'x' => (16, "0x"),
        'X' => (16, "0X"),
        'c' => return format_character(meter, &number, spec),
        _ => return Err(unknown_format_code(kind, value.type_name())),
    };
    if let Some(mark) = spec.grouping
        && (kind == 'n' || (mark == ',' && radix != 10))
    {
        return Err(value_error(format!(
            "Cannot specify '{mark}' with '{kind}'."
        )));
    }
    meter.charge_steps(1 + number.bits() * number.bits() / 65_536)?;
    meter.charge_memory(number.bits() as usize)?;
    let mut digits = number.abs().to_str_radix(radix);
    if kind == 'X' {
        digits.make_ascii_uppercase();
    }
    let prefix = if spec.alternate { prefix } else { "" };
    let sign = format!("{}{prefix}", spec.sign_text(number.is_negative()));
    spec.align_number(meter, &sign, &digits, "")
}

fn format_character(
    meter: &mut ResourceMeter<'_>,
    number: &num_bigint::BigInt,
    spec: &FormatSpec,
) -> Result<String> {
    if spec.sign.is_some() {
        return Err(value_error(
            "Sign not allowed with integer format specifier 'c'",
        ));
    }
    match number.to_u32().and_then(char::from_u32) {
        Some(c) => {
            meter.charge_text(spec.width, spec.width.saturating_mul(4))?;
            Ok(spec.pad(&c.to_string(), '<'))
        }
        None => Err(overflow_error("%c arg not in range(0x110000)")),
    }
}

/// Inserts `mark` between groups of digits, and zeros up to `wanted` characters.
fn group_digits(digits: &str, mark: char, size: usize, min_length: usize) -> String {
    let mut reversed: Vec<char> = Vec::new();
    let mut digits = digits.chars().rev().peekable();
    let mut count = 0;
    while digits.peek().is_some() || reversed.len() < min_length {
        if count > 0 && count % size == 0 {
            reversed.push(mark);
        }
        reversed.push(digits.next().unwrap_or('0'));
        count += 1;
    }
    reversed.into_iter().rev().collect()
}

fn take_one_of(rest: &mut &[char], min_length: &[char]) -> Option<char> {
    let (first, after) = rest.split_first()?;
    if !min_length.contains(first) {
        return None;
    }
    *rest = after;
    Some(*first)
}

fn parse_number(rest: &mut &[char]) -> Result<Option<usize>> {
    let length = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    let (digits, after) = rest.split_at(length);
    *rest = after;
    if length == 0 {
        return Ok(None);
    }
    let digits: String = digits.iter().collect();
    match digits.parse() {
        Ok(number) if number <= 1_000_000_000_usize => Ok(Some(number)),
        _ => Err(limit_error("Too many decimal digits in format string")),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::check_texts;

    #[test]
    fn specifications_align_group_and_round_as_in_python() {
        check_texts(&[
            ("f'{3.14159:8.2f}|'", "    3.14|"),
            ("f'{1234567:,}'", "1,234,567"),
            ("f'{1234567.891:_.1f}'", "1_234_567.9"),
            ("f'{\"ab\":*^6}'", "**ab**"),
            ("f'{255:#06x}'", "0x00ff"),
            ("f'{-5:=+6d}'", "-    5"),
            ("f'{0.25:.0%}'", "25%"),
            ("f'{2.5:.0f}'", "2"),
        ]);
    }
}
