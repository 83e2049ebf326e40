//! Company documents: found by a tool, read as resources.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;
use serde_json::json;

use super::{QUERY_LIMIT, answer, failed, handler, internal, output_schema, reads_only};
use crate::{
    mcp::RpcError,
    source::Sqlite,
    tool::no_resource,
    tool::offer::{Action, Answer, Ask, Kind, Offer},
};

const MAX_FOUND: u32 = 50;
const PREFIX: &str = "maru://documents/";

#[derive(Debug, Serialize)]
struct Document {
    id: i64,
    title: String,
    content: String,
    category: String,
}

pub(super) fn offers(source: &Sqlite) -> Vec<Arc<Offer>> {
    let search = json!({
        "name": "search_docs",
        "title": "Search documents",
        "description": "Searches the company documents whose title or content contains the query, and returns them whole.",
        "inputSchema": {
            "type": "object",
            "properties": {"query": {
                "type": "string", "minLength": 1, "maxLength": 1000,
                "description": "Words to look for, as they stand in the text, such as 연차 or deployment"
            }},
            "required": ["query"],
            "additionalProperties": false
        },
        "outputSchema": output_schema(),
        "annotations": reads_only(),
    });
    let documents = json!({
        "uriTemplate": format!("{PREFIX}{{id}}"),
        "name": "document",
        "title": "Company document",
        "description": "One company document as text, by its number.",
        "mimeType": "text/plain",
    });
    vec![
        Offer::own(Kind::Tool, search, handler(source, search_docs)),
        Offer::own(Kind::Template, documents, handler(source, document)),
    ]
}

async fn search_docs(source: Sqlite, ask: Ask) -> Result<Answer, RpcError> {
    let Action::Call(arguments) = ask.action else {
        return Err(RpcError::params("a tool is called"));
    };
    let query = arguments["query"].as_str().unwrap_or_default();
    let pattern = format!(
        "%{}%",
        query
            .replace('\\', r"\\")
            .replace('%', r"\%")
            .replace('_', r"\_")
    );
    let found = source
        .read(QUERY_LIMIT, move |connection| find(connection, &pattern))
        .await;
    answer(found.map_err(|error| failed(&error)))
}

/// Reads one, or completes its number.
async fn document(source: Sqlite, ask: Ask) -> Result<Answer, RpcError> {
    match ask.action {
        Action::Read(uri) => read(source, uri).await,
        Action::Complete { value, .. } => {
            let ids = source
                .read(QUERY_LIMIT, move |connection| ids(connection, &value))
                .await;
            let ids = ids.map_err(|error| internal(&error))?;
            let completion = json!({"values": ids, "total": ids.len(), "hasMore": false});
            Ok(Answer::Complete(
                json!({"completion": completion}).to_string(),
            ))
        }
        Action::Call(_) | Action::Get(_) => Err(RpcError::params("a resource is read")),
    }
}

async fn read(source: Sqlite, uri: String) -> Result<Answer, RpcError> {
    let id = uri
        .strip_prefix(PREFIX)
        .and_then(|id| id.parse::<i64>().ok());
    let found = match id {
        None => None,
        Some(id) => source
            .read(QUERY_LIMIT, move |connection| one(connection, id))
            .await
            .map_err(|error| internal(&error))?,
    };
    let Some(document) = found else {
        return Err(no_resource(&uri));
    };
    let text = format!("# {}\n\n{}\n", document.title, document.content);
    let contents = json!([{"uri": uri, "mimeType": "text/plain", "text": text}]);
    Ok(Answer::Complete(json!({"contents": contents}).to_string()))
}

fn find(connection: &Connection, pattern: &str) -> rusqlite::Result<Vec<Document>> {
    let mut statement = connection.prepare_cached(
        r"SELECT id, title, content, category FROM documents
          WHERE title LIKE ?1 ESCAPE '\' OR content LIKE ?1 ESCAPE '\' ORDER BY id LIMIT ?2",
    )?;
    statement.query_map((pattern, MAX_FOUND), row)?.collect()
}

fn one(connection: &Connection, id: i64) -> rusqlite::Result<Option<Document>> {
    let mut statement = connection
        .prepare_cached("SELECT id, title, content, category FROM documents WHERE id = ?1")?;
    statement.query_row([id], row).optional()
}

fn ids(connection: &Connection, start: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT CAST(id AS TEXT) FROM documents WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT 100",
    )?;
    statement.query_map([start], |row| row.get(0))?.collect()
}

fn row(row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document {
        id: row.get(0)?,
        title: row.get(1)?,
        content: row.get(2)?,
        category: row.get(3)?,
    })
}
