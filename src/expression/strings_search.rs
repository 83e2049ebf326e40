//! Methods of texts that look for something in them.

use super::{
    catalog::Given,
    collections::number,
    evaluate::Run,
    fault::{Result, type_error, value_error},
    limits::Meter,
    strings::{cut, is_blank, not_found, piece, receiver, text_of},
    value::{Text, Value},
};

/// A part of a text, and how many characters come before it.
pub(super) struct Piece<'t> {
    pub(super) body: &'t str,
    pub(super) before: usize,
}

pub(super) fn find(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let found = search(run, given, |body, part| body.find(part))?;
    Ok(Value::Int(found.unwrap_or(-1)))
}

pub(super) fn rfind(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let found = search(run, given, |body, part| body.rfind(part))?;
    Ok(Value::Int(found.unwrap_or(-1)))
}

pub(super) fn index(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let found = search(run, given, |body, part| body.find(part))?;
    found.map(Value::Int).ok_or_else(not_found)
}

pub(super) fn rindex(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let found = search(run, given, |body, part| body.rfind(part))?;
    found.map(Value::Int).ok_or_else(not_found)
}

pub(super) fn count(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let text = receiver(&given)?;
    let [part, from, to] = given.bind(1, ["", "", ""])?;
    let part = part.unwrap_or(Value::None);
    let part = text_of(&part, "count")?;
    let Some(piece) = cut(&mut run.meter, &text, from, to)? else {
        return Ok(Value::Int(0));
    };
    run.meter.scan((text.body.len() + part.body.len()) * 4)?;
    let count = match part.body.is_empty() {
        true => piece.body.chars().count() + 1,
        false => piece.body.matches(&*part.body).count(),
    };
    Ok(Value::Int(count as i64))
}

pub(super) fn starts_with(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    affix(run, given, |body, part| body.starts_with(part))
}

pub(super) fn ends_with(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    affix(run, given, |body, part| body.ends_with(part))
}

pub(super) fn replace(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let text = receiver(&given)?;
    let [old, new, most] = given.bind(2, ["", "", ""])?;
    let (old, new) = (old.unwrap_or(Value::None), new.unwrap_or(Value::None));
    let (old, new) = (text_of(&old, "replace")?, text_of(&new, "replace")?);
    let most = most.map_or(Ok(-1), |it| number(&it))?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let meter = &mut run.meter;
    meter.scan((text.body.len() + old.body.len()) * 2)?;
    let found = match old.body.is_empty() {
        true => text.chars + 1,
        false => text.body.matches(&*old.body).count(),
    };
    let times = found.min(most);
    meter.step(1 + times as u64 / 4)?;
    let chars = text.chars - times * old.chars;
    let bytes = text.body.len() - times * old.body.len();
    meter.text(
        chars.saturating_add(times.saturating_mul(new.chars)),
        bytes.saturating_add(times.saturating_mul(new.body.len())),
    )?;
    Ok(Value::text(
        text.body.replacen(&*old.body, &new.body, times),
    ))
}

pub(super) fn partition(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let text = receiver(&given)?;
    let separator = separator(given)?;
    let found = text.body.split_once(&*separator.body);
    match found {
        Some((before, after)) => triple(run, [before, &separator.body, after]),
        None => triple(run, [&text.body, "", ""]),
    }
}

pub(super) fn rpartition(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let text = receiver(&given)?;
    let separator = separator(given)?;
    let found = text.body.rsplit_once(&*separator.body);
    match found {
        Some((before, after)) => triple(run, [before, &separator.body, after]),
        None => triple(run, ["", "", &text.body]),
    }
}

pub(super) fn split(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let text = receiver(&given)?;
    let (separator, most) = split_arguments(given)?;
    let parts: Box<dyn Iterator<Item = &str>> = match &separator {
        Some(separator) => Box::new(text.body.splitn(most, &*separator.body)),
        None => Box::new(Words {
            rest: &text.body,
            most,
        }),
    };
    pieces(run, parts)
}

pub(super) fn rsplit(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let text = receiver(&given)?;
    let (separator, most) = split_arguments(given)?;
    let mut found = Vec::new();
    match &separator {
        Some(separator) => {
            for part in text.body.rsplitn(most, &*separator.body) {
                run.meter.item(found.len())?;
                found.push(piece(&mut run.meter, part)?);
            }
        }
        None => {
            let mut rest = text.body.trim_end_matches(is_blank);
            while !rest.is_empty() {
                run.meter.item(found.len())?;
                let start = match found.len() + 1 < most {
                    true => after_last_blank(rest),
                    false => 0,
                };
                found.push(piece(&mut run.meter, &rest[start..])?);
                match found.len() < most {
                    true => rest = rest[..start].trim_end_matches(is_blank),
                    false => break,
                }
            }
        }
    }
    found.reverse();
    Value::list(&run.meter, found)
}

