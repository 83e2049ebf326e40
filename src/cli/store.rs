//! `maru backup`, `maru restore` and `maru store`: the hub's store as a whole.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use maru_store::{CopyError, CopyMode, Store};
use serde_json::json;

use super::{context::CliContext, serve::block_on, terminal::ProgressLine};
use crate::app;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru backup maru-backup.db
  maru --config /etc/maru/maru.yaml backup /backups/$(date +%F).db

The file is an SQLite database with everything of the store at one moment; hubs may run
meanwhile. Secrets in it are encrypted as in the store: keep the seal key in another place.")]
pub(super) struct BackupArgs {
    /// The file, which must not exist
    file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru restore maru-backup.db
  maru restore --replace maru-backup.db

In PostgreSQL everything changes at once, and running hubs take it over. A hub on an SQLite
file must be stopped first.")]
pub(super) struct RestoreArgs {
    /// The file of maru backup
    file: PathBuf,
    /// Remove what the store has
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    #[command(subcommand)]
    action: StoreAction,
}

#[derive(Debug, Subcommand)]
enum StoreAction {
    /// Copy the store of this data directory into an empty PostgreSQL database
    #[command(after_help = "Examples:
  maru store copy --to postgres://maru@db.example/maru

Stop the hub first. The copy is compared with the original at the end. One that was interrupted
goes on when the command is repeated. Then start the hubs with this address as store_url, and
with the seal key of this data directory as seal_key_file.")]
    Copy {
        /// The address of the database
        #[arg(long, value_name = "URL", env = "MARU_COPY_TO", hide_env_values = true)]
        to: String,
    },
}

/// Runs `maru backup`.
pub(super) fn backup(context: &CliContext, options: &BackupArgs) -> Result<ExitCode> {
    let file = &options.file;
    if file.exists() {
        bail!("{} exists already; choose another file", file.display());
    }
    block_on(async {
        let store = app::open_database(context.config()).await?;
        let copied = async {
            app::create_private_file(file)?;
            copy_all(&store, &Store::open(file).await?, CopyMode::Replace).await
        };
        let copied = copied.await.inspect_err(|_| {
            // Half a backup is worse than none.
            let _ = fs::remove_file(file);
        })?;
        print_copied(context, copied, &file.display().to_string())
    })
}

/// Runs `maru restore`.
pub(super) fn restore(context: &CliContext, options: &RestoreArgs) -> Result<ExitCode> {
    let file = &options.file;
    if !file.is_file() {
        bail!("there is no file {}", file.display());
    }
    block_on(async {
        let _no_hub = lock_file_store(context)?;
        let store = app::open_database(context.config()).await?;
        let mode = if options.replace {
            CopyMode::Replace
        } else {
            CopyMode::Fill
        };
        let copied = copy_all(&Store::open(file).await?, &store, mode).await?;
        print_copied(context, copied, "the store")
    })
}

/// Runs `maru store`.
pub(super) fn run(context: &CliContext, options: &StoreArgs) -> Result<ExitCode> {
    let StoreAction::Copy { to } = &options.action;
    block_on(async {
        let _no_hub = lock_file_store(context)?;
        let store = app::open_database(context.config()).await?;
        let target = Store::connect(to).await?;
        let copied = copy_all(&store, &target, CopyMode::Fill).await?;
        print_copied(context, copied, "the database")
    })
}

/// Keeps hubs from running on an SQLite file; those on PostgreSQL take changes over.
fn lock_file_store(context: &CliContext) -> Result<Option<app::DataDirLock>> {
    let config = context.config();
    if config.store_url.is_some() {
        return Ok(None);
    }
    app::prepare_data_dir(&config.data_dir)?;
    app::DataDirLock::acquire(&config.data_dir).map(Some)
}

async fn copy_all(from: &Store, to: &Store, mode: CopyMode) -> Result<u64> {
    let mut progress = ProgressLine::new();
    let report = |table: &str, rows| progress.show(&format!("{table}: {rows} rows"));
    match from.copy_to(to, mode, report).await {
        Err(error @ CopyError::NotEmpty(_)) => {
            bail!("{error}; maru restore --replace removes what a store has")
        }
        done => Ok(done?),
    }
}

fn print_copied(context: &CliContext, rows: u64, target: &str) -> Result<ExitCode> {
    context.print(&json!({"rows": rows, "to": target}), |_| {
        format!("{rows} rows copied to {target} and compared\n")
    })?;
    Ok(ExitCode::SUCCESS)
}
