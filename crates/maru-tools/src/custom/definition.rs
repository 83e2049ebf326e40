//! The definition of a custom tool: its JSON, its validation, its row in the store.

use std::{collections::HashSet, time::Duration};

use maru_sources::QueryLimits;
use maru_store::{CustomParamRow, CustomToolRow};
use serde_json::{Map, Value, json};

use super::{
    ValidationError,
    parameter::{ToolParameter, parse_flag},
};

/// A well-formed definition of a tool. Compiling it shows whether it can run.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomToolDefinition {
    /// Its name.
    pub name: String,
    /// The description for models.
    pub description_agent: String,
    /// The description for people.
    pub description_user: String,
    /// Statement or expression, and the source.
    pub logic: ToolLogic,
    /// The statement or expression.
    pub text: String,
    /// How the result is written.
    pub format: ResultFormat,
    /// Whether a call takes a cursor for the rows after those of the call before.
    pub is_paged: bool,
    /// Rows of one result, if fewer than the source allows.
    pub max_rows: Option<usize>,
    /// Milliseconds that the statement may run, if less than the source allows.
    pub timeout_ms: Option<u64>,
    /// Whether clients may list and call it.
    pub is_active: bool,
    /// Its parameters, in order.
    pub params: Vec<ToolParameter>,
}

/// The kind of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolLogic {
    /// Runs a statement on the source of this name, or on the first.
    Sql(Option<String>),
    /// Evaluates an expression.
    Python,
}

/// How a result is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultFormat {
    /// One row as an object, any other number of rows as a list, a string as plain text.
    Auto,
    /// The first row, or null.
    Row,
    /// A list of rows.
    Rows,
    /// A Markdown table.
    Table,
    /// Comma-separated values (RFC 4180), the names of the columns first.
    Csv,
    /// A line of text for every row.
    Lines,
}

const RESULT_FORMATS: &[(&str, ResultFormat)] = &[
    ("auto", ResultFormat::Auto),
    ("row", ResultFormat::Row),
    ("rows", ResultFormat::Rows),
    ("table", ResultFormat::Table),
    ("csv", ResultFormat::Csv),
    ("lines", ResultFormat::Lines),
    // An alias of `table`.
    ("markdown", ResultFormat::Table),
];
/// The argument that a paged tool has beside its parameters.
pub(super) const CURSOR_ARGUMENT: &str = "cursor";
/// The largest limits that a tool may set; the source has smaller ones.
const MAX_ROWS_LIMIT: u64 = 1_000_000;
const MAX_TIMEOUT_MS: u64 = 3_600_000;
const MAX_DESCRIPTION_CHARS: usize = 4000;
const MAX_PARAMS: usize = 50;
/// The members that a user sets; the hub sets the read-only ones.
const EDITABLE_FIELDS: &[&str] = &[
    "name",
    "description_agent",
    "description_user",
    "tool_type",
    "source",
    "definition",
    "result_format",
    "paged",
    "max_rows",
    "timeout_ms",
    "is_active",
    "params",
];
const READ_ONLY_FIELDS: &[&str] = &[
    "id",
    "version",
    "reg_dt",
    "upd_dt",
    "created_by",
    "fault",
    "draft",
    "change",
];

impl CustomToolDefinition {
    /// Parses and validates a definition, as the API has it.
    pub fn from_json(json: &Value) -> Result<Self, ValidationError> {
        let Some(members) = json.as_object() else {
            return Err(ValidationError::for_field(
                "tool",
                "a tool is an object with name, tool_type and definition",
            ));
        };
        check_known_fields(members)?;
        let text = |field: &str| match members.get(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(ValidationError::for_field(field, "this is a text")),
        };
        let definition = Self {
            name: text("name")?,
            description_agent: text("description_agent")?,
            description_user: text("description_user")?,
            logic: parse_logic(members)?,
            text: text("definition")?,
            format: parse_format(members)?,
            is_paged: parse_flag(members.get("paged"), false)
                .ok_or_else(|| ValidationError::for_field("paged", "use true or false"))?,
            max_rows: parse_limit(members, "max_rows", MAX_ROWS_LIMIT)?
                .and_then(|it| usize::try_from(it).ok()),
            timeout_ms: parse_limit(members, "timeout_ms", MAX_TIMEOUT_MS)?,
            is_active: parse_flag(members.get("is_active"), true)
                .ok_or_else(|| ValidationError::for_field("is_active", "use true or false"))?,
            params: parse_params(members.get("params"))?,
        };
        definition.validate()?;
        Ok(definition)
    }

