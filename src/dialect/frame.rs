//! From a frame in the text to what it stands for.

use super::{
    cursor::Cursor,
    gemma, header,
    json::{Json, Object},
    marker, python,
    repair::{self, Flaw, Parser, Repair},
    scene::{Scene, Verdict},
    shape::{Found, Outcome},
    table::{Body, Frame},
    tag, tags,
    tools::{Tool, Tools},
};

/// Reads the frame that `scene` begins with.
pub(super) fn read(frame: &Frame, opener: usize, scene: Scene<'_>) -> Verdict {
    body(frame, scene.start, opener, scene)
}

/// Reads a frame that stands inside what `scene` begins with.
pub(super) fn inside(frame: &Frame, start: Cursor<'_>, opener: usize, scene: Scene<'_>) -> Verdict {
    let scene = Scene {
        dialect: frame.dialect,
        closers: frame.closers,
        ..scene
    };
    body(frame, start, opener, scene)
}

fn body(frame: &Frame, start: Cursor<'_>, opener: usize, scene: Scene<'_>) -> Verdict {
    let mut body = start;
    if !frame.inclusive {
        body = body.moved(opener);
    }
    let Some(shape) = choose(frame, body) else {
        return Verdict::No;
    };
    match shape {
        Body::Json => json(body, scene),
        Body::Python => calls(body, scene),
        Body::Tags => {
            let dialect = match scene.dialect {
                "hermes" => "qwen3_xml",
                other => other,
            };
            tagged(body, Scene { dialect, ..scene })
        }
        Body::Pairs => pairs(body, scene),
        Body::Header => headed(body, scene),
        Body::Gemma => gemma(body, scene),
        Body::Action => super::lines::action(body, scene),
        Body::Agent => super::lines::agent(body, scene),
    }
}

/// Which of the frame's bodies begins here.
fn choose(frame: &Frame, body: Cursor<'_>) -> Option<Body> {
    let allowed = |wanted: Body| frame.bodies.contains(&wanted).then_some(wanted);
    if let [only @ (Body::Action | Body::Agent | Body::Gemma)] = frame.bodies {
        return Some(*only);
    }
    let mut ahead = body;
    ahead.skip_space();
    match ahead.peek()? {
        '[' if frame.bodies.contains(&Body::Python) => {
            let mut inside = ahead.moved(1);
            inside.skip_space();
            match inside.peek()? {
                '{' | ']' | '[' => allowed(Body::Json),
                _ => python::name_ahead(inside).and(allowed(Body::Python)),
            }
        }
        '{' | '"' | '`' | '\'' | '\\' => allowed(Body::Json).or(allowed(Body::Header)),
        '[' if allowed(Body::Json).is_some() => Some(Body::Json),
        '<' | ']' if tag::tag(ahead).is_some() && allowed(Body::Tags).is_some() => Some(Body::Tags),
        _ if python::name_ahead(ahead).is_some() && allowed(Body::Python).is_some() => {
            Some(Body::Python)
        }
        _ => allowed(Body::Header).or(allowed(Body::Pairs)),
    }
}

/// JSON values up to the closer, or to where something else follows.
pub(super) fn json(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut parser = Parser::new(body, scene.closers);
    parser.skip();
    parser.fence();
    match parser.cursor.peek() {
        Some('{' | '[' | '"' | '\'') | None => (),
        Some(_) => return Verdict::No,
    }
    if repair::unwrapped(parser.cursor.rest()).is_some() {
        return escaped(parser.cursor, scene);
    }
    match values(&mut parser) {
        Ok(values) => {
            let repairs = std::mem::take(&mut parser.repairs);
            scene.judge(&values, &repairs, close(parser.cursor, scene.closers))
        }
        Err(flaw) => lost_quote(body, scene).unwrap_or_else(|| scene.fail(parser.cursor, flaw)),
    }
}

/// Values that follow each other; stops where none can follow.
pub(super) fn values(parser: &mut Parser<'_>) -> Result<Vec<Json>, Flaw> {
    let mut found = Vec::new();
    loop {
        found.push(parser.value()?);
        parser.spare_closers();
        let mut ahead = parser.cursor;
        ahead.skip_space();
        while matches!(ahead.peek(), Some(',' | ';')) {
            ahead.bump();
            ahead.skip_space();
        }
        if ahead.eat("```") {
            parser.cursor = ahead;
            parser.note(Repair::Around);
            return Ok(found);
        }
        let stops = Parser::new(ahead, &[]).at_stop();
        match ahead.peek() {
            Some('{') if !stops => parser.cursor = ahead,
            Some(_)
                if !parser
                    .cursor
                    .slice(parser.cursor.at(), ahead.at())
                    .contains(',') =>
            {
                return Ok(found);
            }
            _ => {
                parser.cursor = ahead;
                return Ok(found);
            }
        }
    }
}

