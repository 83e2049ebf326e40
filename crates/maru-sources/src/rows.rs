//! What a query gives back.

use std::collections::HashSet;

use maru_protocol::{object_members, to_json_string};

use super::QueryLimits;

/// The rows of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryRows {
    /// The names of the columns; each is there once.
    pub columns: Vec<String>,
    /// A JSON array with one object for each row; every value is exact.
    pub json: String,
    /// How many rows there are.
    pub count: usize,
    /// Whether the database had more than the limits let through.
    pub truncated: bool,
    /// Whether the next row alone was larger than an answer may be.
    pub has_oversized_row: bool,
}

impl QueryRows {
    /// A note for the reader of a truncated result.
    pub fn truncation_note(&self) -> Option<&'static str> {
        if self.has_oversized_row {
            Some(
                "a row is larger than an answer may be; select fewer columns, or parts of long ones",
            )
        } else if self.truncated {
            Some(
                "more rows were found than may be returned; ask for fewer, or count and group them",
            )
        } else {
            None
        }
    }

    /// Whether the first row has the columns, all of them, in their order.
    pub(super) fn first_row_matches_columns(&self) -> bool {
        let row = object_members(self.json.trim_start_matches('['));
        let names = row.into_iter().flatten().map(|(name, _)| name);
        self.count == 0 || names.eq(self.columns.iter().map(String::as_str))
    }
}

/// Rows as they come, kept within the limits.
#[derive(Debug)]
pub(super) struct RowCollector {
    rows: QueryRows,
    limits: QueryLimits,
}

impl RowCollector {
    pub(super) fn new(columns: Vec<String>, limits: QueryLimits) -> Self {
        let json = String::from("[");
        let rows = QueryRows {
            columns,
            json,
            ..QueryRows::default()
        };
        Self { rows, limits }
    }

    /// Adds a row, a JSON object. `false` means that it did not fit, and that no
    /// more are wanted.
    pub(super) fn try_push(&mut self, row: &str) -> bool {
        let rows = &mut self.rows;
        let length = rows.json.len() + row.len() + 2;
        if self.limits.rows <= rows.count || self.limits.max_bytes < length {
            rows.truncated = true;
            rows.has_oversized_row = self.limits.max_bytes < row.len() + 3;
            return false;
        }
        if 0 < rows.count {
            rows.json.push(',');
        }
        rows.json.push_str(row);
        rows.count += 1;
        true
    }

    /// Ends the rows at one that is larger than an answer may be.
    pub(super) fn end_at_oversized_row(&mut self) {
        self.rows.truncated = true;
        self.rows.has_oversized_row = true;
    }

    pub(super) fn finish(mut self) -> QueryRows {
        self.rows.json.push(']');
        self.rows
    }
}

/// One line of a plan as a row.
pub(super) fn plan_row(line: &str) -> String {
    format!("{{\"plan\":{}}}", to_json_string(line))
}

/// The names with a number behind each that was there before: `id`, `id_2`.
/// None is longer than `longest` bytes that was not before.
pub(super) fn unique_column_names<'a>(
    names: impl Iterator<Item = &'a str>,
    longest: usize,
) -> Vec<String> {
    let names: Vec<&str> = names.collect();
    let given: HashSet<&str> = names.iter().copied().collect();
    let mut taken = HashSet::new();
    let mut distinct = Vec::with_capacity(names.len());
    for name in names {
        let mut unique = name.to_owned();
        let mut number = 1;
        while taken.contains(&unique) || (number > 1 && given.contains(unique.as_str())) {
            number += 1;
            let suffix = format!("_{number}");
            let room = longest.saturating_sub(suffix.len());
            unique = format!("{}{suffix}", &name[..name.floor_char_boundary(room)]);
        }
        taken.insert(unique.clone());
        distinct.push(unique);
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_get_numbers() {
        let names = |given: &[&str]| unique_column_names(given.iter().copied(), 63);
        assert_eq!(names(&["id", "id", "a", "id"]), ["id", "id_2", "a", "id_3"]);
        assert_eq!(names(&["id", "id", "id_2"]), ["id", "id_3", "id_2"]);
        let long = "가".repeat(21);
        let both = names(&[&long, &long]);
        assert!(both.iter().all(|it| it.len() <= 63) && both[0] != both[1]);
    }

    #[test]
    fn rows_beyond_the_limits_are_cut() {
        let limits = QueryLimits {
            rows: 2,
            max_bytes: 20,
            ..QueryLimits::default()
        };
        let mut rows = RowCollector::new(Vec::new(), limits);
        assert!(rows.try_push("{\"a\":1}") && rows.try_push("{\"a\":2}") && !rows.try_push("{}"));
        let rows = rows.finish();
        assert_eq!(
            (rows.json.as_str(), rows.count),
            ("[{\"a\":1},{\"a\":2}]", 2)
        );
        assert!(rows.truncated);
        let mut rows = RowCollector::new(Vec::new(), limits);
        assert!(!rows.try_push(&"x".repeat(20)));
        let rows = rows.finish();
        assert_eq!(rows.json, "[]");
        assert!(
            rows.truncation_note()
                .unwrap()
                .starts_with("a row is larger")
        );
    }
}