    /// Checks a draft: it has only known members and a valid name.
    pub(super) fn check_draft(members: &Map<String, Value>) -> Result<(), ValidationError> {
        check_known_fields(members)?;
        check_name(
            members
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        )
    }

    /// Removes the members that only the hub sets.
    pub(super) fn drop_read_only(members: &mut Map<String, Value>) {
        members.retain(|name, _| EDITABLE_FIELDS.contains(&name.as_str()));
    }

    fn validate(&self) -> Result<(), ValidationError> {
        check_name(&self.name)?;
        for (field, text) in [
            ("description_agent", &self.description_agent),
            ("description_user", &self.description_user),
        ] {
            check_description(field, text)?;
        }
        if self.description_agent.trim().is_empty() {
            return Err(ValidationError::for_field(
                "description_agent",
                "say what the tool is for, so that a model knows when to call it",
            ));
        }
        if self.is_paged && self.params.iter().any(|it| it.name == CURSOR_ARGUMENT) {
            return Err(ValidationError::for_field(
                "paged",
                "a paged tool has the argument cursor already; rename the parameter",
            ));
        }
        if self.text.trim().is_empty() {
            Err(ValidationError::for_field(
                "definition",
                "there is nothing to run",
            ))
        } else {
            Ok(())
        }
    }

