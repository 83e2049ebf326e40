//! Parses calls written as tags, one tag per parameter.

use super::{
    arguments::value_from_text,
    cursor::TextCursor,
    json::{JsonObject, JsonValue, dedup_keys},
    repair::{JsonRepair, LenientJsonParser, PayloadError},
    schema::ParameterSchema,
    tag::{MINIMAX_TAG_PREFIX, MarkupTag, TagClass, parse_tag},
    tool_set::{ToolSet, ToolSignature},
};

/// How deep tags may nest in a value.
const MAX_TAG_DEPTH: usize = 32;
/// Longest name or key that is taken for one.
const MAX_TAG_NAME_BYTES: usize = 256;

/// One call as written.
pub(super) struct TagCall {
    pub(super) name: String,
    pub(super) arguments: JsonObject,
    pub(super) repairs: Vec<JsonRepair>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Reads tags of calls. Whether a later marker opens a frame is asked of
/// `opener`: one after what looked like the end shows that it was the end.
pub(super) struct TagCallParser<'a> {
    pub(super) cursor: TextCursor<'a>,
    pub(super) tools: &'a ToolSet,
    pub(super) is_frame_opener: &'a dyn Fn(TextCursor<'_>) -> bool,
}

/// A parameter's value and how it ended.
struct ParameterText<'a> {
    text: &'a str,
    /// It was ended by the end of the call rather than by its own tag.
    is_unclosed: bool,
}

/// Where a value may end.
#[derive(Default)]
struct ValueEnds {
    /// Its own closing tag: where that begins and ends.
    own_closer: Option<(usize, usize)>,
    /// The end of the call around it.
    call_end: Option<usize>,
    /// Calls that stand open in the text of the value.
    open_inner_calls: usize,
}

impl<'a> TagCallParser<'a> {
    /// Reads calls up to where something else follows.
    pub(super) fn parse_calls(&mut self) -> Result<Vec<TagCall>, PayloadError> {
        let mut found = Vec::new();
        loop {
            self.cursor.skip_space();
            match parse_tag(self.cursor) {
                Some(open) if open.opens_class(TagClass::Call) => {
                    self.cursor.seek(open.end);
                    found.push(self.call(open.start, open.name)?);
                }
                // The frame around it is the call's tag.
                Some(open) if !open.closes && open.holds_tool_name() => {
                    found.push(self.call(open.start, None)?);
                }
                _ if found.is_empty() => return Err(PayloadError::Malformed),
                _ => return Ok(found),
            }
        }
    }

    /// Reads the one call of a tag that is named after its tool.
    pub(super) fn parse_tool_parameters(
        &mut self,
        tool: &'a ToolSignature,
    ) -> Result<JsonObject, PayloadError> {
        let mut arguments = JsonObject::new();
        self.parameters(Some(tool), true, &mut arguments)?;
        dedup_keys(&mut arguments);
        Ok(arguments)
    }

