//! Searches the calls of the audit log, newest first.
//!
//! A search reads windows of rows, so that no statement holds the only connection to SQLite
//! for long. A window grows while it is read fast: a search that an index answers needs few
//! statements, one that must look at every row needs many short ones.

use std::time::Duration;

use tokio::time::Instant;

use super::{AuditRow, CellValue, Error, PortableStatement, ResultRow, Store};

/// Rows in the first window of a search.
const FIRST_WINDOW: i64 = 4_000;
/// Rows in the largest window.
const MAX_WINDOW: i64 = 200_000;
/// A window that was read faster than this is followed by a larger one.
const WINDOW_DURATION: Duration = Duration::from_millis(15);
/// How long one search reads; what is left is read with the cursor.
const SEARCH_DURATION: Duration = Duration::from_millis(120);

/// Selects calls; an absent field matches everything.
#[derive(Clone, Debug, Default)]
pub struct CallFilter {
    /// Calls that ended at this time or later, in milliseconds since the Unix epoch.
    pub since: Option<i64>,
    /// Calls that ended before this time.
    pub until: Option<i64>,
    /// Calls of this tool.
    pub tool: Option<String>,
    /// Calls of this server's tools.
    pub server: Option<String>,
    /// Calls of this principal.
    pub caller: Option<String>,
    /// Calls with one of these outcomes; none means any.
    pub outcomes: Vec<String>,
    /// Whether only failed calls are wanted.
    pub failed: bool,
    /// Calls whose tool, client, arguments or error contain this text.
    pub text: Option<String>,
    /// Calls that took at least this many microseconds.
    pub min_micros: Option<i64>,
    /// Continues the search before this record.
    pub before: Option<i64>,
    /// Maximum number of calls.
    pub limit: usize,
}

/// A page of a search.
#[derive(Debug, Default)]
pub struct CallPage {
    /// The calls, newest first.
    pub calls: Vec<AuditRow>,
    /// Continues the search; absent when everything was searched.
    pub next_before: Option<i64>,
    /// If the search stopped before the page was full: the time that it has reached.
    pub searched_to: Option<i64>,
}

/// Which index a search uses.
#[derive(Clone, Copy)]
enum SearchKey {
    Tool,
    Server,
    Caller,
    Failed,
    Any,
}

macro_rules! search_sql {
    ($key:literal) => {
        concat!(
            "SELECT id, at, principal, origin, client, action, target, arguments, outcome, took,
               request, hub, call_number, server, error, failed, argument_bytes, result_bytes,
               server_took
             FROM audit
             WHERE id >= $1 AND id < $2 AND ",
            $key,
            " AND call_number IS NOT NULL AND at >= $4 AND at < $5
               AND ($6 = '' OR target = $6) AND ($7 = '' OR server = $7)
               AND ($8 = '' OR principal = $8)
               AND ($9 = '' OR $9 LIKE '%,' || outcome || ',%')
               AND (failed = 1 OR $10 = '') AND took >= $11
               AND ($12 = '' OR lower(target) LIKE lower($12) ESCAPE '\\'
                 OR lower(arguments) LIKE lower($12) ESCAPE '\\'
                 OR lower(error) LIKE lower($12) ESCAPE '\\'
                 OR lower(client) LIKE lower($12) ESCAPE '\\')
             ORDER BY id DESC LIMIT $13"
        )
    };
}

const SEARCH_TOOL: PortableStatement = PortableStatement {
    attempted: "search the calls of the tool",
    sql: search_sql!("target = $3"),
};
const SEARCH_SERVER: PortableStatement = PortableStatement {
    attempted: "search the calls of the server",
    sql: search_sql!("server = $3"),
};
const SEARCH_CALLER: PortableStatement = PortableStatement {
    attempted: "search the calls of the caller",
    sql: search_sql!("principal = $3"),
};
const SEARCH_FAILED: PortableStatement = PortableStatement {
    attempted: "search the failed calls",
    sql: search_sql!("failed = 1 AND $3 = ''"),
};
const SEARCH_ANY: PortableStatement = PortableStatement {
    attempted: "search the calls",
    sql: search_sql!("$3 = ''"),
};
const GET: PortableStatement = PortableStatement {
    attempted: "find the call",
    sql: "SELECT id, at, principal, origin, client, action, target, arguments, outcome, took,
            request, hub, call_number, server, error, failed, argument_bytes, result_bytes,
            server_took
          FROM audit
          WHERE call_number IS NOT NULL AND call_number = $1 AND ($2 = '' OR hub = $2)
          ORDER BY id DESC LIMIT 1",
};
const LIST_OF_OTHER_HUBS: PortableStatement = PortableStatement {
    attempted: "read the calls of the other hubs",
    sql: "SELECT id, at, principal, origin, client, action, target, arguments, outcome, took,
            request, hub, call_number, server, error, failed, argument_bytes, result_bytes,
            server_took
          FROM audit
          WHERE id > $1 AND hub <> $2 AND call_number IS NOT NULL ORDER BY id LIMIT $3",
};
const ID_RANGE: PortableStatement = PortableStatement {
    attempted: "find the first and the last record",
    sql: "SELECT coalesce((SELECT id FROM audit ORDER BY id LIMIT 1), 0),
            coalesce((SELECT id FROM audit ORDER BY id DESC LIMIT 1), -1)",
};
const TIME_AT: PortableStatement = PortableStatement {
    attempted: "find the records of a time",
    sql: "SELECT at FROM audit WHERE id >= $1 ORDER BY id LIMIT 1",
};
/// The statements of this file.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    SEARCH_TOOL,
    SEARCH_SERVER,
    SEARCH_CALLER,
    SEARCH_FAILED,
    SEARCH_ANY,
    GET,
    LIST_OF_OTHER_HUBS,
    ID_RANGE,
    TIME_AT,
];

