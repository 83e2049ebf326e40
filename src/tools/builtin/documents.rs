//! Company documents: found by a tool, read as resources.

use std::sync::Arc;

use maru_protocol::RpcError;
use maru_sources::Sqlite;
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::Serialize;
use serde_json::json;

use super::{
    SAMPLE_QUERY_TIMEOUT, entry_handler, error_text, internal_error, output_schema,
    read_only_annotations, to_response,
};
use crate::tools::{
    entry::{CatalogEntry, CatalogEntryKind, EntryAction, EntryRequest, EntryResponse},
    resource_not_found,
};

const MAX_DOCUMENTS_FOUND: u32 = 50;
const DOCUMENT_URI_PREFIX: &str = "maru://documents/";

#[derive(Debug, Serialize)]
struct SampleDocument {
    id: i64,
    title: String,
    content: String,
    category: String,
}

pub(super) fn entries(source: &Sqlite) -> Vec<Arc<CatalogEntry>> {
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
        "annotations": read_only_annotations(),
    });
    let documents = json!({
        "uriTemplate": format!("{DOCUMENT_URI_PREFIX}{{id}}"),
        "name": "document",
        "title": "Company document",
        "description": "One company document as text, by its number.",
        "mimeType": "text/plain",
    });
    vec![
        CatalogEntry::builtin(
            CatalogEntryKind::Tool,
            search,
            entry_handler(source, search_docs),
        ),
        CatalogEntry::builtin(
            CatalogEntryKind::ResourceTemplate,
            documents,
            entry_handler(source, handle_document),
        ),
    ]
}

async fn search_docs(source: Sqlite, ask: EntryRequest) -> Result<EntryResponse, RpcError> {
    let EntryAction::CallTool(arguments) = ask.action else {
        return Err(RpcError::invalid_params("a tool is called"));
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
        .read(SAMPLE_QUERY_TIMEOUT, move |connection| {
            find_matching(connection, &pattern)
        })
        .await;
    to_response(found.map_err(|error| error_text(&error)))
}

/// Reads one, or completes its number.
async fn handle_document(source: Sqlite, ask: EntryRequest) -> Result<EntryResponse, RpcError> {
    match ask.action {
        EntryAction::ReadResource(uri) => read_document(source, uri).await,
        EntryAction::Complete { value, .. } => {
            let ids = source
                .read(SAMPLE_QUERY_TIMEOUT, move |connection| {
                    ids_with_prefix(connection, &value)
                })
                .await;
            let ids = ids.map_err(|error| internal_error(&error))?;
            let completion = json!({"values": ids, "total": ids.len(), "hasMore": false});
            Ok(EntryResponse::Complete(
                json!({"completion": completion}).into(),
            ))
        }
        EntryAction::CallTool(_) | EntryAction::GetPrompt(_) => {
            Err(RpcError::invalid_params("a resource is read"))
        }
    }
}

async fn read_document(source: Sqlite, uri: String) -> Result<EntryResponse, RpcError> {
    let id = uri
        .strip_prefix(DOCUMENT_URI_PREFIX)
        .and_then(|id| id.parse::<i64>().ok());
    let found = match id {
        None => None,
        Some(id) => source
            .read(SAMPLE_QUERY_TIMEOUT, move |connection| {
                find_by_id(connection, id)
            })
            .await
            .map_err(|error| internal_error(&error))?,
    };
    let Some(document) = found else {
        return Err(resource_not_found(&uri));
    };
    let text = format!("# {}\n\n{}\n", document.title, document.content);
    let contents = json!([{"uri": uri, "mimeType": "text/plain", "text": text}]);
    Ok(EntryResponse::Complete(
        json!({"contents": contents}).into(),
    ))
}

fn find_matching(connection: &Connection, pattern: &str) -> rusqlite::Result<Vec<SampleDocument>> {
    let mut statement = connection.prepare_cached(
        r"SELECT id, title, content, category FROM documents
          WHERE title LIKE ?1 ESCAPE '\' OR content LIKE ?1 ESCAPE '\' ORDER BY id LIMIT ?2",
    )?;
    statement
        .query_map((pattern, MAX_DOCUMENTS_FOUND), document_from_row)?
        .collect()
}

fn find_by_id(connection: &Connection, id: i64) -> rusqlite::Result<Option<SampleDocument>> {
    let mut statement = connection
        .prepare_cached("SELECT id, title, content, category FROM documents WHERE id = ?1")?;
    statement.query_row([id], document_from_row).optional()
}

fn ids_with_prefix(connection: &Connection, start: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "SELECT CAST(id AS TEXT) FROM documents WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT 100",
    )?;
    statement.query_map([start], |row| row.get(0))?.collect()
}

fn document_from_row(row: &Row<'_>) -> rusqlite::Result<SampleDocument> {
    Ok(SampleDocument {
        id: row.get(0)?,
        title: row.get(1)?,
        content: row.get(2)?,
        category: row.get(3)?,
    })
}
