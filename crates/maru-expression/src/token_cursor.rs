//! A cursor over the tokens of a source, with the nesting depth of the parser.

use super::{
    error::{Result, UnlocatedError, syntax_error},
    lexer::{ExpressionToken, ExpressionTokenKind, tokenize},
    limits::MAX_SOURCE_NESTING,
};

/// Reads tokens from left to right; the grammar is in the `parse_*` files.
pub(super) struct TokenCursor<'s> {
    tokens: Vec<ExpressionToken<'s>>,
    position: usize,
    depth: u32,
}

impl<'s> TokenCursor<'s> {
    /// Creates a cursor over `source`, which starts at offset `base` of the whole source,
    /// at nesting depth `depth`.
    pub(super) fn new(source: &'s str, base: u32, depth: u32) -> Result<Self> {
        Ok(Self {
            tokens: tokenize(source, base)?,
            position: 0,
            depth,
        })
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    pub(super) fn peek(&self) -> &ExpressionToken<'s> {
        // The last token is `End`; reading past it returns it again.
        &self.tokens[self.position.min(self.tokens.len() - 1)]
    }

    pub(super) fn peek_second(&self) -> &ExpressionTokenKind<'s> {
        &self.tokens[(self.position + 1).min(self.tokens.len() - 1)].kind
    }

    pub(super) fn source_offset(&self) -> u32 {
        self.peek().at
    }

    pub(super) fn take_token(&mut self) -> ExpressionToken<'s> {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    pub(super) fn is_at_operator(&self, operator: &str) -> bool {
        matches!(self.peek().kind, ExpressionTokenKind::Operator(it) if it == operator)
    }

    pub(super) fn accept_operator(&mut self, operator: &str) -> bool {
        let found = self.is_at_operator(operator);
        self.position += usize::from(found);
        found
    }

    pub(super) fn expect_operator(&mut self, operator: &str) -> Result<()> {
        if self.accept_operator(operator) {
            Ok(())
        } else {
            Err(self.unexpected_token_error(&format!("expected '{operator}'")))
        }
    }

    pub(super) fn is_at_word(&self, word: &str) -> bool {
        matches!(self.peek().kind, ExpressionTokenKind::Name(it) if it == word)
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_at_word(word);
        self.position += usize::from(found);
        found
    }

    /// Creates an error at the next token.
    pub(super) fn unexpected_token_error(&self, expected: &str) -> UnlocatedError {
        let found = match &self.peek().kind {
            ExpressionTokenKind::Name(name) => format!("'{name}'"),
            ExpressionTokenKind::Operator(operator) => format!("'{operator}'"),
            ExpressionTokenKind::Literal(_) | ExpressionTokenKind::FString(_) => {
                "a literal".to_owned()
            }
            ExpressionTokenKind::Newline => "the end of the line".to_owned(),
            ExpressionTokenKind::End => "the end".to_owned(),
        };
        syntax_error(format!("invalid syntax: {expected}, found {found}")).at(self.source_offset())
    }

    /// Runs `parse` one level deeper; fails if that is too deep.
    pub(super) fn parse_nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if self.depth >= MAX_SOURCE_NESTING {
            return Err(syntax_error("nested too deeply").at(self.source_offset()));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Skips `count` tokens.
    pub(super) fn skip_tokens(&mut self, count: usize) {
        self.position += count;
    }
}
