//! String methods.

#![expect(
    clippy::needless_pass_by_value,
    reason = "everything in the catalog has one shape"
)]

use std::sync::Arc;

use unicode_general_category::{GeneralCategory as G, get_general_category};

use super::{
    builtins::BuiltinCall,
    collections::expect_i64,
    error::{Result, type_error, value_error},
    evaluator::Evaluator,
    iteration::{self, IterationFlow},
    limits::ResourceMeter,
    repr,
    string_search::{TextSlice, char_range},
    value::{TextValue, Value},
};

pub(super) use super::string_search::{
    count, ends_with, find, index, partition, replace, rfind, rindex, rpartition, rsplit, split,
    split_lines, starts_with,
};

/// Whether `c` is whitespace in Python.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

pub(super) fn upper(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    map_text(evaluator, call, str::to_uppercase)
}

pub(super) fn lower(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    map_text(evaluator, call, str::to_lowercase)
}

pub(super) fn casefold(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    map_text(evaluator, call, |it| {
        it.to_lowercase().replace('ß', "ss").replace('ς', "σ")
    })
}

pub(super) fn swapcase(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    map_text(evaluator, call, |it| {
        let swap = |c: char| {
            if c.is_uppercase() {
                c.to_lowercase().collect::<String>()
            } else {
                c.to_uppercase().collect()
            }
        };
        it.chars().map(swap).collect()
    })
}

pub(super) fn capitalize(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    map_text(evaluator, call, |it| {
        let mut chars = it.chars();
        let first = chars.next().map(title_case).unwrap_or_default();
        first + &chars.as_str().to_lowercase()
    })
}

pub(super) fn title(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    map_text(evaluator, call, |it| {
        let mut out = String::new();
        let mut inside = false;
        for c in it.chars() {
            if inside {
                out.extend(c.to_lowercase());
            } else {
                out.push_str(&title_case(c));
            }
            inside = is_cased(c);
        }
        out
    })
}

pub(super) fn strip(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    strip_ends(evaluator, call, StripSide::Both)
}

pub(super) fn lstrip(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    strip_ends(evaluator, call, StripSide::Start)
}

pub(super) fn rstrip(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    strip_ends(evaluator, call, StripSide::End)
}

pub(super) fn remove_prefix(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let [prefix] = call.take_exactly()?;
    let prefix = expect_text(&prefix, "removeprefix")?;
    let rest = text.body.strip_prefix(&*prefix.body);
    text_value(&mut evaluator.meter, rest.unwrap_or(&text.body))
}

pub(super) fn remove_suffix(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let [suffix] = call.take_exactly()?;
    let suffix = expect_text(&suffix, "removesuffix")?;
    let rest = text.body.strip_suffix(&*suffix.body);
    text_value(&mut evaluator.meter, rest.unwrap_or(&text.body))
}

pub(super) fn join(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let separator = receiver_text(&call)?;
    let [source] = call.take_exactly()?;
    let mut out = String::new();
    let (mut chars, mut at) = (0, 0);
    iteration::for_each_item(evaluator, source, &mut |evaluator, item| {
        let Value::Text(text) = &item else {
            return Err(type_error(format!(
                "sequence item {at}: expected str instance, {} found",
                item.type_name()
            )));
        };
        let between = if at > 0 { &*separator } else { &EMPTY_TEXT };
        chars += text.chars + between.chars;
        evaluator
            .meter
            .charge_text(chars, text.body.len() + between.body.len())?;
        out.push_str(&between.body);
        out.push_str(&text.body);
        at += 1;
        Ok(IterationFlow::Continue)
    })?;
    Ok(Value::text(out))
}

pub(super) fn center(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    pad_to_width(evaluator, call, |missing, width| {
        missing / 2 + (missing & width & 1)
    })
}

pub(super) fn ljust(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    pad_to_width(evaluator, call, |_, _| 0)
}

pub(super) fn rjust(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    pad_to_width(evaluator, call, |missing, _| missing)
}

pub(super) fn zfill(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let [width] = call.take_exactly()?;
    let width = usize::try_from(expect_i64(&width)?).unwrap_or_default();
    let missing = width.saturating_sub(text.chars);
    evaluator
        .meter
        .charge_text(text.chars + missing, text.body.len() + missing)?;
    let split = usize::from(text.body.starts_with(['+', '-']));
    let (sign, digits) = text.body.split_at(split);
    Ok(Value::text(format!(
        "{sign}{}{digits}",
        "0".repeat(missing)
    )))
}

