//! Hands out the arguments of a call while its frame is still open.
//!
//! Only what no continuation of the text can change goes out: the frame has markers, or
//! what stands before JSON of a prompted model decides that it is a call; the tool is
//! offered, and the arguments are strict JSON so far. The text of a string
//! goes out as it comes where the schema wants a string; any other value once it is
//! complete. From the first doubt on the rest waits for the end of the frame, where
//! the whole call is parsed as ever and its missing part is handed out.

use super::{
    CallStart, DialectEvent, InvalidCall, ParsedCall,
    arguments::coerce_value,
    cursor::TextCursor,
    grammar::{FrameBody, FrameSyntax, MESSAGE_ENDS},
    header,
    json::{JsonValue, escape_into, quote},
    json_calls::{is_arguments_key, is_name_key, is_side_key},
    marker,
    markerless_json::PAYLOAD_ENDS,
    repair,
    schema::{JsonTypes, ParameterSchema},
    strict_scanner::{Halt, StrictScanner},
    tag::{self, TagClass},
    tool_set::ToolSet,
};
use std::cell::Cell;

/// How far into a frame its arguments must begin.
const MAX_HEADER_BYTES: usize = 1024;

/// What is known about where the arguments begin.
#[derive(Debug)]
pub(super) enum ArgumentsStart {
    /// In a frame; the length of its opening marker in bytes.
    Frame(&'static FrameSyntax, usize),
    /// At this byte, of the tool of this name.
    Named(String, usize),
    /// In JSON without markers, perhaps in a fence, whose first member names the tool.
    Markerless,
}

/// The arguments of one call, as far as they were handed out.
#[derive(Debug)]
pub(super) struct ArgumentStream {
    start: ArgumentsStart,
    /// The tool, once the arguments began.
    tool: Option<String>,
    state: ArgumentStreamState,
    /// How much of the frame is done with.
    position: usize,
    /// Text of the open string that waits for what follows it.
    pending: String,
    keys: Vec<String>,
    emitted: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentStreamState {
    /// The arguments did not begin.
    Header,
    /// A key is next, the first or one after a comma.
    Key,
    /// Inside a string whose text goes out as it comes.
    Text,
    /// Inside any other value.
    Value(ValueScan),
    /// Behind a value.
    AfterValue,
    /// The rest comes with the whole call.
    Stopped,
}

/// How far a value was scanned for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ValueScan {
    start: usize,
    depth: usize,
    in_string: bool,
}

/// The parts of a call before its arguments.
struct CallHead {
    name: String,
    id: Option<String>,
    arguments: usize,
}

impl ArgumentStream {
    pub(super) fn new(start: ArgumentsStart) -> Self {
        Self {
            start,
            tool: None,
            state: ArgumentStreamState::Header,
            position: 0,
            pending: String::new(),
            keys: Vec::new(),
            emitted: String::new(),
        }
    }

    /// Whether something was handed out.
    pub(super) fn has_started(&self) -> bool {
        !self.emitted.is_empty()
    }

    /// Goes on with the text of the frame as far as it is there.
    pub(super) fn advance(&mut self, text: &str, tools: &ToolSet, events: &mut Vec<DialectEvent>) {
        let before = self.emitted.len();
        let head = match self.step_over_text(text, tools) {
            Ok(head) => head,
            Err(Halt::Wait) => None,
            Err(Halt::Stop) => {
                self.state = ArgumentStreamState::Stopped;
                None
            }
        };
        events.extend(head.map(DialectEvent::CallStarted));
        if self.emitted.len() > before {
            events.push(DialectEvent::CallArguments(
                self.emitted[before..].to_owned(),
            ));
        }
    }

    /// The events that end the streamed call, of which the whole frame is `event`.
    pub(super) fn finish(self, event: DialectEvent) -> Vec<DialectEvent> {
        match event {
            DialectEvent::Call(call)
                if Some(&call.name) == self.tool.as_ref()
                    && call.arguments.starts_with(&self.emitted) =>
            {
                let rest = call.arguments[self.emitted.len()..].to_owned();
                let rest = Some(rest).filter(|rest| !rest.is_empty());
                let rest = rest.map(DialectEvent::CallArguments);
                rest.into_iter()
                    .chain([DialectEvent::CallFinished(call)])
                    .collect()
            }
            DialectEvent::Call(ParsedCall { raw, dialect, .. }) => {
                vec![self.abort(raw, dialect)]
            }
            DialectEvent::Text(text) => vec![self.abort(text, "bare_json")],
            other => vec![other],
        }
    }