/// Where the frame ends: behind its closer, if that is next.
pub(super) fn close(cursor: Cursor<'_>, closers: &[&str]) -> usize {
    let mut ahead = cursor;
    loop {
        ahead.skip_space();
        if !matches!(ahead.peek(), Some('}' | ']' | ')')) || closers.is_empty() {
            break;
        }
        ahead.bump();
    }
    let length = closers.iter().find_map(|it| marker::length(it, ahead));
    length.map_or(cursor.at(), |length| ahead.at() + length)
}

/// A payload that was escaped as a whole, up to the closer or the end.
fn escaped(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let closer = scene.closer_from(body);
    let (text, end) = closer.unwrap_or_else(|| (body.end(), body.end()));
    let text = body.slice(body.at(), text);
    match repair::parse(text) {
        Ok((value, repairs)) => scene.judge(&[value], &repairs, end),
        Err(flaw) => scene.fail(body, flaw),
    }
}

/// JSON that ends inside a string although its frame is closed: the quote was
/// forgotten.
fn lost_quote(body: Cursor<'_>, scene: Scene<'_>) -> Option<Verdict> {
    let (at, end) = scene.closer_from(body)?;
    let text = body.slice(body.at(), at).trim();
    let kept = text.trim_end_matches(['}', ']', ' ', '\n', '\t']);
    let mended = format!("{kept}\"{}", &text[kept.len()..]);
    let (value, mut repairs) = repair::parse(&mended).ok()?;
    repairs.push(Repair::Quote);
    repairs.dedup();
    Some(scene.judge(&[value], &repairs, end))
}

/// Python calls up to the closer, or to where something else follows.
pub(super) fn calls(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut parser = Parser::new(body, scene.closers);
    let written = match python::calls(&mut parser) {
        Ok(written) if !written.is_empty() => written,
        Ok(_) => return Verdict::No,
        Err(flaw) => return scene.fail(parser.cursor, flaw),
    };
    let end = close(parser.cursor, scene.closers);
    let repairs = parser.repairs;
    let read = |call: python::Written| {
        let text = body.slice(call.start, call.end).to_owned();
        let name = call.name.clone();
        let outcome = match scene.tools.find(&name) {
            None => Outcome::Unknown(name),
            Some(tool) => match call.arguments(tool) {
                Some(arguments) => Outcome::Call(Found::new(tool, arguments)),
                None => Outcome::Not("it has more values than the tool has parameters"),
            },
        };
        (outcome, text)
    };
    // What python writes differently from JSON is no defect here.
    let python = [
        Repair::Quote,
        Repair::Literal,
        Repair::Tuple,
        Repair::Escape,
    ];
    let repairs: Vec<Repair> = repairs
        .into_iter()
        .filter(|it| !python.contains(it))
        .collect();
    scene.events(written.into_iter().map(read).collect(), &repairs, end)
}

/// Tags up to the closer, or to where something else follows.
pub(super) fn tagged(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut reader = tags::Reader {
        cursor: body,
        tools: scene.tools,
        opener: scene.opener,
    };
    let written = match reader.calls() {
        Ok(written) => written,
        Err(flaw) if reader.cursor.at() - body.at() > 1024 => {
            return scene.fail(reader.cursor, flaw);
        }
        Err(Flaw::Wrong) => return Verdict::No,
        Err(flaw) => return scene.fail(reader.cursor, flaw),
    };
    let mut repairs = Vec::new();
    let read = |call: tags::Written| {
        let text = body.slice(call.start, call.end).to_owned();
        repairs.extend(call.repairs);
        let outcome = match scene.tools.find(&call.name) {
            None => Outcome::Unknown(call.name),
            Some(tool) => Outcome::Call(Found::new(tool, call.arguments)),
        };
        (outcome, text)
    };
    let found = written.into_iter().map(read).collect();
    scene.events(found, &repairs, close(reader.cursor, scene.closers))
}

