//! One statement, checked as far as that goes without a database.

use std::fmt::Write;

use super::{
    Error, MAX_STATEMENT_BYTES, QueryParameters, QueryValue,
    lexer::{SqlDialect, SqlToken, SqlTokenKind, tokenize},
    validate_statement::validate,
};

/// The longest name that PostgreSQL keeps; it cuts the rest off.
pub(super) const MAX_IDENTIFIER_BYTES: usize = 63;

/// Checks without a database whether `sql` is one query within the limits of size and depth.
pub fn check_query_syntax(sql: &str, dialect: SqlDialect) -> Result<(), Error> {
    SqlStatement::parse(sql, dialect).map(drop)
}

/// The text of one query with its tokens.
#[derive(Debug)]
pub(super) struct SqlStatement {
    text: String,
    tokens: Vec<SqlToken>,
    dialect: SqlDialect,
}

/// How the comparison with a list is written.
struct ListComparison {
    /// Where the one that was written begins.
    start: usize,
    sql: &'static str,
}

/// A statement as the database gets it, and the parameters behind its numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BoundStatement {
    pub(super) sql: String,
    /// For each number the name's place in [`SqlStatement::parameter_names`].
    pub(super) parameter_indexes: Vec<usize>,
    /// Where a number ends here, and where the name that it replaced ends.
    offset_map: Vec<(usize, usize)>,
}

impl BoundStatement {
    /// Writes `sql` where the byte `at` of the statement stands.
    pub(super) fn insert(&mut self, at: usize, sql: &str) {
        let index = self.offset_map.partition_point(|(_, there)| *there <= at);
        let before = index.checked_sub(1).map(|it| self.offset_map[it]);
        let (here, there) = before.unwrap_or_default();
        let place = here + (at - there);
        self.sql.insert_str(place, sql);
        for (here, _) in &mut self.offset_map[index..] {
            *here += sql.len();
        }
        self.offset_map.insert(index, (place + sql.len(), at));
    }

    /// The byte of the statement that became the byte `at` here.
    pub(super) fn original_offset(&self, at: usize) -> usize {
        let (here, there) = self
            .offset_map
            .iter()
            .rev()
            .find(|(here, _)| *here <= at)
            .copied()
            .unwrap_or_default();
        at - here + there
    }
}

impl SqlStatement {
    /// Reads exactly one query. A space that does not break is a space: people
    /// and models paste it, and no database accepts it.
    pub(super) fn parse(sql: &str, dialect: SqlDialect) -> Result<Self, Error> {
        if MAX_STATEMENT_BYTES < sql.len() {
            return refuse(format!("it is longer than {MAX_STATEMENT_BYTES} bytes"));
        }
        let text = sql.replace('\u{a0}', " ");
        if text.contains('\0') {
            return refuse("it has a character that is not text");
        }
        let mut tokens = tokenize(&text, dialect)?;
        while tokens
            .last()
            .is_some_and(|it| it.kind == SqlTokenKind::Semicolon)
        {
            tokens.pop();
        }
        let statement = Self {
            text,
            tokens,
            dialect,
        };
        validate(&statement)?;
        Ok(statement)
    }

    pub(super) fn dialect(&self) -> SqlDialect {
        self.dialect
    }

    pub(super) fn tokens(&self) -> &[SqlToken] {
        &self.tokens
    }

    /// The text without the comments and semicolons behind it.
    pub(super) fn sql(&self) -> &str {
        let end = self.tokens.last().map_or(0, |it| it.end);
        self.text.get(..end).unwrap_or_default()
    }

    pub(super) fn token_text(&self, token: &SqlToken) -> &str {
        self.text.get(token.start..token.end).unwrap_or_default()
    }

    /// Whether the token at this place is the keyword, given in capitals.
    pub(super) fn is_word(&self, at: usize, word: &str) -> bool {
        let token = self
            .tokens
            .get(at)
            .filter(|it| it.kind == SqlTokenKind::Word);
        token.is_some_and(|it| self.token_text(it).eq_ignore_ascii_case(word))
    }

    pub(super) fn token_kind(&self, at: usize) -> Option<SqlTokenKind> {
        self.tokens.get(at).map(|it| it.kind)
    }

