//! Company documents: found by a tool, read as resources.

use std::sync::Arc;

use maru_protocol::RpcError;
use maru_sources::{DataSource, QueryValue};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    entry_handler, error_text, internal_error, output_schema, query_sample, read_only_annotations,
    to_response,
};
use crate::{
    entry::{CatalogEntry, CatalogEntryKind, EntryAction, EntryRequest, EntryResponse},
    resource_not_found,
};

const DOCUMENT_URI_PREFIX: &str = "maru://documents/";

#[derive(Debug, Deserialize, Serialize)]
struct SampleDocument {
    id: i64,
    title: String,
    content: String,
    category: String,
}

#[derive(Debug, Deserialize)]
struct DocumentId {
    id: String,
}

/// Ignores the case of ASCII letters, as `LIKE` does.
const FIND_MATCHING: &str = "SELECT id, title, content, category FROM documents
    WHERE instr(lower(title), lower(:query)) > 0 OR instr(lower(content), lower(:query)) > 0
    ORDER BY id LIMIT 50";
const FIND_BY_ID: &str = "SELECT id, title, content, category FROM documents WHERE id = :id";
const IDS_WITH_PREFIX: &str = "SELECT CAST(id AS TEXT) AS id FROM documents
    WHERE substr(id, 1, length(:start)) = :start ORDER BY documents.id LIMIT 100";

pub(super) fn entries(source: &DataSource) -> Vec<Arc<CatalogEntry>> {
    let search = json!({
        "name": "search_docs",
        "title": "Search documents",
        "description": "Searches the company documents whose title or content contains the query, and returns them whole.",
        "inputSchema": {
            "type": "object",
            "properties": {"query": {
                "type": "string", "minLength": 1, "maxLength": 1000,
                "description": "Text to search for, exactly as it is written in the document, such as 연차 or deployment"
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

async fn search_docs(source: DataSource, request: EntryRequest) -> Result<EntryResponse, RpcError> {
    let arguments = request.action.into_call_arguments()?;
    let query = arguments["query"].as_str().unwrap_or_default();
    let query = QueryValue::Text(query.to_owned());
    let found: Result<Vec<SampleDocument>, _> =
        query_sample(&source, FIND_MATCHING, [("query", query)]).await;
    to_response(found.map_err(|error| error_text(&error)))
}

/// Reads a document, or completes its number.
async fn handle_document(
    source: DataSource,
    request: EntryRequest,
) -> Result<EntryResponse, RpcError> {
    match request.action {
        EntryAction::ReadResource(uri) => read_document(source, uri).await,
        EntryAction::Complete { value, .. } => {
            let start = [("start", QueryValue::Text(value))];
            let ids: Vec<DocumentId> = query_sample(&source, IDS_WITH_PREFIX, start)
                .await
                .map_err(|error| internal_error(&error))?;
            let ids: Vec<String> = ids.into_iter().map(|it| it.id).collect();
            let completion = json!({"values": ids, "total": ids.len(), "hasMore": false});
            Ok(EntryResponse::Complete(
                json!({"completion": completion}).into(),
            ))
        }
        EntryAction::CallTool(_)
        | EntryAction::GetPrompt(_)
        | EntryAction::CallExtension { .. } => {
            Err(RpcError::invalid_params("a document can only be read"))
        }
    }
}

async fn read_document(source: DataSource, uri: String) -> Result<EntryResponse, RpcError> {
    let id = uri
        .strip_prefix(DOCUMENT_URI_PREFIX)
        .and_then(|id| id.parse::<i64>().ok());
    let found: Vec<SampleDocument> = match id {
        None => Vec::new(),
        Some(id) => query_sample(&source, FIND_BY_ID, [("id", QueryValue::Integer(id))])
            .await
            .map_err(|error| internal_error(&error))?,
    };
    let Some(document) = found.first() else {
        return Err(resource_not_found(&uri));
    };
    let text = format!("# {}\n\n{}\n", document.title, document.content);
    let contents = json!([{"uri": uri, "mimeType": "text/plain", "text": text}]);
    Ok(EntryResponse::Complete(
        json!({"contents": contents}).into(),
    ))
}