    /// The event that ends a streamed call that is none.
    pub(super) fn abort(self, text: String, dialect: &'static str) -> DialectEvent {
        DialectEvent::InvalidCall(InvalidCall {
            text,
            dialect,
            name: self.tool,
            reason: "the end of the call contradicts its beginning".to_owned(),
        })
    }

    /// Takes steps until more text is needed. Returns the head of the call when its
    /// arguments began.
    fn step_over_text(&mut self, text: &str, tools: &ToolSet) -> Result<Option<CallStart>, Halt> {
        let mut started = None;
        loop {
            let outcome = match self.state {
                ArgumentStreamState::Header => {
                    let head = self.locate(text, tools)?;
                    let tool = tools.find(&head.name).ok_or(Halt::Stop)?;
                    let mut scanner = StrictScanner::new(text, head.arguments);
                    scanner.expect(b'{')?;
                    let key = scanner.key()?;
                    // Another key may be a wrapper around the arguments.
                    tool.schema.property(key).ok_or(Halt::Stop)?;
                    started = Some(CallStart {
                        name: tool.name.clone(),
                        id: head.id,
                    });
                    self.tool = Some(tool.name.clone());
                    self.position = head.arguments + 1;
                    self.emitted.push('{');
                    self.state = ArgumentStreamState::Key;
                    Ok(())
                }
                ArgumentStreamState::Key => self.key(text, tools),
                ArgumentStreamState::Text => self.text(text),
                ArgumentStreamState::Value(scan) => self.value(scan, text, tools),
                ArgumentStreamState::AfterValue => self.after_value(text),
                ArgumentStreamState::Stopped => return Ok(started),
            };
            match outcome {
                Ok(()) => (),
                Err(Halt::Wait) => return Ok(started),
                Err(Halt::Stop) => self.state = ArgumentStreamState::Stopped,
            }
        }
    }

    /// The name of the tool and where its arguments begin.
    fn locate(&self, text: &str, tools: &ToolSet) -> Result<CallHead, Halt> {
        let head = match &self.start {
            ArgumentsStart::Named(name, at) => {
                let mut scanner = StrictScanner::new(text, *at);
                scanner.skip_space();
                let arguments = scanner.position();
                scanner.peek().map(|_| CallHead {
                    name: name.clone(),
                    id: None,
                    arguments,
                })
            }
            ArgumentsStart::Frame(frame, opener) => locate_in_frame(frame, *opener, text, tools),
            ArgumentsStart::Markerless => locate_markerless(text),
        };
        match head {
            Err(Halt::Wait) if text.len() > MAX_HEADER_BYTES => Err(Halt::Stop),
            head => head,
        }
    }

    fn key(&mut self, text: &str, tools: &ToolSet) -> Result<(), Halt> {
        let mut scanner = StrictScanner::new(text, self.position);
        let key = scanner.key()?;
        let first = scanner.peek()?;
        // The last of two counts, and the first is out.
        if self.keys.iter().any(|known| known == key) {
            return Err(Halt::Stop);
        }
        if !self.keys.is_empty() {
            self.emitted.push(',');
        }
        quote(key, &mut self.emitted);
        self.emitted.push(':');
        self.keys.push(key.to_owned());
        self.position = scanner.position();
        self.state = if first == b'"' && self.wants_text(tools) {
            self.emitted.push('"');
            self.position += 1;
            ArgumentStreamState::Text
        } else {
            ArgumentStreamState::Value(ValueScan {
                start: self.position,
                depth: 0,
                in_string: false,
            })
        };
        Ok(())
    }