    /// The name at this place as the database knows it.
    pub(super) fn identifier_at(&self, at: usize) -> Option<String> {
        let token = self.tokens.get(at)?;
        let text = self.token_text(token);
        let name = match token.kind {
            SqlTokenKind::Word => text.to_ascii_lowercase(),
            SqlTokenKind::QuotedIdentifier => unquote(text),
            // SQLite takes text where a name belongs.
            SqlTokenKind::StringLiteral if self.dialect == SqlDialect::Sqlite => unquote(text),
            _ => return None,
        };
        Some(match self.dialect {
            SqlDialect::Postgres => truncate_identifier(name),
            SqlDialect::Sqlite => name.to_ascii_lowercase(),
        })
    }

    /// The error with its place in the statement, if it has one in what the
    /// database got.
    pub(super) fn locate_error(&self, error: Error, bound: &BoundStatement) -> Error {
        match error {
            Error::AtPosition { position, error } => {
                let here = bound.sql.char_indices().nth(position);
                let here = here.map_or(bound.sql.len(), |(at, _)| at);
                error.at_byte(&self.text, bound.original_offset(here))
            }
            other => other,
        }
    }

    /// The error, which is about the token at this place.
    pub(super) fn error_at_token(&self, error: Error, at: usize) -> Error {
        match self.tokens.get(at) {
            Some(token) => error.at_byte(&self.text, token.start),
            None => error,
        }
    }

    /// The names of the parameters with the characters before their first use.
    pub(super) fn parameter_positions(&self) -> Vec<(&str, usize)> {
        let place = |name: &str| {
            let found = self
                .tokens
                .iter()
                .find(|it| it.kind == SqlTokenKind::Parameter && self.token_text(it)[1..] == *name);
            let before = found.and_then(|it| self.text.get(..it.start));
            before.unwrap_or_default().chars().count()
        };
        let names = self.parameter_names().into_iter();
        names.map(|name| (name, place(name))).collect()
    }

