//! Calls without markers: JSON or python as the end of a message, fenced or
//! not, and tags named after tools.

use super::{
    Event,
    cursor::{Cursor, is_space},
    frame::{calls, read, values},
    index,
    json::Json,
    lines, marker, python,
    repair::{self, Flaw, Parser, Repair},
    scene::{Scene, Verdict},
    shape::{Found, Outcome, is_answer, is_call_key, is_name_key},
    table::{FRAMES, IMAGINED, Place, Role},
    tags,
    tools::Tools,
};

/// Longest first key that is looked at.
const MAX_KEY: usize = 96;
/// Words that announce an example rather than a call.
const EXAMPLES: [&str; 11] = [
    "example",
    "e.g.",
    "for instance",
    "looks like",
    "look like",
    "syntax",
    "format",
    "예시",
    "예를 들",
    "형식",
    "例",
];
/// Fences that may hold JSON.
const JSON_FENCES: [&str; 12] = [
    "",
    "json",
    "jsonc",
    "json5",
    "tool_call",
    "tool_calls",
    "tool_use",
    "tool-call",
    "function_call",
    "text",
    "plaintext",
    "xml",
];

/// Whether the end of the text before announces an example.
pub(super) fn announces_example(tail: &str) -> bool {
    let line = tail.trim_end().rsplit('\n').next().unwrap_or_default();
    let line = line.to_lowercase();
    EXAMPLES.iter().any(|word| line.contains(word))
}

/// Reads what begins like bare JSON or a python list.
pub(super) fn bare(scene: Scene<'_>) -> Verdict {
    let start = scene.start;
    match begins(start, scene.tools) {
        Some(Start::Json) => json(start, false, scene),
        Some(Start::Python) => listed(scene),
        None => Verdict::No,
    }
}

/// Reads a fence: of a dialect, or around a call that is the message's end.
/// `first` says that nothing stands before it, `tail` is the text that does.
pub(super) fn fence(scene: Scene<'_>, first: bool, tail: &str) -> Verdict {
    let mut body = scene.start;
    body.take_while(|c| c == '`');
    let info = body.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    body.take_while(|c| c == ' ' || c == '\r');
    if body.peek() == Some('\n') || matches!(info, "json" | "tool_code") {
        let info = info.to_ascii_lowercase();
        return match info.as_str() {
            "tool_code" => fenced_calls(body, scene),
            "tool" => lines::block(
                body,
                Scene {
                    dialect: "codeblock_tool",
                    explicit: true,
                    ..scene
                },
            ),
            info if JSON_FENCES.contains(&info) && !announces_example(tail) => {
                fenced(body, scene, first)
            }
            _ => Verdict::No,
        };
    }
    Verdict::No
}

/// Reads a tag named after a tool.
pub(super) fn tool_tag(scene: Scene<'_>) -> Verdict {
    let mut body = scene.start.moved(1);
    let name = body.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let Some(tool) = scene.tools.tag(name).filter(|_| body.eat(">")) else {
        return Verdict::No;
    };
    let mut reader = tags::Reader {
        cursor: body,
        tools: scene.tools,
        opener: scene.opener,
    };
    let Ok(arguments) = reader.call_of(tool) else {
        return plain(scene, reader.cursor.at());
    };
    let mut after = reader.cursor;
    after.skip_space();
    let closed = after.eat("</") && after.eat(name) && after.eat(">");
    let ended = after.peek().is_none() && !arguments.is_empty();
    if !closed && !ended {
        return plain(scene, reader.cursor.at());
    }
    let outcome = Outcome::Call(Found::new(tool, arguments));
    let end = if closed {
        after.at()
    } else {
        reader.cursor.at()
    };
    scene.events(vec![(outcome, scene.raw(end))], &[], end)
}

enum Start {
    Json,
    Python,
}