pub(super) fn expand_tabs(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let [size] = call.bind(0, ["tabsize"])?;
    let size = size.map_or(Ok(8), |it| expect_i64(&it))?;
    let size = usize::try_from(size).unwrap_or_default();
    let tabs = text.body.matches('\t').count();
    let most = text.chars.saturating_add(tabs.saturating_mul(size));
    evaluator
        .meter
        .charge_text(most, most.max(text.body.len()))?;
    let mut out = String::new();
    let mut column = 0;
    for c in text.body.chars() {
        match c {
            '\t' if size == 0 => (),
            '\t' => {
                let blanks = size - column % size;
                out.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            _ => {
                out.push(c);
                column += 1;
            }
        }
    }
    Ok(Value::text(out))
}

pub(super) fn is_alpha(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    all_chars_match(evaluator, call, is_letter)
}

pub(super) fn is_alnum(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    all_chars_match(evaluator, call, |c| is_letter(c) || is_numeric_char(c))
}

pub(super) fn is_decimal(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    all_chars_match(evaluator, call, |c| {
        get_general_category(c) == G::DecimalNumber
    })
}

pub(super) fn is_digit(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    all_chars_match(evaluator, call, |c| {
        get_general_category(c) == G::DecimalNumber
            || matches!(c, '²' | '³' | '¹' | '⁰'..='⁹' | '₀'..='₉' | '①'..='⑨')
    })
}

pub(super) fn is_numeric(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    all_chars_match(evaluator, call, is_numeric_char)
}

pub(super) fn is_printable(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let empty = receiver_text(&call)?.chars == 0;
    if empty {
        Ok(Value::Bool(true))
    } else {
        all_chars_match(evaluator, call, repr::is_printable)
    }
}

pub(super) fn is_space(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    all_chars_match(evaluator, call, is_blank)
}

pub(super) fn is_ascii(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_count(0)?;
    Ok(Value::Bool(receiver_text(&call)?.is_ascii()))
}

pub(super) fn is_identifier(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let digit = receiver_text(&call)?
        .body
        .starts_with(|c: char| c.is_numeric());
    let plain = all_chars_match(evaluator, call, |c| c == '_' || c.is_alphanumeric())?;
    Ok(Value::Bool(plain.is_truthy() && !digit))
}

pub(super) fn is_lower(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    all_cased_chars_match(evaluator, &call, char::is_lowercase)
}

pub(super) fn is_upper(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    all_cased_chars_match(evaluator, &call, char::is_uppercase)
}

pub(super) fn is_title(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    call.expect_count(0)?;
    evaluator.meter.charge_scan(text.body.len())?;
    let (mut any, mut inside) = (false, false);
    for c in text.body.chars() {
        let fits = match (c.is_uppercase(), c.is_lowercase()) {
            (true, _) => !inside,
            (_, true) => inside,
            _ => true,
        };
        if !fits {
            return Ok(Value::Bool(false));
        }
        inside = is_cased(c);
        any |= inside;
    }
    Ok(Value::Bool(any))
}

/// Returns the string that a method is called on.
pub(super) fn receiver_text(call: &BuiltinCall<'_>) -> Result<Arc<TextValue>> {
    expect_text(&call.receiver, call.name).cloned()
}

pub(super) fn expect_text<'v>(value: &'v Value, name: &str) -> Result<&'v Arc<TextValue>> {
    match value {
        Value::Text(text) => Ok(text),
        _ => Err(type_error(format!(
            "{name}() argument must be str, not {}",
            value.type_name()
        ))),
    }
}

/// Creates a string value from a substring.
pub(super) fn text_value(meter: &mut ResourceMeter<'_>, part: &str) -> Result<Value> {
    meter.charge_text(0, part.len())?;
    Ok(Value::text(part))
}

static EMPTY_TEXT: std::sync::LazyLock<TextValue> = std::sync::LazyLock::new(|| TextValue::new(""));

fn map_text(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
    change: fn(&str) -> String,
) -> Result<Value> {
    let text = receiver_text(&call)?;
    call.expect_count(0)?;
    // Case mapping turns a character into three at most.
    evaluator
        .meter
        .charge_text(text.chars, text.body.len() * 3)?;
    evaluator.meter.charge_scan(text.body.len() * 8)?;
    let text = TextValue::new(change(&text.body));
    evaluator.meter.charge_text(text.chars, 0)?;
    Ok(Value::Text(Arc::new(text)))
}

fn title_case(c: char) -> String {
    let mut upper = c.to_uppercase();
    let first = upper.next().into_iter();
    first.chain(upper.flat_map(char::to_lowercase)).collect()
}

fn is_cased(c: char) -> bool {
    c.is_uppercase() || c.is_lowercase() || get_general_category(c) == G::TitlecaseLetter
}