    /// Reads keys and values after a name, up to the end of the frame.
    pub(super) fn parse_key_values(
        &mut self,
        tool: Option<&'a ToolSignature>,
        arguments: &mut JsonObject,
    ) -> Result<(), PayloadError> {
        loop {
            self.cursor.skip_space();
            let Some(next) = parse_tag(self.cursor) else {
                return Ok(());
            };
            if next.closes_class(TagClass::Key) || next.element == "tool_sep" {
                self.cursor.seek(next.end);
            } else if next.opens_class(TagClass::Key) {
                self.cursor.seek(next.end);
                let key = self.key()?;
                self.parse_key_value(key, tool, arguments)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Reads the value that belongs to `key`.
    pub(super) fn parse_key_value(
        &mut self,
        key: String,
        tool: Option<&'a ToolSignature>,
        arguments: &mut JsonObject,
    ) -> Result<(), PayloadError> {
        let mut key_closed = false;
        loop {
            self.cursor.skip_space();
            let next = parse_tag(self.cursor);
            let belongs = |it: &MarkupTag<'_>| {
                it.opens_class(TagClass::Value) || it.closes_class(TagClass::Key)
            };
            if key_closed && !next.as_ref().is_some_and(belongs) {
                let text = self.untagged_value()?;
                let schema = tool.and_then(|tool| tool.schema.schema_for(&key));
                arguments.push((key, value_from_text(text, schema)));
                return Ok(());
            }
            let next = next.ok_or(PayloadError::Malformed)?;
            self.cursor.seek(next.end);
            if next.opens_class(TagClass::Value) {
                let value = self.parse_value_text(&next, tool)?;
                let text = if value.is_unclosed {
                    value.text.strip_suffix('\n').unwrap_or(value.text)
                } else {
                    value.text
                };
                let schema = tool.and_then(|tool| tool.schema.schema_for(&key));
                arguments.push((key, value_from_text(strip_cdata(text), schema)));
                return Ok(());
            }
            if !next.closes_class(TagClass::Key) {
                return Err(PayloadError::Malformed);
            }
            key_closed = true;
        }
    }

    /// A value whose opening tag is missing: up to its closing tag, the next key or
    /// the end of the call.
    fn untagged_value(&mut self) -> Result<&'a str, PayloadError> {
        let from = self.cursor.position();
        loop {
            let at = self.cursor.find("<").ok_or(PayloadError::UnexpectedEnd)?;
            self.cursor.seek(at);
            let text = self.cursor.slice(from, at).trim_end();
            match parse_tag(self.cursor) {
                Some(tag) if tag.closes_class(TagClass::Value) => {
                    self.cursor.seek(tag.end);
                    return Ok(text);
                }
                Some(tag)
                    if tag.opens_class(TagClass::Key) || tag.closes_class(TagClass::Wrapper) =>
                {
                    return if text.is_empty() {
                        Err(PayloadError::Malformed)
                    } else {
                        Ok(text)
                    };
                }
                _ => drop(self.cursor.bump()),
            }
        }
    }

    fn key(&mut self) -> Result<String, PayloadError> {
        let key = self.cursor.take_while(|c| c != '<' && c != '\n').trim();
        match self.cursor.peek() {
            None => Err(PayloadError::UnexpectedEnd),
            Some('<') if !key.is_empty() && key.len() <= MAX_TAG_NAME_BYTES => Ok(key.to_owned()),
            Some(_) => Err(PayloadError::Malformed),
        }
    }

    /// Reads the call that began at `start`; without a `name` its first child is it.
    fn call(&mut self, start: usize, name: Option<String>) -> Result<TagCall, PayloadError> {
        let legacy = name.is_none();
        let name = match name {
            Some(name) => name,
            None => self.child_name()?,
        };
        let mut written = TagCall {
            name,
            arguments: JsonObject::new(),
            repairs: Vec::new(),
            start,
            end: 0,
        };
        let tool = self.tools.find(&written.name);
        self.cursor.skip_space();
        if self.cursor.peek() == Some('{') {
            self.json(&mut written)?;
        } else {
            let minimax = self.cursor.starts_with(MINIMAX_TAG_PREFIX);
            self.parameters(tool, legacy || minimax, &mut written.arguments)?;
        }
        self.cursor.skip_space();
        while let Some(close) =
            parse_tag(self.cursor).filter(|it| it.closes && it.holds_arguments())
        {
            self.cursor.seek(close.end);
            self.cursor.skip_space();
        }
        match parse_tag(self.cursor) {
            Some(close) if close.closes_class(TagClass::Call) => self.cursor.seek(close.end),
            Some(close) if close.closes_class(TagClass::Wrapper) => (),
            // Neither arguments nor an end: this only looks like a call.
            _ if written.arguments.is_empty() => return Err(PayloadError::Malformed),
            _ => (),
        }
        written.end = self.cursor.position();
        dedup_keys(&mut written.arguments);
        Ok(written)
    }

    /// `<tool_name>⟨n⟩</tool_name>`, and the tag that holds the arguments.
    fn child_name(&mut self) -> Result<String, PayloadError> {
        self.cursor.skip_space();
        let open = parse_tag(self.cursor).filter(|it| it.holds_tool_name() && !it.closes);
        self.cursor.seek(open.ok_or(PayloadError::Malformed)?.end);
        let name = self.key()?;
        let close = parse_tag(self.cursor).filter(|it| it.holds_tool_name() && it.closes);
        self.cursor.seek(close.ok_or(PayloadError::Malformed)?.end);
        self.cursor.skip_space();
        if let Some(open) = parse_tag(self.cursor).filter(|it| it.holds_arguments() && !it.closes) {
            self.cursor.seek(open.end);
        }
        Ok(name)
    }

    fn json(&mut self, written: &mut TagCall) -> Result<(), PayloadError> {
        let mut parser = LenientJsonParser::new(self.cursor, &["</"]);
        let value = parser.parse_value()?;
        parser.skip_spare_closers();
        self.cursor = parser.cursor;
        written.repairs = parser.repairs;
        match value {
            JsonValue::Object(members) => written.arguments = members,
            _ => return Err(PayloadError::Malformed),
        }
        Ok(())
    }

    /// Reads parameters up to a tag that is none; `keyed` says that their tags
    /// are named after them.
    fn parameters(
        &mut self,
        tool: Option<&'a ToolSignature>,
        keyed: bool,
        arguments: &mut JsonObject,
    ) -> Result<(), PayloadError> {
        loop {
            self.cursor.skip_space();
            let Some(open) = parse_tag(self.cursor) else {
                return match self.cursor.peek() {
                    // Nothing but closing tags is missing, so nothing is.
                    None => Ok(()),
                    Some(_) => Err(PayloadError::Malformed),
                };
            };
            let Some((key, trims)) = parameter_key(&open, tool, keyed) else {
                return Ok(());
            };
            let schema = tool.and_then(|tool| tool.schema.schema_for(&key));
            self.cursor.seek(open.end);
            let value = if self
                .cursor
                .slice(open.start, open.end)
                .starts_with(MINIMAX_TAG_PREFIX)
            {
                self.nested(&open, schema, 0)?
            } else {
                let value = self.parse_value_text(&open, tool)?;
                value_from_text(strip_cdata(strip_framing_newlines(&value, trims)), schema)
            };
            arguments.push((key, value));
        }
    }

    /// Raw text up to the tag that ends it: its own closing tag, if what
    /// follows shows that it is not part of the text.
    fn parse_value_text(
        &mut self,
        open: &MarkupTag<'_>,
        tool: Option<&ToolSignature>,
    ) -> Result<ParameterText<'a>, PayloadError> {
        let from = self.cursor.position();
        let mut ends = ValueEnds::default();
        if self.cursor.starts_with("<![CDATA[") {
            let end = self.cursor.find("]]>").ok_or(PayloadError::UnexpectedEnd)?;
            self.cursor.seek(end);
        }
        loop {
            let Some(at) = self.cursor.find("<") else {
                return self.finish_value(from, &ends);
            };
            self.cursor.seek(at);
            if ends.call_end.is_some() && (self.is_frame_opener)(self.cursor) {
                return self.finish_value(from, &ends);
            }
            let Some(next) = parse_tag(self.cursor) else {
                self.cursor.bump();
                continue;
            };
            let again = tool.is_some_and(|tool| !next.closes && tool.name == next.element);
            if again && ends.call_end.is_some() {
                return self.finish_value(from, &ends);
            }
            if next.closes && next.element == open.element && self.is_value_end(&next, open, tool) {
                if ends.open_inner_calls == 0 {
                    ends.own_closer = Some((at, next.end));
                    return self.finish_value(from, &ends);
                }
                ends.own_closer.get_or_insert((at, next.end));
            } else if self.is_next_parameter(&next, open, tool) {
                let text = self.cursor.slice(from, at);
                return Ok(ParameterText {
                    text,
                    is_unclosed: true,
                });
            } else if next.opens_class(TagClass::Call) && next.name.is_some() {
                ends.open_inner_calls += 1;
            } else if next.closes_class(TagClass::Call) && ends.open_inner_calls > 0 {
                ends.open_inner_calls -= 1;
            } else if next.closes && ends_call(&next, tool) && ends.open_inner_calls == 0 {
                ends.call_end.get_or_insert(at);
            }
            self.cursor.seek(next.end);
        }
    }

