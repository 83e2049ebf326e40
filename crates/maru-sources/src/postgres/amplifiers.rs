//! Functions that make a large value, or many rows, out of a small number.
//!
//! PostgreSQL bounds no value below 1 GiB and builds it several times over before
//! anybody can look at its length. So the numbers that say how large it gets must stand
//! in the statement, where they can be added up before it runs.

use super::{growth, value_growth::ValueGrowth};
use crate::{
    Error,
    lexer::SqlTokenKind,
    statement::{BoundStatement, SqlStatement},
};

/// The longest text that one call may pad to.
const MAX_PADDED_LENGTH: u64 = 1_000_000;
/// The most that a number may be which says how much a call makes and which the server
/// computes: `repeat('#', count(*)::int)`.
const MAX_COMPUTED_COUNT: u64 = 2000;
/// How many times more than it began with a statement may make, by all of its calls.
const MAX_AMPLIFICATION: u64 = 4_000_000;

/// How values grow by a statement, and what bounds the counts that cannot be read from it.
#[derive(Debug)]
pub(super) struct Amplification {
    pub(super) growth: ValueGrowth,
    /// Where counts begin and end that the server computes, in bytes.
    computed_counts: Vec<(usize, usize)>,
}

impl Amplification {
    /// Bounds the counts that the server computes. A count that is NULL stays NULL, and each
    /// is computed once.
    pub(super) fn bound_counts(&self, bound: &mut BoundStatement) {
        for (start, end) in &self.computed_counts {
            bound.insert(*end, &format!(", {MAX_COMPUTED_COUNT})"));
            bound.insert(*start, "pg_catalog.int4smaller(");
        }
    }
}

/// Refuses a statement whose calls would make too much. Returned is how values grow by it.
pub(super) fn check_amplifiers(statement: &SqlStatement) -> Result<Amplification, Error> {
    let mut amplification = 1_u64;
    let mut growth = ValueGrowth::NONE;
    let mut computed_counts = Vec::new();
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
            "repeat" => call.count_argument(&mut computed_counts),
            "array_fill" => call.literal_product(),
            "generate_series" => call.series_length(),
            name => {
                let Some(length) = call.padded_length(name, &mut computed_counts) else {
                    continue;
                };
                growth.bytes = growth.bytes.max(length);
                (length <= MAX_PADDED_LENGTH).then_some(1)
            }
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
            growth.factor = growth.factor.saturating_mul(factor.unwrap_or(1).max(1));
        }
    }
    Ok(Amplification {
        growth: growth::check_growth(statement, growth)?,
        computed_counts,
    })
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

    /// How often or how long the call is asked for: a number of the statement, or the most
    /// that a number may be which the server computes.
    fn count_argument(&self, computed: &mut Vec<(usize, usize)>) -> Option<u64> {
        if let Some(count) = self.literal_argument(1) {
            return Some(count);
        }
        let arguments = self.arguments();
        let count = arguments.get(1)?;
        let tokens = self.statement.tokens();
        computed.push((
            tokens.get(*count.first()?)?.start,
            tokens.get(*count.last()?)?.end,
        ));
        Some(MAX_COMPUTED_COUNT)
    }

    /// The length to which the call, or the type, fills a value up, if it does.
    fn padded_length(&self, name: &str, computed: &mut Vec<(usize, usize)>) -> Option<u64> {
        let length = match name {
            "lpad" | "rpad" => self.count_argument(computed),
            "bpchar" if self.arguments().len() > 1 => self.literal_argument(1),
            // What is shorter than its type is filled with spaces or zeros.
            "bit" | "bpchar" | "char" | "character" | "nchar" => {
                return self.literal_argument(0);
            }
            "format" => self.format_width(),
            _ => return None,
        };
        // What cannot be known may be anything.
        Some(length.unwrap_or(u64::MAX))
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

    /// How wide the value of `format` is beside its arguments, if the format is a constant
    /// that says so itself.
    fn format_width(&self) -> Option<u64> {
        let widths: Option<Vec<u64>> = self.constant_format()?.map(directive_width).collect();
        widths.map(|it| it.into_iter().sum())
    }

    /// How many times `format` writes an argument.
    pub(super) fn format_directives(&self) -> u64 {
        self.constant_format().map_or(1, |it| it.count() as u64)
    }

    /// What follows each `%` of a constant format. Other forms of a text may hide digits
    /// behind escapes.
    fn constant_format(&self) -> Option<impl Iterator<Item = &str>> {
        let arguments = self.arguments();
        let [only] = arguments.first()?[..] else {
            return None;
        };
        let token = self.statement.tokens().get(only)?;
        let text = self.statement.token_text(token);
        let is_plain = token.kind == SqlTokenKind::StringLiteral && text.starts_with('\'');
        is_plain.then(|| text.split('%').skip(1))
    }
}

