//! `maru models`: lists the available models.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::{
    client::{CatalogClient, HubClient, error_message},
    serve::block_on,
    terminal,
};
use crate::config::LoadedConfig;

#[derive(Debug, Args)]
pub(super) struct ModelsArgs {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(loaded: LoadedConfig, options: &ModelsArgs) -> Result<ExitCode> {
    let models = block_on(async { list_models(CatalogClient::open(loaded).await?).await })?;
    if options.json {
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&models)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    if models.is_empty() {
        terminal::print_error(
            "no model is available; add `models` to maru.yaml, or start Ollama (docs/models.md)",
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
    terminal::print(&terminal::format_table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

async fn list_models(client: CatalogClient) -> Result<Vec<Value>> {
    match client {
        CatalogClient::Hub(hub) => fetch_models(&hub).await,
        CatalogClient::InProcess(core) => {
            let models = core.models.current().list_models().await.into_iter();
            let rows =
                models.map(|it| json!({"id": it.name, "object": "model", "owned_by": it.backend}));
            Ok(rows.collect())
        }
    }
}

async fn fetch_models(hub: &HubClient) -> Result<Vec<Value>> {
    match hub.send_rest("GET", "/v1/models", None).await? {
        (200, mut response) => match response.get_mut("data").map(Value::take) {
            Some(Value::Array(models)) => Ok(models),
            _ => bail!("the hub's response is not a list"),
        },
        (status, response) => bail!(
            "the hub responded with {status}: {}",
            error_message(&response)
        ),
    }
}
