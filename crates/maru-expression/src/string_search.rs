//! String methods that search, split and replace.

use super::{
    builtins::BuiltinCall,
    collections::expect_i64,
    error::{Result, type_error, value_error},
    evaluator::Evaluator,
    limits::ResourceMeter,
    strings::{
        expect_text, is_blank, receiver_text, slice_by_bounds, substring_not_found, text_value,
    },
    value::{TextValue, Value},
};

/// A substring, and the number of characters before it.
pub(super) struct TextSlice<'t> {
    pub(super) body: &'t str,
    pub(super) start_char: usize,
}

pub(super) fn find(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let found = find_substring(evaluator, call, |body, part| body.find(part))?;
    Ok(Value::Int(found.unwrap_or(-1)))
}

pub(super) fn rfind(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let found = find_substring(evaluator, call, |body, part| body.rfind(part))?;
    Ok(Value::Int(found.unwrap_or(-1)))
}

pub(super) fn index(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let found = find_substring(evaluator, call, |body, part| body.find(part))?;
    found.map(Value::Int).ok_or_else(substring_not_found)
}

pub(super) fn rindex(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let found = find_substring(evaluator, call, |body, part| body.rfind(part))?;
    found.map(Value::Int).ok_or_else(substring_not_found)
}

pub(super) fn count(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let [part, from, to] = call.bind(1, ["", "", ""])?;
    let part = part.unwrap_or(Value::None);
    let part = expect_text(&part, "count")?;
    let Some(piece) = slice_by_bounds(&mut evaluator.meter, &text, from, to)? else {
        return Ok(Value::Int(0));
    };
    evaluator
        .meter
        .charge_scan((text.body.len() + part.body.len()) * 4)?;
    let count = if part.body.is_empty() {
        piece.body.chars().count() + 1
    } else {
        piece.body.matches(&*part.body).count()
    };
    Ok(Value::Int(count as i64))
}

pub(super) fn starts_with(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    has_affix(evaluator, call, |body, part| body.starts_with(part))
}

pub(super) fn ends_with(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    has_affix(evaluator, call, |body, part| body.ends_with(part))
}

pub(super) fn replace(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let [old, new, most] = call.bind(2, ["", "", ""])?;
    let (old, new) = (old.unwrap_or(Value::None), new.unwrap_or(Value::None));
    let (old, new) = (expect_text(&old, "replace")?, expect_text(&new, "replace")?);
    let most = most.map_or(Ok(-1), |it| expect_i64(&it))?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let meter = &mut evaluator.meter;
    meter.charge_scan((text.body.len() + old.body.len()) * 2)?;
    let found = if old.body.is_empty() {
        text.chars + 1
    } else {
        text.body.matches(&*old.body).count()
    };
    let times = found.min(most);
    meter.charge_steps(1 + times as u64 / 4)?;
    let chars = text.chars - times * old.chars;
    let bytes = text.body.len() - times * old.body.len();
    meter.charge_text(
        chars.saturating_add(times.saturating_mul(new.chars)),
        bytes.saturating_add(times.saturating_mul(new.body.len())),
    )?;
    Ok(Value::text(
        text.body.replacen(&*old.body, &new.body, times),
    ))
}

pub(super) fn partition(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let separator = separator_argument(call)?;
    let found = text.body.split_once(&*separator.body);
    match found {
        Some((before, after)) => text_triple(evaluator, [before, &separator.body, after]),
        None => text_triple(evaluator, [&text.body, "", ""]),
    }
}

pub(super) fn rpartition(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let separator = separator_argument(call)?;
    let found = text.body.rsplit_once(&*separator.body);
    match found {
        Some((before, after)) => text_triple(evaluator, [before, &separator.body, after]),
        None => text_triple(evaluator, ["", "", &text.body]),
    }
}

pub(super) fn split(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let (separator, most) = split_arguments(call)?;
    let parts: Box<dyn Iterator<Item = &str>> = match &separator {
        Some(separator) => Box::new(text.body.splitn(most, &*separator.body)),
        None => Box::new(WordSplitter {
            rest: &text.body,
            remaining_parts: most,
        }),
    };
    text_list(evaluator, parts)
}

pub(super) fn rsplit(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let (separator, most) = split_arguments(call)?;
    let mut found = Vec::new();
    match &separator {
        Some(separator) => {
            for part in text.body.rsplitn(most, &*separator.body) {
                evaluator.meter.charge_item(found.len())?;
                found.push(text_value(&mut evaluator.meter, part)?);
            }
        }
        None => {
            let mut rest = text.body.trim_end_matches(is_blank);
            while !rest.is_empty() {
                evaluator.meter.charge_item(found.len())?;
                let start = if found.len() + 1 < most {
                    after_last_blank(rest)
                } else {
                    0
                };
                found.push(text_value(&mut evaluator.meter, &rest[start..])?);
                if found.len() < most {
                    rest = rest[..start].trim_end_matches(is_blank);
                } else {
                    break;
                }
            }
        }
    }
    found.reverse();
    Value::list(&evaluator.meter, found)
}

pub(super) fn split_lines(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let text = receiver_text(&call)?;
    let [keep] = call.bind(0, ["keepends"])?;
    let keep = keep.is_some_and(|it| it.is_truthy());
    let mut rest: &str = &text.body;
    let mut found = Vec::new();
    while !rest.is_empty() {
        evaluator.meter.charge_item(found.len())?;
        let end = rest.find(is_line_end).unwrap_or(rest.len());
        let mark = if rest[end..].starts_with("\r\n") {
            2
        } else {
            rest[end..].chars().next().map_or(0, char::len_utf8)
        };
        let shown = if keep { end + mark } else { end };
        found.push(text_value(&mut evaluator.meter, &rest[..shown])?);
        rest = &rest[end + mark..];
    }
    Value::list(&evaluator.meter, found)
}

