//! Employees and their vacation days.

use std::{cell::Cell, sync::Arc, time::UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use serde_json::{Value, json};

use super::{QUERY_LIMIT, answer, failed, handler, internal, output_schema, reads_only};
use crate::{
    mcp::RpcError,
    source::Sqlite,
    tool::offer::{Action, Answer, Ask, Kind, Offer},
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
struct Listed {
    id: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct Vacation {
    employee_id: String,
    year: i64,
    total: f64,
    used: f64,
    remaining: f64,
}

pub(super) fn offers(source: &Sqlite) -> Vec<Arc<Offer>> {
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
            "outputSchema": output_schema(), "annotations": reads_only(),
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
        Offer::own(Kind::Tool, info, handler(source, get_employee_info)),
        Offer::own(Kind::Tool, all, handler(source, get_all_employees)),
        Offer::own(
            Kind::Tool,
            vacation,
            handler(source, calculate_vacation_days),
        ),
        Offer::own(Kind::Prompt, report, handler(source, vacation_report)),
    ]
}

async fn get_employee_info(source: Sqlite, ask: Ask) -> Result<Answer, RpcError> {
    let id = argument(&ask, "employee_id");
    let wanted = id.clone();
    let found = source
        .read(QUERY_LIMIT, move |connection| employee(connection, &wanted))
        .await;
    answer(match found {
        Ok(Some(employee)) => Ok(employee),
        Ok(None) => Err(nobody(&id)),
        Err(error) => Err(failed(&error)),
    })
}

async fn get_all_employees(source: Sqlite, _ask: Ask) -> Result<Answer, RpcError> {
    let found = source
        .read(QUERY_LIMIT, |connection| employees(connection, ""))
        .await;
    answer(found.map_err(|error| failed(&error)))
}

async fn calculate_vacation_days(source: Sqlite, ask: Ask) -> Result<Answer, RpcError> {
    let id = argument(&ask, "employee_id");
    let Action::Call(arguments) = &ask.action else {
        return Err(RpcError::params("a tool is called"));
    };
    let year = arguments["year"].as_i64().unwrap_or_default();
    let wanted = id.clone();
    let found = source.read(QUERY_LIMIT, move |connection| {
        let known = employee(connection, &wanted)?.is_some();
        Ok((
            known,
            vacation(connection, &wanted, year)?,
            years(connection, &wanted)?,
        ))
    });
    answer(match found.await {
        Ok((_, Some(vacation), _)) => Ok(vacation),
        Ok((false, None, _)) => Err(nobody(&id)),
        Ok((true, None, years)) => Err(format!(
            "no vacation days of {id} in {year}; known years: {years}"
        )),
        Err(error) => Err(failed(&error)),
    })
}

/// Renders the prompt, or completes the employee's number.
async fn vacation_report(source: Sqlite, ask: Ask) -> Result<Answer, RpcError> {
    if let Action::Complete { value, .. } = ask.action {
        let found = source
            .read(QUERY_LIMIT, move |connection| employees(connection, &value))
            .await;
        let found = found.map_err(|error| internal(&error))?;
        let values: Vec<String> = found.into_iter().map(|it| it.id).take(100).collect();
        let completion = json!({"total": values.len(), "hasMore": false, "values": values});
        return Ok(Answer::Complete(
            json!({"completion": completion}).to_string(),
        ));
    }
    let id = argument(&ask, "employee_id");
    if id.is_empty() {
        return Err(RpcError::params(
            "the prompt vacation_report needs the argument employee_id",
        ));
    }
    let text = format!(
        "Write a short report on the vacation days of employee {id}: use get_employee_info and \
         calculate_vacation_days for this year and the last, and point out days that will expire."
    );
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    let result = json!({"description": "Vacation report", "messages": [message]});
    Ok(Answer::Complete(result.to_string()))
}

fn argument(ask: &Ask, name: &str) -> String {
    let (Action::Call(arguments) | Action::Get(arguments)) = &ask.action else {
        return String::new();
    };
    arguments[name].as_str().unwrap_or_default().to_owned()
}

fn nobody(id: &str) -> String {
    format!("no employee {id}; get_all_employees lists them")
}

fn employee(connection: &Connection, id: &str) -> rusqlite::Result<Option<Employee>> {
    let mut statement = connection.prepare_cached(
        "SELECT name, department, hire_date, CAST(?2 - julianday(hire_date) AS INTEGER)
         FROM employees WHERE id = ?1",
    )?;
    let row = statement.query_row((id, today(connection)?), |row| {
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
fn today(connection: &Connection) -> rusqlite::Result<f64> {
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

fn employees(connection: &Connection, start: &str) -> rusqlite::Result<Vec<Listed>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, name FROM employees WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT 10000",
    )?;
    let rows = statement.query_map([start], |row| {
        Ok(Listed {
            id: row.get(0)?,
            name: row.get(1)?,
        })
    })?;
    rows.collect()
}

fn vacation(connection: &Connection, id: &str, year: i64) -> rusqlite::Result<Option<Vacation>> {
    let mut statement = connection.prepare_cached(
        "SELECT employee_id, year, total, used, total - used FROM vacations
         WHERE employee_id = ?1 AND year = ?2",
    )?;
    let row = statement.query_row((id, year), |row| {
        Ok(Vacation {
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
fn years(connection: &Connection, id: &str) -> rusqlite::Result<String> {
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(group_concat(year, ', '), 'none')
         FROM (SELECT year FROM vacations WHERE employee_id = ?1 ORDER BY year)",
    )?;
    statement.query_row([id], |row| row.get(0))
}
