//! `maru index`: manages the documents of similarity search.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use maru_retrieval::{DocumentIndex, JsonLinesReader, NewDocument};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    context::CliContext,
    serve::block_on,
    suggestion::did_you_mean,
    terminal::{self, ProgressLine},
};
use crate::{app, config::Config};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru index add columns.jsonl
  maru index add --collection faq faq.jsonl
  maru index list
  maru index remove faq

Each line of the file is a JSON string, or an object with \"text\" and optionally \"id\"
and \"metadata\". An interrupted import continues where it stopped.")]
pub(super) struct IndexArgs {
    #[command(subcommand)]
    action: IndexAction,
}

#[derive(Debug, Subcommand)]
enum IndexAction {
    /// Add the documents of a file, one JSON value per line
    Add {
        /// The file
        file: PathBuf,
        /// The collection [default: chromadb.collection of the settings]
        #[arg(long)]
        collection: Option<String>,
    },
    /// List the collections
    List,
    /// Remove a collection with its documents
    Remove {
        /// The collection
        collection: String,
    },
}

const ADD_BATCH_DOCUMENTS: usize = 256;

pub(super) fn run(context: &CliContext, options: &IndexArgs) -> Result<ExitCode> {
    if context.hub.is_some() {
        bail!("maru index works on the data directory of this machine, not on --hub");
    }
    block_on(async {
        let index = app::open_index(context.config()).await?;
        let result = match &options.action {
            IndexAction::Add { file, collection } => {
                let collection = collection
                    .as_ref()
                    .unwrap_or(&context.config().chromadb.collection);
                add_file(&index, collection, file).await?
            }
            IndexAction::List => list_collections(&index, context.config()).await?,
            IndexAction::Remove { collection } => {
                let removed = index.remove(collection).await?;
                if !removed {
                    let known = index.collections().await?;
                    let known = known.iter().map(|it| &*it.name);
                    terminal::print_error(&format!(
                        "there is no collection {collection:?}{}; see maru index list",
                        did_you_mean(collection, known)
                    ));
                    return Ok(ExitCode::FAILURE);
                }
                json!({"collection": collection, "removed": removed})
            }
        };
        context.print(&result, |it| options.action.format_result(it))?;
        Ok(ExitCode::SUCCESS)
    })
}

impl IndexAction {
    fn format_result(&self, result: &Value) -> String {
        let text = |value: &Value| match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match self {
            Self::Add { .. } => format!(
                "{} documents added to {}, {} were there already\n",
                result["added"],
                text(&result["collection"]),
                result["skipped"]
            ),
            Self::Remove { collection } => format!("{collection} is removed\n"),
            Self::List => {
                let mut rows = vec![
                    ["COLLECTION", "DOCUMENTS", "MODEL", "DIMENSION", "SEARCHED"]
                        .map(str::to_owned)
                        .to_vec(),
                ];
                for it in result.as_array().into_iter().flatten() {
                    let searched = if it["searched"] == true { "yes" } else { "" };
                    rows.push(vec![
                        text(&it["name"]),
                        text(&it["count"]),
                        text(&it["model"]),
                        text(&it["dimension"]),
                        searched.to_owned(),
                    ]);
                }
                terminal::format_table(&rows)
            }
        }
    }
}

/// Adds the documents that the collection does not have yet, and shows the progress.
async fn add_file(index: &DocumentIndex, collection: &str, path: &PathBuf) -> Result<Value> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = JsonLinesReader::new(BufReader::new(file));
    let total = count_lines(path)?;
    let mut progress = ProgressLine::new();
    let (mut added, mut skipped, started) = (0, 0, Instant::now());
    loop {
        let batch: Vec<NewDocument> = lines
            .by_ref()
            .take(ADD_BATCH_DOCUMENTS)
            .collect::<Result<_, _>>()?;
        if batch.is_empty() {
            break;
        }
        let ids: Vec<String> = batch.iter().map(NewDocument::id_or_digest).collect();
        let existing = index.existing_ids(collection, &ids).await?;
        let new_documents: Vec<NewDocument> = batch
            .into_iter()
            .filter(|it| !existing.contains(&it.id_or_digest()))
            .collect();
        skipped += existing.len();
        if !new_documents.is_empty() {
            added += index.add(collection, &new_documents).await?;
        }
        let rate = f64::from(u32::try_from(added).unwrap_or(u32::MAX))
            / started.elapsed().as_secs_f64().max(0.001);
        let percent = ((added + skipped) * 100).checked_div(total).unwrap_or(100);
        progress.show(&format!(
            "{} of {total} ({percent} %), {added} added, {rate:.0} per second",
            added + skipped
        ));
    }
    Ok(json!({"collection": collection, "added": added, "skipped": skipped}))
}

/// How many documents the file has, at most.
fn count_lines(path: &PathBuf) -> Result<usize> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = BufReader::new(file).split(b'\n');
    let has_text = |it: &Vec<u8>| it.iter().any(|it| !it.is_ascii_whitespace());
    Ok(lines.map_while(Result::ok).filter(has_text).count())
}

async fn list_collections(index: &DocumentIndex, config: &Config) -> Result<Value> {
    let collections = index.collections().await?;
    let rows = collections.iter().map(|it| {
        let searched = it.name == config.chromadb.collection;
        json!({"name": it.name, "count": it.count, "model": it.model, "dimension": it.dimension, "searched": searched})
    });
    Ok(rows.collect())
}
