//! Reads documents from JSON Lines: one JSON value per line.

use std::io::{BufRead, Read as _};

use serde_json::{Map, Value};

use super::{Error, NewDocument};

/// Maximum length of a line.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Iterator over the documents of a JSON Lines file. A line is a string, or an object
/// with `text` (or `document` or `content`) and optionally `id` and `metadata`. Empty
/// lines are skipped. The iterator ends after a line that is too long or cannot be read.
#[derive(Debug)]
pub struct JsonLinesReader<R> {
    reader: R,
    line_number: usize,
    is_finished: bool,
}

impl<R: BufRead> JsonLinesReader<R> {
    /// Creates an iterator over the lines of `reader`.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            line_number: 0,
            is_finished: false,
        }
    }

    /// Returns the number of the last line that was read, from one.
    pub fn line_number(&self) -> usize {
        self.line_number
    }

    fn read_line(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.line_number += 1;
        let number = self.line_number;
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(MAX_LINE_BYTES + 1);
        let read = bounded.read_until(b'\n', &mut line);
        let length = read.map_err(|source| Error::ReadLine { number, source })?;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if length as u64 > MAX_LINE_BYTES {
            return Err(line_error(number, "it is longer than 1 MiB"));
        }
        Ok((length > 0).then_some(line))
    }
}

impl<R: BufRead> Iterator for JsonLinesReader<R> {
    type Item = Result<NewDocument, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_finished {
            let line = match self.read_line() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => {
                    self.is_finished = true;
                    return Some(Err(error));
                }
            };
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
            if !line.trim_ascii().is_empty() {
                return Some(
                    parse_document(line).map_err(|reason| line_error(self.line_number, reason)),
                );
            }
        }
        self.is_finished = true;
        None
    }
}

fn line_error(number: usize, reason: impl Into<String>) -> Error {
    Error::InvalidLine {
        number,
        reason: reason.into(),
    }
}

fn parse_document(line: &[u8]) -> Result<NewDocument, String> {
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| format!("it is not JSON, at column {}", error.column()))?;
    match value {
        Value::String(text) => non_empty(NewDocument::from_text(text)),
        Value::Object(fields) => parse_object(fields),
        _ => Err("it is neither an object nor a string".to_owned()),
    }
}

fn parse_object(mut fields: Map<String, Value>) -> Result<NewDocument, String> {
    let mut texts = ["text", "document", "content"]
        .into_iter()
        .filter_map(|name| fields.remove(name));
    let text = match (texts.next(), texts.next()) {
        (Some(Value::String(text)), None) => text,
        (Some(_), None) => return Err("its text is not a string".to_owned()),
        (None, _) => return Err("it has no \"text\"".to_owned()),
        (Some(_), Some(_)) => return Err("it has more than one text".to_owned()),
    };
    let id = match fields.remove("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) if !id.is_empty() => Some(id),
        Some(Value::Number(id)) => Some(id.to_string()),
        Some(_) => return Err("its id is neither a string nor a number".to_owned()),
    };
    let metadata = match fields.remove("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err("its metadata is not an object".to_owned()),
    };
    non_empty(NewDocument { id, text, metadata })
}

fn non_empty(document: NewDocument) -> Result<NewDocument, String> {
    if document.text.trim().is_empty() {
        Err("its text is empty".to_owned())
    } else {
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<NewDocument, String>> {
        let lines = JsonLinesReader::new(text.as_bytes());
        lines
            .map(|it| it.map_err(|error| error.to_string()))
            .collect()
    }

    #[test]
    fn every_form_of_a_document_is_parsed() {
        let text = "\u{feff}\"주문 날짜\"\r\n\n{\"id\":7,\"document\":\"a\",\"metadata\":{\"x\":[1]}}\n{\"content\":\"b\",\"id\":null,\"other\":1}";
        let found: Vec<NewDocument> = read(text).into_iter().map(Result::unwrap).collect();
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], NewDocument::from_text("주문 날짜"));
        assert_eq!(found[1].id.as_deref(), Some("7"));
        assert_eq!(found[1].metadata["x"], serde_json::json!([1]));
        assert_eq!(found[2], NewDocument::from_text("b"));
        assert!(read("").is_empty());
    }

    #[test]
    fn errors_name_the_line_and_do_not_quote_it() {
        let check = |line: &str, expected: &str| {
            let found = read(&format!("\"good\"\n\n{line}\n\"more\""));
            let error = found[1].as_ref().unwrap_err();
            assert_eq!(*error, format!("line 3: {expected}"), "{line}");
            assert!(found[2].is_ok());
        };
        check("{\"text\": secret}", "it is not JSON, at column 10");
        check("[1]", "it is neither an object nor a string");
        check("{}", "it has no \"text\"");
        check("{\"text\":1}", "its text is not a string");
        check(
            "{\"text\":\"a\",\"content\":\"b\"}",
            "it has more than one text",
        );
        check(
            "{\"text\":\"a\",\"id\":[]}",
            "its id is neither a string nor a number",
        );
        check(
            "{\"text\":\"a\",\"metadata\":1}",
            "its metadata is not an object",
        );
        check("\"  \"", "its text is empty");
    }

    #[test]
    fn overlong_line_ends_the_iterator() {
        let long = format!("\"{}\"", "a".repeat(MAX_LINE_BYTES as usize));
        let found = read(&format!("\"a\"\n{long}\n\"b\""));
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[1].as_ref().unwrap_err(),
            "line 2: it is longer than 1 MiB"
        );
        let fits = format!("\"{}\"", "a".repeat(MAX_LINE_BYTES as usize - 2));
        assert!(read(&format!("{fits}\n")).iter().all(Result::is_ok));
    }
}
