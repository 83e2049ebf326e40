//! Scans strict JSON of which only the beginning may have arrived.

use super::repair::is_certain_key;

/// Why scanning does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// More text is needed.
    Wait,
    /// This is not strict JSON of the wanted form.
    Stop,
}

/// A position in JSON that may still grow.
#[derive(Clone, Copy)]
pub(super) struct StrictScanner<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> StrictScanner<'a> {
    pub(super) fn new(text: &'a str, position: usize) -> Self {
        Self { text, position }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn peek(&self) -> Result<u8, Halt> {
        let byte = self.text.as_bytes().get(self.position);
        byte.copied().ok_or(Halt::Wait)
    }

    pub(super) fn skip_space(&mut self) {
        let rest = &self.text.as_bytes()[self.position..];
        let is_space = |b: &&u8| matches!(b, b' ' | b'\n' | b'\r' | b'\t');
        self.position += rest.iter().take_while(is_space).count();
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Halt> {
        if self.peek()? != byte {
            return Err(Halt::Stop);
        }
        self.position += 1;
        Ok(())
    }

    /// A key, its colon, and the space after it.
    pub(super) fn key(&mut self) -> Result<&'a str, Halt> {
        self.skip_space();
        let key = self.simple_string()?;
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        Ok(key)
    }

    /// A string without escapes.
    pub(super) fn simple_string(&mut self) -> Result<&'a str, Halt> {
        self.expect(b'"')?;
        let text = self.plain_run();
        self.expect(b'"')?;
        Ok(text)
    }

    /// Text of a string up to an escape, a quote or what may not stand there.
    pub(super) fn plain_run(&mut self) -> &'a str {
        let rest = &self.text[self.position..];
        let ends = |b: &u8| *b < b' ' || matches!(b, b'"' | b'\\');
        let length = rest.as_bytes().iter().position(ends);
        let run = &rest[..length.unwrap_or(rest.len())];
        self.position += run.len();
        run
    }

    /// The character that an escape stands for.
    pub(super) fn escape(&mut self) -> Result<char, Halt> {
        let code = self.text.as_bytes().get(self.position + 1);
        let c = match code.ok_or(Halt::Wait)? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => return self.unicode_escape(),
            _ => return Err(Halt::Stop),
        };
        self.position += 2;
        Ok(c)
    }

    fn unicode_escape(&mut self) -> Result<char, Halt> {
        let first = self.code_unit(self.position)?;
        let (code, length) = match first {
            0xd800..0xdc00 => match self.code_unit(self.position + 6)? {
                second @ 0xdc00..0xe000 => {
                    (0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
                }
                _ => return Err(Halt::Stop),
            },
            code => (code, 6),
        };
        self.position += length;
        char::from_u32(code).ok_or(Halt::Stop)
    }

    /// The code of `\uXXXX` at `at`.
    fn code_unit(&self, at: usize) -> Result<u32, Halt> {
        let wanted = b"\\u";
        for (by, byte) in wanted.iter().enumerate() {
            if self.text.as_bytes().get(at + by).ok_or(Halt::Wait)? != byte {
                return Err(Halt::Stop);
            }
        }
        let digits = self.text.as_bytes().get(at + 2..at + 6).ok_or(Halt::Wait)?;
        let digits = std::str::from_utf8(digits).map_err(|_| Halt::Stop)?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Halt::Stop);
        }
        u32::from_str_radix(digits, 16).map_err(|_| Halt::Stop)
    }

    /// Behind a value: a comma and the next key. Whether closers end the object, or are
    /// text with quotes that were not escaped, is not known before the end.
    pub(super) fn expect_next_key(&mut self) -> Result<(), Halt> {
        self.skip_space();
        self.expect(b',')?;
        if is_certain_key(self.key()?) {
            Ok(())
        } else {
            Err(Halt::Stop)
        }
    }

    /// Space, and the line that opens a fence.
    pub(super) fn skip_fence(&mut self) -> Result<(), Halt> {
        self.skip_space();
        if self.peek()? == b'`' {
            let rest = &self.text[self.position..];
            let line = rest.find('\n').ok_or(Halt::Wait)?;
            if !matches!(rest[..line].trim_end(), "```" | "```json") {
                return Err(Halt::Stop);
            }
            self.position += line + 1;
            self.skip_space();
        }
        self.peek().map(drop)
    }
}
