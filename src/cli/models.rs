//! `maru models`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::{
    client::{Client, Remote},
    out,
    serve::block_on,
};
use crate::config::Loaded;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(loaded: Loaded, options: &Options) -> Result<ExitCode> {
    let models = block_on(async { list(Client::open(loaded).await?).await })?;
    if options.json {
        out::print(&format!("{}\n", serde_json::to_string_pretty(&models)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    if models.is_empty() {
        out::complain(
            "no model can be asked for; add `models` to maru.yaml, or start an Ollama (docs/models.md)",
        );
        return Ok(ExitCode::SUCCESS);
    }
    let text = |model: &Value, name: &str| model[name].as_str().unwrap_or_default().to_owned();
    let mut rows = vec![["MODEL", "BACKEND"].map(str::to_owned).to_vec()];
    rows.extend(
        models
            .iter()
            .map(|it| vec![text(it, "id"), text(it, "owned_by")]),
    );
    out::print(&out::table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

async fn list(client: Client) -> Result<Vec<Value>> {
    match client {
        Client::Hub(hub) => ask(&hub).await,
        Client::Direct(core) => {
            let models = core.models.current().models().await.into_iter();
            let shown =
                models.map(|it| json!({"id": it.name, "object": "model", "owned_by": it.backend}));
            Ok(shown.collect())
        }
    }
}

async fn ask(hub: &Remote) -> Result<Vec<Value>> {
    match hub.rest("GET", "/v1/models", None).await? {
        (200, mut answer) => match answer.get_mut("data").map(Value::take) {
            Some(Value::Array(models)) => Ok(models),
            _ => bail!("the hub's answer is no list"),
        },
        (status, answer) => bail!(
            "the hub answered with {status}: {}",
            answer["error"]["message"]
        ),
    }
}
