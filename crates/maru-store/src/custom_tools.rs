//! Custom tools: the published ones, their drafts and their versions.

use super::{
    CellValue, DatabaseError, Error, PortableStatement, ResultRow, Store, console::switch_statement,
};

/// A published tool, with its parameters in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomToolRow {
    /// Unique name.
    pub name: String,
    /// The description for models.
    pub description_agent: String,
    /// The description for people.
    pub description_user: String,
    /// `SQL` or `PYTHON`.
    pub tool_type: String,
    /// The statement or the expression.
    pub definition: String,
    /// Whether clients may list and call it.
    pub is_active: bool,
    /// When it was created.
    pub reg_dt: String,
    /// Who created it.
    pub created_by: String,
    /// The source of a statement.
    pub source: Option<String>,
    /// How the result is written.
    pub result_format: String,
    /// Whether a call takes a cursor.
    pub is_paged: bool,
    /// Rows of one result, if fewer than the source allows.
    pub max_rows: Option<i64>,
    /// Milliseconds that the statement may run, if less than the source allows.
    pub timeout_ms: Option<i64>,
    /// Number of the version, from 1.
    pub version: i64,
    /// When it was saved last.
    pub upd_dt: String,
    /// Its parameters.
    pub params: Vec<CustomParamRow>,
}

/// A parameter as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomParamRow {
    /// Its name.
    pub param_name: String,
    /// What it takes.
    pub param_type: String,
    /// Whether it must be given.
    pub is_required: bool,
    /// What it is for.
    pub description: String,
    /// JSON of the value where none is given.
    pub default_value: Option<String>,
    /// JSON array of what may be given.
    pub choices: Option<String>,
}

/// A draft of a tool, kept beside the published version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomDraftRow {
    /// Name of the tool.
    pub name: String,
    /// The whole tool, as JSON.
    pub tool: String,
    /// Who saved it.
    pub saved_by: String,
    /// When it was saved.
    pub saved_dt: String,
}

/// A version of a tool.
#[derive(Clone, Debug)]
pub struct CustomVersionRow {
    /// Its number.
    pub version: i64,
    /// The whole tool, as JSON.
    pub tool: String,
    /// Who saved it.
    pub saved_by: String,
    /// When.
    pub saved_dt: String,
}

/// How many versions of a tool are kept.
const MAX_KEPT_VERSIONS: i64 = 100;

const LIST: PortableStatement = PortableStatement {
    attempted: "list the custom tools",
    sql: "SELECT t.name, t.description_agent, t.description_user, t.tool_type, t.definition,
            t.is_active, t.reg_dt, t.created_by, t.source, t.result_format, t.is_paged, t.max_rows, t.timeout_ms, t.version, t.upd_dt,
            p.param_name, p.param_type, p.is_required, p.description, p.default_value, p.choices
          FROM h_custom_tool t LEFT JOIN h_custom_tool_param p ON p.tool_id = t.id
          ORDER BY t.name, p.id",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "save the custom tool",
    sql: "INSERT INTO h_custom_tool (name, description_agent, description_user, tool_type,
            definition, is_active, reg_dt, created_by, source, result_format, version, upd_dt,
            is_paged, max_rows, timeout_ms)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
          ON CONFLICT (name) DO UPDATE SET description_agent = excluded.description_agent,
            description_user = excluded.description_user, tool_type = excluded.tool_type,
            definition = excluded.definition, is_active = excluded.is_active,
            source = excluded.source, result_format = excluded.result_format,
            version = excluded.version, upd_dt = excluded.upd_dt, is_paged = excluded.is_paged,
            max_rows = excluded.max_rows, timeout_ms = excluded.timeout_ms
          RETURNING name",
};
const DELETE_PARAMS: PortableStatement = PortableStatement {
    attempted: "save the parameters of the custom tool",
    sql: "DELETE FROM h_custom_tool_param
          WHERE tool_id = (SELECT id FROM h_custom_tool WHERE name = $1) RETURNING tool_id",
};
const PUT_PARAM: PortableStatement = PortableStatement {
    attempted: "save the parameters of the custom tool",
    sql: "INSERT INTO h_custom_tool_param (tool_id, param_name, param_type, is_required,
            description, default_value, choices)
          SELECT id, $1, $2, $3, $4, $5, $6 FROM h_custom_tool WHERE name = $7
          RETURNING tool_id",
};
const INSERT_VERSION: PortableStatement = PortableStatement {
    attempted: "keep the version of the custom tool",
    sql: "INSERT INTO h_custom_tool_version (name, version, tool, saved_by, saved_dt)
          VALUES ($1, $2, $3, $4, $5) RETURNING version",
};
const DELETE_OLD_VERSIONS: PortableStatement = PortableStatement {
    attempted: "delete old versions of the custom tool",
    sql: "DELETE FROM h_custom_tool_version WHERE name = $1 AND version <= $2 RETURNING version",
};
const SET_ACTIVE: PortableStatement = PortableStatement {
    attempted: "switch the custom tool",
    sql: "UPDATE h_custom_tool SET is_active = $1 WHERE name = $2 RETURNING name",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "remove the custom tool",
    sql: "DELETE FROM h_custom_tool WHERE name = $1 RETURNING name",
};
const LIST_VERSIONS: PortableStatement = PortableStatement {
    attempted: "list the versions of the custom tool",
    sql: "SELECT version, tool, saved_by, saved_dt FROM h_custom_tool_version
          WHERE name = $1 ORDER BY version DESC",
};
const LIST_DRAFTS: PortableStatement = PortableStatement {
    attempted: "list the drafts of custom tools",
    sql: "SELECT name, tool, saved_by, saved_dt FROM h_custom_tool_draft ORDER BY name",
};
const PUT_DRAFT: PortableStatement = PortableStatement {
    attempted: "save the draft of the custom tool",
    sql: "INSERT INTO h_custom_tool_draft (name, tool, saved_by, saved_dt)
          VALUES ($1, $2, $3, $4)
          ON CONFLICT (name) DO UPDATE SET tool = excluded.tool,
            saved_by = excluded.saved_by, saved_dt = excluded.saved_dt
          RETURNING name",
};
const DELETE_DRAFT: PortableStatement = PortableStatement {
    attempted: "delete the draft of the custom tool",
    sql: "DELETE FROM h_custom_tool_draft WHERE name = $1 RETURNING name",
};
/// Every statement of this file that both back ends run.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    LIST,
    PUT,
    DELETE_PARAMS,
    PUT_PARAM,
    INSERT_VERSION,
    DELETE_OLD_VERSIONS,
    SET_ACTIVE,
    DELETE,
    LIST_VERSIONS,
    LIST_DRAFTS,
    PUT_DRAFT,
    DELETE_DRAFT,
];