    /// The value, ended by the best of the ends that were seen.
    fn finish_value(
        &mut self,
        from: usize,
        ends: &ValueEnds,
    ) -> Result<ParameterText<'a>, PayloadError> {
        let (at, next) = match (ends.own_closer, ends.call_end) {
            (Some(own), _) => own,
            (None, Some(call)) => (call, call),
            (None, None) => return Err(PayloadError::UnexpectedEnd),
        };
        self.cursor.seek(next);
        let text = self.cursor.slice(from, at);
        let open = ends.own_closer.is_none();
        Ok(ParameterText {
            text,
            is_unclosed: open,
        })
    }

    /// Whether a closing tag is followed by something that belongs there.
    fn is_value_end(
        &self,
        close: &MarkupTag<'_>,
        open: &MarkupTag<'_>,
        tool: Option<&ToolSignature>,
    ) -> bool {
        let mut after = self.cursor;
        after.seek(close.end);
        after.skip_space();
        if after.peek().is_none() {
            return true;
        }
        let keyed = open.classify_element() == TagClass::Other;
        parse_tag(after).is_some_and(|next| {
            if next.closes {
                ends_call(&next, tool) || next.element == "parameters"
            } else if keyed {
                parameter_key(&next, tool, true).is_some()
            } else {
                matches!(
                    next.classify_element(),
                    TagClass::Parameter | TagClass::Key | TagClass::Call
                )
            }
        }) || marker_follows(after)
    }

    /// Whether the next parameter opens here, though this one was not closed.
    fn is_next_parameter(
        &self,
        next: &MarkupTag<'_>,
        open: &MarkupTag<'_>,
        tool: Option<&ToolSignature>,
    ) -> bool {
        let line = self.cursor.slice(0, next.start).ends_with('\n');
        let key = match next.classify_element() {
            TagClass::Parameter => next.name.as_deref(),
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
        open: &MarkupTag<'_>,
        schema: Option<&ParameterSchema>,
        depth: usize,
    ) -> Result<JsonValue, PayloadError> {
        if depth > MAX_TAG_DEPTH {
            return Err(PayloadError::TooDeep);
        }
        let from = self.cursor.position();
        let at = self
            .cursor
            .find(MINIMAX_TAG_PREFIX)
            .ok_or(PayloadError::UnexpectedEnd)?;
        self.cursor.seek(at);
        let next = parse_tag(self.cursor).ok_or(PayloadError::Malformed)?;
        if next.closes {
            self.cursor.seek(next.end);
            return Ok(value_from_text(self.cursor.slice(from, at), schema));
        }
        let mut items = Vec::new();
        let mut members = JsonObject::new();
        loop {
            self.cursor.skip_space();
            let child = parse_tag(self.cursor).ok_or(PayloadError::Malformed)?;
            self.cursor.seek(child.end);
            if child.closes {
                let array = child.element == open.element && !items.is_empty();
                return Ok(if array {
                    JsonValue::Array(items)
                } else {
                    JsonValue::Object(members)
                });
            }
            if child.element == "item" {
                let each = schema.and_then(|it| it.items.as_deref());
                items.push(self.nested(&child, each, depth + 1)?);
            } else {
                let about = schema.and_then(|it| it.schema_for(child.element));
                let value = self.nested(&child, about, depth + 1)?;
                members.push((child.element.to_owned(), value));
            }
        }
    }
}