pub(super) fn split_lines(run: &mut Run<'_>, given: Given<'_>) -> Result<Value> {
    let text = receiver(&given)?;
    let [keep] = given.bind(0, ["keepends"])?;
    let keep = keep.is_some_and(|it| it.truth());
    let mut rest: &str = &text.body;
    let mut found = Vec::new();
    while !rest.is_empty() {
        run.meter.item(found.len())?;
        let end = rest.find(is_line_end).unwrap_or(rest.len());
        let mark = match rest[end..].starts_with("\r\n") {
            true => 2,
            false => rest[end..].chars().next().map_or(0, char::len_utf8),
        };
        let shown = if keep { end + mark } else { end };
        found.push(piece(&mut run.meter, &rest[..shown])?);
        rest = &rest[end + mark..];
    }
    Value::list(&run.meter, found)
}

/// Characters `from` up to `to`.
pub(super) fn span<'t>(
    meter: &mut Meter<'_>,
    text: &'t Text,
    from: usize,
    to: usize,
) -> Result<Piece<'t>> {
    if text.is_ascii() {
        meter.step(1)?;
        let body = &text.body[from..to];
        return Ok(Piece { body, before: from });
    }
    meter.step(1 + to as u64 / 8)?;
    let mut places = text.body.char_indices().map(|it| it.0).skip(from);
    let start = places.next().unwrap_or(text.body.len());
    let end = match to - from {
        0 => start,
        count => places.nth(count - 1).unwrap_or(text.body.len()),
    };
    let body = &text.body[start..end];
    Ok(Piece { body, before: from })
}

type Finder = fn(&str, &str) -> Option<usize>;

fn search(run: &mut Run<'_>, given: Given<'_>, finder: Finder) -> Result<Option<i64>> {
    let text = receiver(&given)?;
    let name = given.name;
    let [part, from, to] = given.bind(1, ["", "", ""])?;
    let part = part.unwrap_or(Value::None);
    let part = text_of(&part, name)?;
    let Some(piece) = cut(&mut run.meter, &text, from, to)? else {
        return Ok(None);
    };
    run.meter.scan((text.body.len() + part.body.len()) * 4)?;
    let found = finder(piece.body, &part.body);
    Ok(found.map(|at| (piece.before + piece.body[..at].chars().count()) as i64))
}

fn affix(run: &mut Run<'_>, given: Given<'_>, holds: fn(&str, &str) -> bool) -> Result<Value> {
    let text = receiver(&given)?;
    let name = given.name;
    let [parts, from, to] = given.bind(1, ["", "", ""])?;
    let parts = parts.unwrap_or(Value::None);
    let single = std::slice::from_ref(&parts);
    let parts = match &parts {
        Value::Tuple(parts) => parts.items.as_slice(),
        _ => single,
    };
    let piece = cut(&mut run.meter, &text, from, to)?;
    let mut any = false;
    for part in parts {
        let Value::Text(part) = part else {
            return Err(type_error(format!(
                "{name} first arg must be str or a tuple of str, not {}",
                part.type_name()
            )));
        };
        run.meter.scan(part.body.len())?;
        any |= piece.as_ref().is_some_and(|it| holds(it.body, &part.body));
    }
    Ok(Value::Bool(any))
}

fn separator(given: Given<'_>) -> Result<std::sync::Arc<Text>> {
    let name = given.name;
    let [separator] = given.take()?;
    let separator = text_of(&separator, name)?;
    match separator.body.is_empty() {
        true => Err(value_error("empty separator")),
        false => Ok(separator.clone()),
    }
}

fn triple(run: &mut Run<'_>, parts: [&str; 3]) -> Result<Value> {
    run.meter.items(3)?;
    let mut found = Vec::new();
    for part in parts {
        found.push(piece(&mut run.meter, part)?);
    }
    Value::tuple(&run.meter, found)
}

/// The separator, and how many parts there may be.
fn split_arguments(given: Given<'_>) -> Result<(Option<std::sync::Arc<Text>>, usize)> {
    let [separator, most] = given.bind(0, ["sep", "maxsplit"])?;
    let most = most.map_or(Ok(-1), |it| number(&it))?;
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

fn pieces<'t>(run: &mut Run<'_>, parts: impl Iterator<Item = &'t str>) -> Result<Value> {
    let mut found = Vec::new();
    for part in parts {
        run.meter.item(found.len())?;
        found.push(piece(&mut run.meter, part)?);
    }
    Value::list(&run.meter, found)
}

/// Words between blanks; the last of `most` keeps the rest.
struct Words<'t> {
    rest: &'t str,
    most: usize,
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let rest = self.rest.trim_start_matches(is_blank);
        if rest.is_empty() {
            return None;
        }
        self.most = self.most.saturating_sub(1);
        let end = match self.most {
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