fn is_letter(c: char) -> bool {
    matches!(
        get_general_category(c),
        G::LowercaseLetter
            | G::UppercaseLetter
            | G::TitlecaseLetter
            | G::ModifierLetter
            | G::OtherLetter
    )
}

fn is_numeric_char(c: char) -> bool {
    const CJK_NUMERALS: &str = "〇一二三四五六七八九十百千万億兆零";
    matches!(
        get_general_category(c),
        G::DecimalNumber | G::LetterNumber | G::OtherNumber
    ) || CJK_NUMERALS.contains(c)
}

fn all_chars_match(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
    holds: fn(char) -> bool,
) -> Result<Value> {
    let text = receiver_text(&call)?;
    call.expect_count(0)?;
    evaluator.meter.charge_scan(text.body.len() * 8)?;
    Ok(Value::Bool(text.chars > 0 && text.body.chars().all(holds)))
}

fn all_cased_chars_match(
    evaluator: &mut Evaluator<'_>,
    call: &BuiltinCall<'_>,
    wanted: fn(char) -> bool,
) -> Result<Value> {
    let text = receiver_text(call)?;
    call.expect_count(0)?;
    evaluator.meter.charge_scan(text.body.len() * 8)?;
    let mut letters = text.body.chars().filter(|c| is_cased(*c)).peekable();
    Ok(Value::Bool(letters.peek().is_some() && letters.all(wanted)))
}

/// Which end of a string `strip` and its variants shorten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StripSide {
    Both,
    Start,
    End,
}

fn strip_ends(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
    side: StripSide,
) -> Result<Value> {
    let text = receiver_text(&call)?;
    let name = call.name;
    let [set] = call.bind(0, [""])?;
    let set = match set {
        None | Some(Value::None) => None,
        Some(Value::Text(set)) => Some(set),
        Some(_) => return Err(type_error(format!("{name} arg must be None or str"))),
    };
    let weight = set.as_ref().map_or(1, |it| it.chars);
    evaluator
        .meter
        .charge_scan(text.body.len().saturating_mul(weight.min(4096)))?;
    let matches = |c: char| match &set {
        Some(set) => set.body.contains(c),
        None => is_blank(c),
    };
    let mut body: &str = &text.body;
    if side != StripSide::End {
        body = body.trim_start_matches(matches);
    }
    if side != StripSide::Start {
        body = body.trim_end_matches(matches);
    }
    text_value(&mut evaluator.meter, body)
}

fn pad_to_width(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
    before: fn(usize, usize) -> usize,
) -> Result<Value> {
    let text = receiver_text(&call)?;
    let [width, fill] = call.bind(1, ["", ""])?;
    let width = width.map_or(Ok(0), |it| expect_i64(&it))?;
    let width = usize::try_from(width).unwrap_or_default();
    let fill = match fill {
        None => ' ',
        Some(Value::Text(fill)) if fill.chars == 1 => fill.body.chars().next().unwrap_or(' '),
        Some(_) => {
            return Err(type_error(
                "The fill character must be exactly one character long",
            ));
        }
    };
    let missing = width.saturating_sub(text.chars);
    let bytes = missing.saturating_mul(fill.len_utf8());
    evaluator.meter.charge_text(
        text.chars.saturating_add(missing),
        text.body.len().saturating_add(bytes),
    )?;
    let before = before(missing, width);
    let fill = |count| std::iter::repeat_n(fill, count).collect::<String>();
    let (left, right) = (fill(before), fill(missing - before));
    Ok(Value::text(format!("{left}{}{right}", text.body)))
}

/// Returns the substring between the `start` and `end` arguments of a method.
pub(super) fn slice_by_bounds<'t>(
    meter: &mut ResourceMeter<'_>,
    text: &'t TextValue,
    from: Option<Value>,
    to: Option<Value>,
) -> Result<Option<TextSlice<'t>>> {
    let length = text.chars as i64;
    let bound = |value: Option<Value>, default: i64| -> Result<i64> {
        match value {
            None | Some(Value::None) => Ok(default),
            Some(value) => {
                let at = value.to_bigint().ok_or_else(|| {
                    type_error("slice indices must be integers or None or have an __index__ method")
                })?;
                let at = i64::try_from(at).unwrap_or(length + 1);
                Ok(if at < 0 {
                    at.saturating_add(length).max(0)
                } else {
                    at
                })
            }
        }
    };
    let (from, to) = (bound(from, 0)?, bound(to, length)?.min(length));
    if from > to {
        return Ok(None);
    }
    char_range(meter, text, from as usize, to as usize).map(Some)
}

/// The error for a substring that is not found.
pub(super) fn substring_not_found() -> super::error::UnlocatedError {
    value_error("substring not found")
}
