//! Calls written as tags, one tag for every parameter.

use super::{
    arguments::from_text,
    cursor::Cursor,
    json::{Json, Object, unique},
    repair::{Flaw, Parser, Repair},
    schema::Schema,
    tag::{Class, MINIMAX, Tag, tag},
    tools::{Tool, Tools},
};

/// How deep tags may nest in a value.
const MAX_DEPTH: usize = 32;
/// Longest name or key that is taken for one.
const MAX_NAME: usize = 256;

/// One call as written.
pub(super) struct Written {
    pub(super) name: String,
    pub(super) arguments: Object,
    pub(super) repairs: Vec<Repair>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Reads tags of calls. Whether a later marker opens a frame is asked of
/// `opener`: one after what looked like the end shows that it was the end.
pub(super) struct Reader<'a> {
    pub(super) cursor: Cursor<'a>,
    pub(super) tools: &'a Tools,
    pub(super) opener: &'a dyn Fn(Cursor<'_>) -> bool,
}

/// A parameter's value and how it ended.
struct Value<'a> {
    text: &'a str,
    /// It was ended by the end of the call rather than by its own tag.
    open: bool,
}

/// Where a value may end.
#[derive(Default)]
struct Ends {
    /// Its own closing tag: where that begins and ends.
    own: Option<(usize, usize)>,
    /// The end of the call around it.
    call: Option<usize>,
    /// Calls that stand open in the text of the value.
    inner: usize,
}

impl<'a> Reader<'a> {
    /// Reads calls up to where something else follows.
    pub(super) fn calls(&mut self) -> Result<Vec<Written>, Flaw> {
        let mut found = Vec::new();
        loop {
            self.cursor.skip_space();
            match tag(self.cursor) {
                Some(open) if open.opens(Class::Call) => {
                    self.cursor.jump(open.end);
                    found.push(self.call(&open)?);
                }
                _ if found.is_empty() => return Err(Flaw::Wrong),
                _ => return Ok(found),
            }
        }
    }

    /// Reads the one call of a tag that is named after its tool.
    pub(super) fn call_of(&mut self, tool: &'a Tool) -> Result<Object, Flaw> {
        let mut arguments = Object::new();
        self.parameters(Some(tool), true, &mut arguments)?;
        unique(&mut arguments);
        Ok(arguments)
    }

