//! The full-text table of one collection (SQLite FTS5).

use std::collections::HashSet;

use rusqlite::{Connection, params};

use super::super::{Error, glossary::SearchTerms};

/// Maximum number of query words.
const MAX_QUERY_WORDS: usize = 100;
/// Approximate number of documents that are scored: each costs a microsecond or more.
const MAX_SCORED_DOCUMENTS: u32 = 4000;

pub(super) struct FullTextTable<'a> {
    connection: &'a Connection,
    table: String,
}

impl<'a> FullTextTable<'a> {
    pub(super) fn new(connection: &'a Connection, collection: i64) -> Self {
        Self {
            connection,
            table: format!("words_{collection}"),
        }
    }

    pub(super) fn create(&self) -> Result<(), Error> {
        let sql = format!(
            "CREATE VIRTUAL TABLE {} USING fts5
             (tokens, content='', contentless_delete=1, tokenize='unicode61')",
            self.table
        );
        Ok(self.connection.execute_batch(&sql)?)
    }

    pub(super) fn upsert(&self, number: i64, words: &SearchTerms) -> Result<(), Error> {
        let table = &self.table;
        let sql = format!("INSERT OR REPLACE INTO {table} (rowid, tokens) VALUES (?1, ?2)");
        let tokens: Vec<String> = tokens(words).collect();
        let mut statement = self.connection.prepare_cached(&sql)?;
        statement.execute(params![number, tokens.join(" ")])?;
        Ok(())
    }

    pub(super) fn delete(&self, number: i64) -> Result<(), Error> {
        let sql = format!("DELETE FROM {} WHERE rowid = ?1", self.table);
        self.connection.prepare_cached(&sql)?.execute([number])?;
        Ok(())
    }

    pub(super) fn drop_table(&self) -> Result<(), Error> {
        let sql = format!("DROP TABLE {}", self.table);
        Ok(self.connection.execute_batch(&sql)?)
    }

    /// Returns the documents that contain words of the query, best first. In a collection
    /// of many documents (`size`), only some thousands with the rarest words are scored.
    pub(super) fn matching(
        &self,
        words: &SearchTerms,
        size: usize,
        count: u32,
    ) -> Result<Vec<i64>, Error> {
        let mut seen = HashSet::new();
        let distinct = tokens(words).filter(|it| seen.insert(it.clone()));
        let mut phrases: Vec<String> = distinct
            .take(MAX_QUERY_WORDS)
            .map(|it| format!("\"{it}\""))
            .collect();
        if size > MAX_SCORED_DOCUMENTS as usize {
            phrases = self.rarest(phrases)?;
        }
        if phrases.is_empty() {
            return Ok(Vec::new());
        }
        let table = &self.table;
        let sql = format!(
            "SELECT rowid FROM
             (SELECT rowid, rank FROM {table} WHERE {table} MATCH ?1 LIMIT ?2)
             ORDER BY rank LIMIT ?3"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let values = params![phrases.join(" OR "), 2 * MAX_SCORED_DOCUMENTS, count];
        let rows = statement.query_map(values, |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns the rarest words, as many as match [`MAX_SCORED_DOCUMENTS`] documents
    /// together.
    fn rarest(&self, words: Vec<String>) -> Result<Vec<String>, Error> {
        let table = &self.table;
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ?1 LIMIT {MAX_SCORED_DOCUMENTS})"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut counted = Vec::with_capacity(words.len());
        for word in words {
            let count: u32 = statement.query_row([&word], |row| row.get(0))?;
            counted.push((count, word));
        }
        Ok(rarest_within_limit(counted))
    }
}

/// Returns the rarest words, at least one, as long as they match few documents together.
fn rarest_within_limit(mut counted: Vec<(u32, String)>) -> Vec<String> {
    counted.retain(|(count, _)| *count > 0);
    counted.sort_by_key(|(count, _)| *count);
    let mut sum = 0;
    let selected = counted.into_iter().enumerate().take_while(|(at, it)| {
        sum += it.0;
        *at == 0 || sum <= MAX_SCORED_DOCUMENTS
    });
    selected.map(|(_, (_, word))| word).collect()
}

/// Returns the tokens of a text for the full-text table; they contain no `"`.
fn tokens(words: &SearchTerms) -> impl Iterator<Item = String> {
    let concepts = words.concepts.iter().map(|it| format!("zz{it}"));
    words.words.iter().cloned().chain(concepts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counts: &[u32], expected: &[&str]) {
        let counted = counts.iter().map(|it| (*it, it.to_string()));
        assert_eq!(
            rarest_within_limit(counted.collect()),
            expected,
            "{counts:?}"
        );
    }

    #[test]
    fn rarest_words_are_selected_within_the_limit() {
        check(&[4000, 500, 0, 1000, 3000], &["500", "1000"]);
        check(&[4000], &["4000"]);
        check(&[4000, 3999], &["3999"]);
        check(&[0, 0], &[]);
        check(&[], &[]);
    }
}
