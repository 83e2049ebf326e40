//! Functions that make a large value, or many rows, out of a small number.
//!
//! PostgreSQL bounds no value below 1 GiB and builds it several times over before
//! anybody can look at its length. So the numbers that say how large it gets must stand
//! in the statement, where they can be added up before it runs.

use super::growth;
use crate::{Error, lexer::SqlTokenKind, statement::SqlStatement};

/// The longest text that one call may pad to.
const MAX_PADDED_LENGTH: u64 = 1_000_000;
/// How many times more than it began with a statement may make, by all of its calls.
const MAX_AMPLIFICATION: u64 = 4_000_000;

/// Refuses a statement whose calls would make too much. The number is how many times longer
/// than it began with its calls may make one value.
pub(super) fn check_amplifiers(statement: &SqlStatement) -> Result<u64, Error> {
    let (mut amplification, mut value_amplification) = (1_u64, 1_u64);
    for at in 0..statement.tokens().len() {
        if statement.token_kind(at + 1) != Some(SqlTokenKind::OpenParenthesis) {
            continue;
        }
        let Some(name) = statement.identifier_at(at) else {
            continue;
        };
        let call = FunctionCall {
            statement,
            open: at + 1,
        };
        let factor = match name.as_str() {
            "repeat" => call.literal_argument(1),
            "lpad" | "rpad" => {
                let length = call.literal_argument(1);
                value_amplification =
                    value_amplification.saturating_mul(length.unwrap_or(1).max(1));
                length.filter(|it| *it <= MAX_PADDED_LENGTH).map(|_| 1)
            }
            "format" => call.has_plain_format().then_some(1),
            "array_fill" => call.literal_product(),
            "generate_series" => call.series_length(),
            _ => continue,
        };
        amplification = match factor {
            Some(factor) => amplification.saturating_mul(factor.max(1)),
            None => u64::MAX,
        };
        if amplification > MAX_AMPLIFICATION {
            let reason = format!(
                "{name} may not be asked for that much here; write a smaller number, as a number"
            );
            return Err(statement.error_at_token(Error::Refused(reason), at));
        }
        // A series makes rows, not longer values.
        if name != "generate_series" {
            let factor = factor.unwrap_or(1).max(1);
            value_amplification = value_amplification.saturating_mul(factor);
        }
    }
    growth::check_growth(statement, amplification)?;
    Ok(value_amplification)
}

/// A call in a statement.
pub(super) struct FunctionCall<'a> {
    pub(super) statement: &'a SqlStatement,
    /// The token that opens its arguments.
    pub(super) open: usize,
}

