//! How values grow by a statement, and which values of its parameters fit that.

use crate::Error;

/// How many bytes the values of a row may be that a statement makes of its longest text.
pub(super) const MAX_GROWTH_BYTES: u64 = 64_000_000;
/// How many bytes the values of a row may be, by parameters, without a look at the memory of
/// the server.
const MAX_UNWATCHED_BYTES: u64 = 8_000_000;

/// How much larger than what it begins with a value of a statement may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueGrowth {
    /// How many times longer the calls of the statement make it that repeat it.
    pub(super) factor: u64,
    /// How long a value may be that the statement makes of nothing.
    pub(super) bytes: u64,
    /// How many times longer than its longest text the values of a row are together.
    pub(super) row_factor: u64,
    /// Whether a value becomes longer at all.
    pub(super) lengthens: bool,
}

impl ValueGrowth {
    pub(super) const NONE: Self = Self {
        factor: 1,
        bytes: 1,
        row_factor: 1,
        lengthens: false,
    };

    /// Refuses values of parameters, the longest of which has `longest` bytes, that the calls
    /// of the statement would repeat too often.
    pub(super) fn check_parameters(self, longest: u64) -> Result<(), Error> {
        if self.factor > 1 && self.factor.saturating_mul(longest) > MAX_GROWTH_BYTES {
            return Err(too_much_growth());
        }
        Ok(())
    }

    /// Whether the statement may need much memory with some values of its parameters, though
    /// it needed little with others.
    pub(super) fn is_watched_with_parameters(self, longest: u64) -> bool {
        self.lengthens || self.row_factor.saturating_mul(longest) > MAX_UNWATCHED_BYTES
    }
}

pub(super) fn too_much_growth() -> Error {
    Error::Refused(
        "its values could become many times longer than what it begins with; put fewer of them together".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::amplifiers::check_amplifiers;
    use crate::{lexer::SqlDialect, statement::SqlStatement};

    #[test]
    fn long_parameters_are_neither_repeated_too_often_nor_read_unwatched() {
        let growth = |sql| {
            let statement = SqlStatement::parse(sql, SqlDialect::Postgres).unwrap();
            check_amplifiers(&statement).unwrap().growth
        };
        let repeated = growth("SELECT length(repeat(:s, 1000))");
        repeated.check_parameters(1000).unwrap();
        assert!(repeated.check_parameters(1_000_000).is_err());
        let plain = growth("SELECT id, name, '%' || city FROM t WHERE doc = :s AND id > :n");
        plain.check_parameters(4_000_000).unwrap();
        assert!(!plain.is_watched_with_parameters(1_000_000));
        for sql in [
            "SELECT repeat(note, :n) FROM t",
            "SELECT replace(note, 'x', :s) FROM t",
            "SELECT json_build_array(:s, :s)",
        ] {
            assert!(growth(sql).is_watched_with_parameters(8), "{sql}");
        }
        let split = growth("SELECT cardinality(string_to_array(:s, ','))");
        assert!(!split.is_watched_with_parameters(1000));
        assert!(split.is_watched_with_parameters(1_000_000));
    }
}