/// The name first: then keys and values as tags, or JSON.
fn pairs(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut cursor = body;
    cursor.skip_space();
    let name = cursor.take_while(|c| c.is_alphanumeric() || "_-./:".contains(c));
    cursor.skip_space();
    if name.is_empty() || name.len() > 256 || !matches!(cursor.peek(), Some('<' | '{') | None) {
        return Verdict::No;
    }
    if cursor.peek() == Some('{') {
        return arguments(cursor, name, None, scene);
    }
    if cursor.peek().is_some() && tag::tag(cursor).is_none() {
        return Verdict::No;
    }
    let (tool, first) = match scene.tools.find(name) {
        Some(tool) => (Some(tool), None),
        None => glued(name, cursor, scene.tools),
    };
    let mut reader = tags::Reader {
        cursor,
        tools: scene.tools,
        opener: scene.opener,
    };
    let mut found = Object::new();
    let read = match first {
        Some(key) => reader.pair(key, tool, &mut found),
        None => Ok(()),
    };
    if let Err(flaw) = read.and_then(|()| reader.pairs(tool, &mut found)) {
        return scene.fail(reader.cursor, flaw);
    }
    let end = close(reader.cursor, scene.closers);
    if end == reader.cursor.at() && found.is_empty() && reader.cursor.peek().is_some() {
        return Verdict::No;
    }
    let outcome = match tool {
        Some(tool) => Outcome::Call(Found::new(tool, found)),
        None => Outcome::Unknown(name.to_owned()),
    };
    let dialect = match scene.dialect {
        "hermes" => "glm",
        other => other,
    };
    let scene = Scene { dialect, ..scene };
    scene.events(vec![(outcome, scene.raw(end))], &[], end)
}

/// A name with the first key run into it, whose opening tag was lost.
fn glued<'a>(
    word: &str,
    cursor: Cursor<'_>,
    tools: &'a Tools,
) -> (Option<&'a Tool>, Option<String>) {
    let closes_key = tag::tag(cursor).is_some_and(|it| it.shuts(tag::Class::Key));
    let parts = closes_key.then(|| tools.split(word)).flatten();
    match parts {
        Some((tool, key)) => (Some(tool), Some(key.to_owned())),
        None => (None, None),
    }
}

/// A name between separators, then its arguments.
fn headed(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut cursor = body;
    let Some(header) = header::header(&mut cursor) else {
        return Verdict::No;
    };
    let dialect = match (scene.dialect, header.kimi) {
        ("deepseek_v3", true) => "kimi_k2",
        (other, _) => other,
    };
    let scene = Scene { dialect, ..scene };
    if dialect == "functionary" && scene.tools.find(header.name).is_none() {
        return Verdict::No;
    }
    let id = header.id.or(Some(header.name).filter(|_| header.kimi));
    if cursor.peek() == Some('<') && tag::tag(cursor).is_some_and(|it| it.opens(tag::Class::Call)) {
        return tagged(
            cursor,
            Scene {
                dialect: "step3",
                ..scene
            },
        );
    }
    match cursor.peek() {
        Some('{' | '`') | None => arguments(cursor, header.name, id, scene),
        _ if close(cursor, scene.closers) > cursor.at() => {
            arguments(cursor, header.name, id, scene)
        }
        _ => Verdict::No,
    }
}

/// The arguments of the tool called `name`, as JSON or left out.
pub(super) fn arguments(
    cursor: Cursor<'_>,
    name: &str,
    id: Option<&str>,
    scene: Scene<'_>,
) -> Verdict {
    let mut parser = Parser::new(cursor, scene.closers);
    parser.skip();
    parser.fence();
    let value = match parser.cursor.peek() {
        Some('{' | '[' | '"') => match parser.value() {
            Ok(value) => value,
            Err(flaw) => return scene.fail(parser.cursor, flaw),
        },
        Some(_) if close(parser.cursor, scene.closers) > parser.cursor.at() => Json::Null,
        Some(_) => return scene.fail(parser.cursor, Flaw::Wrong),
        None => return scene.fail(parser.cursor, Flaw::Cut),
    };
    parser.spare_closers();
    parser.skip();
    parser.cursor.eat("```");
    let end = close(parser.cursor, scene.closers);
    let mut repairs: Vec<Repair> = parser.repairs;
    repairs.retain(|it| *it != Repair::Around);
    let mut outcome = scene.addressed(name, &value, &mut repairs);
    if let Outcome::Call(call) = &mut outcome {
        call.id = id.map(str::to_owned);
    }
    scene.events(vec![(outcome, scene.raw(end))], &repairs, end)
}

fn gemma(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut reader = gemma::Reader {
        cursor: body,
        closers: scene.closers,
    };
    let (name, arguments) = match reader.call(scene.tools) {
        Ok(read) => read,
        Err(Flaw::Wrong) if reader.cursor.at() - body.at() < 256 => return Verdict::No,
        Err(flaw) => return scene.fail(reader.cursor, flaw),
    };
    let end = close(reader.cursor, scene.closers);
    let outcome = match scene.tools.find(&name) {
        Some(tool) => Outcome::Call(Found::new(tool, arguments)),
        None => Outcome::Unknown(name),
    };
    scene.events(vec![(outcome, scene.raw(end))], &[], end)
}
