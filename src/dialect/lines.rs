//! Calls written as labelled lines.

use super::{
    Event,
    cursor::Cursor,
    frame::{arguments, json},
    json::{Json, Object},
    python,
    repair::{Open, Parser},
    scene::{Scene, Verdict},
    shape::{Found, Outcome, is_answer, single},
    tools::Tool,
};

/// Longest name on a line.
const MAX_NAME: usize = 128;
const INPUTS: [&str; 5] = [
    "Action Input:",
    "**Action Input:**",
    "Action input:",
    "ActionInput:",
    "Action_Input:",
];
/// What ends the input of an action that is not JSON.
const INPUT_ENDS: [&str; 4] = ["\nObserv", "\nThought:", "\nAction:", "\nFinal Answer:"];
/// What opens the thoughts of a `ReAct` message.
pub(super) const THOUGHTS: [&str; 4] = ["Thought:", "**Thought:**", "생각:", "思考:"];
/// What opens its answer.
pub(super) const ANSWERS: [&str; 3] = ["Final Answer:", "**Final Answer:**", "최종 답변:"];

/// Lines that open text for everyone.
pub(super) const TO_ALL: [&str; 2] = [">>>all\n", ">>>all\r\n"];

/// `Action: ⟨n⟩` and its input; or `Action:` and fenced JSON.
pub(super) fn action(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut cursor = body;
    cursor.take_while(|c| c == ' ' || c == '\t');
    let mut fenced = cursor;
    fenced.skip_space();
    if matches!(fenced.peek(), Some('`' | '{' | '[')) {
        return match fenced.starts("```") || fenced.peek() != Some('`') {
            true => json(
                fenced,
                Scene {
                    dialect: "cohere",
                    ..scene
                },
            ),
            false => Verdict::No,
        };
    }
    let name = cursor
        .take_while(|c| !matches!(c, '\n' | '[' | '(' | '{'))
        .trim();
    if name.is_empty() || name.len() > MAX_NAME {
        return Verdict::No;
    }
    match cursor.peek() {
        Some('[' | '(') => bracketed(cursor, name, scene),
        _ => labelled(cursor, name, scene),
    }
}

/// `✿FUNCTION✿: ⟨n⟩` and `✿ARGS✿: {…}`.
pub(super) fn agent(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut cursor = body;
    if !colon(&mut cursor) {
        return Verdict::No;
    }
    let name = cursor.take_while(|c| c != '\n' && c != '✿').trim();
    cursor.skip_space();
    if name.is_empty() || name.len() > MAX_NAME || !cursor.eat("✿ARGS✿") || !colon(&mut cursor)
    {
        return Verdict::No;
    }
    arguments(cursor, name, None, scene)
}

/// Fence `tool`: `TOOL_NAME: ⟨n⟩`, then `BEGIN_ARG: ⟨k⟩` … `END_ARG`.
pub(super) fn block(body: Cursor<'_>, scene: Scene<'_>) -> Verdict {
    let mut cursor = body;
    cursor.skip_space();
    if !cursor.eat("TOOL_NAME:") {
        return Verdict::No;
    }
    let name = cursor.take_while(|c| c != '\n').trim();
    let tool = scene.tools.find(name);
    let mut found = Object::new();
    loop {
        cursor.skip_space();
        if cursor.eat("```") || cursor.peek().is_none() {
            break;
        }
        if !cursor.eat("BEGIN_ARG:") {
            return Verdict::No;
        }
        let key = cursor.take_while(|c| c != '\n').trim();
        cursor.bump();
        let Some(end) = cursor.find("END_ARG") else {
            return Verdict::No;
        };
        let text = cursor.slice(cursor.at(), end);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let schema = tool.and_then(|tool| tool.schema.about(key));
        found.push((key.to_owned(), super::arguments::from_text(text, schema)));
        cursor.jump(end + "END_ARG".len());
    }
    let outcome = outcome(tool, name, Some(found));
    let end = cursor.at();
    scene.events(vec![(outcome, scene.raw(end))], &[], end)
}

/// Thoughts up to an action or an answer; without one they are text.
pub(super) fn thought(body: Cursor<'_>) -> Verdict {
    let mut cursor = body;
    loop {
        cursor.take_while(|c| c != '\n');
        if cursor.bump().is_none() {
            let text = body.slice(body.at(), body.end()).to_owned();
            let events = vec![Event::Text(text)];
            let end = body.end();
            return Verdict::Done { end, events };
        }
        let mut line = cursor;
        line.take_while(|c| c == ' ' || c == '\t');
        if matches!(line.peek(), Some('<' | '`' | '{' | '[')) {
            return Verdict::No;
        }
        let labels = ANSWERS.iter().chain(&["Action:", "**Action:**"]);
        if labels.into_iter().any(|label| line.starts(label)) {
            let text = body.slice(body.at(), cursor.at()).trim().to_owned();
            let end = cursor.at();
            let events = vec![Event::Reasoning(text)];
            return Verdict::Done { end, events };
        }
    }
}

