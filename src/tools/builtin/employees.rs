//! Employees and their vacation days.

use std::{cell::Cell, sync::Arc, time::UNIX_EPOCH};

use maru_protocol::RpcError;
use maru_sources::Sqlite;
use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    SAMPLE_QUERY_TIMEOUT, entry_handler, error_text, internal_error, output_schema,
    read_only_annotations, to_response,
};
use crate::tools::entry::{
    CatalogEntry, CatalogEntryKind, EntryAction, EntryRequest, EntryResponse,
};

#[derive(Debug, Serialize)]
struct Employee {
    id: String,
    name: String,
    department: String,
    hire_date: String,
    days_of_service: i64,
}

#[derive(Debug, Serialize)]
struct EmployeeSummary {
    id: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct VacationBalance {
    employee_id: String,
    year: i64,
    total: f64,
    used: f64,
    remaining: f64,
}

pub(super) fn entries(source: &Sqlite) -> Vec<Arc<CatalogEntry>> {
    let tool = |name: &str, title: &str, description: &str, properties: Value| {
        let required: Vec<&String> = properties
            .as_object()
            .map_or(Vec::new(), |it| it.keys().collect());
        json!({
            "name": name, "title": title, "description": description,
            "inputSchema": {
                "type": "object", "properties": properties, "required": required,
                "additionalProperties": false
            },
            "outputSchema": output_schema(), "annotations": read_only_annotations(),
        })
    };
    let id = json!({"type": "string", "pattern": "^EMP[0-9]{3}$", "description": "Employee number, such as EMP001"});
    let info = tool(
        "get_employee_info",
        "Employee information",
        "Returns name, department, hire date and days of service of one employee.",
        json!({"employee_id": id}),
    );
    let all = tool(
        "get_all_employees",
        "All employees",
        "Returns number and name of every employee.",
        json!({}),
    );
    let year = json!({"type": "integer", "minimum": 1900, "maximum": 2999, "description": "Calendar year, such as 2026"});
    let vacation = tool(
        "calculate_vacation_days",
        "Vacation days left",
        "Returns how many vacation days an employee has left in a year: total minus used.",
        json!({"employee_id": id, "year": year}),
    );
    let report = json!({
        "name": "vacation_report",
        "title": "Vacation report",
        "description": "Asks for a short report on an employee's vacation days.",
        "arguments": [{"name": "employee_id", "description": "Employee number, such as EMP001", "required": true}],
    });
    vec![
        CatalogEntry::builtin(
            CatalogEntryKind::Tool,
            info,
            entry_handler(source, get_employee_info),
        ),
        CatalogEntry::builtin(
            CatalogEntryKind::Tool,
            all,
            entry_handler(source, get_all_employees),
        ),
        CatalogEntry::builtin(
            CatalogEntryKind::Tool,
            vacation,
            entry_handler(source, calculate_vacation_days),
        ),
        CatalogEntry::builtin(
            CatalogEntryKind::Prompt,
            report,
            entry_handler(source, vacation_report),
        ),
    ]
}

async fn get_employee_info(source: Sqlite, ask: EntryRequest) -> Result<EntryResponse, RpcError> {
    let id = argument(&ask, "employee_id");
    let wanted = id.clone();
    let found = source
        .read(SAMPLE_QUERY_TIMEOUT, move |connection| {
            find_employee(connection, &wanted)
        })
        .await;
    to_response(match found {
        Ok(Some(employee)) => Ok(employee),
        Ok(None) => Err(unknown_employee(&id)),
        Err(error) => Err(error_text(&error)),
    })
}

async fn get_all_employees(source: Sqlite, _ask: EntryRequest) -> Result<EntryResponse, RpcError> {
    let found = source
        .read(SAMPLE_QUERY_TIMEOUT, |connection| {
            list_employees(connection, "")
        })
        .await;
    to_response(found.map_err(|error| error_text(&error)))
}

async fn calculate_vacation_days(
    source: Sqlite,
    ask: EntryRequest,
) -> Result<EntryResponse, RpcError> {
    let id = argument(&ask, "employee_id");
    let EntryAction::CallTool(arguments) = &ask.action else {
        return Err(RpcError::invalid_params("a tool is called"));
    };
    let year = arguments["year"].as_i64().unwrap_or_default();
    let wanted = id.clone();
    let found = source.read(SAMPLE_QUERY_TIMEOUT, move |connection| {
        let known = find_employee(connection, &wanted)?.is_some();
        Ok((
            known,
            find_vacation(connection, &wanted, year)?,
            known_years(connection, &wanted)?,
        ))
    });
    to_response(match found.await {
        Ok((_, Some(vacation), _)) => Ok(vacation),
        Ok((false, None, _)) => Err(unknown_employee(&id)),
        Ok((true, None, years)) => Err(format!(
            "no vacation days of {id} in {year}; known years: {years}"
        )),
        Err(error) => Err(error_text(&error)),
    })
}

/// Renders the prompt, or completes the employee's number.
async fn vacation_report(source: Sqlite, ask: EntryRequest) -> Result<EntryResponse, RpcError> {
    if let EntryAction::Complete { value, .. } = ask.action {
        let found = source
            .read(SAMPLE_QUERY_TIMEOUT, move |connection| {
                list_employees(connection, &value)
            })
            .await;
        let found = found.map_err(|error| internal_error(&error))?;
        let values: Vec<String> = found.into_iter().map(|it| it.id).take(100).collect();
        let completion = json!({"total": values.len(), "hasMore": false, "values": values});
        return Ok(EntryResponse::Complete(
            json!({"completion": completion}).into(),
        ));
    }
    let id = argument(&ask, "employee_id");
    if id.is_empty() {
        return Err(RpcError::invalid_params(
            "the prompt vacation_report needs the argument employee_id",
        ));
    }
    let text = format!(
        "Write a short report on the vacation days of employee {id}: use get_employee_info and \
         calculate_vacation_days for this year and the last, and point out days that will expire."
    );
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    let result = json!({"description": "Vacation report", "messages": [message]});
    Ok(EntryResponse::Complete(result.into()))
}

fn argument(ask: &EntryRequest, name: &str) -> String {
    let (EntryAction::CallTool(arguments) | EntryAction::GetPrompt(arguments)) = &ask.action else {
        return String::new();
    };
    arguments[name].as_str().unwrap_or_default().to_owned()
}

fn unknown_employee(id: &str) -> String {
    format!("no employee {id}; get_all_employees lists them")
}

fn find_employee(connection: &Connection, id: &str) -> rusqlite::Result<Option<Employee>> {
    let mut statement = connection.prepare_cached(
        "SELECT name, department, hire_date, CAST(?2 - julianday(hire_date) AS INTEGER)
         FROM employees WHERE id = ?1",
    )?;
    let row = statement.query_row((id, julian_today(connection)?), |row| {
        Ok(Employee {
            id: id.to_owned(),
            name: row.get(0)?,
            department: row.get(1)?,
            hire_date: row.get(2)?,
            days_of_service: row.get(3)?,
        })
    });
    row.optional()
}

/// The local day as a Julian day number. Looked up once a second: the calendar
/// takes longer than the employee.
fn julian_today(connection: &Connection) -> rusqlite::Result<f64> {
    thread_local!(static KNOWN: Cell<(u64, f64)> = const { Cell::new((u64::MAX, 0.0)) });
    let now = UNIX_EPOCH.elapsed().map_or(0, |it| it.as_secs());
    let (known, day) = KNOWN.get();
    if known == now {
        return Ok(day);
    }
    let mut statement =
        connection.prepare_cached("SELECT julianday('now', 'localtime', 'start of day')")?;
    let day = statement.query_row([], |row| row.get(0))?;
    KNOWN.set((now, day));
    Ok(day)
}

fn list_employees(connection: &Connection, start: &str) -> rusqlite::Result<Vec<EmployeeSummary>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, name FROM employees WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT 10000",
    )?;
    let rows = statement.query_map([start], |row| {
        Ok(EmployeeSummary {
            id: row.get(0)?,
            name: row.get(1)?,
        })
    })?;
    rows.collect()
}

fn find_vacation(
    connection: &Connection,
    id: &str,
    year: i64,
) -> rusqlite::Result<Option<VacationBalance>> {
    let mut statement = connection.prepare_cached(
        "SELECT employee_id, year, total, used, total - used FROM vacations
         WHERE employee_id = ?1 AND year = ?2",
    )?;
    let row = statement.query_row((id, year), |row| {
        Ok(VacationBalance {
            employee_id: row.get(0)?,
            year: row.get(1)?,
            total: row.get(2)?,
            used: row.get(3)?,
            remaining: row.get(4)?,
        })
    });
    row.optional()
}

/// `2025, 2026`.
fn known_years(connection: &Connection, id: &str) -> rusqlite::Result<String> {
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(group_concat(year, ', '), 'none')
         FROM (SELECT year FROM vacations WHERE employee_id = ?1 ORDER BY year)",
    )?;
    statement.query_row([id], |row| row.get(0))
}