    /// The definition as the API shows it.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "description_agent": self.description_agent,
            "description_user": self.description_user,
            "tool_type": self.logic.name(),
            "source": self.logic.source(),
            "definition": self.text,
            "result_format": self.format.name(),
            "paged": self.is_paged,
            "max_rows": self.max_rows,
            "timeout_ms": self.timeout_ms,
            "is_active": self.is_active,
            "params": self.params.iter().map(ToolParameter::to_json).collect::<Vec<_>>(),
        })
    }

    /// The input schema that clients see.
    pub(super) fn input_schema(&self) -> Value {
        let cursor = self.is_paged.then(|| {
            let description =
                "next_cursor of the answer before, for the rows after it; with the same arguments";
            let schema = json!({"type": ["string", "null"], "description": description});
            (CURSOR_ARGUMENT.to_owned(), schema)
        });
        let properties = self.params.iter().map(|it| (it.name.clone(), it.schema()));
        let properties = properties.chain(cursor);
        let needed = self.params.iter().filter(|it| it.is_required_in_call());
        let needed: Vec<&str> = needed.map(|it| it.name.as_str()).collect();
        json!({
            "type": "object",
            "properties": properties.collect::<Map<_, _>>(),
            "required": needed,
            "additionalProperties": false,
        })
    }

    /// The row in the store, without version, dates and author.
    pub(super) fn to_row(&self) -> CustomToolRow {
        CustomToolRow {
            name: self.name.clone(),
            description_agent: self.description_agent.clone(),
            description_user: self.description_user.clone(),
            tool_type: self.logic.name().to_owned(),
            definition: self.text.clone(),
            is_active: self.is_active,
            source: self.logic.source().map(str::to_owned),
            result_format: self.format.name().to_owned(),
            is_paged: self.is_paged,
            max_rows: self.max_rows.and_then(|it| i64::try_from(it).ok()),
            timeout_ms: self.timeout_ms.and_then(|it| i64::try_from(it).ok()),
            params: self.params.iter().map(parameter_row).collect(),
            ..CustomToolRow::default()
        }
    }

    /// Parses and validates a row, which another program may have written.
    pub(super) fn from_row(row: &CustomToolRow) -> Result<Self, ValidationError> {
        let json = |text: &Option<String>| -> Value {
            let read = text.as_deref().map(serde_json::from_str);
            read.and_then(Result::ok).unwrap_or_default()
        };
        let params = row.params.iter().map(|it| {
            json!({
                "param_name": it.param_name,
                "param_type": it.param_type,
                "is_required": it.is_required,
                "description": it.description,
                "default": json(&it.default_value),
                "enum": json(&it.choices),
            })
        });
        Self::from_json(&json!({
            "name": row.name,
            "description_agent": row.description_agent,
            "description_user": row.description_user,
            "tool_type": row.tool_type,
            "source": row.source,
            "definition": row.definition,
            "result_format": row.result_format,
            "paged": row.is_paged,
            "max_rows": row.max_rows,
            "timeout_ms": row.timeout_ms,
            "is_active": row.is_active,
            "params": params.collect::<Vec<_>>(),
        }))
    }

    /// How far a call may go: as far as the source allows, or less.
    pub(super) fn limits(&self, source: QueryLimits) -> QueryLimits {
        let most = if self.format == ResultFormat::Row {
            1
        } else {
            self.max_rows.unwrap_or(source.rows)
        };
        let timeout = self
            .timeout_ms
            .map_or(source.timeout, Duration::from_millis);
        QueryLimits {
            rows: source.rows.min(most),
            timeout: source.timeout.min(timeout),
            ..source
        }
    }

    /// Refuses parameters that only a statement can use.
    pub(super) fn check_computable(&self) -> Result<(), ValidationError> {
        match self.params.iter().position(|it| it.kind.is_sql_only()) {
            None => Ok(()),
            Some(at) => Err(ValidationError::for_field(
                &format!("params.{at}.param_type"),
                format!(
                    "{} is for statements; use STRING in an expression",
                    self.params[at].kind.parse_name()
                ),
            )),
        }
    }

    /// Refuses parameters that a statement cannot bind.
    pub(super) fn check_bindable(&self) -> Result<(), ValidationError> {
        let unbound = self
            .params
            .iter()
            .position(|it| it.kind.sql_kind().is_none());
        match unbound {
            None => Ok(()),
            Some(at) => Err(ValidationError::for_field(
                &format!("params.{at}.param_type"),
                format!(
                    "{} cannot be a parameter of a statement; bind the members that it needs one by one",
                    self.params[at].kind.parse_name()
                ),
            )),
        }
    }
}

impl ToolLogic {
    /// Its name in the API and the store.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sql(_) => "SQL",
            Self::Python => "PYTHON",
        }
    }

    fn source(&self) -> Option<&str> {
        match self {
            Self::Sql(source) => source.as_deref(),
            Self::Python => None,
        }
    }
}

impl ResultFormat {
    /// Its name as an argument of `query_bga_database`.
    pub(crate) fn query_name(self) -> &'static str {
        match self {
            Self::Table => "markdown",
            format => format.name(),
        }
    }

    fn name(self) -> &'static str {
        let found = RESULT_FORMATS.iter().find(|(_, it)| *it == self);
        found.map_or("auto", |(name, _)| *name)
    }
}

fn parameter_row(parameter: &ToolParameter) -> CustomParamRow {
    let choices = &parameter.choices;
    CustomParamRow {
        param_name: parameter.name.clone(),
        param_type: parameter.kind.parse_name().to_owned(),
        is_required: parameter.required,
        description: parameter.description.clone(),
        default_value: parameter.default.as_ref().map(Value::to_string),
        choices: (!choices.is_empty()).then(|| Value::from(choices.clone()).to_string()),
    }
}

