//! How much larger than its parts a value of a statement can get.
//!
//! PostgreSQL has no bound for the memory of a statement, and many functions end only when
//! their whole value is made. So every operator and function that makes a value longer has a
//! factor; those that can work on each other's values multiply, and a statement whose
//! product is too great does not run. The values of one row are there at the same time, so
//! those beside each other add up.

use super::{
    amplifiers::FunctionCall,
    value_growth::{MAX_GROWTH_BYTES, ValueGrowth, too_much_growth},
};
use crate::{Error, lexer::SqlTokenKind, statement::SqlStatement};

/// How many times longer than a value of a table another value may get.
const MAX_GROWTH_FACTOR: u64 = 100_000;
/// A text that is at least this long makes a great value where it is put in many places.
const LONG_TEXT_BYTES: u64 = 1000;
/// How many times more memory than its text a list of small values takes.
const SPLIT_FACTOR: u64 = 64;
/// Functions that may double a text: they write bytes as digits, or escape.
const DOUBLING: &[&str] = &[
    "array_replace",
    "array_to_json",
    "encode",
    "jsonb_pretty",
    "overlay",
    "quote_ident",
    "quote_literal",
    "quote_nullable",
    "row_to_json",
    "to_json",
    "to_jsonb",
];
/// Functions in whose value the arguments stand one behind the other.
const JOINING: &[&str] = &[
    "array_append",
    "array_cat",
    "array_prepend",
    "concat",
    "concat_ws",
];
/// Functions in whose value the arguments stand one behind the other, and are escaped.
const BUILDING: &[&str] = &[
    "format",
    "json_array",
    "json_build_array",
    "json_build_object",
    "json_object",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_insert",
    "jsonb_object",
    "jsonb_set",
    "jsonb_set_lax",
    "row",
    "xmlconcat",
    "xmlelement",
    "xmlforest",
];
/// Functions that put a text in many places of another, and which argument it is.
const REPLACING: &[(&str, usize)] = &[
    ("array_to_string", 1),
    ("regexp_replace", 2),
    ("replace", 2),
    ("ts_headline", 3),
];
/// Functions that make many small values of a text, or a large one of each character.
const SPLITTING: &[&str] = &[
    "normalize",
    "regexp_match",
    "regexp_matches",
    "regexp_split_to_array",
    "regexp_split_to_table",
    "string_to_array",
    "string_to_table",
    "to_tsvector",
];
/// Functions that make one value of many rows.
const COLLECTING: &[&str] = &[
    "array",
    "array_agg",
    "json_agg",
    "json_agg_strict",
    "json_array",
    "json_arrayagg",
    "json_object_agg",
    "json_object_agg_strict",
    "json_object_agg_unique",
    "json_object_agg_unique_strict",
    "json_objectagg",
    "jsonb_agg",
    "jsonb_agg_strict",
    "jsonb_object_agg",
    "jsonb_object_agg_strict",
    "jsonb_object_agg_unique",
    "jsonb_object_agg_unique_strict",
    "range_agg",
    "string_agg",
    "xmlagg",
];
/// Words after which another expression begins.
const SEPARATORS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "UNION",
    "GROUP",
    "ORDER",
    "HAVING",
    "JOIN",
    "ON",
    "AND",
    "OR",
    "WHEN",
    "THEN",
    "ELSE",
    "LIMIT",
    "INTERSECT",
    "EXCEPT",
    "VALUES",
];
/// Words in an expression that name no value.
const KEYWORDS: &[&str] = &[
    "all", "array", "as", "case", "cast", "collate", "distinct", "end", "false", "in", "is", "not",
    "null", "true",
];

