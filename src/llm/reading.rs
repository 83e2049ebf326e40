//! From what a backend hands out piece by piece to what its model meant.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    Call, Event, Finish, Usage,
    constrained::{self, Meant},
};
use crate::dialect::{self, Dialect, Options, Reader, Tools};

/// The most that one answer may hold.
const MAX_ANSWER: usize = 16 << 20;
/// The most calls that a backend may make in one answer.
const MAX_CALLS: usize = 128;

/// One answer while it comes. Pure.
#[derive(Debug)]
pub(super) struct Reading {
    tools: Arc<Tools>,
    reader: Reader,
    /// Everything so far, where the output is held to our own form.
    held: Option<String>,
    native: Vec<Native>,
    seen: Vec<(String, String)>,
    scratch: Vec<dialect::Event>,
    size: usize,
    finish: Option<Finish>,
    ended: bool,
}

/// A call that the backend read, as far as it has come.
#[derive(Debug, Default)]
struct Native {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

/// A piece of a call that the backend read.
#[derive(Debug, Default)]
pub(super) struct Fragment<'a> {
    /// Which call; the one before, when nothing is said.
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

/// What a backend sends goes beyond what is taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

impl Reading {
    pub(super) fn new(tools: Tools, dialect: Dialect, constrained: bool) -> Self {
        let tools = Arc::new(tools);
        Self {
            reader: Reader::new(Arc::clone(&tools), dialect, Options::default()),
            tools,
            held: constrained.then(String::new),
            native: Vec::new(),
            seen: Vec::new(),
            scratch: Vec::new(),
            size: 0,
            finish: None,
            ended: false,
        }
    }

    pub(super) fn text(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), TooMuch> {
        self.grow(text)?;
        match &mut self.held {
            Some(held) => held.push_str(text),
            None => {
                self.reader.push(text, &mut self.scratch);
                self.hand_on(out);
            }
        }
        Ok(())
    }

    pub(super) fn reasoning(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), TooMuch> {
        self.grow(text)?;
        if !text.is_empty() {
            out.push(Event::Reasoning(text.to_owned()));
        }
        Ok(())
    }

    pub(super) fn refusal(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), TooMuch> {
        self.grow(text)?;
        if !text.is_empty() {
            out.push(Event::Refusal(text.to_owned()));
        }
        Ok(())
    }

    /// Some backends say the index, some the id, some neither but once.
    pub(super) fn fragment(&mut self, piece: &Fragment<'_>) -> Result<(), TooMuch> {
        self.grow(piece.id)?;
        self.grow(piece.name)?;
        self.grow(piece.arguments)?;
        let native = self.native_of(piece)?;
        if native.id.is_empty() {
            native.id.push_str(piece.id);
        }
        // Some repeat the name with every piece.
        if native.name != piece.name {
            native.name.push_str(piece.name);
        }
        native.arguments.push_str(piece.arguments);
        Ok(())
    }

    fn native_of(&mut self, piece: &Fragment<'_>) -> Result<&mut Native, TooMuch> {
        let known = match piece.index {
            Some(index) => {
                let same = self.native.iter().rposition(|it| it.index == index);
                // Another id at the same index is another call all the same.
                same.filter(|at| {
                    let id = &self.native[*at].id;
                    piece.id.is_empty() || id.is_empty() || id == piece.id || piece.name.is_empty()
                })
            }
            None if piece.name.is_empty() => self.native.len().checked_sub(1),
            None => None,
        };
        if let Some(at) = known {
            return Ok(&mut self.native[at]);
        }
        if self.native.len() >= MAX_CALLS {
            return Err(TooMuch);
        }
        self.native.push(Native {
            index: piece.index.unwrap_or(self.native.len() as u64),
            ..Native::default()
        });
        Ok(self.native.last_mut().expect("one was added"))
    }

