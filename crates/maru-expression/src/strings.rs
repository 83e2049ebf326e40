//! Methods of texts.

#![expect(
    clippy::needless_pass_by_value,
    reason = "everything in the catalog has one shape"
)]

use std::sync::Arc;

use unicode_general_category::{GeneralCategory as G, get_general_category};

use super::{
    builtins::EvaluatedArguments,
    collections::expect_i64,
    error::{Result, type_error, value_error},
    evaluator::Evaluator,
    iteration::IterationFlow,
    limits::ResourceMeter,
    repr,
    string_search::{TextSlice, char_range},
    value::{TextValue, Value},
};

pub(super) use super::string_search::{
    count, ends_with, find, index, partition, replace, rfind, rindex, rpartition, rsplit, split,
    split_lines, starts_with,
};

/// What counts as a blank for Python.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

pub(super) fn upper(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    map_text(run, given, str::to_uppercase)
}

pub(super) fn lower(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    map_text(run, given, str::to_lowercase)
}

pub(super) fn casefold(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    map_text(run, given, |it| {
        it.to_lowercase().replace('ß', "ss").replace('ς', "σ")
    })
}

pub(super) fn swapcase(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    map_text(run, given, |it| {
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

pub(super) fn capitalize(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    map_text(run, given, |it| {
        let mut chars = it.chars();
        let first = chars.next().map(title_case).unwrap_or_default();
        first + &chars.as_str().to_lowercase()
    })
}

pub(super) fn title(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    map_text(run, given, |it| {
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

pub(super) fn strip(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    strip_ends(run, given, (true, true))
}

pub(super) fn lstrip(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    strip_ends(run, given, (true, false))
}

pub(super) fn rstrip(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    strip_ends(run, given, (false, true))
}

pub(super) fn remove_prefix(
    run: &mut Evaluator<'_>,
    given: EvaluatedArguments<'_>,
) -> Result<Value> {
    let text = receiver_text(&given)?;
    let [prefix] = given.take_exactly()?;
    let prefix = expect_text(&prefix, "removeprefix")?;
    let rest = text.body.strip_prefix(&*prefix.body);
    text_value(&mut run.meter, rest.unwrap_or(&text.body))
}

pub(super) fn remove_suffix(
    run: &mut Evaluator<'_>,
    given: EvaluatedArguments<'_>,
) -> Result<Value> {
    let text = receiver_text(&given)?;
    let [suffix] = given.take_exactly()?;
    let suffix = expect_text(&suffix, "removesuffix")?;
    let rest = text.body.strip_suffix(&*suffix.body);
    text_value(&mut run.meter, rest.unwrap_or(&text.body))
}

pub(super) fn join(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let separator = receiver_text(&given)?;
    let [source] = given.take_exactly()?;
    let mut out = String::new();
    let (mut chars, mut at) = (0, 0);
    run.for_each_item(source, &mut |run, item| {
        let Value::Text(text) = &item else {
            return Err(type_error(format!(
                "sequence item {at}: expected str instance, {} found",
                item.type_name()
            )));
        };
        let between = if at > 0 { &*separator } else { &EMPTY_TEXT };
        chars += text.chars + between.chars;
        run.meter
            .charge_text(chars, text.body.len() + between.body.len())?;
        out.push_str(&between.body);
        out.push_str(&text.body);
        at += 1;
        Ok(IterationFlow::Continue)
    })?;
    Ok(Value::text(out))
}

pub(super) fn center(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    pad_to_width(run, given, |missing, width| {
        missing / 2 + (missing & width & 1)
    })
}

pub(super) fn ljust(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    pad_to_width(run, given, |_, _| 0)
}

pub(super) fn rjust(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    pad_to_width(run, given, |missing, _| missing)
}

pub(super) fn zfill(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let text = receiver_text(&given)?;
    let [width] = given.take_exactly()?;
    let width = usize::try_from(expect_i64(&width)?).unwrap_or_default();
    let missing = width.saturating_sub(text.chars);
    run.meter
        .charge_text(text.chars + missing, text.body.len() + missing)?;
    let split = usize::from(text.body.starts_with(['+', '-']));
    let (sign, digits) = text.body.split_at(split);
    Ok(Value::text(format!(
        "{sign}{}{digits}",
        "0".repeat(missing)
    )))
}

pub(super) fn expand_tabs(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let text = receiver_text(&given)?;
    let [size] = given.bind(0, ["tabsize"])?;
    let size = size.map_or(Ok(8), |it| expect_i64(&it))?;
    let size = usize::try_from(size).unwrap_or_default();
    let tabs = text.body.matches('\t').count();
    let most = text.chars.saturating_add(tabs.saturating_mul(size));
    run.meter.charge_text(most, most.max(text.body.len()))?;
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

pub(super) fn is_alpha(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    all_chars_match(run, given, is_letter)
}

pub(super) fn is_alnum(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    all_chars_match(run, given, |c| is_letter(c) || is_numeric_char(c))
}

pub(super) fn is_decimal(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    all_chars_match(run, given, |c| get_general_category(c) == G::DecimalNumber)
}

pub(super) fn is_digit(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    all_chars_match(run, given, |c| {
        get_general_category(c) == G::DecimalNumber
            || matches!(c, '²' | '³' | '¹' | '⁰'..='⁹' | '₀'..='₉' | '①'..='⑨')
    })
}

pub(super) fn is_numeric(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    all_chars_match(run, given, is_numeric_char)
}

pub(super) fn is_printable(
    run: &mut Evaluator<'_>,
    given: EvaluatedArguments<'_>,
) -> Result<Value> {
    let empty = receiver_text(&given)?.chars == 0;
    if empty {
        Ok(Value::Bool(true))
    } else {
        all_chars_match(run, given, repr::is_printable)
    }
}

pub(super) fn is_space(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    all_chars_match(run, given, is_blank)
}

pub(super) fn is_ascii(_: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    given.expect_count(0)?;
    Ok(Value::Bool(receiver_text(&given)?.is_ascii()))
}

pub(super) fn is_identifier(
    run: &mut Evaluator<'_>,
    given: EvaluatedArguments<'_>,
) -> Result<Value> {
    let digit = receiver_text(&given)?
        .body
        .starts_with(|c: char| c.is_numeric());
    let plain = all_chars_match(run, given, |c| c == '_' || c.is_alphanumeric())?;
    Ok(Value::Bool(plain.is_truthy() && !digit))
}

pub(super) fn is_lower(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    all_cased_chars_match(run, &given, char::is_lowercase)
}

pub(super) fn is_upper(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    all_cased_chars_match(run, &given, char::is_uppercase)
}

pub(super) fn is_title(run: &mut Evaluator<'_>, given: EvaluatedArguments<'_>) -> Result<Value> {
    let text = receiver_text(&given)?;
    given.expect_count(0)?;
    run.meter.charge_scan(text.body.len())?;
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

/// The text that a method works on.
pub(super) fn receiver_text(given: &EvaluatedArguments<'_>) -> Result<Arc<TextValue>> {
    expect_text(&given.receiver, given.name).cloned()
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

/// A part of a text, as a value.
pub(super) fn text_value(meter: &mut ResourceMeter<'_>, part: &str) -> Result<Value> {
    meter.charge_text(0, part.len())?;
    Ok(Value::text(part))
}

static EMPTY_TEXT: std::sync::LazyLock<TextValue> = std::sync::LazyLock::new(|| TextValue::new(""));

fn map_text(
    run: &mut Evaluator<'_>,
    given: EvaluatedArguments<'_>,
    change: fn(&str) -> String,
) -> Result<Value> {
    let text = receiver_text(&given)?;
    given.expect_count(0)?;
    // A letter becomes three at most.
    run.meter.charge_text(text.chars, text.body.len() * 3)?;
    run.meter.charge_scan(text.body.len() * 8)?;
    let text = TextValue::new(change(&text.body));
    run.meter.charge_text(text.chars, 0)?;
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
    run: &mut Evaluator<'_>,
    given: EvaluatedArguments<'_>,
    holds: fn(char) -> bool,
) -> Result<Value> {
    let text = receiver_text(&given)?;
    given.expect_count(0)?;
    run.meter.charge_scan(text.body.len() * 8)?;
    Ok(Value::Bool(text.chars > 0 && text.body.chars().all(holds)))
}

fn all_cased_chars_match(
    run: &mut Evaluator<'_>,
    given: &EvaluatedArguments<'_>,
    wanted: fn(char) -> bool,
) -> Result<Value> {
    let text = receiver_text(given)?;
    given.expect_count(0)?;
    run.meter.charge_scan(text.body.len() * 8)?;
    let mut letters = text.body.chars().filter(|c| is_cased(*c)).peekable();
    Ok(Value::Bool(letters.peek().is_some() && letters.all(wanted)))
}

fn strip_ends(
    run: &mut Evaluator<'_>,
    given: EvaluatedArguments<'_>,
    (start, end): (bool, bool),
) -> Result<Value> {
    let text = receiver_text(&given)?;
    let name = given.name;
    let [set] = given.bind(0, [""])?;
    let set = match set {
        None | Some(Value::None) => None,
        Some(Value::Text(set)) => Some(set),
        Some(_) => return Err(type_error(format!("{name} arg must be None or str"))),
    };
    let weight = set.as_ref().map_or(1, |it| it.chars);
    run.meter
        .charge_scan(text.body.len().saturating_mul(weight.min(4096)))?;
    let matches = |c: char| match &set {
        Some(set) => set.body.contains(c),
        None => is_blank(c),
    };
    let mut body: &str = &text.body;
    if start {
        body = body.trim_start_matches(matches);
    }
    if end {
        body = body.trim_end_matches(matches);
    }
    text_value(&mut run.meter, body)
}

fn pad_to_width(
    run: &mut Evaluator<'_>,
    given: EvaluatedArguments<'_>,
    before: fn(usize, usize) -> usize,
) -> Result<Value> {
    let text = receiver_text(&given)?;
    let [width, fill] = given.bind(1, ["", ""])?;
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
    run.meter.charge_text(
        text.chars.saturating_add(missing),
        text.body.len().saturating_add(bytes),
    )?;
    let before = before(missing, width);
    let fill = |count| std::iter::repeat_n(fill, count).collect::<String>();
    let (left, right) = (fill(before), fill(missing - before));
    Ok(Value::text(format!("{left}{}{right}", text.body)))
}

/// What `start` and `end` of a method cut out.
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

/// What is not found where it has to be.
pub(super) fn substring_not_found() -> super::error::UnlocatedError {
    value_error("substring not found")
}