fn colon(cursor: &mut Cursor<'_>) -> bool {
    cursor.skip_space();
    let found = cursor.eat(":") || cursor.eat("：");
    cursor.skip_space();
    found
}

fn outcome(tool: Option<&Tool>, name: &str, arguments: Option<Object>) -> Outcome {
    match (tool, arguments) {
        (None, _) => Outcome::Unknown(name.to_owned()),
        (Some(tool), Some(arguments)) => Outcome::Call(Found::new(tool, arguments)),
        (Some(_), None) => Outcome::Not("its input cannot be read"),
    }
}

/// `⟨n⟩[…]` or `⟨n⟩(…)`.
fn bracketed(cursor: Cursor<'_>, name: &str, scene: Scene<'_>) -> Verdict {
    let Some(tool) = scene.tools.find(name) else {
        return Verdict::No;
    };
    let mut parser = Parser::new(cursor, &[]);
    let written = parser.nested(Open::Call, python::inside);
    let read = written.ok().and_then(|(keywords, positional)| {
        let written = python::Written::new(name, keywords, positional);
        Some((written.arguments(tool)?, parser.cursor.at()))
    });
    let (arguments, end) = match read {
        Some(read) => read,
        None => {
            let mut plain = cursor.moved(1);
            let text = plain.take_while(|c| !matches!(c, ']' | ')' | '\n')).trim();
            plain.bump();
            match single(&Json::String(text.to_owned()), tool) {
                Some(arguments) => (arguments, plain.at()),
                None => return Verdict::No,
            }
        }
    };
    let outcome = outcome(Some(tool), name, Some(arguments));
    scene.events(vec![(outcome, scene.raw(end))], &[], end)
}

fn labelled(mut cursor: Cursor<'_>, name: &str, scene: Scene<'_>) -> Verdict {
    let tool = scene.tools.find(name);
    let alone = cursor.at();
    cursor.skip_space();
    if !INPUTS.iter().any(|label| cursor.eat(label)) {
        // Without any input this is a call only of a tool that needs none.
        let needs_none = tool.is_some_and(|tool| tool.schema.required.is_empty());
        if !needs_none || cursor.peek().is_some_and(|_| !cursor.starts("Observ")) {
            return Verdict::No;
        }
        let outcome = outcome(tool, name, Some(Object::new()));
        return scene.events(vec![(outcome, scene.raw(alone))], &[], alone);
    }
    cursor.skip_space();
    if matches!(cursor.peek(), Some('{' | '`')) && !is_answer(name) {
        return arguments(cursor, name, None, scene);
    }
    let text = input(&mut cursor);
    let end = cursor.at();
    let outcome = match tool {
        None if is_answer(name) => Outcome::Answer(text.to_owned()),
        None => Outcome::Unknown(name.to_owned()),
        Some(tool) => outcome(Some(tool), name, plain(text, tool)),
    };
    scene.events(vec![(outcome, scene.raw(end))], &[], end)
}

/// Plain input: up to where the model goes on as someone else.
fn input<'a>(cursor: &mut Cursor<'a>) -> &'a str {
    let from = cursor.at();
    loop {
        cursor.take_while(|c| c != '\n');
        if cursor.peek().is_none() || INPUT_ENDS.iter().any(|end| cursor.starts(end)) {
            return cursor.slice(from, cursor.at()).trim();
        }
        cursor.bump();
    }
}

/// Arguments from input that is no object: nothing, `k=v`, or the one value.
fn plain(text: &str, tool: &Tool) -> Option<Object> {
    if matches!(text, "" | "None" | "null" | "none" | "N/A") {
        return Some(Object::new());
    }
    let touched = std::cell::Cell::new(false);
    let call = format!("({text})");
    let mut parser = Parser::new(Cursor::new(&call, &touched), &[]);
    if let Ok((keywords, positional)) = parser.nested(Open::Call, python::inside)
        && positional.is_empty()
        && !keywords.is_empty()
        && keywords
            .iter()
            .all(|(key, _)| tool.schema.property(key).is_some())
    {
        return Some(keywords);
    }
    let text = text.trim_matches(['"', '\'', '`']);
    single(&Json::String(text.to_owned()), tool)
}