/// Refuses a statement whose values could grow too much. `value` says how they grow by its
/// calls; returned is how they grow once all have worked on them.
pub(super) fn check_growth(
    statement: &SqlStatement,
    mut value: ValueGrowth,
) -> Result<ValueGrowth, Error> {
    if let Some(at) = find_recursive_growth(statement) {
        let reason = "a recursive query may lengthen a value of its own only by constants and by columns of tables, written as table.column";
        return Err(statement.error_at_token(Error::Refused(reason.to_owned()), at));
    }
    let tokens = statement.tokens().len();
    let texts = (0..tokens).filter(|it| is_kind(statement, *it, SqlTokenKind::StringLiteral));
    let longest = texts.map(|it| text_length(statement, it)).max();
    value.bytes = value.bytes.max(longest.unwrap_or(1));
    let longest = value.bytes.saturating_mul(value.factor);
    let growth = GrowthMeasure { statement, longest }.between(0, tokens);
    let row = growth.greatest.saturating_mul(growth.spread);
    let is_too_much =
        growth.greatest > MAX_GROWTH_FACTOR || row.saturating_mul(longest) > MAX_GROWTH_BYTES;
    if is_too_much && row > 1 {
        return Err(too_much_growth());
    }
    if longest >= LONG_TEXT_BYTES {
        value.bytes = value.bytes.saturating_mul(growth.greatest);
    }
    value.row_factor = row.saturating_mul(value.factor);
    value.lengthens = growth.greatest > 1 || value.factor > 1;
    Ok(value)
}

/// Whether a statement makes one value of many rows.
pub(super) fn collects_rows(statement: &SqlStatement) -> bool {
    (0..statement.tokens().len()).any(|at| calls_one_of(statement, at, COLLECTING))
}

/// Whether an expression, as the server writes it in a plan, makes one value of many rows.
pub(super) fn text_calls_collecting(expression: &str) -> bool {
    let expression = expression.to_ascii_lowercase();
    let mut names = COLLECTING.iter();
    names.any(|it| expression.contains(&format!("{it}(")))
}

/// Whether a statement may use more memory with other values of its parameters.
pub(super) fn memory_depends_on_values(statement: &SqlStatement) -> bool {
    collects_rows(statement)
        || (0..statement.tokens().len()).any(|at| statement.is_word(at, "RECURSIVE"))
}

fn is_kind(statement: &SqlStatement, at: usize, kind: SqlTokenKind) -> bool {
    statement.token_kind(at) == Some(kind)
}

fn is_concatenation(statement: &SqlStatement, at: usize) -> bool {
    is_kind(statement, at, SqlTokenKind::Operator)
        && statement
            .tokens()
            .get(at)
            .is_some_and(|it| statement.token_text(it) == "||")
}

/// Whether bytes become text here, or text bytes; the one is twice as long as the other.
fn is_bytea_cast(statement: &SqlStatement, at: usize) -> bool {
    is_kind(statement, at, SqlTokenKind::Cast) && statement.is_word(at + 1, "bytea")
}

fn separates(statement: &SqlStatement, at: usize) -> bool {
    is_kind(statement, at, SqlTokenKind::Comma)
        || SEPARATORS.iter().any(|it| statement.is_word(at, it))
}

fn calls_one_of(statement: &SqlStatement, at: usize, names: &[&str]) -> bool {
    is_kind(statement, at + 1, SqlTokenKind::OpenParenthesis)
        && statement
            .identifier_at(at)
            .is_some_and(|it| names.contains(&it.as_str()))
}

fn text_length(statement: &SqlStatement, at: usize) -> u64 {
    let token = statement.tokens().get(at);
    token.map_or(1, |it| (it.end - it.start).saturating_sub(2).max(1) as u64)
}

/// Where the parenthesis or bracket that opens at this place closes.
fn closing(statement: &SqlStatement, open: usize) -> usize {
    let mut depth = 0_usize;
    for at in open..statement.tokens().len() {
        match statement.token_kind(at) {
            Some(SqlTokenKind::OpenParenthesis | SqlTokenKind::OpenBracket) => depth += 1,
            Some(SqlTokenKind::CloseParenthesis | SqlTokenKind::CloseBracket) => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => (),
        }
    }
    statement.tokens().len()
}

/// How much longer than what they begin with the expressions of a query are.
struct Growth {
    /// The longest of them.
    greatest: u64,
    /// All of them together.
    total: u64,
    /// How many times longer than the longest all values of a row are that are there at the
    /// same time.
    spread: u64,
}