    /// What the schema says about the value that is being read.
    fn schema<'a>(&self, tools: &'a ToolSet) -> Option<&'a ParameterSchema> {
        let tool = tools.find_exact(self.tool.as_deref()?)?;
        tool.schema.schema_for(self.keys.last()?)
    }

    /// Whether a string stays the string it is.
    fn wants_text(&self, tools: &ToolSet) -> bool {
        self.schema(tools).is_none_or(|schema| {
            let types = schema.types;
            types.is_any() || (types.has(JsonTypes::STRING) && !types.has(JsonTypes::NULL))
        })
    }

    fn text(&mut self, text: &str) -> Result<(), Halt> {
        let mut scanner = StrictScanner::new(text, self.position);
        let result = loop {
            self.pending.push_str(scanner.plain_run());
            self.position = scanner.position();
            match scanner.peek() {
                Ok(b'"') => break self.close_text(text),
                Ok(b'\\') => match scanner.escape() {
                    Ok(c) => self.pending.push(c),
                    Err(halt) => break Err(halt),
                },
                Ok(_) => break Err(Halt::Stop),
                Err(halt) => break Err(halt),
            }
            self.position = scanner.position();
        };
        let (certain, halt) = self.certain_text();
        escape_into(&self.pending[..certain], &mut self.emitted);
        self.pending.drain(..certain);
        halt.map_or(result, Err)
    }

    /// How much of the pending text is certainly text. Where the closing quote was
    /// forgotten, a comma before the next key, the closers of the JSON and the end of
    /// the frame are none of it.
    fn certain_text(&self) -> (usize, Option<Halt>) {
        let end = self.find_frame_end(&self.pending);
        let (length, is_complete) = end.unwrap_or((self.pending.len(), false));
        let is_open = |c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']');
        let certain = self.pending[..length].trim_end_matches(is_open);
        (certain.len(), is_complete.then_some(Halt::Stop))
    }

    /// Where a marker begins that ends the frame, and whether it is complete.
    fn find_frame_end(&self, text: &str) -> Option<(usize, bool)> {
        let closers = match &self.start {
            ArgumentsStart::Frame(frame, _) => frame.closers,
            ArgumentsStart::Named(..) => MESSAGE_ENDS,
            ArgumentsStart::Markerless => PAYLOAD_ENDS,
        };
        text.match_indices(['<', '[']).find_map(|(at, _)| {
            let touched = Cell::new(false);
            let cursor = TextCursor::new(&text[at..], &touched);
            let closes = |it: &&str| marker::match_length(it, cursor).is_some();
            if closers.iter().any(closes) {
                return Some((at, true));
            }
            touched.get().then_some((at, false))
        })
    }

    /// Ends the string if the text after the quote shows that the quote closes it.
    fn close_text(&mut self, text: &str) -> Result<(), Halt> {
        if let (_, Some(halt)) = self.certain_text() {
            return Err(halt);
        }
        let after = self.position + 1;
        StrictScanner::new(text, after).expect_next_key()?;
        escape_into(&self.pending, &mut self.emitted);
        self.pending.clear();
        self.emitted.push('"');
        self.position = after;
        self.state = ArgumentStreamState::AfterValue;
        Ok(())
    }

    fn value(&mut self, scan: ValueScan, text: &str, tools: &ToolSet) -> Result<(), Halt> {
        let mut scan = scan;
        let end = loop {
            let Some(byte) = text.as_bytes().get(self.position) else {
                self.state = ArgumentStreamState::Value(scan);
                return Err(Halt::Wait);
            };
            match byte {
                b'\\' if scan.in_string => {
                    if self.position + 1 >= text.len() {
                        self.state = ArgumentStreamState::Value(scan);
                        return Err(Halt::Wait);
                    }
                    self.position += 1;
                }
                b'"' => scan.in_string = !scan.in_string,
                _ if scan.in_string => (),
                b'{' | b'[' => scan.depth += 1,
                b'}' | b']' if scan.depth > 0 => scan.depth -= 1,
                b'}' | b']' | b',' if scan.depth == 0 => break self.position,
                _ => (),
            }
            self.position += 1;
        };
        self.position = end;
        self.state = ArgumentStreamState::Value(scan);
        let mut scanner = StrictScanner::new(text, end);
        scanner.expect_next_key()?;
        let written = &text[scan.start..end];
        if self.find_frame_end(written).is_some() {
            return Err(Halt::Stop);
        }
        let value = repair::parse_strict(written).ok_or(Halt::Stop)?;
        let value = match self.schema(tools) {
            Some(schema) => coerce_value(value, schema, 1),
            None => value,
        };
        self.emitted.push_str(&JsonValue::to_strict_json(&value));
        self.state = ArgumentStreamState::AfterValue;
        Ok(())
    }

    fn after_value(&mut self, text: &str) -> Result<(), Halt> {
        let mut scanner = StrictScanner::new(text, self.position);
        scanner.skip_space();
        match scanner.peek()? {
            b',' => {
                self.position = scanner.position() + 1;
                self.state = ArgumentStreamState::Key;
                Ok(())
            }
            _ => Err(Halt::Stop),
        }
    }
}

