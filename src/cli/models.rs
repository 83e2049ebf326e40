//! `maru models`: lists the available models.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::{
    catalog_client::CatalogClient,
    client::HubClient,
    context::{CliContext, OutputFormat},
    serve::block_on,
    terminal,
};

#[derive(Debug, Args)]
pub(super) struct ModelsArgs {}

pub(super) fn run(context: &CliContext, _options: &ModelsArgs) -> Result<ExitCode> {
    let models = block_on(async { list_models(CatalogClient::open(context).await?).await })?;
    if models.is_empty() && context.output == OutputFormat::Table {
        terminal::print_error(
            "no model is available; add `models` to maru.yaml, or start Ollama (docs/models.md)",
        );
        return Ok(ExitCode::SUCCESS);
    }
    context.print(&models.into(), |models| {
        terminal::table(&["MODEL", "BACKEND"], models, |it| {
            vec![
                terminal::text_of(it, "id"),
                terminal::text_of(it, "owned_by"),
            ]
        })
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn list_models(client: CatalogClient) -> Result<Vec<Value>> {
    match client {
        CatalogClient::Hub(hub) => fetch_models(&hub).await,
        CatalogClient::InProcess(own) => {
            own.print_note();
            let models = own.core.models.current().list_models().await.into_iter();
            let rows =
                models.map(|it| json!({"id": it.name, "object": "model", "owned_by": it.backend}));
            Ok(rows.collect())
        }
    }
}

async fn fetch_models(hub: &HubClient) -> Result<Vec<Value>> {
    let mut response = hub.request_json("GET", "/v1/models", None).await?;
    match response.get_mut("data").map(Value::take) {
        Some(Value::Array(models)) => Ok(models),
        _ => bail!("the hub's response is not a list"),
    }
}