impl Store {
    /// Finds the newest matching calls. Reads for a bounded time; the page says how to
    /// continue.
    pub async fn search_calls(&self, filter: &CallFilter) -> Result<CallPage, Error> {
        let (first, end) = self.record_range(filter).await?;
        let (started, mut end, mut window) = (Instant::now(), end, FIRST_WINDOW);
        let mut page = CallPage::default();
        while end > first {
            let start = (end - window).max(first);
            let wanted = filter.limit - page.calls.len();
            let (statement, values) = filter.statement(start, end, wanted);
            let window_started = Instant::now();
            let found: Vec<AuditRow> = self.query_as(statement, values).await?;
            let is_full = found.len() == wanted;
            page.calls.extend(found);
            if is_full {
                page.next_before = page.calls.last().map(|it| it.id);
                return Ok(page);
            }
            end = start;
            if end > first && started.elapsed() > SEARCH_DURATION {
                page.next_before = Some(end);
                page.searched_to = self.time_at(end).await?;
                return Ok(page);
            }
            if window_started.elapsed() < WINDOW_DURATION {
                window = (window * 2).min(MAX_WINDOW);
            } else {
                window = (window / 2).max(FIRST_WINDOW);
            }
        }
        Ok(page)
    }

    /// Finds a call by its number in the journal of its hub; an empty name is any hub.
    pub async fn find_call(&self, number: i64, hub: &str) -> Result<Option<AuditRow>, Error> {
        let values = vec![number.into(), hub.into()];
        let rows: Vec<AuditRow> = self.query_as(GET, values).await?;
        Ok(rows.into_iter().next())
    }

    /// Lists calls of the hubs other than `hub` after the record `id`, the oldest first.
    pub async fn calls_of_other_hubs(
        &self,
        hub: &str,
        id: i64,
        limit: i64,
    ) -> Result<Vec<AuditRow>, Error> {
        let values = vec![id.into(), hub.into(), limit.into()];
        self.query_as(LIST_OF_OTHER_HUBS, values).await
    }

    /// The id of the newest record; -1 if there is none.
    pub async fn last_record(&self) -> Result<i64, Error> {
        let range: Vec<IdRange> = self.query_as(ID_RANGE, Vec::new()).await?;
        Ok(range.first().map_or(-1, |it| it.last))
    }

    /// The ids that a search has to read: the first, and the one after the last.
    async fn record_range(&self, filter: &CallFilter) -> Result<(i64, i64), Error> {
        let range: Vec<IdRange> = self.query_as(ID_RANGE, Vec::new()).await?;
        let Some(IdRange { first, last }) = range.into_iter().next() else {
            return Ok((0, 0));
        };
        let end = filter.before.map_or(last + 1, |it| it.min(last + 1));
        let first = match filter.since {
            Some(since) => self.first_at_or_after(since, first, end).await?,
            None => first,
        };
        let end = match filter.until {
            Some(until) => self.first_at_or_after(until, first, end).await?,
            None => end,
        };
        Ok((first, end))
    }

