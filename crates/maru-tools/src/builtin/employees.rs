//! Employees and their vacation days.

use std::sync::Arc;

use maru_protocol::RpcError;
use maru_sources::{DataSource, QueryValue};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    entry_handler, error_text, internal_error, output_schema, query_sample, read_only_annotations,
    to_response,
};
use crate::entry::{CatalogEntry, CatalogEntryKind, EntryAction, EntryRequest, EntryResponse};

#[derive(Debug, Deserialize, Serialize)]
struct Employee {
    id: String,
    name: String,
    department: String,
    hire_date: String,
    days_of_service: i64,
}

#[derive(Debug, Deserialize, Serialize)]
struct EmployeeSummary {
    id: String,
    name: String,
}

#[derive(Debug, Deserialize, Serialize)]
struct VacationBalance {
    employee_id: String,
    year: i64,
    total: f64,
    used: f64,
    remaining: f64,
}

#[derive(Debug, Deserialize)]
struct KnownYears {
    /// `2025, 2026`, or `none`.
    years: String,
}

const FIND_EMPLOYEE: &str = "SELECT id, name, department, hire_date,
    CAST(julianday('now', 'localtime', 'start of day') - julianday(hire_date) AS INTEGER)
        AS days_of_service
    FROM employees WHERE id = :id";
const LIST_EMPLOYEES: &str = "SELECT id, name FROM employees
    WHERE substr(id, 1, length(:start)) = :start ORDER BY id";
const FIND_VACATION: &str = "SELECT employee_id, year, total, used, total - used AS remaining
    FROM vacations WHERE employee_id = :id AND year = :year";
const FIND_KNOWN_YEARS: &str = "SELECT
    (SELECT coalesce(group_concat(year, ', '), 'none')
     FROM (SELECT year FROM vacations WHERE employee_id = :id ORDER BY year)) AS years
    FROM employees WHERE id = :id";

pub(super) fn entries(source: &DataSource) -> Vec<Arc<CatalogEntry>> {
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

async fn get_employee_info(
    source: DataSource,
    request: EntryRequest,
) -> Result<EntryResponse, RpcError> {
    let id = argument(&request, "employee_id");
    let wanted = [("id", QueryValue::Text(id.clone()))];
    let found: Result<Vec<Employee>, _> = query_sample(&source, FIND_EMPLOYEE, wanted).await;
    to_response(match found {
        Ok(found) => found
            .into_iter()
            .next()
            .ok_or_else(|| unknown_employee(&id)),
        Err(error) => Err(error_text(&error)),
    })
}

async fn get_all_employees(
    source: DataSource,
    _request: EntryRequest,
) -> Result<EntryResponse, RpcError> {
    let found = list_employees(&source, String::new()).await;
    to_response(found.map_err(|error| error_text(&error)))
}

async fn calculate_vacation_days(
    source: DataSource,
    request: EntryRequest,
) -> Result<EntryResponse, RpcError> {
    let id = argument(&request, "employee_id");
    let arguments = request.action.into_call_arguments()?;
    let year = arguments.integer("year").unwrap_or_default();
    to_response(find_vacation(&source, &id, year).await)
}

async fn find_vacation(
    source: &DataSource,
    id: &str,
    year: i64,
) -> Result<VacationBalance, String> {
    let wanted = || ("id", QueryValue::Text(id.to_owned()));
    let in_year = [wanted(), ("year", QueryValue::Integer(year))];
    let found: Vec<VacationBalance> = query_sample(source, FIND_VACATION, in_year)
        .await
        .map_err(|error| error_text(&error))?;
    if let Some(vacation) = found.into_iter().next() {
        return Ok(vacation);
    }
    let known: Vec<KnownYears> = query_sample(source, FIND_KNOWN_YEARS, [wanted()])
        .await
        .map_err(|error| error_text(&error))?;
    Err(match known.first() {
        None => unknown_employee(id),
        Some(KnownYears { years }) => {
            format!("no vacation days of {id} in {year}; known years: {years}")
        }
    })
}

/// Renders the prompt, or completes the employee's number.
async fn vacation_report(
    source: DataSource,
    request: EntryRequest,
) -> Result<EntryResponse, RpcError> {
    if let EntryAction::Complete { value, .. } = request.action {
        let found = list_employees(&source, value).await;
        let found = found.map_err(|error| internal_error(&error))?;
        let values: Vec<String> = found.into_iter().map(|it| it.id).take(100).collect();
        let completion = json!({"total": values.len(), "hasMore": false, "values": values});
        return Ok(EntryResponse::Complete(
            json!({"completion": completion}).into(),
        ));
    }
    let id = argument(&request, "employee_id");
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

fn argument(request: &EntryRequest, name: &str) -> String {
    let (EntryAction::CallTool(arguments) | EntryAction::GetPrompt(arguments)) = &request.action
    else {
        return String::new();
    };
    arguments[name].as_str().unwrap_or_default().to_owned()
}

fn unknown_employee(id: &str) -> String {
    format!("no employee {id}; get_all_employees lists them")
}

/// The employees whose number begins with `start`.
async fn list_employees(
    source: &DataSource,
    start: String,
) -> Result<Vec<EmployeeSummary>, maru_sources::Error> {
    let start = [("start", QueryValue::Text(start))];
    query_sample(source, LIST_EMPLOYEES, start).await
}
