//! Where on its line the parser stands, as far as Markdown gives that a meaning.

/// Columns from which on a line is code.
const CODE_INDENT: usize = 4;

/// The current line and the one before it.
#[derive(Debug)]
pub(super) struct LinePosition {
    /// Columns of white space before the first word.
    indent: usize,
    /// Only white space so far.
    is_blank: bool,
    /// It begins with `>`.
    is_quoted: bool,
    after_blank_line: bool,
    after_indented_line: bool,
}

impl Default for LinePosition {
    fn default() -> Self {
        Self {
            indent: 0,
            is_blank: true,
            is_quoted: false,
            after_blank_line: false,
            after_indented_line: false,
        }
    }
}

impl LinePosition {
    /// Whether the line belongs to an indented code block or a block quote.
    pub(super) fn is_code_or_quote(&self) -> bool {
        let code =
            self.indent >= CODE_INDENT && (self.after_blank_line || self.after_indented_line);
        code || self.is_quoted
    }

    /// Moves on by `text`.
    pub(super) fn advance(&mut self, text: &str) {
        let Some(end) = memchr::memrchr(b'\n', text.as_bytes()) else {
            self.extend(text);
            return;
        };
        let line = &text[..end];
        match memchr::memrchr(b'\n', line.as_bytes()) {
            None => self.extend(line),
            Some(start) => {
                *self = Self::default();
                self.extend(&line[start + 1..]);
            }
        }
        *self = Self {
            after_blank_line: self.is_blank,
            after_indented_line: !self.is_blank && self.indent >= CODE_INDENT,
            ..Self::default()
        };
        self.extend(&text[end + 1..]);
    }

    fn extend(&mut self, text: &str) {
        if !self.is_blank {
            return;
        }
        for c in text.chars() {
            match c {
                ' ' => self.indent += 1,
                '\t' => self.indent += CODE_INDENT,
                c if c.is_whitespace() => (),
                c => {
                    self.is_blank = false;
                    self.is_quoted = c == '>';
                    return;
                }
            }
        }
    }
}