fn locate_in_frame(
    frame: &FrameSyntax,
    opener: usize,
    text: &str,
    tools: &ToolSet,
) -> Result<CallHead, Halt> {
    let body = if frame.body_includes_opener {
        0
    } else {
        opener
    };
    let mut scanner = StrictScanner::new(text, body);
    scanner.skip_space();
    let has = |body: FrameBody| frame.bodies.contains(&body);
    match scanner.peek()? {
        b'{' | b'[' if has(FrameBody::Json) => locate_in_json(scanner),
        b'<' if has(FrameBody::Tags) => locate_in_tag(text, scanner.position()),
        _ if has(FrameBody::Header) => locate_after_header(text, scanner.position(), tools),
        _ => Err(Halt::Stop),
    }
}

/// `{"tool": "⟨n⟩", "arguments": {`, perhaps in a fence.
fn locate_markerless(text: &str) -> Result<CallHead, Halt> {
    let mut scanner = StrictScanner::new(text, 0);
    scanner.skip_fence()?;
    let mut first = scanner;
    first.expect(b'{')?;
    if !is_name_key(first.key()?) {
        return Err(Halt::Stop);
    }
    locate_in_json(scanner)
}

/// `{"name": "⟨n⟩", "arguments": {`, perhaps in an array and after an id.
fn locate_in_json(mut scanner: StrictScanner<'_>) -> Result<CallHead, Halt> {
    if scanner.peek()? == b'[' {
        scanner.expect(b'[')?;
        scanner.skip_space();
    }
    scanner.expect(b'{')?;
    let mut name = None;
    let mut id = None;
    loop {
        let key = scanner.key()?;
        if is_arguments_key(key) {
            return Ok(CallHead {
                name: name.ok_or(Halt::Stop)?,
                id,
                arguments: scanner.position(),
            });
        }
        let value = scanner.simple_string()?;
        if is_name_key(key) && name.is_none() {
            name = Some(value.to_owned());
        } else if is_side_key(key) {
            id = id.or(Some(value.to_owned()).filter(|_| key != "type"));
        } else {
            return Err(Halt::Stop);
        }
        scanner.skip_space();
        scanner.expect(b',')?;
    }
}

/// `<function=⟨n⟩>{` and other tags that carry the name.
fn locate_in_tag(text: &str, at: usize) -> Result<CallHead, Halt> {
    let touched = Cell::new(false);
    let cursor = TextCursor::new(text, &touched).advanced_by(at);
    let tag = tag::parse_tag(cursor).filter(|it| it.opens_class(TagClass::Call));
    if touched.get() {
        return Err(Halt::Wait);
    }
    let tag = tag.ok_or(Halt::Stop)?;
    let mut scanner = StrictScanner::new(text, tag.end);
    scanner.skip_space();
    scanner.peek()?;
    Ok(CallHead {
        name: tag.name.ok_or(Halt::Stop)?,
        id: None,
        arguments: scanner.position(),
    })
}

/// A name between separators.
fn locate_after_header(text: &str, at: usize, tools: &ToolSet) -> Result<CallHead, Halt> {
    let touched = Cell::new(false);
    let mut cursor = TextCursor::new(text, &touched).advanced_by(at);
    let header = header::parse_call_header(&mut cursor);
    if touched.get() {
        return Err(Halt::Wait);
    }
    let header = header.ok_or(Halt::Stop)?;
    tools.find(header.name).ok_or(Halt::Stop)?;
    let mut scanner = StrictScanner::new(text, cursor.position());
    scanner.skip_fence()?;
    Ok(CallHead {
        name: header.name.to_owned(),
        id: header.id.map(str::to_owned),
        arguments: scanner.position(),
    })
}
