//! One guarded connection.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_protocol::to_json_string;
use rusqlite::{
    Connection, OpenFlags,
    config::DbConfig,
    hooks::{AuthContext, Authorization},
    limits::Limit,
};

use super::{
    Error, ErrorCode, QueryLimits, QueryRows, QueryValue, RowCollector, SourceSettings,
    SqlStatement,
    access_rules::{SqliteAccessRules, StatementVerdict},
    bounded_functions,
    value::{row_to_json, to_sql_output},
};
use crate::rows::{plan_row, unique_column_names};

/// How long another program may hold the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// Virtual-machine instructions between two looks at clock and memory. One may take
/// milliseconds, such as `hex` of a long value.
const PROGRESS_CHECK_INSTRUCTIONS: i32 = 100;
/// No query can have this text, because it does not begin like a statement.
const SELECT_SCHEMA_VERSION: &str = "PRAGMA schema_version";
/// Statements that a connection keeps prepared.
const MAX_PREPARED_STATEMENTS: usize = 64;
/// The longest text or blob that SQLite may make or read.
const MAX_SQLITE_VALUE_LENGTH: i32 = 4 * 1024 * 1024;
/// How long the values that one row of a statement makes may be together. SQLite looks
/// whether it is to end only between rows.
const MAX_ROW_LENGTH: usize = 64 * 1024 * 1024;
/// The least that a value may have, however many a row has.
const MIN_VALUE_LENGTH: usize = 64 * 1024;
pub(super) const MAX_VALUE_BYTES: usize = MAX_SQLITE_VALUE_LENGTH as usize;
const SQLITE_LIMITS: &[(Limit, i32)] = &[
    (Limit::SQLITE_LIMIT_LENGTH, MAX_SQLITE_VALUE_LENGTH),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 128 * 1024),
    (Limit::SQLITE_LIMIT_COLUMN, 1000),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 1200),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 500),
    (Limit::SQLITE_LIMIT_VDBE_OP, 1_000_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 100),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 1000),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

#[derive(Debug)]
pub(super) struct GuardedConnection {
    pub(super) connection: Connection,
    pub(super) authorizer: Arc<StatementAuthorizer>,
    settings: SourceSettings,
    /// The schema that the rules were made for.
    schema_version: i64,
}

/// Decides what the statements of a connection may use.
#[derive(Debug, Default)]
pub(super) struct StatementAuthorizer(Mutex<AuthorizerState>);

#[derive(Debug, Default)]
struct AuthorizerState {
    rules: SqliteAccessRules,
    /// Whether one of maru's own statements is being prepared.
    allows_all: bool,
    /// Whether a view may not open what may not be read itself.
    names_relations: bool,
    /// Whether nothing may be prepared.
    refuses_all: bool,
    refusal: Option<String>,
}

impl StatementAuthorizer {
    fn with_state<T>(&self, with: impl FnOnce(&mut AuthorizerState) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets maru's own statements through while `work` runs.
    pub(super) fn allow_all_during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.with_state(|it| it.allows_all = true);
        let done = work();
        self.with_state(|it| it.allows_all = false);
        done
    }

    pub(super) fn with_rules<T>(&self, with: impl FnOnce(&SqliteAccessRules) -> T) -> T {
        self.with_state(|it| with(&it.rules))
    }

    fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        self.with_state(|state| {
            if state.refuses_all {
                return Authorization::Deny;
            }
            if state.allows_all {
                state.rules.record_view_read(context);
                return Authorization::Allow;
            }
            match state.rules.authorize(context, state.names_relations) {
                StatementVerdict::Allow => Authorization::Allow,
                StatementVerdict::Refuse(what) => {
                    state.refusal.get_or_insert(what);
                    Authorization::Deny
                }
            }
        })
    }
}

