//! SQL cut into tokens, as the database itself would cut it.
//!
//! Nothing is parsed: the database has the only grammar that counts. What is
//! needed here is to know which characters are text, comment, name or operator,
//! so that a parameter is found where one is and a name cannot hide.

use super::Error;

/// The database whose lexical rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlDialect {
    /// PostgreSQL: dollar quotes, nested comments, `E''` strings.
    Postgres,
    /// SQLite: names in backticks and brackets.
    Sqlite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SqlTokenKind {
    /// A name or keyword without quotes.
    Word,
    /// A name in quotes.
    QuotedIdentifier,
    /// A string constant of any form.
    StringLiteral,
    Number,
    Operator,
    /// `::`
    Cast,
    /// `:name`
    Parameter,
    /// `$1`, `?` and other parameters that maru does not bind.
    Placeholder,
    /// The colon of an array slice.
    SliceColon,
    OpenParenthesis,
    CloseParenthesis,
    OpenBracket,
    CloseBracket,
    Comma,
    Dot,
    Semicolon,
    Other,
}

/// One token: what it is and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SqlToken {
    pub(super) kind: SqlTokenKind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Every token of `sql`; comments and space are left out. Takes time and memory
/// in proportion to the text, and no stack.
pub(super) fn tokenize(sql: &str, dialect: SqlDialect) -> Result<Vec<SqlToken>, Error> {
    let mut lexer = SqlLexer {
        bytes: sql.as_bytes(),
        at: 0,
        dialect,
        tokens: Vec::new(),
        open_groups: Vec::new(),
    };
    loop {
        let start = lexer.at;
        let more = lexer.skip_space().and_then(|more| {
            if more {
                lexer.push_token().map(|()| true)
            } else {
                Ok(false)
            }
        });
        match more {
            Ok(true) => (),
            Ok(false) => return Ok(lexer.tokens),
            Err(error) => return Err(error.at_byte(sql, start)),
        }
    }
}

struct SqlLexer<'a> {
    bytes: &'a [u8],
    at: usize,
    dialect: SqlDialect,
    tokens: Vec<SqlToken>,
    /// The brackets and parentheses that are open.
    open_groups: Vec<SqlTokenKind>,
}

fn refused_error(why: &str) -> Error {
    Error::Refused(why.to_owned())
}

fn starts_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn continues_name(byte: u8) -> bool {
    starts_name(byte) || byte.is_ascii_digit() || byte == b'$'
}