    /// The names of the parameters, in the order of their first use.
    pub(super) fn parameter_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for token in self
            .tokens
            .iter()
            .filter(|it| it.kind == SqlTokenKind::Parameter)
        {
            let name = self.token_text(token).trim_start_matches(':');
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// How many values the statement may compute for one row, at most: a call computes one,
    /// and so does each `||`.
    pub(super) fn count_computed_values(&self) -> usize {
        let computes = |at: &usize| match self.token_kind(*at) {
            Some(SqlTokenKind::OpenParenthesis) => {
                let before = at.checked_sub(1);
                before.is_some_and(|it| self.identifier_at(it).is_some())
            }
            Some(SqlTokenKind::Operator) => self
                .tokens
                .get(*at)
                .is_some_and(|it| self.token_text(it) == "||"),
            _ => false,
        };
        (0..self.tokens.len()).filter(computes).count()
    }

    /// The statement with the identifiers of `parameters` in the place of their names.
    pub(super) fn with_identifiers(&self, parameters: &QueryParameters) -> Result<Self, Error> {
        let mut sql = String::with_capacity(self.text.len());
        let mut from = 0;
        for token in &self.tokens {
            let name = self.parameter_name(token);
            let value = name.and_then(|it| parameters.get(it));
            if let Some(QueryValue::Identifier(identifier)) = value {
                sql.push_str(self.text.get(from..token.start).unwrap_or_default());
                sql.push_str(&identifier.to_sql());
                from = token.end;
            }
        }
        sql.push_str(self.sql().get(from..).unwrap_or_default());
        Self::parse(&sql, self.dialect)
    }

    /// The statement with a number for each `:name`, the same for the same name.
    ///
    /// `:name IS NULL` gets a separate number in PostgreSQL, which finds the
    /// type of a parameter by its use, and there it has no type. A list is one array in
    /// PostgreSQL and as many numbers as it has values in SQLite.
    pub(super) fn bind_parameters(&self, parameters: &QueryParameters) -> BoundStatement {
        let names = self.parameter_names();
        let mut slots: Vec<usize> = (0..names.len()).collect();
        // Where the numbers of each list begin, behind those of the names.
        let mut list_bases: Vec<Option<usize>> = vec![None; names.len()];
        let mut offset_map = Vec::new();
        let mut sql = String::with_capacity(self.text.len());
        let mut from = 0;
        for (at, token) in self.tokens.iter().enumerate() {
            let Some(name) = self.parameter_name(token) else {
                continue;
            };
            let slot = names.iter().position(|it| *it == name).unwrap_or_default();
            let list = match parameters.get(name) {
                Some(QueryValue::List(values)) => Some(values.len()),
                _ => None,
            };
            let is_rewritten = list.is_some() || self.dialect == SqlDialect::Sqlite;
            let comparison = self.list_comparison(at).filter(|_| is_rewritten);
            let start = comparison.as_ref().map_or(token.start, |it| it.start);
            sql.push_str(self.text.get(from..start).unwrap_or_default());
            if let Some(comparison) = &comparison {
                sql.push_str(comparison.sql);
            }
            from = token.end;
            let _ = match (self.dialect, list) {
                (SqlDialect::Sqlite, Some(count)) => {
                    let base = *list_bases[slot].get_or_insert_with(|| {
                        let base = slots.len();
                        slots.extend(std::iter::repeat_n(slot, count));
                        base
                    });
                    let numbers = base + 1..=base + count;
                    let numbers: Vec<String> = numbers.map(|it| format!("?{it}")).collect();
                    write!(sql, "{} ", numbers.join(","))
                }
                (SqlDialect::Sqlite, None) => write!(sql, "?{} ", slot + 1),
                (SqlDialect::Postgres, _) if self.is_null_test(at) => {
                    // Without any other use its own number would have no type.
                    let number = if self.is_only_tested_for_null(name) {
                        slot + 1
                    } else {
                        slots.push(slot);
                        slots.len()
                    };
                    write!(sql, "${number}::pg_catalog.text ")
                }
                (SqlDialect::Postgres, _) => write!(sql, "${} ", slot + 1),
            };
            offset_map.push((sql.len(), from));
        }
        sql.push_str(self.sql().get(from..).unwrap_or_default());
        BoundStatement {
            sql,
            parameter_indexes: slots,
            offset_map,
        }
    }

    /// Refuses a list where SQLite, which has none, could not compare with each value.
    pub(super) fn check_lists(&self, parameters: &QueryParameters) -> Result<(), Error> {
        for (at, token) in self.tokens.iter().enumerate() {
            let value = self.parameter_name(token).and_then(|it| parameters.get(it));
            let is_list = matches!(value, Some(QueryValue::List(_)));
            let is_in = at.checked_sub(2).is_some_and(|it| self.is_word(it, "IN"));
            let fits = self.list_comparison(at).is_some() || is_in;
            if self.dialect == SqlDialect::Sqlite && is_list && !fits {
                let refused = refuse("a list is compared as = ANY(:name) or IN (:name)");
                return refused.map_err(|error| self.error_at_token(error, at));
            }
        }
        Ok(())
    }

    /// The name of a token that is a parameter.
    fn parameter_name(&self, token: &SqlToken) -> Option<&str> {
        let is_parameter = token.kind == SqlTokenKind::Parameter;
        is_parameter.then(|| self.token_text(token).trim_start_matches(':'))
    }

    /// The comparison before a list, where the dialect writes it otherwise: SQLite has no
    /// `= ANY (…)`, and PostgreSQL accepts no array in `IN (…)`.
    fn list_comparison(&self, at: usize) -> Option<ListComparison> {
        if self.token_kind(at.checked_sub(1)?) != Some(SqlTokenKind::OpenParenthesis)
            || self.token_kind(at + 1) != Some(SqlTokenKind::CloseParenthesis)
        {
            return None;
        }
        let word = at.checked_sub(2)?;
        let before = at.checked_sub(3)?;
        let operator = self.tokens.get(before).map(|it| self.token_text(it));
        let is_not = self.is_word(before, "NOT");
        let (first, sql) = match self.dialect {
            SqlDialect::Sqlite if self.is_word(word, "ANY") && operator == Some("=") => {
                (before, "IN (")
            }
            SqlDialect::Sqlite if self.is_word(word, "ALL") && operator == Some("<>") => {
                (before, "NOT IN (")
            }
            SqlDialect::Postgres if self.is_word(word, "IN") && is_not => (before, "<> ALL ("),
            SqlDialect::Postgres if self.is_word(word, "IN") => (word, "= ANY ("),
            _ => return None,
        };
        let start = self.tokens.get(first)?.start;
        Some(ListComparison { start, sql })
    }

    fn is_only_tested_for_null(&self, name: &str) -> bool {
        let mut uses = (0..self.tokens.len())
            .filter(|at| self.parameter_name(&self.tokens[*at]) == Some(name));
        uses.all(|at| self.is_null_test(at))
    }

    fn is_null_test(&self, at: usize) -> bool {
        let begins = at.checked_sub(1).is_some_and(|before| {
            let words = [
                "WHERE", "AND", "OR", "NOT", "WHEN", "ON", "HAVING", "SELECT",
            ];
            let opens = [SqlTokenKind::OpenParenthesis, SqlTokenKind::Comma];
            self.token_kind(before)
                .is_some_and(|it| opens.contains(&it))
                || words.iter().any(|it| self.is_word(before, it))
        });
        let not = usize::from(self.is_word(at + 2, "NOT"));
        begins && self.is_word(at + 1, "IS") && self.is_word(at + 2 + not, "NULL")
    }
}

pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::Refused(reason.into()))
}