impl GuardedConnection {
    pub(super) fn open(path: &Path, settings: &SourceSettings) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(MAX_PREPARED_STATEMENTS);
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.pragma_update(None, "query_only", true)?;
        for (limit, value) in SQLITE_LIMITS {
            connection.set_limit(*limit, *value)?;
        }
        bounded_functions::register_bounded_functions(&connection)?;
        // Makes the table that they are, which the authorizer would refuse.
        connection.query_row(
            "SELECT count(*) FROM json_each('[]'), json_tree('[]')",
            [],
            |_| Ok(()),
        )?;
        let authorizer = Arc::new(StatementAuthorizer::default());
        let shared = Arc::clone(&authorizer);
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            shared.authorize(&context)
        }))?;
        let settings = settings.clone();
        Ok(Self {
            connection,
            authorizer,
            settings,
            schema_version: -1,
        })
    }

    /// Makes the rules anew if the schema has changed, and holds the names of
    /// the statement against them.
    pub(super) fn check_names(&mut self, statement: &SqlStatement) -> Result<(), Error> {
        self.refresh_rules()
            .map_err(|error| execution_error(&error))?;
        let names = (0..statement.tokens().len()).filter_map(|at| statement.identifier_at(at));
        let hidden = self
            .authorizer
            .with_rules(|rules| names.into_iter().find(|it| rules.is_view_only(it)));
        match hidden {
            Some(name) => Err(relation_not_available(&name)),
            None => Ok(()),
        }
    }

    pub(super) fn refresh_rules(&mut self) -> rusqlite::Result<()> {
        let Self {
            connection,
            authorizer,
            settings,
            schema_version,
        } = self;
        authorizer.allow_all_during(|| {
            let mut query = connection.prepare_cached(SELECT_SCHEMA_VERSION)?;
            let version = query.query_row([], |row| row.get(0))?;
            drop(query);
            if version != *schema_version {
                // Statements that were prepared obeyed the rules of then.
                connection.flush_prepared_statement_cache();
                let rules = SqliteAccessRules::load(connection, settings)?;
                let views = rules.views();
                authorizer.with_state(|it| it.rules = rules);
                for view in views {
                    // What it reads is learnt while SQLite prepares it.
                    let quoted = view.replace('"', "\"\"");
                    drop(connection.prepare(&format!("SELECT * FROM \"{quoted}\"")));
                }
                authorizer.with_state(|it| it.rules.freeze());
                *schema_version = version;
            }
            Ok(())
        })
    }

    /// Runs a statement that this connection has prepared and checked; fails if it has not,
    /// or if the schema has changed since. SQLite itself notices that before it reads, and
    /// prepares the statement again, which is not allowed here. So the version of the schema
    /// need not be read first, which would lock the file twice for each query. Fails at once
    /// if another program has locked the file.
    pub(super) fn query_prepared(
        &mut self,
        sql: &str,
        values: &[QueryValue],
        limits: QueryLimits,
        is_over: impl FnMut() -> bool + Send + 'static,
    ) -> Result<QueryRows, Error> {
        let wait = |it: &Self, time| {
            let done = it.connection.busy_timeout(time);
            done.map_err(|error| execution_error(&error))
        };
        wait(self, Duration::ZERO)?;
        self.set_interrupt_check(is_over)?;
        self.authorizer.with_state(|it| it.refuses_all = true);
        let done = self.query_rows(sql, values, limits);
        self.authorizer.with_state(|it| it.refuses_all = false);
        self.clear_interrupt_check();
        wait(self, BUSY_TIMEOUT)?;
        done
    }

    /// Bounds the values of a statement by how many it computes for a row.
    pub(super) fn limit_values(&self, computed_values: usize) -> Result<(), Error> {
        let length =
            (MAX_ROW_LENGTH / computed_values.max(1)).clamp(MIN_VALUE_LENGTH, MAX_VALUE_BYTES);
        let length = i32::try_from(length).unwrap_or(MAX_SQLITE_VALUE_LENGTH);
        self.connection
            .set_limit(Limit::SQLITE_LIMIT_LENGTH, length)
            .map(drop)
            .map_err(|error| execution_error(&error))
    }

    /// Has `is_over` asked again and again while a query runs.
    pub(super) fn set_interrupt_check(
        &mut self,
        is_over: impl FnMut() -> bool + Send + 'static,
    ) -> Result<(), Error> {
        self.authorizer.with_state(|it| it.refusal = None);
        self.connection
            .progress_handler(PROGRESS_CHECK_INSTRUCTIONS, Some(is_over))
            .map_err(|error| execution_error(&error))
    }

    pub(super) fn clear_interrupt_check(&mut self) {
        let _ = self.connection.progress_handler(0, None::<fn() -> bool>);
    }

    pub(super) fn query_rows(
        &self,
        sql: &str,
        values: &[QueryValue],
        limits: QueryLimits,
    ) -> Result<QueryRows, Error> {
        let mut statement = self
            .connection
            .prepare_cached(sql)
            .map_err(|error| self.prepare_error(&error))?;
        if !statement.readonly() || statement.is_explain() != 0 {
            return Err(Error::Refused("only a query can be run".to_owned()));
        }
        let columns = unique_column_names(statement.column_names(), usize::MAX);
        let mut collector = RowCollector::new(columns.clone(), limits);
        if limits.rows == 0 {
            return Ok(collector.finish());
        }
        for (at, value) in values.iter().enumerate() {
            statement
                .raw_bind_parameter(at + 1, to_sql_output(value))
                .map_err(|error| execution_error(&error))?;
        }
        let names: Vec<String> = columns.iter().map(|it| to_json_string(it)).collect();
        let mut rows = statement.raw_query();
        for _ in 0..limits.offset {
            let skipped = rows.next().map_err(|error| execution_error(&error))?;
            if skipped.is_none() {
                return Ok(collector.finish());
            }
        }
        while let Some(row) = rows.next().map_err(|error| execution_error(&error))? {
            let text = row_to_json(&names, row).map_err(|error| execution_error(&error))?;
            if !collector.try_push(&text) {
                break;
            }
        }
        Ok(collector.finish())
    }

    /// The plan of a statement that [`Self::query_rows`] would run. It names what is behind
    /// views.
    pub(super) fn query_plan(&self, sql: &str, limits: QueryLimits) -> Result<QueryRows, Error> {
        self.authorizer.with_state(|it| it.names_relations = true);
        let prepared = self
            .connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"));
        self.authorizer.with_state(|it| it.names_relations = false);
        let mut statement = prepared.map_err(|error| self.prepare_error(&error))?;
        let mut collector = RowCollector::new(vec!["plan".to_owned()], limits);
        let mut depths: HashMap<i64, usize> = HashMap::new();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(|error| execution_error(&error))? {
            let read = || Ok((row.get(0)?, row.get(1)?, row.get(3)?));
            let read: rusqlite::Result<(i64, i64, String)> = read();
            let (id, parent, line) = read.map_err(|error| execution_error(&error))?;
            let depth = depths.get(&parent).map_or(0, |it| it + 1);
            depths.insert(id, depth);
            collector.try_push(&plan_row(&format!("{}{line}", "  ".repeat(depth))));
        }
        Ok(collector.finish())
    }

    /// While a statement is prepared nothing is read, so SQLite's words can
    /// quote no data.
    fn prepare_error(&self, error: &rusqlite::Error) -> Error {
        if let Some(what) = self.authorizer.with_state(|it| it.refusal.take()) {
            return Error::Refused(what);
        }
        match error {
            rusqlite::Error::SqlInputError {
                msg, sql, offset, ..
            } => {
                let error = Error::Database(msg.clone());
                // SQLite does not know every place.
                match usize::try_from(*offset) {
                    Ok(at) => error.at_byte(sql, at),
                    Err(_) => error,
                }
            }
            rusqlite::Error::SqliteFailure(cause, Some(message))
                if cause.code == ErrorCode::Unknown =>
            {
                Error::Database(message.clone())
            }
            other => execution_error(other),
        }
    }
}

pub(super) fn relation_not_available(name: &str) -> Error {
    Error::Refused(format!(
        "the relation {name} is not one that this source offers"
    ))
}

/// While a statement runs, a message may quote data; only its kind is reported.
pub(super) fn execution_error(error: &rusqlite::Error) -> Error {
    Error::Database(match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => return Error::TimedOut,
        Some(ErrorCode::TooBig) => "a text or blob is too long".to_owned(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "it is busy".to_owned(),
        Some(ErrorCode::OutOfMemory) => "the query needs too much memory".to_owned(),
        Some(ErrorCode::TypeMismatch) => "a value has the wrong type".to_owned(),
        Some(code) => format!("the query failed ({code:?})"),
        None => "the query failed".to_owned(),
    })
}