impl Store {
    /// Every tool, by name.
    pub async fn custom_tools(&self) -> Result<Vec<CustomToolRow>, Error> {
        let rows: Vec<ToolParamJoinRow> = self.query_as(LIST, Vec::new()).await?;
        let mut tools: Vec<CustomToolRow> = Vec::new();
        for ToolParamJoinRow { tool, param } in rows {
            if tools.last().is_none_or(|it| it.name != tool.name) {
                tools.push(tool);
            }
            if let Some(last) = tools.last_mut() {
                last.params.extend(param);
            }
        }
        Ok(tools)
    }

    /// Adds or replaces a tool and keeps `saved` as its new version; all of it or
    /// nothing. Who created it, and when, stays.
    pub async fn put_custom_tool(
        &self,
        tool: &CustomToolRow,
        saved: &CustomVersionRow,
    ) -> Result<(), Error> {
        let work = put_statements(tool, saved);
        self.execute_in_transaction(PUT, work).await
    }

    /// Does what [`Store::put_custom_tool`] does and deletes the draft of the tool, in
    /// one transaction.
    pub async fn publish_custom_tool(
        &self,
        tool: &CustomToolRow,
        saved: &CustomVersionRow,
    ) -> Result<(), Error> {
        let mut work = put_statements(tool, saved);
        work.push((DELETE_DRAFT, vec![tool.name.as_str().into()]));
        self.execute_in_transaction(PUT, work).await
    }

    /// Switches tools on or off, all of them or none: custom tools by their name, others
    /// by their server and their name there.
    pub async fn set_tools_enabled(
        &self,
        custom: Vec<String>,
        others: Vec<(String, String)>,
        on: bool,
    ) -> Result<(), Error> {
        let custom = custom
            .into_iter()
            .map(move |name| (SET_ACTIVE, vec![yes_or_no(on), name.into()]));
        let others = others.into_iter().map(move |it| switch_statement(it, on));
        let work: Vec<_> = custom.chain(others).collect();
        self.execute_in_transaction(SET_ACTIVE, work).await
    }

    /// Deletes a tool and its draft; its versions are kept.
    pub async fn delete_custom_tool(&self, name: &str) -> Result<(), Error> {
        let statements = [DELETE_DRAFT, DELETE];
        let work = statements.map(|it| (it, vec![CellValue::from(name)]));
        self.execute_in_transaction(DELETE, work).await
    }

    /// Every draft, by name.
    pub async fn custom_tool_drafts(&self) -> Result<Vec<CustomDraftRow>, Error> {
        self.query_as(LIST_DRAFTS, Vec::new()).await
    }