impl FunctionCall<'_> {
    /// The tokens of each argument.
    pub(super) fn arguments(&self) -> Vec<Vec<usize>> {
        let mut arguments = vec![Vec::new()];
        let mut depth = 0_usize;
        for at in self.open + 1..self.statement.tokens().len() {
            match self.statement.token_kind(at) {
                Some(SqlTokenKind::OpenParenthesis | SqlTokenKind::OpenBracket) => depth += 1,
                Some(SqlTokenKind::CloseParenthesis) if depth == 0 => break,
                Some(SqlTokenKind::CloseParenthesis | SqlTokenKind::CloseBracket) => {
                    depth = depth.saturating_sub(1);
                }
                Some(SqlTokenKind::Comma) if depth == 0 => {
                    arguments.push(Vec::new());
                    continue;
                }
                _ => (),
            }
            if let Some(argument) = arguments.last_mut() {
                argument.push(at);
            }
        }
        arguments
    }

    fn number(&self, at: usize) -> Option<i64> {
        let token = self.statement.tokens().get(at)?;
        match token.kind {
            SqlTokenKind::Number => self.statement.token_text(token).parse().ok(),
            _ => None,
        }
    }

    /// The value of an argument that is one number, maybe with a sign.
    fn signed_number(&self, argument: &[usize]) -> Option<i64> {
        match argument {
            [number] => self.number(*number),
            [sign, number] => {
                let sign = self.statement.tokens().get(*sign)?;
                match self.statement.token_text(sign) {
                    "-" => self.number(*number).map(|it| -it),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn literal_argument(&self, index: usize) -> Option<u64> {
        let arguments = self.arguments();
        let number = self.signed_number(arguments.get(index)?)?;
        Some(u64::try_from(number).unwrap_or(0))
    }

    /// The product of the sizes of an array: `array_fill(0, ARRAY[10, 10])`.
    fn literal_product(&self) -> Option<u64> {
        let arguments = self.arguments();
        let sizes = arguments.get(1)?;
        let (word, inside) = sizes.split_first()?;
        if !self.statement.is_word(*word, "ARRAY") {
            return None;
        }
        let mut product = 1_u64;
        for at in inside {
            match self.statement.token_kind(*at)? {
                SqlTokenKind::OpenBracket | SqlTokenKind::CloseBracket | SqlTokenKind::Comma => (),
                SqlTokenKind::Number => {
                    let number = u64::try_from(self.number(*at)?).ok()?;
                    product = product.saturating_mul(number);
                }
                _ => return None,
            }
        }
        Some(product)
    }

    /// How many rows a series of numbers has. Of other series it is not known, and they
    /// are few: days and hours.
    fn series_length(&self) -> Option<u64> {
        let arguments = self.arguments();
        let bounds: Option<Vec<i64>> = arguments.iter().map(|it| self.signed_number(it)).collect();
        match bounds.as_deref() {
            Some([first, last]) => Some(last.abs_diff(*first).saturating_add(1)),
            Some([first, last, step]) => {
                Some(last.abs_diff(*first) / step.unsigned_abs().max(1) + 1)
            }
            _ => Some(1),
        }
    }

    /// Whether the format is a constant that pads nothing to a great width.
    fn has_plain_format(&self) -> bool {
        let arguments = self.arguments();
        let Some([only]) = arguments.first().map(Vec::as_slice) else {
            return false;
        };
        let Some(token) = self.statement.tokens().get(*only) else {
            return false;
        };
        let text = self.statement.token_text(token);
        // Other forms of a text may hide digits behind escapes.
        token.kind == SqlTokenKind::StringLiteral
            && text.starts_with('\'')
            && text.split('%').skip(1).all(is_small_width)
    }
}

/// Whether what follows a `%` asks for a small width, and not for one of its arguments.
fn is_small_width(directive: &str) -> bool {
    let width = directive.trim_start_matches(|it: char| "-$".contains(it) || it.is_ascii_digit());
    let digits = &directive[..directive.len() - width.len()];
    !width.starts_with('*') && digits.len() <= 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::SqlDialect;

    #[test]
    fn sizes_are_read_from_the_statement() {
        let allowed = [
            "SELECT repeat('-', 50), lpad(id::text, 8, '0'), rpad(x, 20)",
            "SELECT format('%s of %2$-10s %%', a, b)",
            "SELECT array_fill(0, ARRAY[10, 10])",
            "SELECT d FROM generate_series(date '2026-01-01', now(), interval '1 day') d",
            "SELECT sum(n) FROM generate_series(1, 1000000) n",
            "SELECT repeat, format FROM t",
        ];
        for sql in allowed {
            let statement = SqlStatement::parse(sql, SqlDialect::Postgres).unwrap();
            check_amplifiers(&statement).unwrap();
        }
        let refused = [
            "SELECT repeat('x', 1000000000)",
            "SELECT \"repeat\" ('x', 1000000000)",
            "SELECT repeat('x', n) FROM t",
            "SELECT repeat(repeat('x', 10000), 10000)",
            "WITH a AS (SELECT repeat('x', 9999) s) SELECT repeat(s, 9999) FROM a",
            "SELECT lpad('x', 1000000000)",
            "SELECT rpad('x', 10^9::int)",
            "SELECT format('%1000000000s', 'x')",
            "SELECT format('%*s', 1000000000, 'x')",
            "SELECT format(f, 'x') FROM t",
            "SELECT format('%1000'\n'000000s', 'x')",
            "SELECT format(E'%1\\60000000000s', 'x')",
            "SELECT array_fill('x'::text, ARRAY[100000000])",
            "SELECT array_fill(0, sizes) FROM t",
            "SELECT json_agg(n) FROM generate_series(1, 100000000) n",
            "SELECT string_agg(repeat('x', 10000), '') FROM generate_series(1, 10000)",
        ];
        for sql in refused {
            let statement = SqlStatement::parse(sql, SqlDialect::Postgres).unwrap();
            assert!(check_amplifiers(&statement).is_err(), "{sql}");
        }
    }
}
