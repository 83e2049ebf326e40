//! Lists and calls tools, at the running hub or in this process if no hub runs.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};

use super::{client::HubClient, context::CliContext, terminal};
use crate::{
    app::HubCore,
    auth::Principal,
    tools::{Caller, CatalogScope, EntryResponse, EntryResult},
};

/// Lists and calls tools, through a hub or in this process.
#[derive(Debug)]
pub(super) enum CatalogClient {
    Hub(HubClient),
    InProcess(InProcessCatalog),
}

/// The catalog of this process, with the settings and the store that a hub would have.
#[derive(Debug)]
pub(super) struct InProcessCatalog {
    pub(super) core: Box<HubCore>,
    /// Says that no hub runs, and what is done instead.
    note: String,
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum CliCallOutcome {
    /// The tool's result.
    Result(EntryResult),
    /// The reason why the call could not be made.
    Refused(String),
}

impl CatalogClient {
    /// Uses the hub at `--listen`, the hub that runs on this data directory, or a catalog in
    /// this process.
    pub(super) async fn open(context: &CliContext) -> Result<Self> {
        if let Some(hub) = HubClient::find(context)? {
            return Ok(Self::Hub(hub));
        }
        let core = HubCore::open(context.config().clone(), None).await?;
        core.servers.wait_for_first_connect().await;
        Ok(Self::InProcess(InProcessCatalog {
            core: Box::new(core),
            note: format!(
                "no hub runs on {}, so this command started the servers for itself",
                context.config().data_dir.display()
            ),
        }))
    }

    /// Returns the entries of `tools/list`.
    pub(super) async fn tools(&self) -> Result<Vec<Value>> {
        let text = match self {
            Self::InProcess(own) => {
                let snapshot = own.core.catalog.snapshot();
                let view = snapshot.view(&CatalogScope::All);
                let view = view.map_err(|error| anyhow!(error.message))?;
                own.print_note();
                view.tools.json().to_owned()
            }
            Self::Hub(hub) => match hub.send_mcp("tools/list", json!({})).await? {
                Ok(result) => result["tools"].to_string(),
                Err(reason) => {
                    bail!(
                        "the hub at {} did not list its tools: {reason}",
                        hub.address()
                    )
                }
            },
        };
        serde_json::from_str(&text).context("the list of tools is not JSON")
    }

    /// Calls a tool. What a hub says while the tool runs goes to `on_notification`.
    pub(super) async fn call(
        &self,
        name: &str,
        arguments: Value,
        on_notification: impl Fn(&Value),
    ) -> Result<CliCallOutcome> {
        match self {
            Self::Hub(hub) => hub.call_tool(name, arguments, on_notification).await,
            Self::InProcess(own) => Ok(own.call(name, arguments).await),
        }
    }
}

impl InProcessCatalog {
    async fn call(&self, name: &str, arguments: Value) -> CliCallOutcome {
        let caller = Caller::new(Principal::local(), CatalogScope::All);
        let arguments = Arc::new(arguments.into());
        let catalog = &self.core.catalog;
        let call = catalog.call_tool(&caller, name, arguments, Arc::default());
        match call.await {
            Ok(EntryResponse::Complete(result)) => {
                self.print_note();
                CliCallOutcome::Result(result)
            }
            Ok(EntryResponse::InputRequired(_)) => CliCallOutcome::Refused(
                "the tool requests input from its caller, which needs an MCP client".to_owned(),
            ),
            Err(error) => CliCallOutcome::Refused(format!("{} ({})", error.message, self.note)),
        }
    }

    pub(super) fn print_note(&self) {
        terminal::print_note(&self.note);
    }
}
