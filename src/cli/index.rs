//! `maru index`: the documents that similarity search finds.

use std::{
    fs::File,
    io::{BufReader, IsTerminal as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use maru_retrieval::{DocumentIndex, JsonLinesReader, NewDocument};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{serve::block_on, terminal};
use crate::{
    app,
    config::{Config, LoadedConfig},
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru index add columns.jsonl
  maru index add --collection faq faq.jsonl
  maru index list
  maru index remove faq

A line of the file is a text in quotes, or an object with \"text\" and, if you like,
\"id\" and \"metadata\". Adding a file again goes on where it was interrupted.")]
pub(super) struct IndexArgs {
    #[command(subcommand)]
    action: IndexAction,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum IndexAction {
    /// Add the documents of a file, one JSON value a line
    Add {
        /// The file
        file: PathBuf,
        /// Where to [default: chromadb.collection of the settings]
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

pub(super) fn run(loaded: &LoadedConfig, options: &IndexArgs) -> Result<ExitCode> {
    block_on(async {
        let index = app::open_index(&loaded.config).await?;
        let shown = match &options.action {
            IndexAction::Add { file, collection } => {
                let collection = collection
                    .as_ref()
                    .unwrap_or(&loaded.config.chromadb.collection);
                add_file(&index, collection, file).await?
            }
            IndexAction::List => list_collections(&index, &loaded.config).await?,
            IndexAction::Remove { collection } => {
                let removed = index.remove(collection).await?;
                json!({"collection": collection, "removed": removed})
            }
        };
        terminal::print(&if options.json {
            format!("{}\n", serde_json::to_string_pretty(&shown)?)
        } else {
            options.action.format_answer(&shown)
        })?;
        let nothing =
            matches!(options.action, IndexAction::Remove { .. }) && shown["removed"] == false;
        Ok(ExitCode::from(u8::from(nothing)))
    })
}

impl IndexAction {
    fn format_answer(&self, shown: &Value) -> String {
        let text = |value: &Value| match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match self {
            Self::Add { .. } => format!(
                "{} documents added to {}, {} were there already\n",
                shown["added"],
                text(&shown["collection"]),
                shown["skipped"]
            ),
            Self::Remove { collection } if shown["removed"] == true => {
                format!("{collection} is removed\n")
            }
            Self::Remove { collection } => format!("there is no collection {collection}\n"),
            Self::List => {
                let mut rows = vec![
                    ["COLLECTION", "DOCUMENTS", "MODEL", "DIMENSION", "SEARCHED"]
                        .map(str::to_owned)
                        .to_vec(),
                ];
                for it in shown.as_array().into_iter().flatten() {
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

/// Adds what is not there yet, showing how far it is.
async fn add_file(index: &DocumentIndex, collection: &str, file: &PathBuf) -> Result<Value> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut lines = JsonLinesReader::new(BufReader::new(opened));
    let (mut added, mut skipped, began) = (0, 0, Instant::now());
    loop {
        let batch: Vec<NewDocument> = lines
            .by_ref()
            .take(ADD_BATCH_DOCUMENTS)
            .collect::<Result<_, _>>()?;
        if batch.is_empty() {
            break;
        }
        let ids: Vec<String> = batch.iter().map(NewDocument::id_or_digest).collect();
        let there = index.existing_ids(collection, &ids).await?;
        let fresh: Vec<NewDocument> = batch
            .into_iter()
            .filter(|it| !there.contains(&it.id_or_digest()))
            .collect();
        skipped += there.len();
        if !fresh.is_empty() {
            added += index.add(collection, &fresh).await?;
        }
        let rate = f64::from(u32::try_from(added).unwrap_or(u32::MAX))
            / began.elapsed().as_secs_f64().max(0.001);
        progress(&format!(
            "{added} added, {skipped} there already, {rate:.0} a second"
        ));
    }
    progress("");
    Ok(json!({"collection": collection, "added": added, "skipped": skipped}))
}

/// On a terminal one line is written over; elsewhere nobody watches.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        terminal::overwrite_line(text);
    }
}

async fn list_collections(index: &DocumentIndex, config: &Config) -> Result<Value> {
    let collections = index.collections().await?;
    let shown = collections.iter().map(|it| {
        let searched = it.name == config.chromadb.collection;
        json!({"name": it.name, "count": it.count, "model": it.model, "dimension": it.dimension, "searched": searched})
    });
    Ok(shown.collect())
}