/// Reads how values grow in a statement whose longest text has `longest` bytes.
struct GrowthMeasure<'a> {
    statement: &'a SqlStatement,
    longest: u64,
}

impl GrowthMeasure<'_> {
    /// The product of all that can work on each other's values between two places.
    /// Expressions of one query stand side by side; the queries inside may each be the
    /// input of the next.
    fn between(&self, start: usize, end: usize) -> Growth {
        let statement = self.statement;
        let (mut greatest, mut total, mut queries, mut spread) = (1_u64, 0_u64, 1_u64, 1_u64);
        let (mut product, mut operands) = (1_u64, 1_u64);
        let mut at = start;
        while at < end {
            if separates(statement, at) {
                let length = product.saturating_mul(operands);
                greatest = greatest.max(length);
                total = total.saturating_add(length);
                (product, operands) = (1, 1);
            } else if is_concatenation(statement, at) {
                let is_constant = |it| is_kind(statement, it, SqlTokenKind::StringLiteral);
                // A constant beside it is counted with the longest text.
                let beside_constant =
                    is_constant(at + 1) || at.checked_sub(1).is_some_and(is_constant);
                operands += u64::from(!beside_constant);
            } else if is_opening(statement, at) {
                let close = closing(statement, at).min(end);
                let inside = self.between(at + 1, close);
                spread = spread.max(inside.spread);
                let first = ["SELECT", "WITH", "VALUES"];
                if first.iter().any(|it| statement.is_word(at + 1, it)) {
                    queries = queries.saturating_mul(inside.greatest);
                } else {
                    product = product.saturating_mul(self.call_factor(at, &inside));
                }
                if at > 0 && calls_one_of(statement, at - 1, SPLITTING) {
                    spread = spread.max(SPLIT_FACTOR);
                }
                at = close;
            } else if is_bytea_cast(statement, at) {
                product = product.saturating_mul(2);
            }
            at += 1;
        }
        let length = product.saturating_mul(operands);
        let greatest = greatest.max(length).saturating_mul(queries);
        let total = total.saturating_add(length).saturating_mul(queries);
        Growth {
            greatest,
            total,
            spread: spread.max(total.div_ceil(greatest)),
        }
    }

    /// How many times longer than its arguments the value of the call is whose parenthesis
    /// or bracket opens at this place.
    fn call_factor(&self, open: usize, inside: &Growth) -> u64 {
        let statement = self.statement;
        let Some(name) = open.checked_sub(1) else {
            return inside.greatest;
        };
        if is_kind(statement, open, SqlTokenKind::OpenBracket) {
            let is_list = statement.is_word(name, "ARRAY")
                || is_kind(statement, name, SqlTokenKind::OpenBracket)
                || is_kind(statement, name, SqlTokenKind::Comma);
            return if is_list { inside.total } else { 1 };
        }
        let call = FunctionCall { statement, open };
        if calls_one_of(statement, name, DOUBLING) {
            inside.greatest.saturating_mul(2)
        } else if calls_one_of(statement, name, JOINING) {
            inside.total
        } else if calls_one_of(statement, name, BUILDING) {
            let directives = call.format_directives();
            inside.total.max(directives).saturating_mul(2)
        } else if let Some((_, index)) = replacing(statement, name) {
            inside
                .greatest
                .saturating_mul(self.replacement_factor(&call, *index))
        } else {
            inside.greatest
        }
    }

    /// How many times longer a text gets by a text that is put in many of its places.
    fn replacement_factor(&self, call: &FunctionCall<'_>, index: usize) -> u64 {
        let arguments = call.arguments();
        let constant = |index: usize| match arguments.get(index).map(Vec::as_slice) {
            Some([only]) if is_kind(self.statement, *only, SqlTokenKind::StringLiteral) => {
                Some(text_length(self.statement, *only))
            }
            _ => None,
        };
        let name = call.open.saturating_sub(1);
        let is_plain = calls_one_of(self.statement, name, &["replace"]);
        let replaced = constant(1).filter(|_| is_plain).unwrap_or(1);
        match constant(index) {
            Some(length) => (length / replaced).max(1),
            // It is a value of a table, or one of the statement's own texts.
            None if arguments.len() > index && self.longest >= LONG_TEXT_BYTES => self.longest,
            None => 2,
        }
    }
}

