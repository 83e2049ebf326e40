//! Parses `call:⟨n⟩{⟨k⟩:⟨v⟩,…}` of Gemma, whose quotes are tokens.

use super::{
    arguments::value_from_text,
    cursor::TextCursor,
    json::{JsonObject, JsonValue, dedup_keys},
    marker,
    repair::{MAX_DEPTH, PayloadError},
    tool_set::{ToolSet, ToolSignature},
};

const QUOTE_TOKENS: [&str; 4] = ["<|\"|>", "<escape>", "\"", "'"];

/// Reads the arguments of one call.
pub(super) struct GemmaCallParser<'a> {
    pub(super) cursor: TextCursor<'a>,
    pub(super) closers: &'a [&'static str],
}

impl<'a> GemmaCallParser<'a> {
    /// The name, and the arguments.
    pub(super) fn parse_call(
        &mut self,
        tools: &'a ToolSet,
    ) -> Result<(String, JsonObject), PayloadError> {
        self.cursor.skip_space();
        if !self.cursor.eat("call:") {
            return Err(PayloadError::Malformed);
        }
        let name = self
            .cursor
            .take_while(|c| c.is_alphanumeric() || "_-./:".contains(c));
        self.cursor.skip_space();
        if self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)? != '{' || name.is_empty() {
            return Err(PayloadError::Malformed);
        }
        let members = self.object(tools.find(name), 0)?;
        Ok((name.to_owned(), members))
    }

    fn object(
        &mut self,
        tool: Option<&ToolSignature>,
        depth: usize,
    ) -> Result<JsonObject, PayloadError> {
        self.cursor.bump();
        let mut members = JsonObject::new();
        let mut comma = true;
        loop {
            self.cursor.skip_space();
            // Nothing but closers is missing, so nothing is.
            let over = self.cursor.peek().is_none() && !comma;
            match self.cursor.peek() {
                None if !over => return Err(PayloadError::UnexpectedEnd),
                None => (),
                Some('}') => drop(self.cursor.bump()),
                Some(',') => {
                    self.cursor.bump();
                    comma = true;
                    continue;
                }
                _ if self.closer_length().is_some() => (),
                _ => {
                    let key = self.key()?;
                    let value = self.value(tool.map(|it| (it, key.as_str())), depth + 1)?;
                    members.push((key, value));
                    comma = false;
                    continue;
                }
            }
            dedup_keys(&mut members);
            return Ok(members);
        }
    }

    fn key(&mut self) -> Result<String, PayloadError> {
        let key = match self.quote() {
            Some(quote) => self.text(quote)?,
            None => self
                .cursor
                .take_while(|c| !matches!(c, ':' | ',' | '}' | '{' | '<')),
        };
        if self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)? != ':' || key.trim().is_empty() {
            return Err(PayloadError::Malformed);
        }
        self.cursor.bump();
        Ok(key.trim().to_owned())
    }

    fn value(
        &mut self,
        about: Option<(&ToolSignature, &str)>,
        depth: usize,
    ) -> Result<JsonValue, PayloadError> {
        if depth > MAX_DEPTH {
            return Err(PayloadError::TooDeep);
        }
        self.cursor.skip_space();
        if let Some(quote) = self.quote() {
            return Ok(JsonValue::String(self.text(quote)?.to_owned()));
        }
        match self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)? {
            '{' => Ok(JsonValue::Object(self.object(None, depth)?)),
            '[' => self.array(depth),
            _ => {
                let word = self
                    .cursor
                    .take_while(|c| !matches!(c, ',' | '}' | ']' | '<'));
                self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)?;
                if word.is_empty() {
                    return Err(PayloadError::Malformed);
                }
                let schema = about.and_then(|(tool, key)| tool.schema.schema_for(key));
                Ok(value_from_text(word.trim(), schema))
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<JsonValue, PayloadError> {
        self.cursor.bump();
        let mut items = Vec::new();
        loop {
            self.cursor.skip_space();
            match self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)? {
                ']' => {
                    self.cursor.bump();
                    return Ok(JsonValue::Array(items));
                }
                ',' => drop(self.cursor.bump()),
                '}' => return Ok(JsonValue::Array(items)),
                _ if self.closer_length().is_some() => return Ok(JsonValue::Array(items)),
                _ => items.push(self.value(None, depth + 1)?),
            }
        }
    }

    /// Steps over an opening quote.
    fn quote(&mut self) -> Option<&'static str> {
        let (quote, length) = QUOTE_TOKENS
            .iter()
            .find_map(|quote| Some((*quote, marker::match_length(quote, self.cursor)?)))?;
        self.cursor = self.cursor.advanced_by(length);
        Some(quote)
    }

    /// Text up to `quote`, or, if that was forgotten, up to the closers.
    fn text(&mut self, quote: &str) -> Result<&'a str, PayloadError> {
        let from = self.cursor.position();
        let first = quote.chars().next();
        loop {
            self.cursor.take_while(|c| c != '<' && Some(c) != first);
            self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)?;
            let at = self.cursor.position();
            if let Some(length) = marker::match_length(quote, self.cursor)
                && self.ends_text(quote, length)
            {
                self.cursor = self.cursor.advanced_by(length);
                return Ok(self.cursor.slice(from, at));
            }
            let text = self.cursor.slice(from, at);
            if self.closer_length().is_some() && text.ends_with('}') {
                let text = text.trim_end_matches(['}', ']']);
                self.cursor.seek(from + text.len());
                return Ok(text);
            }
            self.cursor.bump();
        }
    }

    /// Whether a quote that is next ends the text. One that words use, too, is
    /// followed by what follows a value or a key.
    fn ends_text(&self, quote: &str, length: usize) -> bool {
        if quote.len() > 1 {
            return true;
        }
        let mut after = self.cursor.advanced_by(length);
        after.skip_space();
        matches!(after.peek(), None | Some(',' | '}' | ']' | ':' | '<'))
    }

    fn closer_length(&self) -> Option<usize> {
        self.closers
            .iter()
            .find_map(|it| marker::match_length(it, self.cursor))
    }
}
