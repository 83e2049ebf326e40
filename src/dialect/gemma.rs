//! `call:⟨n⟩{⟨k⟩:⟨v⟩,…}` with tokens for quotes.

use super::{
    arguments::from_text,
    cursor::Cursor,
    json::{Json, Object, unique},
    marker,
    repair::{Flaw, MAX_DEPTH},
    tools::{Tool, Tools},
};

const QUOTES: [&str; 3] = ["<|\"|>", "<escape>", "\""];

/// Reads the arguments of one call.
pub(super) struct Reader<'a> {
    pub(super) cursor: Cursor<'a>,
    pub(super) closers: &'a [&'static str],
}

impl<'a> Reader<'a> {
    /// The name, and the arguments.
    pub(super) fn call(&mut self, tools: &'a Tools) -> Result<(String, Object), Flaw> {
        self.cursor.skip_space();
        if !self.cursor.eat("call:") {
            return Err(Flaw::Wrong);
        }
        let name = self
            .cursor
            .take_while(|c| c.is_alphanumeric() || "_-./:".contains(c));
        self.cursor.skip_space();
        if self.cursor.peek().ok_or(Flaw::Cut)? != '{' || name.is_empty() {
            return Err(Flaw::Wrong);
        }
        let members = self.object(tools.find(name), 0)?;
        Ok((name.to_owned(), members))
    }

    fn object(&mut self, tool: Option<&Tool>, depth: usize) -> Result<Object, Flaw> {
        self.cursor.bump();
        let mut members = Object::new();
        let mut comma = true;
        loop {
            self.cursor.skip_space();
            // Nothing but closers is missing, so nothing is.
            let over = self.cursor.peek().is_none() && !comma;
            match self.cursor.peek() {
                None if !over => return Err(Flaw::Cut),
                None => (),
                Some('}') => drop(self.cursor.bump()),
                Some(',') => {
                    self.cursor.bump();
                    comma = true;
                    continue;
                }
                _ if self.closer().is_some() => (),
                _ => {
                    let key = self.key()?;
                    let value = self.value(tool.map(|it| (it, key.as_str())), depth + 1)?;
                    members.push((key, value));
                    comma = false;
                    continue;
                }
            }
            unique(&mut members);
            return Ok(members);
        }
    }

    fn key(&mut self) -> Result<String, Flaw> {
        let key = match self.quote() {
            Some(quote) => self.text(quote)?,
            None => self
                .cursor
                .take_while(|c| !matches!(c, ':' | ',' | '}' | '{' | '<')),
        };
        if self.cursor.peek().ok_or(Flaw::Cut)? != ':' || key.trim().is_empty() {
            return Err(Flaw::Wrong);
        }
        self.cursor.bump();
        Ok(key.trim().to_owned())
    }

    fn value(&mut self, about: Option<(&Tool, &str)>, depth: usize) -> Result<Json, Flaw> {
        if depth > MAX_DEPTH {
            return Err(Flaw::Deep);
        }
        self.cursor.skip_space();
        if let Some(quote) = self.quote() {
            return Ok(Json::String(self.text(quote)?.to_owned()));
        }
        match self.cursor.peek().ok_or(Flaw::Cut)? {
            '{' => Ok(Json::Object(self.object(None, depth)?)),
            '[' => self.array(depth),
            _ => {
                let word = self
                    .cursor
                    .take_while(|c| !matches!(c, ',' | '}' | ']' | '<'));
                self.cursor.peek().ok_or(Flaw::Cut)?;
                if word.is_empty() {
                    return Err(Flaw::Wrong);
                }
                let schema = about.and_then(|(tool, key)| tool.schema.about(key));
                Ok(from_text(word.trim(), schema))
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, Flaw> {
        self.cursor.bump();
        let mut items = Vec::new();
        loop {
            self.cursor.skip_space();
            match self.cursor.peek().ok_or(Flaw::Cut)? {
                ']' => {
                    self.cursor.bump();
                    return Ok(Json::Array(items));
                }
                ',' => drop(self.cursor.bump()),
                '}' => return Ok(Json::Array(items)),
                _ if self.closer().is_some() => return Ok(Json::Array(items)),
                _ => items.push(self.value(None, depth + 1)?),
            }
        }
    }

    /// Steps over an opening quote.
    fn quote(&mut self) -> Option<&'static str> {
        let (quote, length) = QUOTES
            .iter()
            .find_map(|quote| Some((*quote, marker::length(quote, self.cursor)?)))?;
        self.cursor = self.cursor.moved(length);
        Some(quote)
    }

    /// Text up to `quote`, or, if that was forgotten, up to the closers.
    fn text(&mut self, quote: &str) -> Result<&'a str, Flaw> {
        let from = self.cursor.at();
        let first = quote.chars().next();
        loop {
            self.cursor.take_while(|c| c != '<' && Some(c) != first);
            self.cursor.peek().ok_or(Flaw::Cut)?;
            let at = self.cursor.at();
            if let Some(length) = marker::length(quote, self.cursor) {
                self.cursor = self.cursor.moved(length);
                return Ok(self.cursor.slice(from, at));
            }
            let text = self.cursor.slice(from, at);
            if self.closer().is_some() && text.ends_with('}') {
                let text = text.trim_end_matches(['}', ']']);
                self.cursor.jump(from + text.len());
                return Ok(text);
            }
            self.cursor.bump();
        }
    }

    fn closer(&self) -> Option<usize> {
        self.closers
            .iter()
            .find_map(|it| marker::length(it, self.cursor))
    }
}