fn is_opening(statement: &SqlStatement, at: usize) -> bool {
    is_kind(statement, at, SqlTokenKind::OpenParenthesis)
        || is_kind(statement, at, SqlTokenKind::OpenBracket)
}

/// The function that puts a text in many places of another, if it is called here.
fn replacing(statement: &SqlStatement, at: usize) -> Option<&'static (&'static str, usize)> {
    REPLACING
        .iter()
        .find(|(name, _)| calls_one_of(statement, at, &[name]))
}

/// Where a recursive query makes a value of its own longer by another of its own: that
/// doubles with every round.
fn find_recursive_growth(statement: &SqlStatement) -> Option<usize> {
    let mut tokens = 0..statement.tokens().len();
    if !tokens.clone().any(|it| statement.is_word(it, "RECURSIVE")) {
        return None;
    }
    let own = query_names(statement);
    tokens.find_map(|at| {
        let before = at.checked_sub(1)?;
        let is_body = statement.is_word(before, "AS") || statement.is_word(before, "MATERIALIZED");
        if !is_body || !is_kind(statement, at, SqlTokenKind::OpenParenthesis) {
            return None;
        }
        let end = closing(statement, at);
        let start = (at..end).find(|it| statement.is_word(*it, "UNION"))?;
        let tables = table_names(statement, start, end, &own);
        RecursiveTerm {
            statement,
            start,
            end,
            tables,
        }
        .find_growth()
    })
}

/// The part of a recursive query that runs again and again.
struct RecursiveTerm<'a> {
    statement: &'a SqlStatement,
    start: usize,
    end: usize,
    /// The names by which it calls tables.
    tables: Vec<String>,
}

impl RecursiveTerm<'_> {
    fn find_growth(&self) -> Option<usize> {
        let mut own_operands = 0;
        for at in self.start..self.end {
            if separates(self.statement, at) {
                own_operands = 0;
            }
            let grows = [DOUBLING, BUILDING, SPLITTING, COLLECTING];
            let calls = grows.iter().any(|it| calls_one_of(self.statement, at, it));
            let calls = calls || replacing(self.statement, at).is_some();
            if calls || is_bytea_cast(self.statement, at) || self.joins_own_values(at) {
                return Some(at);
            }
            if is_concatenation(self.statement, at) {
                let first = own_operands == 0 && self.is_own_value(&self.operand_before(at));
                own_operands += usize::from(first);
                own_operands += usize::from(self.is_own_value(&self.operand_after(at)));
                if own_operands > 1 {
                    return Some(at);
                }
            }
        }
        None
    }

    fn joins_own_values(&self, at: usize) -> bool {
        let call = FunctionCall {
            statement: self.statement,
            open: at + 1,
        };
        calls_one_of(self.statement, at, JOINING) && {
            let arguments = call.arguments();
            arguments.iter().filter(|it| self.is_own_value(it)).count() > 1
        }
    }

    fn operand_before(&self, at: usize) -> Vec<usize> {
        let is_limit = |it: &usize| {
            separates(self.statement, *it)
                || (is_kind(self.statement, *it, SqlTokenKind::OpenParenthesis)
                    && closing(self.statement, *it) > at)
        };
        let limit = (self.start..at).rev().find(is_limit);
        (limit.map_or(self.start, |it| it + 1)..at).collect()
    }

    fn operand_after(&self, at: usize) -> Vec<usize> {
        let mut last = at + 1;
        while last < self.end
            && !separates(self.statement, last)
            && !is_concatenation(self.statement, last)
            && !is_kind(self.statement, last, SqlTokenKind::CloseParenthesis)
        {
            if is_kind(self.statement, last, SqlTokenKind::OpenParenthesis) {
                last = closing(self.statement, last);
            }
            last += 1;
        }
        (at + 1..last.min(self.end)).collect()
    }

    /// Whether an operand may hold what the recursion made: it has a name that is no
    /// function, no type, and no column of a table.
    fn is_own_value(&self, operand: &[usize]) -> bool {
        operand.iter().any(|at| {
            let Some(name) = self.statement.identifier_at(*at) else {
                return false;
            };
            let before = at.checked_sub(1);
            let follows = |kind| before.is_some_and(|it| is_kind(self.statement, it, kind));
            let is_type = follows(SqlTokenKind::Cast)
                || before.is_some_and(|it| self.statement.is_word(it, "AS"));
            let is_column = follows(SqlTokenKind::Dot);
            let is_call = is_kind(self.statement, at + 1, SqlTokenKind::OpenParenthesis);
            let is_table =
                is_kind(self.statement, at + 1, SqlTokenKind::Dot) && self.tables.contains(&name);
            let is_keyword = KEYWORDS.contains(&name.as_str());
            !(is_type || is_column || is_call || is_table || is_keyword)
        })
    }
}