    /// The first id of `first..end` whose record is not older than `time`, by bisection:
    /// ids ascend with time, so no index of times is needed. Several hubs may write to one
    /// store, and their records are in order to within a few seconds.
    async fn first_at_or_after(&self, time: i64, first: i64, end: i64) -> Result<i64, Error> {
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.time_at(middle).await? {
                Some(at) if at < time => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    async fn time_at(&self, id: i64) -> Result<Option<i64>, Error> {
        let rows = self.query(TIME_AT, vec![id.into()]).await?;
        let cell = rows.into_iter().next().map(|mut row| row.next_cell());
        cell.transpose().map_err(|cause| TIME_AT.into_error(cause))
    }
}

impl CallFilter {
    /// The statement that reads the records `start..end`.
    fn statement(&self, start: i64, end: i64, limit: usize) -> (PortableStatement, Vec<CellValue>) {
        let key = self.search_key();
        let text = |it: &Option<String>| CellValue::from(it.as_deref().unwrap_or_default());
        let key_value = match key {
            SearchKey::Tool => text(&self.tool),
            SearchKey::Server => text(&self.server),
            SearchKey::Caller => text(&self.caller),
            SearchKey::Failed | SearchKey::Any => CellValue::from(""),
        };
        let outcomes = match self.outcomes.join(",") {
            none if none.is_empty() => none,
            some => format!(",{some},"),
        };
        let values = vec![
            start.into(),
            end.into(),
            key_value,
            self.since.unwrap_or(i64::MIN).into(),
            self.until.unwrap_or(i64::MAX).into(),
            text(&self.tool),
            text(&self.server),
            text(&self.caller),
            outcomes.into(),
            if self.failed { "1" } else { "" }.into(),
            self.min_micros.unwrap_or(i64::MIN).into(),
            self.text
                .as_deref()
                .map_or_else(String::new, contains_pattern)
                .into(),
            i64::try_from(limit).unwrap_or(i64::MAX).into(),
        ];
        (key.statement(), values)
    }

    fn search_key(&self) -> SearchKey {
        if self.tool.is_some() {
            SearchKey::Tool
        } else if self.failed {
            SearchKey::Failed
        } else if self.caller.is_some() {
            SearchKey::Caller
        } else if self.server.is_some() {
            SearchKey::Server
        } else {
            SearchKey::Any
        }
    }
}

impl SearchKey {
    fn statement(self) -> PortableStatement {
        match self {
            Self::Tool => SEARCH_TOOL,
            Self::Server => SEARCH_SERVER,
            Self::Caller => SEARCH_CALLER,
            Self::Failed => SEARCH_FAILED,
            Self::Any => SEARCH_ANY,
        }
    }
}

/// The `LIKE` pattern of texts that contain `text`.
fn contains_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for letter in text.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('%');
    pattern
}

struct IdRange {
    first: i64,
    last: i64,
}

impl TryFrom<ResultRow> for IdRange {
    type Error = super::DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, super::DatabaseError> {
        Ok(Self {
            first: row.next_cell()?,
            last: row.next_cell()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AuditedCall;

    /// Prints how long searches of a million calls take; run it with `--ignored --nocapture`.
    #[tokio::test]
    #[ignore = "writes a file of 300 MB and takes a minute"]
    async fn measure_searches_of_a_million_calls() {
        let directory = std::env::temp_dir().join(format!("maru-calls-{}", std::process::id()));
        let store = Store::open(&directory).await.unwrap();
        let row = |number: i64| {
            let failed = number % 37 == 0;
            AuditRow {
                at: 1_700_000_000_000 + number * 2000,
                principal: format!("user{}", number % 30),
                client: Some("claude-desktop 1.2".to_owned()),
                action: "tools/call".to_owned(),
                target: format!("server{}__tool_{}", number % 20, number % 200),
                arguments: format!(
                    "{{\"query\":\"SELECT name FROM employees WHERE id = {number}\",\"path\":\"/home/u/{number}.md\"}}"
                ),
                outcome: if failed { "failed" } else { "ok" }.to_owned(),
                took_micros: number % 500_000,
                request: format!("{number:032x}"),
                call: Some(AuditedCall {
                    number,
                    server: format!("server{}", number % 20),
                    error: failed.then(|| format!("connection refused to db host {number}")),
                    failed,
                    ..AuditedCall::default()
                }),
                ..AuditRow::default()
            }
        };
        for start in (0..1_000_000).step_by(50_000) {
            let rows = (start..start + 50_000).map(row);
            store.insert_audit_rows(rows).await.unwrap();
        }
        let some = |text: &str| Some(text.to_owned());
        let base = CallFilter {
            limit: 100,
            ..CallFilter::default()
        };
        let filters = [
            ("newest", base.clone()),
            (
                "a tool",
                CallFilter {
                    tool: some("server7__tool_7"),
                    ..base.clone()
                },
            ),
            (
                "an unknown tool",
                CallFilter {
                    tool: some("none"),
                    ..base.clone()
                },
            ),
            (
                "a caller, failed",
                CallFilter {
                    caller: some("user3"),
                    failed: true,
                    ..base.clone()
                },
            ),
            (
                "a day, failed",
                CallFilter {
                    since: Some(1_700_500_000_000),
                    until: Some(1_700_586_400_000),
                    failed: true,
                    ..base.clone()
                },
            ),
            (
                "text of failures",
                CallFilter {
                    text: some("host 37 "),
                    failed: true,
                    ..base.clone()
                },
            ),
            (
                "text that is nowhere",
                CallFilter {
                    text: some("zzqq"),
                    ..base.clone()
                },
            ),
        ];
        for (name, mut filter) in filters {
            let (mut longest, mut total, mut requests) = (Duration::ZERO, Duration::ZERO, 0);
            loop {
                let started = Instant::now();
                let page = store.search_calls(&filter).await.unwrap();
                longest = longest.max(started.elapsed());
                total += started.elapsed();
                requests += 1;
                filter.before = page.next_before;
                if page.calls.len() == filter.limit || filter.before.is_none() {
                    break;
                }
            }
            println!("{name}: longest request {longest:?}, {total:?} in {requests} requests");
        }
        drop(store);
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", directory.display()));
        }
    }

    #[test]
    fn wildcards_in_a_text_are_letters() {
        assert_eq!(contains_pattern("50%_a\\"), "%50\\%\\_a\\\\%");
    }
}