fn check_known_fields(members: &Map<String, Value>) -> Result<(), ValidationError> {
    let is_known = |it: &&String| {
        EDITABLE_FIELDS.contains(&it.as_str()) || READ_ONLY_FIELDS.contains(&it.as_str())
    };
    match members.keys().find(|it| !is_known(it)) {
        None => Ok(()),
        Some(other) => Err(ValidationError::for_field(
            other,
            format!(
                "a tool has no member {other:?}; known are {}",
                EDITABLE_FIELDS.join(", ")
            ),
        )),
    }
}

/// Checks that every client accepts the name. `__` and `.` are excluded because they
/// separate a server from its tool.
fn check_name(name: &str) -> Result<(), ValidationError> {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let begins = name.starts_with(|it: char| it.is_ascii_alphabetic());
    if begins && name.len() <= 64 && name.chars().all(plain) && !name.contains("__") {
        Ok(())
    } else {
        Err(ValidationError::for_field(
            "name",
            "a name begins with a letter and has at most 64 of a-z, A-Z, 0-9, - and _, but not __",
        ))
    }
}

fn check_description(field: &str, text: &str) -> Result<(), ValidationError> {
    let strange = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    if text.chars().count() <= MAX_DESCRIPTION_CHARS && !text.contains(strange) {
        Ok(())
    } else {
        Err(ValidationError::for_field(
            field,
            format!(
                "a description has at most {MAX_DESCRIPTION_CHARS} characters and no control characters"
            ),
        ))
    }
}

fn parse_logic(members: &Map<String, Value>) -> Result<ToolLogic, ValidationError> {
    let kind = members
        .get("tool_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let source = members
        .get("source")
        .and_then(Value::as_str)
        .filter(|it| !it.is_empty());
    match kind.to_ascii_uppercase().as_str() {
        "SQL" => Ok(ToolLogic::Sql(source.map(str::to_owned))),
        "PYTHON" => Ok(ToolLogic::Python),
        _ => Err(ValidationError::for_field("tool_type", "use SQL or PYTHON")),
    }
}

fn parse_format(members: &Map<String, Value>) -> Result<ResultFormat, ValidationError> {
    let given = match members.get("result_format") {
        None | Some(Value::Null) => return Ok(ResultFormat::Auto),
        Some(given) => given.as_str().unwrap_or_default(),
    };
    let found = RESULT_FORMATS.iter().find(|(name, _)| *name == given);
    found.map(|(_, format)| *format).ok_or_else(|| {
        ValidationError::for_field("result_format", "use auto, row, rows, table, csv or lines")
    })
}

/// A limit between 1 and `most`; none if it is left out.
fn parse_limit(
    members: &Map<String, Value>,
    field: &str,
    most: u64,
) -> Result<Option<u64>, ValidationError> {
    match members.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_u64() {
            Some(limit) if (1..=most).contains(&limit) => Ok(Some(limit)),
            _ => Err(ValidationError::for_field(
                field,
                format!("a number from 1 to {most}, or nothing for the limit of the source"),
            )),
        },
    }
}

fn parse_params(given: Option<&Value>) -> Result<Vec<ToolParameter>, ValidationError> {
    let list = match given {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(ValidationError::for_field("params", "params is a list")),
    };
    if list.len() > MAX_PARAMS {
        return Err(ValidationError::for_field(
            "params",
            format!("a tool has at most {MAX_PARAMS} parameters"),
        ));
    }
    let mut names = HashSet::new();
    let mut params = Vec::with_capacity(list.len());
    for (at, json) in list.iter().enumerate() {
        let field = format!("params.{at}");
        let parameter = ToolParameter::from_json(json, &field)?;
        if !names.insert(parameter.name.clone()) {
            return Err(ValidationError::for_field(
                &field,
                format!("there are two parameters named {}", parameter.name),
            ));
        }
        params.push(parameter);
    }
    Ok(params)
}