/// A name without its quotes.
fn unquote(text: &str) -> String {
    let mut inner = text.chars();
    let (Some(first), Some(_last)) = (inner.next(), inner.next_back()) else {
        return String::new();
    };
    if first == '[' {
        return inner.as_str().to_owned();
    }
    let twice = String::from_iter([first, first]);
    inner.as_str().replace(&twice, &first.to_string())
}

fn truncate_identifier(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_IDENTIFIER_BYTES));
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(sql: &str, dialect: SqlDialect) -> (String, Vec<usize>) {
        bound_with(sql, dialect, &QueryParameters::default())
    }

    fn bound_with(
        sql: &str,
        dialect: SqlDialect,
        parameters: &QueryParameters,
    ) -> (String, Vec<usize>) {
        let statement = SqlStatement::parse(sql, dialect).unwrap();
        let bound = statement.bind_parameters(parameters);
        (bound.sql, bound.parameter_indexes)
    }

    #[test]
    fn the_same_name_is_the_same_number() {
        let sql = "SELECT :a+:b,:a; -- x";
        assert_eq!(
            bound(sql, SqlDialect::Postgres),
            ("SELECT $1 +$2 ,$1 ".into(), vec![0, 1])
        );
        assert_eq!(
            bound(sql, SqlDialect::Sqlite),
            ("SELECT ?1 +?2 ,?1 ".into(), vec![0, 1])
        );
        let sql = "SELECT 1 WHERE (:a IS NULL OR x = :a)";
        let expected = "SELECT 1 WHERE ($2::pg_catalog.text  IS NULL OR x = $1 )";
        assert_eq!(
            bound(sql, SqlDialect::Postgres),
            (expected.into(), vec![0, 0])
        );
    }

    #[test]
    fn parameter_that_is_only_tested_for_null_has_one_number() {
        let sql = "SELECT 1 WHERE (:a IS NULL OR x = ANY(:b)) AND :a IS NOT NULL";
        let expected = "SELECT 1 WHERE ($1::pg_catalog.text  IS NULL OR x = ANY($2 )) \
                        AND $1::pg_catalog.text  IS NOT NULL";
        assert_eq!(
            bound(sql, SqlDialect::Postgres),
            (expected.into(), vec![0, 1])
        );
    }

    #[test]
    fn a_fault_has_its_place_in_what_was_written() {
        let sql = "SELECT '가', :a, :b\u{a0}FROM nothing";
        for dialect in [SqlDialect::Postgres, SqlDialect::Sqlite] {
            let statement = SqlStatement::parse(sql, dialect).unwrap();
            let bound = statement.bind_parameters(&QueryParameters::default());
            let at = bound.sql.find("nothing").unwrap();
            let error = Error::Database("no such table".into()).at_byte(&bound.sql, at);
            assert_eq!(statement.locate_error(error, &bound).position(), Some(24));
            assert_eq!(statement.parameter_positions(), [("a", 12), ("b", 16)]);
        }
        let unended = SqlStatement::parse("SELECT '가',\n 'x", SqlDialect::Postgres);
        assert_eq!(unended.unwrap_err().position(), Some(11));
    }

    #[test]
    fn inserted_words_do_not_move_the_place_of_a_fault() {
        let sql = "SELECT :a, f(:b, nothing)";
        let statement = SqlStatement::parse(sql, SqlDialect::Postgres).unwrap();
        let mut bound = statement.bind_parameters(&QueryParameters::default());
        bound.insert(sql.find(", nothing").unwrap(), ", 9)");
        bound.insert(sql.find(":b").unwrap(), "least(");
        assert_eq!(bound.sql, "SELECT $1 , f(least($2 , 9), nothing)");
        for (word, original) in [("$2", ":b"), ("nothing", "nothing"), ("$1", ":a")] {
            let at = bound.original_offset(bound.sql.find(word).unwrap());
            assert_eq!(at, sql.find(original).unwrap(), "{word}");
        }
    }

    #[test]
    fn lists_and_identifiers_are_written_as_the_dialect_needs() {
        let list = QueryValue::List(vec![QueryValue::Integer(1), QueryValue::Integer(2)]);
        let parameters: QueryParameters = [("a", list)].into_iter().collect();
        let cases = [
            (
                "SELECT 1 WHERE x = ANY(:a) AND y=:b",
                "SELECT 1 WHERE x = ANY($1 ) AND y=$2 ",
                "SELECT 1 WHERE x IN (?3,?4 ) AND y=?2 ",
            ),
            (
                "SELECT 1 WHERE x IN (:a)",
                "SELECT 1 WHERE x = ANY ($1 )",
                "SELECT 1 WHERE x IN (?2,?3 )",
            ),
            (
                "SELECT 1 WHERE x NOT IN (:a)",
                "SELECT 1 WHERE x <> ALL ($1 )",
                "SELECT 1 WHERE x NOT IN (?2,?3 )",
            ),
        ];
        for (sql, postgres, sqlite) in cases {
            assert_eq!(
                bound_with(sql, SqlDialect::Postgres, &parameters).0,
                postgres
            );
            assert_eq!(bound_with(sql, SqlDialect::Sqlite, &parameters).0, sqlite);
        }
        let name = crate::SqlIdentifier::parse("b desc").unwrap();
        let column = [("a", QueryValue::Identifier(name))];
        let parameters: QueryParameters = column.into_iter().collect();
        let statement = SqlStatement::parse("SELECT :b ORDER BY :a", SqlDialect::Sqlite).unwrap();
        let ordered = statement.with_identifiers(&parameters).unwrap();
        assert_eq!(ordered.sql(), "SELECT :b ORDER BY \"b\" DESC");
    }

    #[test]
    fn only_one_query_is_read() {
        let refused = [
            "",
            " ",
            ";",
            "-- x",
            "DELETE FROM t",
            "SELECT 1; SELECT 2",
            "SELECT 1;;; x",
            "/* SELECT */ DELETE FROM t",
            "EXPLAIN SELECT 1",
            "SELECT $1",
            "SELECT \\x",
            "SELECT 1 INTO t",
            "SELECT 1 FOR UPDATE",
            "SELECT * FROM t FOR NO KEY UPDATE",
            "WITH a AS (DELETE FROM t RETURNING 1) SELECT 1",
            "\u{feff}SELECT 1",
            "SELECT 1\0",
        ];
        for sql in refused {
            assert!(
                SqlStatement::parse(sql, SqlDialect::Postgres).is_err(),
                "{sql}"
            );
        }
        let read = [
            "SELECT 1;",
            "((SELECT 1)) UNION SELECT 2",
            "VALUES (1)",
            "TABLE t",
            "with a as (select 1) select * from a",
            "SELECT\u{a0}1",
            "SELECT substring(a for 3), 1 AS into, t.update, ';' FROM t -- ;",
        ];
        for sql in read {
            SqlStatement::parse(sql, SqlDialect::Postgres).unwrap();
        }
    }

    #[test]
    fn what_is_too_deep_or_too_long_is_refused() {
        let read = |sql: String| SqlStatement::parse(&sql, SqlDialect::Postgres);
        assert!(read(format!("SELECT 1{}", "+1".repeat(1000))).is_ok());
        assert!(read(format!("SELECT 1{}", "+1".repeat(1001))).is_err());
        assert!(read(format!("SELECT 1 IN (1{})", ",1".repeat(9000))).is_ok());
        assert!(read(format!("SELECT {}1{}", "(".repeat(99), ")".repeat(99))).is_ok());
        assert!(read(format!("SELECT {}1{}", "(".repeat(100), ")".repeat(100))).is_err());
        assert!(read(format!("SELECT {}true", "NOT ".repeat(1001))).is_err());
        assert!(read(format!("SELECT '{}'", "a".repeat(MAX_STATEMENT_BYTES))).is_err());
    }

    #[test]
    fn names_are_those_that_the_database_sees() {
        let name = |sql, dialect| {
            SqlStatement::parse(sql, dialect)
                .unwrap()
                .identifier_at(1)
                .unwrap()
        };
        assert_eq!(name("SELECT FooBAR", SqlDialect::Postgres), "foobar");
        assert_eq!(name("SELECT \"Foo\"\"B\"", SqlDialect::Postgres), "Foo\"B");
        assert_eq!(name("SELECT [Foo B]", SqlDialect::Sqlite), "foo b");
        assert_eq!(name("SELECT 'Foo''B'", SqlDialect::Sqlite), "foo'b");
        let long = format!("SELECT {}", "a".repeat(70));
        assert_eq!(name(&long, SqlDialect::Postgres).len(), 63);
    }
}
