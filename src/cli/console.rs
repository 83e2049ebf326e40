//! `maru console`: prints a link that signs in to the console of the running hub.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::{
    client::{HubClient, error_message},
    context::CliContext,
    serve::block_on,
    terminal,
};

pub(super) fn run(context: &CliContext) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    block_on(async {
        let (status, link) = hub.send_rest("POST", "/api/session/link", None).await?;
        let Some(path) = link["path"].as_str().filter(|_| status == 200) else {
            bail!("the hub created no link: {}", error_message(&link));
        };
        let scheme = link["scheme"].as_str().unwrap_or("http");
        terminal::print(&format!("{scheme}://{}{path}\n", hub.address()))?;
        Ok(ExitCode::SUCCESS)
    })
}