/// The names by which a recursive term calls tables: `employees`, and `e` of
/// `employees e`. None if it has queries inside, which could give any name to anything.
fn table_names(statement: &SqlStatement, start: usize, end: usize, own: &[String]) -> Vec<String> {
    let is_word_before = |at: usize, words: &[&str]| {
        let before = at.checked_sub(1);
        before.is_some_and(|it| words.iter().any(|word| statement.is_word(it, word)))
    };
    let mut tables = Vec::new();
    for at in start + 1..end {
        let begins = statement.is_word(at, "SELECT") && !is_word_before(at, &["UNION", "ALL"]);
        if begins
            || ["LATERAL", "VALUES"]
                .iter()
                .any(|it| statement.is_word(at, it))
        {
            return Vec::new();
        }
        let is_listed = is_word_before(at, &["FROM", "JOIN"])
            || is_kind(statement, at - 1, SqlTokenKind::Comma);
        let Some(name) = statement.identifier_at(at).filter(|_| is_listed) else {
            continue;
        };
        let (mut last, mut table) = (at, name);
        while is_kind(statement, last + 1, SqlTokenKind::Dot) {
            last += 2;
            table = statement.identifier_at(last).unwrap_or_default();
        }
        if own.contains(&table) {
            continue;
        }
        let alias = last + 1 + usize::from(statement.is_word(last + 1, "AS"));
        tables.push(table);
        if !separates(statement, alias) {
            tables.extend(statement.identifier_at(alias));
        }
    }
    tables.retain(|it| !own.contains(it));
    tables
}