/// Returns the characters from `from` up to `to`.
pub(super) fn char_range<'t>(
    meter: &mut ResourceMeter<'_>,
    text: &'t TextValue,
    from: usize,
    to: usize,
) -> Result<TextSlice<'t>> {
    if text.is_ascii() {
        meter.charge_steps(1)?;
        let body = &text.body[from..to];
        return Ok(TextSlice {
            body,
            start_char: from,
        });
    }
    meter.charge_steps(1 + to as u64 / 8)?;
    let mut places = text.body.char_indices().map(|it| it.0).skip(from);
    let start = places.next().unwrap_or(text.body.len());
    let end = match to - from {
        0 => start,
        count => places.nth(count - 1).unwrap_or(text.body.len()),
    };
    let body = &text.body[start..end];
    Ok(TextSlice {
        body,
        start_char: from,
    })
}

type SubstringFinder = fn(&str, &str) -> Option<usize>;

fn find_substring(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
    finder: SubstringFinder,
) -> Result<Option<i64>> {
    let text = receiver_text(&call)?;
    let name = call.name;
    let [part, from, to] = call.bind(1, ["", "", ""])?;
    let part = part.unwrap_or(Value::None);
    let part = expect_text(&part, name)?;
    let Some(piece) = slice_by_bounds(&mut evaluator.meter, &text, from, to)? else {
        return Ok(None);
    };
    evaluator
        .meter
        .charge_scan((text.body.len() + part.body.len()) * 4)?;
    let found = finder(piece.body, &part.body);
    Ok(found.map(|at| (piece.start_char + piece.body[..at].chars().count()) as i64))
}

fn has_affix(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
    holds: fn(&str, &str) -> bool,
) -> Result<Value> {
    let text = receiver_text(&call)?;
    let name = call.name;
    let [parts, from, to] = call.bind(1, ["", "", ""])?;
    let parts = parts.unwrap_or(Value::None);
    let single = std::slice::from_ref(&parts);
    let parts = match &parts {
        Value::Tuple(parts) => parts.items.as_slice(),
        _ => single,
    };
    let piece = slice_by_bounds(&mut evaluator.meter, &text, from, to)?;
    let mut any = false;
    for part in parts {
        let Value::Text(part) = part else {
            return Err(type_error(format!(
                "{name} first arg must be str or a tuple of str, not {}",
                part.type_name()
            )));
        };
        evaluator.meter.charge_scan(part.body.len())?;
        any |= piece.as_ref().is_some_and(|it| holds(it.body, &part.body));
    }
    Ok(Value::Bool(any))
}

fn separator_argument(call: BuiltinCall<'_>) -> Result<std::sync::Arc<TextValue>> {
    let name = call.name;
    let [separator] = call.take_exactly()?;
    let separator = expect_text(&separator, name)?;
    if separator.body.is_empty() {
        Err(value_error("empty separator"))
    } else {
        Ok(separator.clone())
    }
}

fn text_triple(evaluator: &mut Evaluator<'_>, parts: [&str; 3]) -> Result<Value> {
    evaluator.meter.charge_items(3)?;
    let mut found = Vec::new();
    for part in parts {
        found.push(text_value(&mut evaluator.meter, part)?);
    }
    Value::tuple(&evaluator.meter, found)
}

/// Returns the separator and the maximum number of parts.
fn split_arguments(call: BuiltinCall<'_>) -> Result<(Option<std::sync::Arc<TextValue>>, usize)> {
    let [separator, most] = call.bind(0, ["sep", "maxsplit"])?;
    let most = most.map_or(Ok(-1), |it| expect_i64(&it))?;
    let most = usize::try_from(most).map_or(usize::MAX, |it| it.saturating_add(1));
    match separator {
        None | Some(Value::None) => Ok((None, most)),
        Some(Value::Text(it)) if it.body.is_empty() => Err(value_error("empty separator")),
        Some(Value::Text(it)) => Ok((Some(it), most)),
        Some(other) => Err(type_error(format!(
            "must be str or None, not {}",
            other.type_name()
        ))),
    }
}

fn text_list<'t>(
    evaluator: &mut Evaluator<'_>,
    parts: impl Iterator<Item = &'t str>,
) -> Result<Value> {
    let mut found = Vec::new();
    for part in parts {
        evaluator.meter.charge_item(found.len())?;
        found.push(text_value(&mut evaluator.meter, part)?);
    }
    Value::list(&evaluator.meter, found)
}

/// Splits at whitespace; the last of `most` words keeps the rest.
struct WordSplitter<'t> {
    rest: &'t str,
    remaining_parts: usize,
}

impl<'t> Iterator for WordSplitter<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let rest = self.rest.trim_start_matches(is_blank);
        if rest.is_empty() {
            return None;
        }
        self.remaining_parts = self.remaining_parts.saturating_sub(1);
        let end = match self.remaining_parts {
            0 => rest.len(),
            _ => rest.find(is_blank).unwrap_or(rest.len()),
        };
        self.rest = &rest[end..];
        Some(&rest[..end])
    }
}

fn after_last_blank(text: &str) -> usize {
    let found = text.char_indices().rfind(|(_, c)| is_blank(*c));
    found.map_or(0, |(at, c)| at + c.len_utf8())
}

fn is_line_end(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}