/// The width that what follows a `%` asks for, if that is not one of its arguments.
fn directive_width(directive: &str) -> Option<u64> {
    let without_digits = |it| str::trim_start_matches(it, |it: char| it.is_ascii_digit());
    // Digits and `$` say which argument it writes; any other `$` is text.
    let directive = without_digits(directive)
        .strip_prefix('$')
        .unwrap_or(directive);
    let directive = directive.trim_start_matches('-');
    let rest = without_digits(directive);
    let digits = &directive[..directive.len() - rest.len()];
    let is_constant = !rest.starts_with('*');
    let width = if digits.is_empty() {
        Some(0)
    } else {
        digits.parse().ok()
    };
    width.filter(|_| is_constant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QueryParameters, lexer::SqlDialect};

    #[test]
    fn computed_counts_are_bounded() {
        let sql = "SELECT repeat('#', a + (b)), lpad(c, :n) FROM t";
        let statement = SqlStatement::parse(sql, SqlDialect::Postgres).unwrap();
        let mut bound = statement.bind_parameters(&QueryParameters::default());
        let amplification = check_amplifiers(&statement).unwrap();
        amplification.bound_counts(&mut bound);
        assert_eq!(
            bound.sql,
            "SELECT repeat('#', pg_catalog.int4smaller(a + (b), 2000)), \
             lpad(c, pg_catalog.int4smaller($1 , 2000)) FROM t"
        );
    }

    #[test]
    fn sizes_are_read_from_the_statement() {
        let allowed = [
            "SELECT repeat('-', 50), lpad(id::text, 8, '0'), rpad(x, 20)",
            "SELECT format('%s of %2$-10s %%', a, b)",
            "SELECT format('%s costs $%s', a, b), format('%1$s-%2$s', a, b)",
            "SELECT format('%1$s is 100%% of $%2$10s$', a, b)",
            "SELECT array_fill(0, ARRAY[10, 10])",
            "SELECT d FROM generate_series(date '2026-01-01', now(), interval '1 day') d",
            "SELECT sum(n) FROM generate_series(1, 1000000) n",
            "SELECT repeat, format FROM t",
            "SELECT city, repeat('■', (100 * count(*) / sum(count(*)) OVER ())::int) FROM t GROUP BY 1",
            "SELECT lpad(name, max(length(name)) OVER ()) FROM t",
        ];
        for sql in allowed {
            let statement = SqlStatement::parse(sql, SqlDialect::Postgres).unwrap();
            check_amplifiers(&statement).unwrap();
        }
        let refused = [
            "SELECT repeat('x', 1000000000)",
            "SELECT \"repeat\" ('x', 1000000000)",
            "SELECT repeat(repeat(repeat('x', n), n), n) FROM t",
            "SELECT repeat(repeat('x', 10000), 10000)",
            "WITH a AS (SELECT repeat('x', 9999) s) SELECT repeat(s, 9999) FROM a",
            "SELECT lpad('x', 1000000000)",
            "SELECT format('%1000000000s', 'x')",
            "SELECT format('%*s', 1000000000, 'x')",
            "SELECT format('%1000000000s$', 'x')",
            "SELECT format('%-1000000000s$', 'x')",
            "SELECT format('%1$--1000000000s', 'x')",
            "SELECT format('%*s$', 1000000000, 'x')",
            "SELECT format('%*2$s', 'x', 1000000000)",
            "SELECT format('%1$*2$s', 'x', 1000000000)",
            "SELECT format('%1$-*2$s', 'x', 1000000000)",
            "SELECT format($$%1000000000s$$, 'x')",
            "SELECT format($f$%1000000000s$f$, 'x')",
            "SELECT format(U&'%\\0031000000000s', 'x')",
            "SELECT format('%1000' || '000000s', 'x')",
            "SELECT format(concat('%1000', '000000s'), 'x')",
            "SELECT format(('%1000000000s'), 'x')",
            "SELECT format(f, 'x') FROM t",
            "SELECT format('%1000'\n'000000s', 'x')",
            "SELECT format(E'%1\\60000000000s', 'x')",
            "SELECT array_fill('x'::text, ARRAY[100000000])",
            "SELECT array_fill(0, sizes) FROM t",
            "SELECT json_agg(n) FROM generate_series(1, 100000000) n",
            "SELECT string_agg(repeat('x', 10000), '') FROM generate_series(1, 10000)",
            "SELECT 'x'::char(10000000)",
            "SELECT CAST(1 AS bit(80000000))",
            "SELECT format('%900000s%900000s', 'x', 'y')",
            "SELECT format('%1$900000s%1$900000s', 'x')",
        ];
        for sql in refused {
            let statement = SqlStatement::parse(sql, SqlDialect::Postgres).unwrap();
            assert!(check_amplifiers(&statement).is_err(), "{sql}");
        }
    }
}
