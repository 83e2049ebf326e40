//! The hostile sets: nothing gets through, and what is meant well works.

use std::{error::Error, time::Duration};

use maru_sources::{
    DataSource, QueryLimits, QueryParameterKind, QueryParameters, QueryRows, QueryValue,
};
use serde_json::Value as Json;
use tokio::time::Instant;

use super::databases::{CANARY, query_rows, security_file};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HostileTally {
    pub(super) hostile: usize,
    pub(super) legitimate: usize,
}

/// Sends every statement of a dialect that is not of the class `skipped`; `check` looks at
/// the database after each hostile one.
pub(super) async fn run_statements(
    source: &DataSource,
    dialect: &str,
    skipped: Option<&str>,
    check: impl AsyncFn(&str),
) -> HostileTally {
    let mut tally = HostileTally::default();
    let mut wrong = Vec::new();
    for line in security_file("hostile_sql.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let is_skipped = skipped.is_some_and(|class| case["class"] == class);
        if case["dialect"] != dialect || case["tier"] == "ext" || is_skipped {
            continue;
        }
        let sql = case_text(&case);
        let start = Instant::now();
        let answer = source
            .query(&sql, &QueryParameters::default(), case_limits(&case))
            .await;
        let took = start.elapsed().as_millis();
        let id = case["id"].as_str().unwrap();
        let problem = if case["kind"] == "hostile" {
            tally.hostile += 1;
            check(id).await;
            hostile_failure(&case, &answer, took)
        } else {
            tally.legitimate += 1;
            legitimate_failure(&case, &answer)
        };
        if let Some(problem) = problem {
            wrong.push(format!("{id} {}: {problem}", sql.get(..80).unwrap_or(&sql)));
        }
    }
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
    tally
}

fn case_text(case: &Json) -> String {
    let Some(parts) = case["parts"].as_array() else {
        return case["sql"].as_str().unwrap().to_owned();
    };
    let part = |it: &Json| {
        it[0]
            .as_str()
            .unwrap()
            .repeat(it[1].as_u64().unwrap() as usize)
    };
    parts.iter().map(part).collect()
}

/// What is endless need not be waited for as long as it may be.
fn case_limits(case: &Json) -> QueryLimits {
    let timeout = if case["class"] == "dos" {
        Duration::from_secs(1)
    } else {
        QueryLimits::default().timeout
    };
    QueryLimits {
        timeout,
        ..QueryLimits::default()
    }
}

type QueryResult = Result<QueryRows, maru_sources::Error>;

fn hostile_failure(case: &Json, answer: &QueryResult, took: u128) -> Option<String> {
    let accepted = |what: &str| {
        case["accept"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it == what)
    };
    if took > u128::from(case["max_ms"].as_u64().unwrap()) {
        return Some(format!("took {took} ms"));
    }
    let said = visible_text(answer);
    if [CANARY, "/var/", "/tmp/", "root:x", "127.0.0.1"]
        .iter()
        .any(|it| said.contains(it))
    {
        return Some(format!("tells {said}"));
    }
    match answer {
        Err(_) => None,
        Ok(rows) if rows.truncated && accepted("truncated") => None,
        Ok(rows) if rows.count <= 1000 && accepted("rows_small") => None,
        Ok(_) => Some(format!("got through: {said}")),
    }
}

/// All that a caller sees.
fn visible_text(answer: &QueryResult) -> String {
    match answer {
        Ok(rows) => format!("{:?} {}", rows.columns, rows.json),
        Err(error) => error.to_string(),
    }
}

fn legitimate_failure(case: &Json, answer: &QueryResult) -> Option<String> {
    let rows = match answer {
        Ok(rows) => rows,
        Err(error) => return Some(format!("{error} {:?}", error.source())),
    };
    if case["rows"] != rows.count {
        return Some(format!("{} rows", rows.count));
    }
    let json: Json = serde_json::from_str(&rows.json).unwrap();
    let expected = case["first"].as_object();
    let differs = expected.is_some_and(|it| it.iter().any(|(name, value)| json[0][name] != *value));
    differs.then(|| rows.json.clone())
}

/// Sends our own cases: `P` for PostgreSQL, `S` for SQLite.
pub(super) async fn run_name_cases(source: &DataSource, dialect: char) {
    for line in security_file("sql_names.txt").lines() {
        let Some((kind, sql)) = line.split_once(' ') else {
            continue;
        };
        if !kind.eq_ignore_ascii_case(&dialect.to_string()) {
            continue;
        }
        let answer = query_rows(source, sql).await;
        let is_wrong = if kind.starts_with(dialect) {
            answer.is_ok() || visible_text(&answer).contains(CANARY)
        } else {
            answer.is_err()
        };
        assert!(
            !is_wrong,
            "{}: {line}: {}",
            source.name(),
            visible_text(&answer)
        );
    }
}

/// Calls the tools of the set with every set of arguments.
pub(super) async fn run_argument_cases(source: &DataSource) -> usize {
    let tools: Json = serde_json::from_str(&security_file("param_tools.json")).unwrap();
    let mut count = 0;
    for line in security_file("hostile_params.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let Some(name) = case["tool"].as_str() else {
            continue;
        };
        let tool = tools
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == name)
            .unwrap();
        let answer = call_tool(source, tool, &case["args"]).await;
        let problem = match case["expect"].as_str().unwrap() {
            "error" => answer.is_ok().then(|| "no error".to_owned()),
            "error_or_zero" => answer
                .is_ok_and(|it| it.count > 0)
                .then(|| "a row".to_owned()),
            _ => match answer {
                Ok(rows) => legitimate_failure(&case, &Ok(rows)),
                Err(error) => Some(error),
            },
        };
        assert_eq!(problem, None, "{line}");
        count += 1;
    }
    count
}

/// Reads arguments as a tool would, by their declared kinds.
async fn call_tool(
    source: &DataSource,
    tool: &Json,
    arguments: &Json,
) -> Result<QueryRows, String> {
    let mut parameters = QueryParameters::default();
    let mut given = arguments.as_object().unwrap().clone();
    for declared in tool["params"].as_array().unwrap() {
        let name = declared["name"].as_str().unwrap();
        let kind = match declared["type"].as_str().unwrap() {
            "STRING" => QueryParameterKind::Text,
            "NUMBER" => QueryParameterKind::Number,
            _ => QueryParameterKind::Boolean,
        };
        let json = given.shift_remove(name).unwrap_or_default();
        let value = QueryValue::from_json(kind, &json).ok_or("wrong kind")?;
        if value == QueryValue::Null && declared["required"] == true {
            return Err("no value".into());
        }
        parameters.set(name, value);
    }
    for (name, _) in given {
        parameters.set(name, QueryValue::Null);
    }
    let sql = tool["sql"].as_str().unwrap();
    let answer = source.query(sql, &parameters, QueryLimits::default()).await;
    answer.map_err(|it| it.to_string())
}