    /// The backend says why it ended.
    pub(super) fn finish(&mut self, finish: Finish) {
        self.finish.get_or_insert(finish);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Nothing more comes: hands out what was held back, and the reason.
    pub(super) fn end(&mut self, out: &mut Vec<Event>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let finish = self.finish.unwrap_or(Finish::Stop);
        let cut = finish == Finish::Length;
        if let Some(held) = self.held.take() {
            self.end_held(&held, out);
        }
        self.reader.finish(cut, &mut self.scratch);
        self.hand_on(out);
        let in_text = self.seen.len();
        for native in std::mem::take(&mut self.native) {
            self.end_native(&native, in_text, out);
        }
        out.push(Event::Finish(match finish {
            Finish::Length | Finish::ContentFilter => finish,
            Finish::Stop | Finish::ToolCalls if self.seen.is_empty() => Finish::Stop,
            Finish::Stop | Finish::ToolCalls => Finish::ToolCalls,
        }));
    }

    /// The answer broke off: hands out the text that was held back.
    pub(super) fn give_up(&mut self, out: &mut Vec<Event>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let Some(held) = self.held.take() {
            self.reader.push(&held, &mut self.scratch);
        }
        self.reader.finish(true, &mut self.scratch);
        self.hand_on(out);
    }

    fn end_held(&mut self, held: &str, out: &mut Vec<Event>) {
        match constrained::meant(held) {
            Some(Meant::Answer(text)) => out.push(Event::Text(text)),
            Some(Meant::Call { name, arguments }) => {
                match dialect::arguments(&self.tools, &name, &arguments) {
                    Ok(made) => self.call(made_of(made, "constrained", held), None, out),
                    Err(_) => out.push(Event::Text(held.to_owned())),
                }
            }
            // It was not held to the form, or was cut off.
            None => self.reader.push(held, &mut self.scratch),
        }
    }

    /// Some backends read a call and leave it in the text, too: those of the
    /// first `in_text` calls are not made twice.
    fn end_native(&mut self, native: &Native, in_text: usize, out: &mut Vec<Event>) {
        match dialect::arguments(&self.tools, &native.name, &native.arguments) {
            Ok(made) => {
                let same = |it: &(String, String)| it.0 == made.name && it.1 == made.arguments;
                if !self.seen[..in_text].iter().any(same) {
                    let call = made_of(made, "native", &native.arguments);
                    self.call(call, Some(&native.id), out);
                }
            }
            Err(unusable) => out.push(Event::Broken {
                text: format!("{}({})", native.name, native.arguments),
                name: Some(native.name.clone()),
                reason: unusable.to_string(),
            }),
        }
    }

    fn hand_on(&mut self, out: &mut Vec<Event>) {
        for event in std::mem::take(&mut self.scratch) {
            match event {
                dialect::Event::Text(text) => out.push(Event::Text(text)),
                dialect::Event::Reasoning(text) => out.push(Event::Reasoning(text)),
                dialect::Event::Call(call) => self.call(call, None, out),
                dialect::Event::TextWasReasoning => out.push(Event::TextWasReasoning),
                // Made up after a call, such as its result.
                dialect::Event::Aside(_) => (),
                dialect::Event::Broken(broken) => out.push(Event::Broken {
                    text: broken.text,
                    name: broken.name,
                    reason: broken.reason,
                }),
            }
        }
    }

    fn call(&mut self, call: dialect::Call, id: Option<&str>, out: &mut Vec<Event>) {
        self.seen.push((call.name.clone(), call.arguments.clone()));
        let given = id.or(call.id.as_deref());
        out.push(Event::Call(Call {
            id: given
                .filter(|it| is_usual(it))
                .map_or_else(fresh, str::to_owned),
            name: call.name,
            arguments: call.arguments,
            dialect: call.dialect,
            repairs: call.repairs,
            raw: call.raw,
            explicit: call.explicit,
        }));
    }

    fn grow(&mut self, by: &str) -> Result<(), TooMuch> {
        self.size += by.len();
        match self.size > MAX_ANSWER {
            true => Err(TooMuch),
            false => Ok(()),
        }
    }
}

impl Usage {
    /// The counts that every client reads.
    pub(super) fn of(prompt: u64, completion: u64, total: u64) -> Self {
        let mut counts = Map::new();
        counts.insert("prompt_tokens".to_owned(), prompt.into());
        counts.insert("completion_tokens".to_owned(), completion.into());
        counts.insert("total_tokens".to_owned(), total.into());
        Self(counts)
    }

    /// A count, or 0.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or(0)
    }
}

/// A call that did not have to be looked for.
fn made_of(made: dialect::Arguments, dialect: &'static str, raw: &str) -> dialect::Call {
    dialect::Call {
        name: made.name,
        arguments: made.arguments,
        id: None,
        dialect,
        repairs: made.repairs,
        raw: raw.to_owned(),
        explicit: true,
    }
}

/// Ids that OpenAI itself makes are kept; others may come again in the next turn.
fn is_usual(id: &str) -> bool {
    id.strip_prefix("call_").is_some_and(|it| {
        (16..=40).contains(&it.len()) && it.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn fresh() -> String {
    super::chat::random("call_")
}