/// The names of the queries that a statement defines, and the names that it gives to them
/// where it reads them.
fn query_names(statement: &SqlStatement) -> Vec<String> {
    let defines = |at: &usize| {
        let columns = is_kind(statement, at + 1, SqlTokenKind::OpenParenthesis);
        let last = if columns {
            closing(statement, at + 1)
        } else {
            *at
        };
        let body = is_kind(statement, last + 2, SqlTokenKind::OpenParenthesis)
            || ["MATERIALIZED", "NOT"]
                .iter()
                .any(|it| statement.is_word(last + 2, it));
        body && statement.is_word(last + 1, "AS")
    };
    let tokens = 0..statement.tokens().len();
    let defined = tokens.clone().filter(defines);
    let mut names: Vec<String> = defined
        .filter_map(|it| statement.identifier_at(it))
        .collect();
    let queries = names.clone();
    for at in tokens {
        if statement
            .identifier_at(at)
            .is_some_and(|it| queries.contains(&it))
        {
            let alias = at + 1 + usize::from(statement.is_word(at + 1, "AS"));
            names.extend(statement.identifier_at(alias));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{super::amplifiers::check_amplifiers, *};
    use crate::lexer::SqlDialect;

    fn check(sql: &str) -> Result<(), Error> {
        check_amplifiers(&SqlStatement::parse(sql, SqlDialect::Postgres).unwrap()).map(drop)
    }

    #[test]
    fn usual_text_expressions_are_allowed() {
        let allowed = [
            "SELECT first || ' ' || last AS name, city || ', ' || country || zip FROM t",
            "SELECT a || b || c || d || e || f || g || h FROM t",
            "SELECT replace(replace(replace(phone, '-', ''), ' ', ''), '+82', '0') FROM t",
            "SELECT regexp_replace(lower(name), '[^a-z]+', '-', 'g') FROM t",
            "SELECT string_agg(name || ' (' || dept || ')', ', ' ORDER BY name) FROM employees",
            "SELECT json_agg(json_build_object('id', id, 'tags', to_json(tags))) FROM t",
            "SELECT concat_ws(' ', a, b, c), format('%s-%s', a, b) FROM t",
            "WITH a AS (SELECT x || y AS z FROM t), b AS (SELECT z || '!' AS w FROM a)
             SELECT w || z FROM a, b",
            "WITH RECURSIVE tree AS (SELECT id, name::text AS path FROM dept WHERE up IS NULL
             UNION ALL SELECT d.id, tree.path || ' / ' || d.name
             FROM dept d JOIN tree ON d.up = tree.id) SELECT * FROM tree",
            "WITH RECURSIVE t(id, path) AS (SELECT id, ARRAY[id] FROM dept UNION ALL
             SELECT d.id, t.path || d.id FROM dept AS d, t WHERE d.up = t.id) SELECT * FROM t",
            "WITH RECURSIVE t(id, path) AS (SELECT id, CAST(name AS text) FROM dept UNION ALL
             SELECT d.id, CAST(t.path || '>' || d.name AS text) AS path
             FROM t JOIN dept d ON d.up = t.id) SELECT * FROM t",
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9)
             SELECT i || 'x' || i FROM n",
            "WITH RECURSIVE t(p) AS (SELECT ARRAY[1] UNION ALL
             SELECT array_append(t.p, d.id) FROM t JOIN d ON true) SELECT p FROM t",
        ];
        for sql in allowed {
            check(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }

    #[test]
    fn growth_that_multiplies_is_refused() {
        let nested = (0..30).fold("'x'::text AS s".to_owned(), |inner, _| {
            format!("s||s AS s FROM (SELECT {inner}) q")
        });
        let chained = (1..30).map(|it| format!(", c{it} AS (SELECT s||s AS s FROM c{})", it - 1));
        let chained: String = chained.collect();
        let long = "y".repeat(9000);
        let refused = [
            format!("SELECT {nested}"),
            format!("WITH c0 AS (SELECT 'x'::text AS s){chained} SELECT length(s) FROM c29"),
            format!(
                "SELECT {}repeat('x', 1000000){}",
                "encode(".repeat(8),
                "::bytea, 'hex')".repeat(8)
            ),
            format!("SELECT regexp_replace(repeat('x', 4000), 'x', '{long}', 'g')"),
            format!(
                "SELECT {}repeat('x', 2000000){}",
                "quote_literal(".repeat(8),
                ")".repeat(8)
            ),
        ];
        for sql in refused {
            assert!(check(&sql).is_err(), "{sql}");
        }
        let doubling = [
            "s||s FROM t",
            "t.s||'a'||t.s FROM t",
            "s||(s) FROM t",
            "(s)||lower(s) FROM t",
            "s||u.s FROM t u",
            "concat(s, s) FROM t",
            "array_cat(s, s) FROM t",
            "replace(s, 'x', 'xx') FROM t",
            "quote_literal(s) FROM t",
            "s::bytea::text FROM t",
            "u.s||v.s FROM t u, LATERAL (SELECT u.s) v",
            "q.a||q.b FROM (SELECT s a, s b FROM t) q",
            "(SELECT string_agg(s, '') FROM h) FROM t",
        ];
        for term in doubling {
            let sql = format!(
                "WITH RECURSIVE t(s) AS (SELECT 'x'::text UNION ALL SELECT {term}) SELECT 1 FROM t"
            );
            assert!(check(&sql).is_err(), "{sql}");
        }
        let fibonacci = "WITH RECURSIVE t(a, b) AS (SELECT 'x'::text, 'y'::text
            UNION ALL SELECT b, a||b FROM t) SELECT 1 FROM t";
        assert!(check(fibonacci).is_err());
    }
}