    /// Adds or replaces the draft of a tool.
    pub async fn put_custom_tool_draft(&self, draft: &CustomDraftRow) -> Result<(), Error> {
        let values = vec![
            draft.name.as_str().into(),
            draft.tool.as_str().into(),
            draft.saved_by.as_str().into(),
            draft.saved_dt.as_str().into(),
        ];
        self.execute(PUT_DRAFT, values).await.map(drop)
    }

    /// Deletes the draft of a tool; returns false if it has none.
    pub async fn delete_custom_tool_draft(&self, name: &str) -> Result<bool, Error> {
        self.execute(DELETE_DRAFT, vec![name.into()]).await
    }

    /// Every kept version of the tool of this name, newest first.
    pub async fn custom_tool_versions(&self, name: &str) -> Result<Vec<CustomVersionRow>, Error> {
        self.query_as(LIST_VERSIONS, vec![name.into()]).await
    }
}

/// The statements that write a tool and its new version.
fn put_statements(
    tool: &CustomToolRow,
    saved: &CustomVersionRow,
) -> Vec<(PortableStatement, Vec<CellValue>)> {
    let name = || CellValue::from(tool.name.as_str());
    let mut work = vec![(PUT, tool.values()), (DELETE_PARAMS, vec![name()])];
    for param in &tool.params {
        let mut values = param.values();
        values.push(name());
        work.push((PUT_PARAM, values));
    }
    let version = vec![
        name(),
        saved.version.into(),
        saved.tool.as_str().into(),
        saved.saved_by.as_str().into(),
        saved.saved_dt.as_str().into(),
    ];
    work.push((INSERT_VERSION, version));
    let oldest_kept = saved.version - MAX_KEPT_VERSIONS;
    work.push((DELETE_OLD_VERSIONS, vec![name(), oldest_kept.into()]));
    work
}

impl CustomToolRow {
    fn values(&self) -> Vec<CellValue> {
        vec![
            self.name.as_str().into(),
            self.description_agent.as_str().into(),
            self.description_user.as_str().into(),
            self.tool_type.as_str().into(),
            self.definition.as_str().into(),
            yes_or_no(self.is_active),
            self.reg_dt.as_str().into(),
            self.created_by.as_str().into(),
            self.source.as_deref().into(),
            self.result_format.as_str().into(),
            self.version.into(),
            self.upd_dt.as_str().into(),
            yes_or_no(self.is_paged),
            self.max_rows.into(),
            self.timeout_ms.into(),
        ]
    }
}

impl CustomParamRow {
    fn values(&self) -> Vec<CellValue> {
        vec![
            self.param_name.as_str().into(),
            self.param_type.as_str().into(),
            yes_or_no(self.is_required),
            self.description.as_str().into(),
            self.default_value.as_deref().into(),
            self.choices.as_deref().into(),
        ]
    }
}

fn yes_or_no(truth: bool) -> CellValue {
    CellValue::from(if truth { "Y" } else { "N" })
}

/// `Y`, however people write it.
fn is_yes(text: &str) -> bool {
    matches!(text, "Y" | "y")
}

struct ToolParamJoinRow {
    tool: CustomToolRow,
    param: Option<CustomParamRow>,
}

impl TryFrom<ResultRow> for ToolParamJoinRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        let tool = CustomToolRow {
            name: row.next_cell()?,
            description_agent: row.next_cell()?,
            description_user: row.next_cell()?,
            tool_type: row.next_cell()?,
            definition: row.next_cell()?,
            is_active: is_yes(&row.next_cell::<String>()?),
            reg_dt: row.next_cell()?,
            created_by: row.next_cell()?,
            source: row.next_cell()?,
            result_format: row.next_cell()?,
            is_paged: is_yes(&row.next_cell::<String>()?),
            max_rows: row.next_cell()?,
            timeout_ms: row.next_cell()?,
            version: row.next_cell()?,
            upd_dt: row.next_cell()?,
            params: Vec::new(),
        };
        let param = match row.next_cell::<Option<String>>()? {
            None => None,
            Some(param_name) => Some(CustomParamRow {
                param_name,
                param_type: row.next_cell()?,
                is_required: is_yes(&row.next_cell::<String>()?),
                description: row.next_cell()?,
                default_value: row.next_cell()?,
                choices: row.next_cell()?,
            }),
        };
        Ok(Self { tool, param })
    }
}

impl TryFrom<ResultRow> for CustomDraftRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            name: row.next_cell()?,
            tool: row.next_cell()?,
            saved_by: row.next_cell()?,
            saved_dt: row.next_cell()?,
        })
    }
}

impl TryFrom<ResultRow> for CustomVersionRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            version: row.next_cell()?,
            tool: row.next_cell()?,
            saved_by: row.next_cell()?,
            saved_dt: row.next_cell()?,
        })
    }
}