/// What a call without markers could begin with. Looks at its first words.
fn begins(start: Cursor<'_>, tools: &Tools) -> Option<Start> {
    let mut parser = Parser::new(start, &[]);
    let list = parser.cursor.eat("[");
    parser.skip();
    if list && parser.cursor.peek()? != '{' {
        let name = python::name_ahead(parser.cursor)?;
        return tools.find(name).map(|_| Start::Python);
    }
    if !parser.cursor.eat("{") {
        return None;
    }
    parser.cursor.eat("{");
    parser.skip();
    let mut cursor = parser.cursor;
    cursor.take_while(|c| matches!(c, '\\' | '"' | '\'' | '“' | '`'));
    cursor.eat("&quot;");
    let key = cursor.take_while(|c| c.is_alphanumeric() || "_-./".contains(c));
    if key.len() > MAX_KEY || key.is_empty() || !is_call_key(key, tools) {
        return None;
    }
    if !is_name_key(key) || tools.find(key).is_some() {
        return Some(Start::Json);
    }
    // The name is there: it must be one of a tool, or hold the call.
    let between = |c: char| is_space(c) || "\\\"'“”`:：=>".contains(c);
    for _ in 0..2 {
        cursor.take_while(between);
        cursor.eat("&quot;");
    }
    cursor.take_while(between);
    if cursor.peek()? == '{' {
        return Some(Start::Json);
    }
    let name = cursor.take_while(|c| c.is_alphanumeric() || "_-./: ".contains(c));
    (name.len() <= MAX_KEY && (tools.find(name).is_some() || is_answer(name)))
        .then_some(Start::Json)
}

/// The text up to `end` as it is.
fn plain(scene: Scene<'_>, end: usize) -> Verdict {
    let events = vec![Event::Text(scene.raw(end))];
    Verdict::Done { end, events }
}

/// JSON up to the end of the message; `fenced` says that a fence is open.
fn json(body: Cursor<'_>, mut fenced: bool, scene: Scene<'_>) -> Verdict {
    let mut cursor = body;
    let mut found = Vec::new();
    let mut repairs = Vec::new();
    loop {
        let end = match fenced {
            true => cursor.find("\n```"),
            false => None,
        };
        let region = end.map_or(cursor, |end| cursor.cut(end));
        if repair::unwrapped(region.rest()).is_some() {
            return escaped(region, scene);
        }
        let mut parser = Parser::new(region, &[]);
        match values(&mut parser) {
            Ok(more) => found.extend(more),
            Err(Flaw::Cut) => return plain(scene, region.end()),
            Err(_) => return plain(scene, parser.cursor.at()),
        }
        repairs.append(&mut parser.repairs);
        cursor.jump(parser.cursor.at());
        match follows(cursor, fenced) {
            Follow::More(at, inside) => {
                cursor.jump(at);
                fenced = inside;
            }
            Follow::End(end) => {
                repairs.retain(|it| *it != Repair::Around);
                return complete(&found, &repairs, end, scene);
            }
            Follow::Other => return plain(scene, cursor.at()),
        }
    }
}

/// A payload that was escaped as a whole and ends the message.
fn escaped(region: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let end = region.end();
    match repair::parse(region.rest()) {
        Ok((value, repairs)) => complete(&[value], &repairs, end, scene),
        Err(_) => plain(scene, end),
    }
}

/// The values are the end of the message: calls, if all of them are.
fn complete(values: &[Json], repairs: &[Repair], end: usize, scene: Scene<'_>) -> Verdict {
    match scene.judge(values, repairs, end) {
        Verdict::Done { events, .. } if events.iter().any(|it| matches!(it, Event::Broken(_))) => {
            plain(scene, end)
        }
        verdict => verdict,
    }
}

enum Follow {
    /// Another value begins, in a fence or not.
    More(usize, bool),
    /// Nothing of the model's own follows.
    End(usize),
    Other,
}