impl SqlLexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn is_postgres(&self) -> bool {
        self.dialect == SqlDialect::Postgres
    }

    /// Moves to the next token, if there is one.
    fn skip_space(&mut self) -> Result<bool, Error> {
        while let Some(&byte) = self.bytes.get(self.at) {
            match (byte, self.peek(1)) {
                (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'-', b'-') => self.skip_line(),
                (b'/', b'*') => self.skip_comment()?,
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    fn skip_line(&mut self) {
        let postgres = self.is_postgres();
        let ends = |byte: &u8| *byte == b'\n' || (postgres && *byte == b'\r');
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
    }

    fn skip_comment(&mut self) -> Result<(), Error> {
        let mut depth = 0_usize;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') if depth == 0 || self.is_postgres() => depth += 1,
                (b'*', b'/') => depth -= 1,
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            self.at += 2;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(refused_error("a comment does not end"))
    }

    fn push_token(&mut self) -> Result<(), Error> {
        let start = self.at;
        let kind = self.lex_token()?;
        match kind {
            SqlTokenKind::OpenParenthesis | SqlTokenKind::OpenBracket => {
                self.open_groups.push(kind);
            }
            SqlTokenKind::CloseParenthesis | SqlTokenKind::CloseBracket => {
                self.open_groups.pop();
            }
            _ => (),
        }
        let end = self.at;
        self.tokens.push(SqlToken { kind, start, end });
        Ok(())
    }

    fn lex_token(&mut self) -> Result<SqlTokenKind, Error> {
        let byte = self.peek(0);
        match byte {
            b'\'' => self.lex_quoted(b'\'', SqlTokenKind::StringLiteral),
            b'"' => self.lex_quoted(b'"', SqlTokenKind::QuotedIdentifier),
            b'`' if !self.is_postgres() => self.lex_quoted(b'`', SqlTokenKind::QuotedIdentifier),
            b'[' if !self.is_postgres() => self.lex_quoted(b']', SqlTokenKind::QuotedIdentifier),
            b'$' => self.lex_dollar(),
            b'?' | b'@' | b'#' if !self.is_postgres() => Ok(self.lex_placeholder()),
            b':' => Ok(self.lex_colon()),
            b'0'..=b'9' => Ok(self.lex_number()),
            b'.' if self.peek(1).is_ascii_digit() && !self.is_after_value() => {
                Ok(self.lex_number())
            }
            _ if starts_name(byte) => self.lex_word(),
            _ if self.is_operator(byte) => Ok(self.lex_operator()),
            _ => Ok(self.lex_single(byte)),
        }
    }

    fn lex_single(&mut self, byte: u8) -> SqlTokenKind {
        self.at += 1;
        match byte {
            b'(' => SqlTokenKind::OpenParenthesis,
            b')' => SqlTokenKind::CloseParenthesis,
            b'[' => SqlTokenKind::OpenBracket,
            b']' => SqlTokenKind::CloseBracket,
            b',' => SqlTokenKind::Comma,
            b'.' => SqlTokenKind::Dot,
            b';' => SqlTokenKind::Semicolon,
            _ => SqlTokenKind::Other,
        }
    }

    /// Text up to `quote`, which is written twice to stand for itself.
    fn lex_quoted(&mut self, quote: u8, kind: SqlTokenKind) -> Result<SqlTokenKind, Error> {
        self.at += 1;
        while self.at < self.bytes.len() {
            let doubled = self.peek(1) == quote && quote != b']';
            if self.peek(0) != quote {
                self.at += 1;
            } else if doubled {
                self.at += 2;
            } else {
                self.at += 1;
                return Ok(kind);
            }
        }
        Err(refused_error("a quoted text does not end"))
    }

    /// `E'…'`, where a backslash takes the next character's meaning away.
    fn lex_escaped_string(&mut self) -> Result<SqlTokenKind, Error> {
        self.at += 1;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'\\', _) | (b'\'', b'\'') => self.at += 2,
                (b'\'', _) => {
                    self.at += 1;
                    return Ok(SqlTokenKind::StringLiteral);
                }
                _ => self.at += 1,
            }
        }
        Err(refused_error("a quoted text does not end"))
    }

    /// A name, or the letter in front of a string constant.
    fn lex_word(&mut self) -> Result<SqlTokenKind, Error> {
        let first = self.peek(0).to_ascii_lowercase();
        match (first, self.peek(1), self.peek(2)) {
            (b'u', b'&', b'"') if self.is_postgres() => {
                return Err(refused_error("names in the form U&\"…\" are not taken"));
            }
            (b'u', b'&', b'\'') if self.is_postgres() => {
                self.at += 2;
                return self.lex_quoted(b'\'', SqlTokenKind::StringLiteral);
            }
            (b'e', b'\'', _) if self.is_postgres() => {
                self.at += 1;
                return self.lex_escaped_string();
            }
            (b'b' | b'x' | b'n', b'\'', _) => {
                self.at += 1;
                return self.lex_quoted(b'\'', SqlTokenKind::StringLiteral);
            }
            _ => (),
        }
        self.skip_name();
        Ok(SqlTokenKind::Word)
    }

    fn skip_name(&mut self) {
        while continues_name(self.peek(0)) {
            self.at += 1;
        }
    }

    /// Digits only as far as every version of the database takes them: what
    /// follows may be a name.
    fn lex_number(&mut self) -> SqlTokenKind {
        self.skip_digits();
        if self.peek(0) == b'.' && self.peek(1) != b'.' {
            self.at += 1;
            self.skip_digits();
        }
        let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
        let exponent = matches!(self.peek(0), b'e' | b'E');
        if exponent && self.peek(1 + sign).is_ascii_digit() {
            self.at += 1 + sign;
            self.skip_digits();
        }
        SqlTokenKind::Number
    }

    fn skip_digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    /// `$tag$…$tag$`, or a parameter by number.
    fn lex_dollar(&mut self) -> Result<SqlTokenKind, Error> {
        let rest = self.bytes.get(self.at + 1..).unwrap_or_default();
        let length = rest
            .iter()
            .position(|it| !continues_name(*it) || *it == b'$');
        let tag = length.and_then(|it| rest.get(..it)).unwrap_or_default();
        let is_tag = tag.first().is_none_or(|it| starts_name(*it));
        if !self.is_postgres() || !is_tag || rest.get(tag.len()) != Some(&b'$') {
            return Ok(self.lex_placeholder());
        }
        let from = self.at + tag.len() + 2;
        let delimiter = self.bytes.get(self.at..from).unwrap_or_default();
        let body = self.bytes.get(from..).unwrap_or_default();
        match memchr::memmem::find(body, delimiter) {
            Some(at) => self.at = from + at + delimiter.len(),
            None => return Err(refused_error("a quoted text does not end")),
        }
        Ok(SqlTokenKind::StringLiteral)
    }

    fn lex_placeholder(&mut self) -> SqlTokenKind {
        self.at += 1;
        self.skip_name();
        SqlTokenKind::Placeholder
    }

    fn lex_colon(&mut self) -> SqlTokenKind {
        let glued = self.at > 0 && self.colon_belongs_to_value();
        self.at += 1;
        match self.peek(0) {
            b':' if self.is_postgres() => {
                self.at += 1;
                SqlTokenKind::Cast
            }
            b'=' if self.is_postgres() => {
                self.at += 1;
                SqlTokenKind::Operator
            }
            byte if starts_name(byte) && !glued => {
                let rest = self.bytes.get(self.at..).unwrap_or_default();
                if rest.starts_with(b"caller.") && rest.get(7).is_some_and(|it| starts_name(*it)) {
                    self.at += b"caller.".len();
                }
                self.skip_name();
                SqlTokenKind::Parameter
            }
            _ => SqlTokenKind::SliceColon,
        }
    }

    /// Whether a colon here belongs to what stands before it: a slice, or a
    /// character that touches it.
    fn colon_belongs_to_value(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|it| self.bytes.get(it));
        let touches = before.is_some_and(|it| continues_name(*it) || matches!(it, b']' | b')'));
        touches
            || (self.open_groups.last() == Some(&SqlTokenKind::OpenBracket)
                && self.is_after_value())
    }

    fn is_after_value(&self) -> bool {
        let values = [
            SqlTokenKind::Word,
            SqlTokenKind::QuotedIdentifier,
            SqlTokenKind::StringLiteral,
            SqlTokenKind::Number,
            SqlTokenKind::Parameter,
            SqlTokenKind::CloseParenthesis,
            SqlTokenKind::CloseBracket,
        ];
        self.tokens
            .last()
            .is_some_and(|it| values.contains(&it.kind))
    }

    fn is_operator(&self, byte: u8) -> bool {
        b"+-*/<>=~!%^&|".contains(&byte) || (self.is_postgres() && b"@#`?".contains(&byte))
    }

    /// The longest operator, by PostgreSQL's rule: it ends before a comment, and
    /// in `+` or `-` only if it has one of the rarer characters.
    fn lex_operator(&mut self) -> SqlTokenKind {
        let start = self.at;
        while self.is_operator(self.peek(0)) {
            let comment = matches!((self.peek(0), self.peek(1)), (b'-', b'-') | (b'/', b'*'));
            if comment {
                break;
            }
            self.at += 1;
        }
        let taken = self.bytes.get(start..self.at).unwrap_or_default();
        let rare = taken.iter().any(|it| b"~!@#%^&|`?".contains(it));
        let mut length = taken.len();
        while !rare && length > 1 && matches!(taken.get(length - 1), Some(b'+' | b'-')) {
            length -= 1;
        }
        self.at = start + length.max(1);
        SqlTokenKind::Operator
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sql: &str, dialect: SqlDialect, kind: SqlTokenKind) -> Vec<&str> {
        let tokens = tokenize(sql, dialect).unwrap();
        let tokens = tokens.iter().filter(|it| it.kind == kind);
        tokens.map(|it| &sql[it.start..it.end]).collect()
    }

    #[test]
    fn parameters_are_found_where_they_are() {
        let cases: &[(&str, &[&str])] = &[
            ("SELECT :a, :b_2+:한글", &[":a", ":b_2", ":한글"]),
            ("SELECT ':a', E'\\':a', U&':a', $$:a$$, $t$ $$ :a $t$", &[]),
            ("SELECT \":a\" -- :a\n/* :a /* :a */ :a */ , x'00:a'", &[]),
            ("SELECT a::int, b :: text, f(c := 1)", &[]),
            ("SELECT a[1:n], a[i :n], a[(1):n], a[:n]", &[":n"]),
            (
                "SELECT '' ':a' WHERE x BETWEEN :a AND :b LIMIT :c",
                &[":a", ":b", ":c"],
            ),
            ("SELECT x=:a,(:b)", &[":a", ":b"]),
            ("SELECT 'a\\' , :a", &[":a"]),
            (
                "SELECT :caller.name, :caller, :a.b",
                &[":caller.name", ":caller", ":a"],
            ),
        ];
        for (sql, expected) in cases {
            assert_eq!(
                found(sql, SqlDialect::Postgres, SqlTokenKind::Parameter),
                *expected,
                "{sql}"
            );
        }
        let sqlite = "SELECT [:a], `:b`, \":c\", ':d' /* :e /* */, :f";
        assert_eq!(
            found(sqlite, SqlDialect::Sqlite, SqlTokenKind::Parameter),
            [":f"]
        );
    }

    #[test]
    fn operators_and_names_end_where_the_server_ends_them() {
        let operators = |sql| found(sql, SqlDialect::Postgres, SqlTokenKind::Operator);
        assert_eq!(operators("1 +#+ 2"), ["+#+"]);
        assert_eq!(operators("1*-2"), ["*", "-"]);
        assert_eq!(operators("a@-b"), ["@-"]);
        assert_eq!(operators("1+--2\n3"), ["+"]);
        assert_eq!(operators("1</*>*/2"), ["<"]);
        let words = |sql| found(sql, SqlDialect::Postgres, SqlTokenKind::Word);
        assert_eq!(
            words("SELECT 1FROM t WHERE 1.e<2e1x"),
            ["SELECT", "FROM", "t", "WHERE", "e", "x"]
        );
        assert_eq!(words("SELECT a$b$c$b$"), ["SELECT", "a$b$c$b$"]);
    }

    #[test]
    fn what_does_not_end_is_refused() {
        for sql in [
            "'a", "\"a", "/* /* */", "$$a", "$t$ $$", "E'\\'", "U&\"a\"", "u&\"a\"",
        ] {
            assert!(tokenize(sql, SqlDialect::Postgres).is_err(), "{sql}");
        }
        for sql in ["[a", "`a", "/* "] {
            assert!(tokenize(sql, SqlDialect::Sqlite).is_err(), "{sql}");
        }
    }
}