    /// Reads keys and values after a name, up to the end of the frame.
    pub(super) fn pairs(
        &mut self,
        tool: Option<&'a Tool>,
        arguments: &mut Object,
    ) -> Result<(), Flaw> {
        loop {
            self.cursor.skip_space();
            let Some(next) = tag(self.cursor) else {
                return Ok(());
            };
            if next.shuts(Class::Key) || next.element == "tool_sep" {
                self.cursor.jump(next.end);
            } else if next.opens(Class::Key) {
                self.cursor.jump(next.end);
                let key = self.key()?;
                self.pair(key, tool, arguments)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Reads the value that belongs to `key`.
    pub(super) fn pair(
        &mut self,
        key: String,
        tool: Option<&'a Tool>,
        arguments: &mut Object,
    ) -> Result<(), Flaw> {
        loop {
            self.cursor.skip_space();
            let next = tag(self.cursor).ok_or(Flaw::Wrong)?;
            self.cursor.jump(next.end);
            if next.opens(Class::Value) {
                let value = self.value(&next, tool)?;
                let text = match value.open {
                    true => value.text.strip_suffix('\n').unwrap_or(value.text),
                    false => value.text,
                };
                let schema = tool.and_then(|tool| tool.schema.about(&key));
                arguments.push((key, from_text(uncased(text), schema)));
                return Ok(());
            }
            if !next.shuts(Class::Key) {
                return Err(Flaw::Wrong);
            }
        }
    }

    fn key(&mut self) -> Result<String, Flaw> {
        let key = self.cursor.take_while(|c| c != '<' && c != '\n').trim();
        match self.cursor.peek() {
            None => Err(Flaw::Cut),
            Some('<') if !key.is_empty() && key.len() <= MAX_NAME => Ok(key.to_owned()),
            Some(_) => Err(Flaw::Wrong),
        }
    }

    fn call(&mut self, open: &Tag<'_>) -> Result<Written, Flaw> {
        let mut written = Written {
            name: open.name.clone().unwrap_or_default(),
            arguments: Object::new(),
            repairs: Vec::new(),
            start: open.start,
            end: 0,
        };
        let legacy = open.name.is_none();
        if legacy {
            written.name = self.legacy_name()?;
        }
        let tool = self.tools.find(&written.name);
        self.cursor.skip_space();
        if self.cursor.peek() == Some('{') {
            self.json(&mut written)?;
        } else {
            let minimax = self.cursor.starts(MINIMAX);
            self.parameters(tool, legacy || minimax, &mut written.arguments)?;
        }
        self.cursor.skip_space();
        while let Some(close) =
            tag(self.cursor).filter(|it| it.closes && it.element == "parameters")
        {
            self.cursor.jump(close.end);
            self.cursor.skip_space();
        }
        match tag(self.cursor) {
            Some(close) if close.shuts(Class::Call) => self.cursor.jump(close.end),
            Some(close) if close.shuts(Class::Wrapper) => (),
            // Neither arguments nor an end: this only looks like a call.
            _ if written.arguments.is_empty() => return Err(Flaw::Wrong),
            _ => (),
        }
        written.end = self.cursor.at();
        unique(&mut written.arguments);
        Ok(written)
    }

    /// `<tool_name>⟨n⟩</tool_name>`, and the tag that holds the parameters.
    fn legacy_name(&mut self) -> Result<String, Flaw> {
        self.cursor.skip_space();
        let open = tag(self.cursor).filter(|it| it.element == "tool_name" && !it.closes);
        self.cursor.jump(open.ok_or(Flaw::Wrong)?.end);
        let name = self.key()?;
        let close = tag(self.cursor).filter(|it| it.element == "tool_name" && it.closes);
        self.cursor.jump(close.ok_or(Flaw::Wrong)?.end);
        self.cursor.skip_space();
        if let Some(open) = tag(self.cursor).filter(|it| it.element == "parameters" && !it.closes) {
            self.cursor.jump(open.end);
        }
        Ok(name)
    }

    fn json(&mut self, written: &mut Written) -> Result<(), Flaw> {
        let mut parser = Parser::new(self.cursor, &["</"]);
        let value = parser.value()?;
        parser.spare_closers();
        self.cursor = parser.cursor;
        written.repairs = parser.repairs;
        match value {
            Json::Object(members) => written.arguments = members,
            _ => return Err(Flaw::Wrong),
        }
        Ok(())
    }

    /// Reads parameters up to a tag that is none; `keyed` says that their tags
    /// are named after them.
    fn parameters(
        &mut self,
        tool: Option<&'a Tool>,
        keyed: bool,
        arguments: &mut Object,
    ) -> Result<(), Flaw> {
        loop {
            self.cursor.skip_space();
            let Some(open) = tag(self.cursor) else {
                return match self.cursor.peek() {
                    // Nothing but closing tags is missing, so nothing is.
                    None => Ok(()),
                    Some(_) => Err(Flaw::Wrong),
                };
            };
            let Some((key, trims)) = parameter(&open, tool, keyed) else {
                return Ok(());
            };
            let schema = tool.and_then(|tool| tool.schema.about(&key));
            self.cursor.jump(open.end);
            let value = match self.cursor.slice(open.start, open.end).starts_with(MINIMAX) {
                true => self.nested(&open, schema, 0)?,
                false => {
                    let value = self.value(&open, tool)?;
                    from_text(uncased(unframed(&value, trims)), schema)
                }
            };
            arguments.push((key, value));
        }
    }

    /// Raw text up to the tag that ends it: its own closing tag, if what
    /// follows shows that it is no part of the text.
    fn value(&mut self, open: &Tag<'_>, tool: Option<&Tool>) -> Result<Value<'a>, Flaw> {
        let from = self.cursor.at();
        let mut ends = Ends::default();
        if self.cursor.starts("<![CDATA[") {
            let end = self.cursor.find("]]>").ok_or(Flaw::Cut)?;
            self.cursor.jump(end);
        }
        loop {
            let Some(at) = self.cursor.find("<") else {
                return self.settle(from, &ends);
            };
            self.cursor.jump(at);
            if ends.call.is_some() && (self.opener)(self.cursor) {
                return self.settle(from, &ends);
            }
            let Some(next) = tag(self.cursor) else {
                self.cursor.bump();
                continue;
            };
            let again = tool.is_some_and(|tool| !next.closes && tool.name == next.element);
            if again && ends.call.is_some() {
                return self.settle(from, &ends);
            }
            if next.closes && next.element == open.element && self.is_end(&next, open, tool) {
                if ends.inner == 0 {
                    ends.own = Some((at, next.end));
                    return self.settle(from, &ends);
                }
                ends.own.get_or_insert((at, next.end));
            } else if self.forgotten(&next, open, tool) {
                let text = self.cursor.slice(from, at);
                return Ok(Value { text, open: true });
            } else if next.opens(Class::Call) && next.name.is_some() {
                ends.inner += 1;
            } else if next.shuts(Class::Call) && ends.inner > 0 {
                ends.inner -= 1;
            } else if next.closes && ends_call(&next, tool) && ends.inner == 0 {
                ends.call.get_or_insert(at);
            }
            self.cursor.jump(next.end);
        }
    }

    /// The value, ended by the best of the ends that were seen.
    fn settle(&mut self, from: usize, ends: &Ends) -> Result<Value<'a>, Flaw> {
        let (at, next) = match (ends.own, ends.call) {
            (Some(own), _) => own,
            (None, Some(call)) => (call, call),
            (None, None) => return Err(Flaw::Cut),
        };
        self.cursor.jump(next);
        let text = self.cursor.slice(from, at);
        let open = ends.own.is_none();
        Ok(Value { text, open })
    }

    /// Whether a closing tag is followed by something that belongs there.
    fn is_end(&self, close: &Tag<'_>, open: &Tag<'_>, tool: Option<&Tool>) -> bool {
        let mut after = self.cursor;
        after.jump(close.end);
        after.skip_space();
        if after.peek().is_none() {
            return true;
        }
        let keyed = open.class() == Class::Other;
        tag(after).is_some_and(|next| match next.closes {
            true => ends_call(&next, tool) || next.element == "parameters",
            false if keyed => parameter(&next, tool, true).is_some(),
            false => matches!(next.class(), Class::Parameter | Class::Key | Class::Call),
        }) || marker_follows(after)
    }

    /// Whether the next parameter opens here, though this one was not closed.
    fn forgotten(&self, next: &Tag<'_>, open: &Tag<'_>, tool: Option<&Tool>) -> bool {
        let line = self.cursor.slice(0, next.start).ends_with('\n');
        let key = match next.class() {
            Class::Parameter => next.name.as_deref(),
            _ => None,
        };
        let known = |key| tool.is_some_and(|tool| tool.schema.property(key).is_some());
        line && !next.closes
            && next.element == open.element
            && next.name != open.name
            && key.is_some_and(known)
    }

    /// A value of nested tags: objects, arrays of `<item>`, or text.
    fn nested(
        &mut self,
        open: &Tag<'_>,
        schema: Option<&Schema>,
        depth: usize,
    ) -> Result<Json, Flaw> {
        if depth > MAX_DEPTH {
            return Err(Flaw::Deep);
        }
        let from = self.cursor.at();
        let at = self.cursor.find(MINIMAX).ok_or(Flaw::Cut)?;
        self.cursor.jump(at);
        let next = tag(self.cursor).ok_or(Flaw::Wrong)?;
        if next.closes {
            self.cursor.jump(next.end);
            return Ok(from_text(self.cursor.slice(from, at), schema));
        }
        let mut items = Vec::new();
        let mut members = Object::new();
        loop {
            self.cursor.skip_space();
            let child = tag(self.cursor).ok_or(Flaw::Wrong)?;
            self.cursor.jump(child.end);
            if child.closes {
                let array = child.element == open.element && !items.is_empty();
                return Ok(match array {
                    true => Json::Array(items),
                    false => Json::Object(members),
                });
            }
            if child.element == "item" {
                let each = schema.and_then(|it| it.items.as_deref());
                items.push(self.nested(&child, each, depth + 1)?);
            } else {
                let about = schema.and_then(|it| it.about(child.element));
                let value = self.nested(&child, about, depth + 1)?;
                members.push((child.element.to_owned(), value));
            }
        }
    }
}

/// The key of a parameter's tag, and whether line breaks frame its value.
fn parameter(open: &Tag<'_>, tool: Option<&Tool>, keyed: bool) -> Option<(String, bool)> {
    if open.closes {
        return None;
    }
    if open.class() == Class::Parameter {
        let name = open.name.clone()?;
        return Some((name, open.equals));
    }
    let known = || tool.is_none_or(|tool| tool.schema.property(open.element).is_some());
    (keyed && open.name.is_none() && known()).then(|| (open.element.to_owned(), true))
}

fn ends_call(close: &Tag<'_>, tool: Option<&Tool>) -> bool {
    matches!(close.class(), Class::Call | Class::Wrapper)
        || tool.is_some_and(|tool| tool.name == close.element)
}

/// Whether a token that ends a frame or a turn is next.
fn marker_follows(cursor: Cursor<'_>) -> bool {
    [
        "<|",
        "<｜",
        "</tool_call",
        "</seed:",
        "</minimax:",
        "</function",
        "</s>",
    ]
    .iter()
    .any(|start| cursor.starts(start))
}

/// The value without the line breaks that frame it.
fn unframed<'a>(value: &Value<'a>, trims: bool) -> &'a str {
    let mut text = value.text;
    if trims && text.starts_with('\n') {
        text = &text[1..];
    }
    if trims || value.open {
        text = text.strip_suffix('\n').unwrap_or(text);
    }
    text
}

/// The text of a CDATA section, if the value is one.
fn uncased(text: &str) -> &str {
    let inner = text.trim().strip_prefix("<![CDATA[");
    let inner = inner.and_then(|it| it.strip_suffix("]]>"));
    inner.unwrap_or(text)
}