/// What follows a value that may be a call; `fenced` says that a fence is open.
fn follows(cursor: Cursor<'_>, mut fenced: bool) -> Follow {
    let mut ahead = cursor;
    let mut end = cursor.at();
    loop {
        ahead.skip_space();
        if ahead.peek().is_none()
            || IMAGINED
                .iter()
                .any(|it| marker::length(it, ahead).is_some())
        {
            return Follow::End(end);
        }
        if ahead.eat("```") {
            if fenced {
                fenced = false;
                end = ahead.at();
                continue;
            }
            let info = ahead.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            ahead.skip_space();
            let value = matches!(ahead.peek(), Some('{' | '['));
            return match value && JSON_FENCES.contains(&info) {
                true => Follow::More(ahead.at(), true),
                false => Follow::Other,
            };
        }
        if ahead.peek() == Some('{') {
            return Follow::More(ahead.at(), false);
        }
        match index::find(ahead, Place::Anywhere) {
            Some(hit) if hit.role == Role::Token => ahead = ahead.moved(hit.length),
            _ => return Follow::Other,
        }
    }
}

fn listed(scene: Scene<'_>) -> Verdict {
    match calls(scene.start, scene) {
        Verdict::Done { end, events } => {
            let mut after = scene.start;
            after.jump(end);
            let good = events.iter().all(|it| matches!(it, Event::Call(_)));
            match follows(after, false) {
                Follow::End(_) if good => Verdict::Done { end, events },
                _ => plain(scene, end),
            }
        }
        Verdict::No => Verdict::No,
    }
}

/// Fence `tool_code`: python calls, and nothing else.
fn fenced_calls(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let scene = Scene {
        dialect: "tool_code",
        explicit: true,
        closers: &["```"],
        ..scene
    };
    match calls(body, scene) {
        Verdict::Done { end, events } if events.iter().any(|it| matches!(it, Event::Call(_))) => {
            Verdict::Done { end, events }
        }
        Verdict::Done { end, .. } => plain(scene, end),
        Verdict::No => Verdict::No,
    }
}

fn fenced(body: Cursor<'_>, scene: Scene<'_>, first: bool) -> Verdict {
    let mut inside = body;
    inside.skip_space();
    match inside.peek() {
        Some('{' | '[') => match begins(inside, scene.tools) {
            Some(Start::Json) => fenced_json(inside, scene),
            Some(Start::Python) | None => Verdict::No,
        },
        Some('<') if first => fenced_frame(inside, scene),
        _ => Verdict::No,
    }
}

fn fenced_json(inside: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let Verdict::Done { end, events } = json(inside, true, scene) else {
        return Verdict::No;
    };
    let shown = |event: &Event| matches!(event, Event::Text(text) if *text == scene.raw(end));
    match events.iter().any(shown) {
        true => Verdict::No,
        false => Verdict::Done { end, events },
    }
}

/// A frame with markers in a fence that is the whole message.
fn fenced_frame(inside: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let Some(hit) = index::find(inside, Place::Line) else {
        return Verdict::No;
    };
    let Role::Frame(row) = hit.role else {
        return Verdict::No;
    };
    let frame = &FRAMES[row];
    let inner = Scene {
        start: inside,
        dialect: frame.dialect,
        closers: frame.closers,
        explicit: true,
        ..scene
    };
    let Verdict::Done { end, events } = read(frame, hit.length, inner) else {
        return Verdict::No;
    };
    let mut after = at(scene, end);
    after.skip_space();
    let closed = after.eat("```");
    after.skip_space();
    let good = events.iter().all(|it| matches!(it, Event::Call(_)));
    match closed && after.peek().is_none() && good {
        true => Verdict::Done {
            end: after.at(),
            events,
        },
        false => Verdict::No,
    }
}

fn at(scene: Scene<'_>, at: usize) -> Cursor<'_> {
    let mut cursor = scene.start;
    cursor.jump(at);
    cursor
}
