//! One guarded connection.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{
    Connection, OpenFlags,
    config::DbConfig,
    hooks::{AuthContext, Authorization},
    limits::Limit,
};

use super::{
    Collector, Error, ErrorCode, Limits, Rows, Settings, Statement, Value, functions,
    rules::{Rules, Verdict},
    value::{json_text, object, stored},
};
use crate::source::rows::distinct;

/// How long another program may hold the file.
const BUSY: Duration = Duration::from_secs(1);
/// Virtual-machine instructions between two looks at the clock.
const STEP: i32 = 1000;
/// The longest text or blob that SQLite may make or read.
const MAX_LENGTH: i32 = 4 * 1024 * 1024;
pub(super) const MAX_BYTES: usize = MAX_LENGTH as usize;

const LIMITS: &[(Limit, i32)] = &[
    (Limit::SQLITE_LIMIT_LENGTH, MAX_LENGTH),
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
pub(super) struct Reader {
    pub(super) connection: Connection,
    pub(super) gate: Arc<Gate>,
    settings: Settings,
    /// The schema that the rules were made for.
    schema: i64,
}

/// What the authorizer asks.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rules: Rules,
    /// Whether maru itself asks.
    is_open: bool,
    refused: Option<String>,
}

impl Gate {
    fn state<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets maru's own statements through while `work` runs.
    pub(super) fn opened<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state(|it| it.is_open = true);
        let done = work();
        self.state(|it| it.is_open = false);
        done
    }

    pub(super) fn rules<T>(&self, with: impl FnOnce(&Rules) -> T) -> T {
        self.state(|it| with(&it.rules))
    }

    fn ask(&self, context: &AuthContext<'_>) -> Authorization {
        self.state(|state| {
            if state.is_open {
                state.rules.learn(context);
                return Authorization::Allow;
            }
            match state.rules.judge(context) {
                Verdict::Allow => Authorization::Allow,
                Verdict::Refuse(what) => {
                    state.refused.get_or_insert(what);
                    Authorization::Deny
                }
            }
        })
    }
}

impl Reader {
    pub(super) fn open(path: &Path, settings: &Settings) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.pragma_update(None, "query_only", true)?;
        for (limit, value) in LIMITS {
            connection.set_limit(*limit, *value)?;
        }
        functions::bound(&connection)?;
        // Makes the table that they are, which the authorizer would refuse.
        connection.query_row(
            "SELECT count(*) FROM json_each('[]'), json_tree('[]')",
            [],
            |_| Ok(()),
        )?;
        let gate = Arc::new(Gate::default());
        let asked = Arc::clone(&gate);
        connection.authorizer(Some(move |context: AuthContext<'_>| asked.ask(&context)))?;
        let settings = settings.clone();
        Ok(Self {
            connection,
            gate,
            settings,
            schema: -1,
        })
    }

    /// Makes the rules anew if the schema has changed, and holds the names of
    /// the statement against them.
    pub(super) fn refresh(&mut self, statement: &Statement) -> Result<(), Error> {
        self.learn().map_err(|error| failed(&error))?;
        let names = (0..statement.tokens().len()).filter_map(|at| statement.name(at));
        let hidden = self
            .gate
            .rules(|rules| names.into_iter().find(|it| rules.hides(it)));
        match hidden {
            Some(name) => Err(not_offered(&name)),
            None => Ok(()),
        }
    }

    pub(super) fn learn(&mut self) -> rusqlite::Result<()> {
        let Self {
            connection,
            gate,
            settings,
            schema,
        } = self;
        gate.opened(|| {
            let version = connection.pragma_query_value(None, "schema_version", |it| it.get(0))?;
            if version != *schema {
                let rules = Rules::read(connection, settings)?;
                let views = rules.views();
                gate.state(|it| it.rules = rules);
                for view in views {
                    // What it reads is learnt while SQLite prepares it.
                    let quoted = view.replace('"', "\"\"");
                    drop(connection.prepare(&format!("SELECT * FROM \"{quoted}\"")));
                }
                gate.state(|it| it.rules.seal());
                *schema = version;
            }
            Ok(())
        })
    }

    /// Does some work that fails at once if another program holds the file.
    pub(super) fn without_waiting<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let wait = |it: &Self, time| {
            let done = it.connection.busy_timeout(time);
            done.map_err(|error| failed(&error))
        };
        wait(self, Duration::ZERO)?;
        let done = work(self);
        wait(self, BUSY)?;
        done
    }

    /// Has `is_over` asked again and again while a query runs.
    pub(super) fn arm(
        &mut self,
        is_over: impl FnMut() -> bool + Send + 'static,
    ) -> Result<(), Error> {
        self.gate.state(|it| it.refused = None);
        self.connection
            .progress_handler(STEP, Some(is_over))
            .map_err(|error| failed(&error))
    }

    pub(super) fn disarm(&mut self) {
        let _ = self.connection.progress_handler(0, None::<fn() -> bool>);
    }

    pub(super) fn read(&self, sql: &str, values: &[Value], limits: Limits) -> Result<Rows, Error> {
        let mut statement = self
            .connection
            .prepare(sql)
            .map_err(|error| self.refused(&error))?;
        if !statement.readonly() || statement.is_explain() != 0 {
            return Err(Error::Refused("only a query can be run".to_owned()));
        }
        let columns = distinct(statement.column_names(), usize::MAX);
        let mut collector = Collector::new(columns.clone(), limits);
        if limits.rows == 0 {
            return Ok(collector.finish());
        }
        for (at, value) in values.iter().enumerate() {
            statement
                .raw_bind_parameter(at + 1, stored(value))
                .map_err(|error| failed(&error))?;
        }
        let names: Vec<String> = columns.iter().map(|it| json_text(it)).collect();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(|error| failed(&error))? {
            let text = object(&names, row).map_err(|error| failed(&error))?;
            if !collector.push(&text) {
                break;
            }
        }
        Ok(collector.finish())
    }

    /// While a statement is prepared nothing is read, so SQLite's words can
    /// quote no data.
    fn refused(&self, error: &rusqlite::Error) -> Error {
        if let Some(what) = self.gate.state(|it| it.refused.take()) {
            return Error::Refused(what);
        }
        match error {
            rusqlite::Error::SqlInputError {
                msg, sql, offset, ..
            } => {
                let error = Error::Database(msg.clone());
                // SQLite does not know every place.
                match usize::try_from(*offset) {
                    Ok(at) => error.at(sql, at),
                    Err(_) => error,
                }
            }
            rusqlite::Error::SqliteFailure(cause, Some(message))
                if cause.code == ErrorCode::Unknown =>
            {
                Error::Database(message.clone())
            }
            other => failed(other),
        }
    }
}

pub(super) fn not_offered(name: &str) -> Error {
    Error::Refused(format!(
        "the relation {name} is not one that this source offers"
    ))
}

/// While it runs, a message may quote what was read; only its kind is told.
pub(super) fn failed(error: &rusqlite::Error) -> Error {
    Error::Database(match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => return Error::TooSlow,
        Some(ErrorCode::TooBig) => "a text or blob is too long".to_owned(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "it is busy".to_owned(),
        Some(ErrorCode::OutOfMemory) => "the query needs too much memory".to_owned(),
        Some(ErrorCode::TypeMismatch) => "a value has the wrong type".to_owned(),
        Some(code) => format!("the query failed ({code:?})"),
        None => "the query failed".to_owned(),
    })
}