/// The key of a parameter's tag, and whether line breaks frame its value.
fn parameter_key(
    open: &MarkupTag<'_>,
    tool: Option<&ToolSignature>,
    keyed: bool,
) -> Option<(String, bool)> {
    if open.closes {
        return None;
    }
    if open.classify_element() == TagClass::Parameter {
        let name = open.name.clone()?;
        return Some((name, open.has_equals_name));
    }
    let known = || tool.is_none_or(|tool| tool.schema.property(open.element).is_some());
    (keyed && open.name.is_none() && known()).then(|| (open.element.to_owned(), true))
}

fn ends_call(close: &MarkupTag<'_>, tool: Option<&ToolSignature>) -> bool {
    matches!(close.classify_element(), TagClass::Call | TagClass::Wrapper)
        || tool.is_some_and(|tool| tool.name == close.element)
}

/// Whether a token that ends a frame or a turn is next.
fn marker_follows(cursor: TextCursor<'_>) -> bool {
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
    .any(|start| cursor.starts_with(start))
}

/// The value without the line breaks that frame it.
fn strip_framing_newlines<'a>(value: &ParameterText<'a>, trims: bool) -> &'a str {
    let text = value.text;
    let line_break = if text.starts_with("\r\n") {
        "\r\n"
    } else {
        "\n"
    };
    let text = match text.strip_prefix(line_break) {
        Some(rest) if trims => rest,
        _ => text,
    };
    if trims || value.is_unclosed {
        text.strip_suffix(line_break).unwrap_or(text)
    } else {
        text
    }
}

/// The text of a CDATA section, if the value is one.
fn strip_cdata(text: &str) -> &str {
    let inner = text.trim().strip_prefix("<![CDATA[");
    let inner = inner.and_then(|it| it.strip_suffix("]]>"));
    inner.unwrap_or(text)
}
